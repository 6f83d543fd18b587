"""Convolution, pooling, padding, resizing, embeddings and attention against their definitions, element by element."""

import itertools
import math

import numpy as np
import pytest

import wengert as wg
import wengert.nn.functional as F

RNG = np.random.default_rng(0)


def drawn(*shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


def leaf(array):
    return wg.tensor(array).requires_grad_()


def close(got, want, rtol=1e-10, atol=1e-12):
    np.testing.assert_allclose(got.detach().numpy() if isinstance(got, wg.Tensor) else got, want, rtol=rtol, atol=atol)


# ---- convolution


def convolved(x, w, bias, stride, padding, dilation, groups):
    """Convolution by its definition, one product at a time."""
    x = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    kernel = w.shape[2:]
    counts = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)]
    out = np.zeros((len(x), len(w), *counts), np.result_type(x, w))
    per_group = len(w) // groups
    for n, o in itertools.product(range(len(x)), range(len(w))):
        first = o // per_group * w.shape[1]
        for at in itertools.product(*map(range, counts)):
            for c, tap in itertools.product(range(w.shape[1]), itertools.product(*map(range, kernel))):
                place = tuple(i * s + t * d for i, s, t, d in zip(at, stride, tap, dilation, strict=True))
                out[n, o, *at] += x[n, first + c, *place] * w[o, c, *tap]
    return out if bias is None else out + bias.reshape(-1, *[1] * len(kernel))


CONVOLUTIONS = [
    # x, w, stride, padding, dilation, groups
    ((2, 3, 7), (4, 3, 3), (1,), (0,), (1,), 1),
    ((1, 4, 9), (6, 2, 2), (2,), (1,), (3,), 2),
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((1, 4, 7, 6), (4, 1, 3, 3), (2, 1), (1, 2), (1, 2), 4),
    ((1, 2, 5, 5), (3, 2, 1, 1), (1, 2), (0, 1), (1, 1), 1),
    ((1, 2, 4, 3, 5), (2, 1, 2, 2, 3), (1, 2, 1), (1, 0, 1), (2, 1, 1), 2),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_convolution_is_its_definition(case, bias):
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w = drawn(*x_shape), drawn(*w_shape)
    b = drawn(w_shape[0]) if bias else None
    conv = (wg.conv1d, wg.conv2d, wg.conv3d)[len(stride) - 1]
    got = conv(wg.tensor(x), wg.tensor(w), None if b is None else wg.tensor(b), stride, padding, dilation, groups)
    close(got, convolved(x, w, b, stride, padding, dilation, groups))


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_transposed_convolution_is_the_transpose(case):
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w = drawn(*x_shape), drawn(*w_shape)
    image = convolved(x, w, None, stride, padding, dilation, groups)
    g = drawn(*image.shape)
    natural = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1
        for n, s, p, d, k in zip(g.shape[2:], stride, padding, dilation, w_shape[2:], strict=True)
    ]
    extra = tuple(size - n for size, n in zip(x_shape[2:], natural, strict=True))
    transpose = (wg.conv_transpose1d, wg.conv_transpose2d, wg.conv_transpose3d)[len(stride) - 1]
    back = transpose(wg.tensor(g), wg.tensor(w), None, stride, padding, extra, groups, dilation)
    assert tuple(back.shape) == x_shape
    assert np.vdot(g, image) == pytest.approx(np.vdot(back.numpy(), x))


