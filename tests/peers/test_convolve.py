"""Convolution, pooling, padding, resizing, embeddings and attention beside PyTorch, on shapes as networks have them."""

import warnings

import numpy as np
import pytest
import torch

import wengert as wg

RNG = np.random.default_rng(3)


def run(package, call, arrays, **options):
    """Call ``call(functional, *tensors)``; return its value and the gradients of a weighted sum of it."""
    tensors = [package.tensor(a) for a in arrays]
    for t in tensors:
        if t.dtype in (package.float32, package.float64):
            t.requires_grad_()
    with warnings.catch_warnings(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        warnings.simplefilter("ignore")  # PyTorch warns of deprecated defaults
        out = call(package.nn.functional, *tensors, **options)
    leaves = [t for t in tensors if t.requires_grad]
    weights = np.random.default_rng(0).standard_normal(tuple(out.shape))
    grads = package.autograd.grad((out * package.tensor(weights).to(out.dtype)).sum(), leaves, create_graph=True)
    norm = sum((g * g).sum() for g in grads) + 0 * sum(t.sum() for t in leaves)  # of a linear map it is a constant
    second = package.autograd.grad(norm, leaves)
    return [t.detach().numpy() for t in (out, *grads, *second)]


def agree(call, *arrays, rtol=1e-6, atol=1e-7, **options):
    for ours, theirs in zip(run(wg, call, arrays, **options), run(torch, call, arrays, **options), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def drawn(*shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 9, 8), (4, 3, 3, 3), {"padding": 1}),
        ((2, 4, 9, 8), (6, 2, 3, 2), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}),
        ((2, 4, 8, 8), (4, 1, 3, 3), {"padding": "same", "groups": 4}),
        ((3, 9, 8), (4, 3, 2, 3), {"padding": "valid", "stride": 2}),
    ],
)
def test_convolutions_to_second_order(x, w, options, dtype):
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if dtype == np.float32 else {}
    agree(
        lambda F, x, w, b: F.conv2d(x, w, b, **options),
        drawn(*x, dtype=dtype),
        drawn(*w, dtype=dtype),
        drawn(w[0], dtype=dtype),
        **tolerance,
    )


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 5, 4), (3, 4, 3, 3), {"stride": 2, "output_padding": 1}),
        ((2, 4, 5, 4), (4, 3, 3, 2), {"stride": (2, 3), "padding": 1, "groups": 2, "output_padding": (0, 2)}),
        ((2, 3, 5, 4), (3, 2, 2, 2), {"dilation": 3, "output_padding": 2}),
    ],
)
def test_transposed_convolutions_to_second_order(x, w, options):
    outputs = w[1] * options.get("groups", 1)
    agree(lambda F, x, w, b: F.conv_transpose2d(x, w, b, **options), drawn(*x), drawn(*w), drawn(outputs))


@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.max_pool2d(x, 3, 2, 1),
        lambda F, x: F.max_pool2d(x, (2, 3), (1, 2), (1, 0), (2, 1), ceil_mode=True),
        lambda F, x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda F, x: F.avg_pool2d(x, (3, 2), divisor_override=5),
        lambda F, x: F.adaptive_avg_pool2d(x, (3, 5)),
        lambda F, x: F.adaptive_max_pool2d(x, (4, None)),
        lambda F, x: F.lp_pool2d(x.abs() + 0.1, 3.0, 2),
        lambda F, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(9, 11)),
        lambda F, x: F.pad(x, (2, -1, 1, 3), value=2.5),
        lambda F, x: F.pad(x, (2, 1, 3, 0), mode="reflect"),
        lambda F, x: F.pad(x, (4, 1, 3, 2), mode="circular"),
        lambda F, x: F.pad(x, (-1, 3, 2, -2), mode="replicate"),
        lambda F, x: F.interpolate(x, (13, 7), mode="bilinear"),
        lambda F, x: F.interpolate(x, scale_factor=(0.6, 1.7), mode="bicubic", align_corners=True),
        lambda F, x: F.interpolate(x, scale_factor=0.4, mode="bilinear", antialias=True),
        lambda F, x: F.interpolate(x, scale_factor=1.3, mode="nearest-exact"),
        lambda F, x: F.interpolate(x, (4, 3), mode="area"),
        lambda F, x: F.unfold(x, (3, 2), (1, 2), 1, 2),
        lambda F, x: F.channel_shuffle(x, 2),
    ],
)
def test_pools_pads_and_sizes(call):
    agree(call, drawn(2, 4, 9, 11))


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional_pools_draw_the_same_windows(dims):
    x, u = drawn(2, 3, *(9, 7, 8)[:dims]), RNG.uniform(size=(2, 3, dims))
    name = f"fractional_max_pool{dims}d"
    for sizes in ([3, 4, 5][:dims], [2] * dims, [1] * dims):
        ours = getattr(wg.nn.functional, name)(
            wg.tensor(x), 2, sizes, return_indices=True, _random_samples=wg.tensor(u)
        )
        theirs = getattr(torch.nn.functional, name)(
            torch.tensor(x), 2, sizes, return_indices=True, _random_samples=torch.tensor(u)
        )
        for got, want in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [True, False])
