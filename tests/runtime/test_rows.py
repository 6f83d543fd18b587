"""Kernels of softmax, cross-entropy and normalisation: values, gradients, and where they leave the work to NumPy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import native
from wengert.operators import cross_entropy, softmax
from wengert.operators.normalized import BATCH, GROUP
from wengert.runtime import normalized, rows
from wengert.runtime.launch import watched
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.testing.opcheck_native import natively

F = wg.nn.functional

# What float32 and float64 results may be off by, relative to the largest of 1 and the value.
CLOSE = {"float16": 2e-3, "float32": 2e-6, "float64": 4e-15}

# Shape and dimension: neighbours in memory, lines side by side, single elements, sizes around a vector and a chunk.
LINES = [
    ((5, 7), 1), ((33, 64), 1), ((3, 2100), -1), ((1,), 0), ((4, 9, 33), 1), ((70, 5), 0), ((2, 3, 4), 1), ((2, 300, 41), 1),
    ((3, 1, 4), 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    native.loaded()
    with natively():
        yield


def normal(*shape: int, dtype: str = "float64", scale: float = 1.0) -> Any:
    """Return numbers that are the same in every run."""
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(dtype)


def check(found: Any, expected: Any, dtype: str, factor: float = 1.0) -> None:
    """Compare with float64 values."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    limit = factor * CLOSE[dtype] * np.maximum(1, np.abs(expected))
    assert (np.abs(found.astype(np.float64) - expected) <= limit).all()


def exact_softmax(x: Any, dim: int) -> Any:
    terms = np.exp(x.astype(np.float64) - x.max(dim, keepdims=True))
    return terms / terms.sum(dim, keepdims=True)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("shape", "dim"), LINES)
def test_softmax(shape: Any, dim: int, dtype: str) -> None:
    x, g = normal(*shape, dtype=dtype, scale=4), normal(*shape, dtype=dtype)[::-1].copy()
    dim %= len(shape)
    y = rows.softmax(x, dim)
    expected = exact_softmax(x, dim)
    check(y, expected, dtype)
    log = rows.log_softmax(x, dim)
    check(log, np.log(expected), dtype)
    wide, there = g.astype(np.float64), y.astype(np.float64)
    back = there * (wide - (wide * there).sum(dim, keepdims=True))
    check(rows.softmax_backward(g, y, dim), back, dtype, 4)
    back = wide - np.exp(log.astype(np.float64)) * wide.sum(dim, keepdims=True)
    check(rows.log_softmax_backward(g, log, dim), back, dtype, 16)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("dim", "keepdim"), [((2,), False), ((0,), True), ((1, 2), False), ((0, 1, 2), True)])
def test_logsumexp(dim: Any, keepdim: bool, dtype: str) -> None:
    x = normal(4, 33, 20, dtype=dtype, scale=3)
    expected = np.log(np.exp(x.astype(np.float64)).sum(dim, keepdims=keepdim))
    check(rows.logsumexp(x, dim, keepdim), expected, dtype)
    assert rows.logsumexp(x, (0, 2)) is NotImplemented
    ends = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.inf, np.inf], [0, -np.inf]], np.float32)
    np.testing.assert_array_equal(rows.logsumexp(ends, (1,)), [-np.inf, np.inf, np.inf, 0])
    assert np.isnan(rows.logsumexp(np.array([[np.nan, 1, np.inf], [-np.inf, np.nan, -np.inf]], np.float32), (1,))).all()


def test_softmax_of_special_rows_is_that_of_numpy() -> None:
    inf, nan = np.inf, np.nan
    table = [[-inf] * 4, [inf, 1, 2, 3], [inf, inf, 1, -inf], [nan, 1, 2, inf], [1, -inf, 2, -inf], [3, 3, 3, -200]]
    x = np.array(table, np.float32)
    for mine, block in ((rows.softmax, softmax._softmax_block), (rows.log_softmax, softmax._log_softmax_block)):
        for array, dim in ((x, 1), (x.T.copy(), 0)):
            with np.errstate(all="ignore"):
                expected = softmax._along("softmax", block, array, dim, None)
            np.testing.assert_allclose(mine(array, dim), expected, rtol=2e-7)


def test_log_softmax_keeps_the_digits_of_results_near_zero() -> None:
    x = np.array([[0.0, -20.0, -30.0]], np.float32)
    exact = -np.log1p(np.exp(-20.0) + np.exp(-30.0))
    assert rows.log_softmax(x, 1)[0, 0] == pytest.approx(exact, rel=3e-7)