@pytest.mark.parametrize(("size", "kernel", "dilation"), [(5, 3, 1), (6, 2, 1), (7, 4, 3), (4, 1, 1), (5, 5, 2)])
def test_same_padding_keeps_the_size_with_the_odd_zero_at_the_end(size, kernel, dilation):
    x, w = drawn(1, 2, size), drawn(3, 2, kernel)
    total = dilation * (kernel - 1)
    padded = np.pad(x, [(0, 0), (0, 0), (total // 2, total - total // 2)])
    got = F.conv1d(wg.tensor(x), wg.tensor(w), padding="same", dilation=dilation)
    close(got, convolved(padded, w, None, (1,), (0,), (dilation,), 1))
    assert got.shape[2] == size


def test_one_image_is_a_batch_of_one():
    x, w, b = wg.tensor(drawn(2, 5, 4)), wg.tensor(drawn(3, 2, 2, 2)), wg.tensor(drawn(3))
    close(F.conv2d(x, w, b), F.conv2d(x[None], w, b)[0].numpy())
    close(F.max_pool2d(x, 2), F.max_pool2d(x[None], 2)[0].numpy())
    close(
        F.conv_transpose2d(x, wg.tensor(drawn(2, 3, 2, 2)) * 0 + 1, b).sum(),
        3 * 4 * x.numpy().sum() + 30 * b.numpy().sum(),
    )


def test_convolution_is_trilinear_to_the_third_derivative():
    """⟨g, x ⋆ w⟩: the mixed third derivative is the form itself, every other third derivative is zero."""
    x, w, g = leaf(drawn(1, 2, 4, 4)), leaf(drawn(2, 2, 2, 2)), leaf(drawn(1, 2, 3, 3))
    form = (g * F.conv2d(x, w)).sum()
    (gx,) = wg.autograd.grad(form, x, create_graph=True)
    (gw,) = wg.autograd.grad((gx * x.detach()).sum(), w, create_graph=True)
    (gg,) = wg.autograd.grad((gw * w.detach()).sum(), g)
    close((gg * g).sum(), form.item())
    (again,) = wg.autograd.grad((gx * gx).sum(), x, allow_unused=True)
    assert again is None


def test_channels_last_images_give_the_same():
    x, w = drawn(2, 5, 6, 6), drawn(4, 5, 3, 3)
    turned = wg.tensor(np.ascontiguousarray(np.moveaxis(x, 1, -1))).permute(0, 3, 1, 2)
    close(F.conv2d(turned, wg.tensor(w), padding=1), F.conv2d(wg.tensor(x), wg.tensor(w), padding=1).numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "int64"])
def test_convolution_keeps_the_dtype(dtype):
    x, w = wg.ones(1, 1, 4, 4, dtype=getattr(wg, dtype)), wg.ones(2, 1, 2, 2, dtype=getattr(wg, dtype))
    out = F.conv2d(x, w)
    assert out.dtype is x.dtype
    assert out.tolist() == [[[[4] * 3] * 3] * 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.conv2d(wg.ones(1, 1, 3, 3).double(), wg.ones(1, 1, 2, 2)), "float64, weight: wengert.float32"),
        (lambda: F.conv2d(wg.ones(1, 2, 3, 3), wg.ones(1, 1, 2, 2)), r"needs an input of 1 channels, got 2"),
        (lambda: F.conv2d(wg.ones(1, 1, 3, 3), wg.ones(1, 1, 2, 2), stride=0), "stride must be at least 1"),
        (lambda: F.conv2d(wg.ones(1, 1, 3, 3), wg.ones(1, 1, 2, 2), groups=0), "groups must be at least 1"),
        (lambda: F.conv2d(wg.ones(1, 1, 3, 3), wg.ones(1, 1, 2, 2), wg.ones(2)), r"bias must have shape \(1,\)"),
        (lambda: F.conv_transpose2d(wg.ones(1, 2, 3, 3), wg.ones(1, 1, 2, 2)), "needs an input of 1 channels, got 2"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


# ---- pooling


def windows_of(x, kernel, stride, padding, fill):
    """Yield (position of the result, elements of its window) of a plane, the padding filled."""
    padded = np.pad(x, [(p, p) for p in padding], constant_values=fill)
    counts = [(s - k) // t + 1 for s, k, t in zip(padded.shape, kernel, stride, strict=True)]
    for at in itertools.product(*map(range, counts)):
        yield at, padded[tuple(slice(i * t, i * t + k) for i, t, k in zip(at, stride, kernel, strict=True))]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [((2, 3), (2, 3), (0, 0)), ((3, 2), (1, 2), (1, 1)), ((1, 1), (2, 1), (0, 0))]
)
def test_pools_are_maxima_and_means_of_windows(kernel, stride, padding):
    x = drawn(1, 1, 7, 6)
    maxima, means = (
        F.max_pool2d(wg.tensor(x), kernel, stride, padding),
        F.avg_pool2d(wg.tensor(x), kernel, stride, padding),
    )
    fair = F.avg_pool2d(wg.tensor(x), kernel, stride, padding, count_include_pad=False)
    for at, window in windows_of(x[0, 0], kernel, stride, padding, np.nan):
        assert maxima[0, 0, *at].item() == np.nanmax(window)
        assert means[0, 0, *at].item() == pytest.approx(np.nansum(window) / window.size)
        assert fair[0, 0, *at].item() == pytest.approx(np.nanmean(window))


def test_equal_maxima_send_the_gradient_to_the_first_and_nan_wins():
    x = leaf(np.array([[[1.0, 1.0, 0.0, 2.0]]]))
    y, index = F.max_pool1d(x, 2, return_indices=True)
    y.backward(wg.tensor([[[1.0, 10.0]]]).double())
    assert x.grad.tolist() == [[[1.0, 0.0, 0.0, 10.0]]]
    assert index.tolist() == [[[0, 3]]]
    assert math.isnan(F.max_pool1d(wg.tensor([[1.0, math.nan, 2.0]]), 3).item())
    assert F.max_pool1d(wg.full((1, 2), -math.inf), 2).item() == -math.inf


def test_unpooling_puts_maxima_back():
    x = wg.tensor(drawn(2, 3, 6, 4))
    y, index = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(y, index, 2)
    assert back.shape == x.shape
    close(F.max_pool2d(wg.where(back == 0, -math.inf, back), 2), y.numpy())
    assert int((back != 0).sum()) == y.numel()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_adaptive_pools_cover_the_input_in_equal_parts(size):
    x = drawn(2, 5)
    edges = [(i * 5 // size, -(-(i + 1) * 5 // size)) for i in range(size)]
    close(F.adaptive_avg_pool1d(wg.tensor(x), size), np.stack([x[:, a:b].mean(1) for a, b in edges], 1))
    close(F.adaptive_max_pool1d(wg.tensor(x), size), np.stack([x[:, a:b].max(1) for a, b in edges], 1))


def test_power_means_have_gradient_zero_where_everything_is_zero():
    x = leaf(np.array([[0.0, 0.0, 3.0, 4.0]]))
    y = F.lp_pool1d(x, 2, 2)
    y.sum().backward()
    close(y, [[0.0, 5.0]])
    close(x.grad, [[0.0, 0.0, 0.6, 0.8]])


def test_fractional_pools_stay_inside_and_end_at_the_end():
    x = wg.arange(1.0, 26.0).reshape(1, 1, 5, 5)
    y, index = F.fractional_max_pool2d(x, 2, 3, return_indices=True)
    assert y[0, 0, 2, 2].item() == 25
    close(x.reshape(-1)[index.reshape(-1)], y.reshape(-1).numpy())
    assert F.fractional_max_pool3d(wg.ones(2, 6, 6, 6), 2, output_ratio=0.5).shape == (2, 3, 3, 3)


# ---- padding


@pytest.mark.parametrize(("mode", "numpy_mode"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize("pads", [(1, 2), (2, 0, 1, 2), (0, 0, 2, 1)])
def test_padding_is_numpys(mode, numpy_mode, pads):
    x = drawn(1, 4, 5)
    pairs = [(0, 0)] * (3 - len(pads) // 2) + list(zip(pads[-2::-2], pads[::-2], strict=True))
    close(F.pad(wg.tensor(x), pads, mode=mode), np.pad(x, pairs, numpy_mode))
    close(F.pad(wg.tensor(x), pads, value=3.5), np.pad(x, pairs, constant_values=3.5))


def test_negative_padding_crops_and_its_gradient_is_zero_there():
    x = leaf(drawn(2, 4))
    y = F.pad(x, (-1, 2))
    y.sum().backward()
    close(y, np.pad(x.detach().numpy()[:, 1:], [(0, 0), (0, 2)]))
    assert x.grad.tolist() == [[0, 1, 1, 1]] * 2


# ---- other sizes


def test_linear_interpolation_keeps_a_ramp_a_ramp():
    ramp = wg.arange(5.0).double().reshape(1, 1, 5)
    got = F.interpolate(ramp, 9, mode="linear", align_corners=True)
    close(got[0, 0], np.linspace(0, 4, 9))
    assert F.interpolate(ramp, scale_factor=2).reshape(-1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_the_identity_grid_samples_the_image_itself(mode, align_corners):
    x = wg.tensor(drawn(2, 3, 4, 5))
    eye = wg.tensor(np.tile(np.eye(2, 3), (2, 1, 1)))
    grid = F.affine_grid(eye, x.shape, align_corners=align_corners)
    close(F.grid_sample(x, grid, mode, align_corners=align_corners), x.numpy(), atol=1e-9)


def test_sampling_has_derivatives_of_every_order():
    """Along a line through one bicubic cell, samples are a cubic polynomial: its fourth derivative is zero."""
    image = wg.tensor(drawn(1, 1, 6, 6))
    t = leaf(np.array(0.03))
    grid = wg.stack([t, t * 0 - 0.1]).reshape(1, 1, 1, 2)
    value = F.grid_sample(image, grid, "bicubic", align_corners=True).sum()
    derivatives = [value]
    for _ in range(4):
        derivatives.append(wg.autograd.grad(derivatives[-1], t, create_graph=True)[0])
    h = 0.01
    taylor = sum(d.item() * h**k / math.factorial(k) for k, d in enumerate(derivatives[:4]))
    moved = wg.tensor(np.array([[[[0.03 + h, -0.1]]]]))
    assert F.grid_sample(image, moved, "bicubic", align_corners=True).item() == pytest.approx(taylor, rel=1e-9)
    assert derivatives[4].item() == pytest.approx(0, abs=1e-9)


def test_unfold_lists_windows_and_fold_adds_them_back():
    x = drawn(2, 3, 5, 4)
    columns = F.unfold(wg.tensor(x), (2, 3), stride=(1, 1))
    assert tuple(columns.shape) == (2, 3 * 6, 4 * 2)
    close(columns[1, :, 3], x[1, :, 1:3, 1:4].reshape(-1))
    overlaps = F.fold(F.unfold(wg.ones(1, 1, 4, 4), 2), 4, 2)
    assert overlaps[0, 0].tolist() == [[1, 2, 2, 1], [2, 4, 4, 2], [2, 4, 4, 2], [1, 2, 2, 1]]


def test_pixel_unshuffle_undoes_pixel_shuffle():
    x = wg.tensor(drawn(2, 8, 3, 5))
    y = F.pixel_shuffle(x, 2)
    assert tuple(y.shape) == (2, 2, 6, 10)
    assert y[1, 0, 3, 4].item() == x[1, 2, 1, 2].item()
    close(F.pixel_unshuffle(y, 2), x.numpy())
    assert F.channel_shuffle(wg.arange(6.0).reshape(1, 6, 1), 2).reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]


# ---- embeddings


def test_embedding_gradients_skip_the_padding_and_divide_by_frequency():
    index, table = wg.tensor([0, 2, 0, 1]), drawn(3, 2)
    for options, want in [({}, [2, 1, 1]), ({"padding_idx": 0}, [0, 1, 1]), ({"scale_grad_by_freq": True}, [1, 1, 1])]:
        weight = leaf(table)
        F.embedding(index, weight, **options).sum().backward()
        close(weight.grad, np.array(want)[:, None] * np.ones((3, 2)))


def test_max_norm_scales_the_rows_looked_up_in_the_table_itself():
    weight = leaf(np.array([[3.0, 4.0], [6.0, 8.0], [0.3, 0.4]]))
    shared = weight * 1.0
    out = F.embedding(wg.tensor([0, 2]), weight, max_norm=1.0)
    close(out, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
    close(weight, [[0.6, 0.8], [6.0, 8.0], [0.3, 0.4]], rtol=1e-6)
    assert shared.detach().numpy()[0, 0] == 3.0
    product = (weight * weight).sum()
    F.embedding(wg.tensor([1]), weight, max_norm=1.0)
    with pytest.raises(RuntimeError, match="changed: by embedding"):
        product.backward()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_reduce_their_rows_and_empty_ones_are_zero(mode):
    table, index, offsets = drawn(4, 3), [3, 1, 1, 0, 2], [0, 2, 2]
    reduce = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    want = [reduce(table[index[0:2]], 0), np.zeros(3), reduce(table[index[2:5]], 0)]
    close(F.embedding_bag(wg.tensor(index), wg.tensor(table), wg.tensor(offsets), mode=mode), np.stack(want))
    without = F.embedding_bag(wg.tensor(index), wg.tensor(table), wg.tensor(offsets), mode=mode, padding_idx=1)
    close(without[0], table[3])


# ---- attention


def attended(q, k, v, mask=0.0, scale=None):
    scores = q @ np.swapaxes(k, -1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_attention_is_its_formula():
    q, k, v = drawn(2, 3, 4, 5), drawn(2, 3, 6, 5), drawn(2, 3, 6, 2)
    tensors = [wg.tensor(a) for a in (q, k, v)]
    attention = F.scaled_dot_product_attention
    close(attention(*tensors), attended(q, k, v))
    bias = drawn(4, 6)
    close(attention(*tensors, wg.tensor(bias), scale=0.3), attended(q, k, v, bias, 0.3))
    seen = np.tri(4, 6, dtype=bool)
    causal = attended(q, k, v, np.where(seen, 0, -np.inf))
    close(attention(*tensors, is_causal=True), causal)
    close(attention(*tensors, wg.tensor(seen)), causal)


def test_grouped_queries_share_keys_and_values():
    q, k, v = drawn(1, 6, 4, 5), drawn(1, 2, 3, 5), drawn(1, 2, 3, 5)
    got = F.scaled_dot_product_attention(wg.tensor(q), wg.tensor(k), wg.tensor(v), enable_gqa=True)
    close(got, attended(q, np.repeat(k, 3, 1), np.repeat(v, 3, 1)))


@pytest.mark.parametrize("mask", [np.array([[False, False], [True, True]]), np.array([[-np.inf, -np.inf], [0.0, 0.0]])])
def test_a_query_without_keys_gives_zeros_and_no_nan(mask):
    q, k, v = leaf(drawn(2, 3)), leaf(drawn(2, 3)), leaf(drawn(2, 3))
    out = F.scaled_dot_product_attention(q, k, v, wg.tensor(mask))
    out.sum().backward()
    assert out[0].tolist() == [0.0] * 3
    assert q.grad[0].tolist() == [0.0] * 3
    assert all(bool(wg.isfinite(t.grad).all()) for t in (q, k, v))


def test_dropped_attention_keeps_its_mean():
    wg.manual_seed(0)
    out = F.scaled_dot_product_attention(wg.zeros(2000, 1), wg.zeros(4, 1), wg.ones(4, 1), dropout_p=0.5)
    assert 0.95 < out.mean().item() < 1.05
    assert len(set(out.reshape(-1).tolist())) == 5


# ---- the namespaces


def test_namespaces_show_their_operators_and_name_the_nearest():
    assert F.conv2d is wg.conv2d
    assert {"conv2d", "max_pool2d", "pad", "interpolate"} <= set(dir(F))
    assert {"svd", "LinAlgError"} <= set(dir(wg.linalg))
    assert "fft" in dir(wg.fft)
    assert "expm1" in dir(wg.special)
    assert not {name for name in dir(F) if name in ("conv", "conv_input", "pool_gather")}
    with pytest.raises(AttributeError, match=r"no attribute 'conv2'; the nearest names are: .*conv2d"):
        _ = F.conv2
    with pytest.raises(AttributeError, match=r"wengert\.linalg.*solve"):
        _ = wg.linalg.solv
    with pytest.raises(AttributeError):
        _ = wg.conv_input