def test_sampling_at_a_grid(mode, padding, corners):
    x, grid = drawn(2, 3, 5, 6), RNG.uniform(-1.4, 1.4, (2, 4, 3, 2))
    call = lambda package, t, g: package.nn.functional.grid_sample(t, g, mode, padding, corners)  # noqa: E731
    a, b = wg.tensor(x).requires_grad_(), wg.tensor(grid).requires_grad_()
    c, d = torch.tensor(x, requires_grad=True), torch.tensor(grid, requires_grad=True)
    ours, theirs = call(wg, a, b), call(torch, c, d)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-9)
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), c.grad.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(b.grad.numpy(), d.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": -2}, {"scale_grad_by_freq": True}, {"max_norm": 0.5, "norm_type": 1.0}]
)
def test_embeddings(options):
    index = RNG.integers(0, 5, (3, 4))
    agree(lambda F, i, w: F.embedding(i, w * 1.0, **options), index, drawn(5, 3), rtol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 1])
def test_bags(mode, padding_idx):
    index, offsets = RNG.integers(0, 5, 9), np.array([0, 3, 3, 8])
    agree(lambda F, i, w, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=padding_idx), index, drawn(5, 3), offsets)


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 0.7}, {"attn_mask": np.tri(4, 6, dtype=bool)},
     {"attn_mask": np.linspace(-3, 3, 24).reshape(4, 6)},
     {"attn_mask": np.array([[True] * 6, [False] * 6, [True, False] * 3, [False] * 5 + [True]])}],
    ids=str,
)  # fmt: skip
def test_attention(options):
    def call(F, q, k, v):
        kept = {name: type_of(q, value) for name, value in options.items()}
        return F.scaled_dot_product_attention(q, k, v, **kept)

    def type_of(like, value):
        package = wg if isinstance(like, wg.Tensor) else torch
        return package.tensor(value) if isinstance(value, np.ndarray) else value

    agree(call, drawn(2, 3, 4, 5), drawn(2, 3, 6, 5), drawn(2, 3, 6, 2))
    if not options:
        agree(
            lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            drawn(1, 4, 3, 5),
            drawn(1, 2, 3, 5),
            drawn(1, 2, 3, 5),
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.nn.functional.conv2d(p.ones(1, 2, 3, 3), p.ones(1, 1, 2, 2)),
        lambda p: p.nn.functional.conv2d(p.ones(1, 1, 3, 3), p.ones(1, 1, 4, 4)),
        lambda p: p.nn.functional.conv2d(p.ones(1, 1, 3, 3), p.ones(1, 1, 2, 2), stride=2, padding="same"),
        lambda p: p.nn.functional.conv2d(p.ones(3, 3), p.ones(1, 1, 2, 2)),
        lambda p: p.nn.functional.conv2d(p.ones(1, 1, 3, 3).double(), p.ones(1, 1, 2, 2)),
        lambda p: p.nn.functional.conv_transpose2d(p.ones(1, 1, 3, 3), p.ones(1, 1, 2, 2), output_padding=1),
        lambda p: p.nn.functional.max_pool2d(p.ones(1, 1, 3, 3), 2, padding=2),
        lambda p: p.nn.functional.max_pool2d(p.ones(1, 1, 3, 3), 5),
        lambda p: p.nn.functional.avg_pool2d(p.ones(1, 1, 3, 3), 2, divisor_override=0),
        lambda p: p.nn.functional.adaptive_avg_pool2d(p.ones(1, 1, 3, 3), -1),
        lambda p: p.nn.functional.pad(p.ones(1, 3), (3, 0), mode="reflect"),
        lambda p: p.nn.functional.pad(p.ones(3), (1, 1, 1)),
        lambda p: p.nn.functional.interpolate(p.ones(1, 1, 3)),
        lambda p: p.nn.functional.interpolate(p.ones(1, 1, 3), 2, mode="nearest", align_corners=True),
        lambda p: p.nn.functional.grid_sample(p.ones(1, 1, 3, 3), p.ones(2, 1, 1, 2), align_corners=True),
        lambda p: p.nn.functional.pixel_shuffle(p.ones(1, 3, 2, 2), 2),
        lambda p: p.nn.functional.fold(p.ones(1, 4, 3), 2, 2),
        lambda p: p.nn.functional.embedding(p.tensor([3]), p.ones(3, 2)),
        lambda p: p.nn.functional.embedding(p.tensor([1.0]), p.ones(3, 2)),
        lambda p: p.nn.functional.embedding_bag(p.tensor([1]), p.ones(3, 2)),
        lambda p: p.nn.functional.embedding_bag(p.tensor([[1]]), p.ones(3, 2), per_sample_weights=p.ones(1, 1)),
        lambda p: p.nn.functional.scaled_dot_product_attention(p.ones(2, 3), p.ones(2, 4), p.ones(2, 3)),
    ],
)
def test_both_refuse_with_the_same_kind_of_error(call):
    with pytest.raises(Exception) as theirs:
        call(torch)
    with pytest.raises(type(theirs.value)):
        call(wg)