def test_long_rows_keep_their_digits() -> None:
    x = np.zeros((1, 3_000_001), np.float32)
    assert rows.softmax(x, 1)[0, -1] == pytest.approx(1 / 3_000_001, rel=2e-7)


def test_other_dtypes_and_layouts() -> None:
    x = normal(6, 40, dtype="float32")
    np.testing.assert_array_equal(rows.softmax(x[:, 3:30], 1), rows.softmax(x[:, 3:30].copy(), 1))
    np.testing.assert_array_equal(rows.softmax(x.T, 1), rows.softmax(x.T.copy(), 1))
    np.testing.assert_array_equal(rows.softmax(x[::2, ::-3], 0), rows.softmax(x[::2, ::-3].copy(), 0))
    assert wg.softmax(wg.tensor([1, 2, 3]), 0, wg.float64).dtype is wg.float64
    check(rows.softmax(np.arange(5), 0, wg.float64), exact_softmax(np.arange(5), 0), "float64")
    brain = wg.tensor(x).to(wg.bfloat16)
    exact = exact_softmax(brain.to(wg.float64).numpy(), 1)
    assert np.abs(wg.softmax(brain, 1).to(wg.float64).numpy() - exact).max() < 2**-8
    for unserved in (
        np.zeros((0, 3), np.float32),
        np.zeros((3, 0)),
        np.zeros(3, complex),
        np.zeros(3, ">f4"),
        np.arange(3),
    ):
        assert rows.softmax(unserved, unserved.ndim - 1) is NotImplemented


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", [(33, 100), (5, 7, 11), (6, 3), (4,), (2, 40, 3, 5)])
@pytest.mark.parametrize("ignored", [-100, 1])
def test_class_loss(shape: Any, dtype: str, ignored: int) -> None:
    x, dim = normal(*shape, dtype=dtype, scale=3), int(len(shape) > 1)
    rest = shape[:dim] + shape[dim + 1 :]
    target = np.random.default_rng(0).integers(0, shape[dim], size=rest)
    target.reshape(-1)[-1:] = ignored
    log = np.log(exact_softmax(x, dim))
    valid = target != ignored
    index = np.expand_dims(np.where(valid, target, 0), dim)
    expected = np.where(valid, -np.take_along_axis(log, index, dim).squeeze(dim), 0)
    loss, lse = rows.class_loss(x, target, ignored)
    check(loss, expected, dtype, 2)
    wide = x.astype(np.float64)
    check(lse, np.log(np.exp(wide).sum(dim)), "float64", 1 if dtype == "float64" else 1e9)
    g, q = normal(*rest, dtype=dtype), normal(*rest)
    one = np.zeros(shape)
    np.put_along_axis(one, index, 1, dim)
    s = np.where(valid, g.astype(np.float64), 0)
    for to_lse in (q, np.zeros(rest)):
        exact = np.exp(log) * np.expand_dims(s + to_lse, dim) - one * np.expand_dims(s, dim)
        found = rows.class_loss_backward(g, to_lse, x, target, loss, lse, ignored)
        check(found, exact, dtype, 4)


def test_class_loss_refuses_what_is_no_class() -> None:
    x, target = normal(20, 5, dtype="float32"), np.full(20, 5)
    with pytest.raises(IndexError, match="target 5 is out of range"):
        rows.class_loss(x, target, -100)
    with pytest.raises(IndexError, match="target 5 is out of range"):
        F.cross_entropy(wg.tensor(x), wg.tensor(target))
    assert rows.class_loss(x, target[:3], -100) is NotImplemented


def test_cross_entropy_without_weight_is_zero_whatever_the_logits() -> None:
    x = wg.tensor([[np.inf, 1.0, np.nan], [1.0, 2.0, 3.0]], requires_grad=True)
    F.cross_entropy(x, wg.tensor([-100, 1])).backward()
    assert x.grad is not None
    assert x.grad[0].tolist() == [0.0, 0.0, 0.0]
    assert cross_entropy.class_dim(x.shape) == 1


# ---- normalisation

LAYOUTS = [
    ((33, 1, 77, 1), GROUP), ((70, 2, 33, 1), GROUP), ((130, 1, 5, 1), GROUP), ((7, 3, 4, 9), GROUP), ((5, 2, 3, 40), GROUP),
    ((9, 13, 1, 1), BATCH), ((200, 40, 1, 1), BATCH), ((4, 5, 1, 50), BATCH), ((3, 2, 1, 3), BATCH),
]  # fmt: skip


def moments(x: Any, axes: Any, center: bool) -> tuple[Any, Any]:
    square = np.mean(np.square(x), axes, keepdims=True)
    if not center:
        return np.zeros_like(square), square
    mean = x.mean(axes, keepdims=True)
    return mean, np.square(x - mean).mean(axes, keepdims=True)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("layout", "axes"), LAYOUTS)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("affine", ["", "w", "b", "wb"])
def test_normalized(layout: Any, axes: Any, center: bool, affine: str, dtype: str) -> None:
    if (axes == BATCH and not center) or (dtype != "float32" and len(affine) == 1):
        pytest.skip("there is no such norm, or nothing new in it")
    channels = layout[1] * layout[2]
    x, g = normal(*layout, dtype=dtype, scale=2) + np.dtype(dtype).type(3), normal(*layout, dtype=dtype)[::-1].copy()
    w, b = (normal(channels + i, dtype=dtype)[i:] if n in affine else None for i, n in enumerate("wb"))
    options = {"layout": layout, "axes": axes, "eps": 1e-3, "center": center}
    y, mean, var = normalized.normalized(x, w, b, **options)
    exact = x.astype(np.float64)
    exact_mean, exact_var = moments(exact, axes, center)
    check(mean, exact_mean, "float64", CLOSE["float32"] / CLOSE["float64"] if dtype != "float64" else 1)
    check(var, exact_var, "float64", CLOSE["float32"] / CLOSE["float64"] if dtype != "float64" else 4)
    one = (1, layout[1], layout[2], 1)
    weight = np.ones(one) if w is None else w.astype(np.float64).reshape(one)
    r, d = (exact_var + 1e-3) ** -0.5, exact - exact_mean
    check(y, d * r * weight + (0 if b is None else b.astype(np.float64).reshape(one)), dtype, 2)

    wide, extra = g.astype(np.float64), (normal(*exact_mean.shape), normal(*exact_mean.shape))
    dx, dw, db = normalized.normalized_backward(g, *extra, x, mean, var, w, **options)
    u, n = wide * weight, x.size / exact_mean.size
    to_x = r * u - r**3 * d * (u * d).mean(axes, keepdims=True) + 2 * extra[1] * d / n
    if center:
        to_x += extra[0] / n - r * u.mean(axes, keepdims=True)
    sums = "float64" if dtype == "float64" else "float32"
    check(dx, to_x, dtype, 4)
    check(dw, (wide * d * r).sum((0, 3)).reshape(-1), sums, 16)
    check(db, wide.sum((0, 3)).reshape(-1), sums, 16)


@pytest.mark.parametrize("scale", [1e-25, 1e25, 1e30])
@pytest.mark.parametrize("layout", [(3, 1, 50, 1), (3, 2, 2, 30)])
def test_squares_outside_of_float32(layout: Any, scale: float) -> None:
    x = normal(*layout, dtype="float32") * np.float32(scale)
    for center in (True, False):
        y, mean, var = normalized.normalized(x, None, None, layout=layout, axes=GROUP, eps=0.0, center=center)
        exact_mean, exact_var = moments(x.astype(np.float64), GROUP, center)
        np.testing.assert_allclose(mean, exact_mean, rtol=1e-5, atol=scale * 1e-7)
        np.testing.assert_allclose(var, exact_var, rtol=1e-6)
        np.testing.assert_allclose(y, (x - exact_mean) / np.sqrt(exact_var), rtol=1e-4, atol=1e-5)


def test_an_offset_leaves_the_variance_its_digits() -> None:
    x = normal(4, 1000, dtype="float32") + np.float32(1e4)
    y, _, var = normalized.normalized(x, None, None, layout=(4, 1, 1000, 1), axes=GROUP, eps=0.0, center=True)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(var.reshape(4), exact.var(1), rtol=1e-5)
    np.testing.assert_allclose(y, (exact - exact.mean(1, keepdims=True)) / exact.std(1, keepdims=True), atol=2e-6)


# ---- gradients, and threads

FUNCTIONS: list[tuple[str, Callable[..., Any], list[Any]]] = [
    ("softmax", lambda x: F.softmax(x, 1), [(6, 9)]),
    ("softmax across", lambda x: F.softmax(x, 0), [(6, 9)]),
    ("log_softmax", lambda x: F.log_softmax(x, 1), [(3, 5, 4)]),
    ("cross_entropy", lambda x: F.cross_entropy(x, wg.tensor([1, 0, -100, 4])), [(4, 5)]),
    ("cross_entropy of images", lambda x: F.cross_entropy(x, wg.tensor([[1, 0], [3, 4]]), reduction="sum"), [(2, 5, 2)]),
    ("weights", lambda x, w: F.cross_entropy(x, wg.tensor([1, 0, 3, 4]), w.exp(), label_smoothing=0.1), [(4, 5), (5,)]),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (3, 4), w, b), [(5, 3, 4), (3, 4), (3, 4)]),
    ("rms_norm", lambda x, w: F.rms_norm(x, (7,), w), [(5, 7), (7,)]),
    ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 4, 5), (4,), (4,)]),
    ("instance_norm", lambda x: F.instance_norm(x), [(3, 4, 5)]),
    ("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [(3, 4, 5), (4,), (4,)]),
    ("batch_norm of vectors", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [(6, 4), (4,), (4,)]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shapes"), [f[1:] for f in FUNCTIONS], ids=[f[0] for f in FUNCTIONS])
def test_gradients(function: Any, shapes: Any) -> None:
    inputs = [wg.tensor(normal(*shape), requires_grad=True) for shape in shapes]
    assert wg.autograd.gradcheck(function, inputs)
    assert wg.autograd.gradgradcheck(function, inputs)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, w = normal(300, 64, dtype="float32"), normal(64, dtype="float32")
    layout = {"layout": (300, 1, 64, 1), "axes": GROUP, "eps": 1e-5, "center": True}
    before, found = get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            y, mean, var = normalized.normalized(x, w, w, **layout)
            back = normalized.normalized_backward(x, mean, var, y, mean, var, w, **layout)
            found.append([y, mean, var, *back, rows.softmax(x, 0), rows.softmax(x, 1)])
    finally:
        set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [wg.float32, wg.float64])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "logsumexp"])
def test_a_row_of_millions_of_elements(name: str, dtype: Any) -> None:
    """What a kernel needs for a row does not grow with it: no row is too long for the stack of a thread."""
    size = 5_000_000
    x = np.random.default_rng(0).standard_normal(size).astype(dtype.numpy)
    wide = x.astype(np.float64)
    shifted = np.exp(wide - wide.max())
    want = {
        "softmax": lambda: shifted / shifted.sum(),
        "log_softmax": lambda: wide - wide.max() - np.log(shifted.sum()),
        "logsumexp": lambda: wide.max() + np.log(shifted.sum()),
        "layer_norm": lambda: (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5),
    }[name]()
    function = {
        "softmax": lambda x: F.softmax(x, 0), "log_softmax": lambda x: F.log_softmax(x, 0),
        "logsumexp": lambda x: wg.logsumexp(x, 0), "layer_norm": lambda x: F.layer_norm(x, (size,)),
    }[name]  # fmt: skip
    with natively(), watched() as launches:
        got = function(wg.from_numpy(x)).numpy()
    assert launches
    near = 1e-6 if name == "layer_norm" else 0  # zero is one of its results
    np.testing.assert_allclose(got, want, rtol=3e-6 if dtype is wg.float32 else 1e-12, atol=near)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [(np.inf,), (-np.inf,), (np.inf, -np.inf), (np.nan, np.inf)])
@pytest.mark.parametrize("layout", [(6, 4, 1, 20), (50, 4, 1, 1), (6, 4, 20, 1), (6, 4, 5, 9)])
@pytest.mark.parametrize("axes", [BATCH, GROUP])
def test_means_of_infinite_numbers(dtype: str, bad: Any, layout: Any, axes: Any) -> None:
    x = normal(*layout, dtype=dtype)
    places = [(0, 1, 0, 0), (0, 1, layout[2] - 1, layout[3] - 1) if axes == GROUP else (3, 1, 0, layout[3] - 1)]
    for place, value in zip(places, bad, strict=False):
        x[place] = value
    if axes == BATCH and layout[2] > 1:
        x = x[:, :, :1].copy()
        layout = x.shape
    found = normalized.normalized(x, None, None, layout=layout, axes=axes, eps=1e-5, center=True)
    with np.errstate(all="ignore"):
        mean, var = (f(x.astype(np.float64), axis=axes, keepdims=True) for f in (np.mean, np.var))
    np.testing.assert_allclose(found[1], mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], var, rtol=1e-4, atol=1e-6)
