"""Convolution and its gradients by native kernels: NumPy's results, in every geometry, layout and number of threads."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import OFF, load
from wengert.kernels import convolution as exact
from wengert.runtime import arranging, convolution
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.settings import settings
from wengert.testing.guarded import GuardedMemory
from wengert.testing.opcheck_native import natively

F = wg.nn.functional

# What float32 and float64 sums may be off by, relative to the sum of absolute values.
CLOSE = {"float32": 1e-6, "float64": 2e-15}

# input, weight, stride, padding, dilation, groups
CASES = [
    ((2, 3, 9, 10), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 6, 9, 10), (4, 3, 3, 2), (2, 1), (1, 0), (1, 2), 2),
    ((2, 5, 30), (7, 5, 4), (3,), (2,), (2,), 1),
    ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    ((1, 8, 20, 21), (8, 1, 5, 5), (2, 2), (2, 2), (1, 1), 8),
    ((2, 3, 17, 5), (6, 1, 3, 3), (1, 1), (1, 1), (2, 1), 3),
    ((1, 2, 3, 1100), (5, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((3, 1, 28, 28), (6, 1, 5, 5), (1, 1), (2, 2), (1, 1), 1),
    ((2, 4, 9, 9), (5, 4, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 4, 9, 9), (4, 4, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((2, 4, 9, 9), (4, 4, 1, 1), (3, 2), (1, 2), (1, 1), 1),
    ((2, 4, 7, 7), (30, 4, 3, 3), (1, 1), (5, 4), (2, 3), 1),
    ((1, 1, 1), (1, 1, 1), (1,), (0,), (1,), 1),
    ((2, 20, 6, 6), (52, 20, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((2, 8, 12, 12), (8, 4, 7, 7), (4, 4), (3, 3), (1, 1), 2),
    ((1, 2, 40), (2, 2, 3), (5,), (1,), (4,), 1),
    ((3, 16, 7), (3, 16, 7), (1,), (0,), (1,), 1),
    ((2, 1, 4, 4, 4), (9, 1, 3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1), 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def made_when_needed() -> Iterator[None]:
    """Let kernels be made when they are asked for."""
    before, settings.native = settings.native, "wait"
    load()
    yield
    settings.native = before


def normal(shape: Any, dtype: str = "float64", seed: int = 0) -> Any:
    return np.random.default_rng(sum(shape) + seed).normal(size=shape).astype(dtype)


def arrays(case: Any, dtype: str) -> tuple[Any, Any, Any, Any, Any]:
    """Return input, weight, bias, cotangent and the parameters of a case."""
    x_shape, w_shape, *geometry = case
    x, w, bias = normal(x_shape, dtype), normal(w_shape, dtype, 1), normal(w_shape[:1], dtype, 2)
    counts = exact._counts(x_shape[2:], w_shape[2:], *geometry[:3])
    return x, w, bias, normal((x_shape[0], w_shape[0], *counts), dtype, 3), geometry


def check(found: Any, function: Any, first: Any, second: Any, *rest: Any, bias: Any = 0.0) -> None:
    """Compare a bilinear map of two arrays with NumPy's in float64, relative to that of their absolute values."""
    wide, other = first.astype(np.float64), second.astype(np.float64)
    expected = function(wide, other, *rest) + bias
    scale = function(np.abs(wide), np.abs(other), *rest) + np.abs(bias)
    assert found.dtype == first.dtype
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= CLOSE[first.dtype.name] * scale).all()


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_three_maps(case: Any, dtype: str) -> None:
    x, w, bias, g, geometry = arrays(case, dtype)
    per_channel = bias.astype(np.float64).reshape(-1, *(1,) * (x.ndim - 2))
    check(convolution.conv(x, w, bias, *geometry), exact.convolution, x, w, *geometry, bias=per_channel)
    check(convolution.conv(x, w, None, *geometry), exact.convolution, x, w, *geometry)
    sizes, kernel = x.shape[2:], w.shape[2:]
    check(convolution.conv_input(g, w, sizes, *geometry), exact.convolution_input_grad, g, w, sizes, *geometry)
    check(convolution.conv_weight(g, x, kernel, *geometry), exact.convolution_weight_grad, g, x, kernel, *geometry)


class Empty:
    """Makes arrays in one guarded room after the other."""

    def __init__(self, memory: GuardedMemory, first: int, at_end: bool) -> None:
        self.memory, self.room, self.at_end = memory, first, at_end

    def __call__(self, shape: Any, dtype: Any) -> Any:
        self.room += 1
        return self.memory.place(self.room - 1, np.empty(shape, dtype), self.at_end)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_outside_of_the_arrays_is_touched(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, bias, g, geometry = arrays(case, "float32")
    memory = GuardedMemory(40, 1 << 18)
    for at_end in (True, False):
        a, b, c, d = (memory.place(room, array, at_end) for room, array in enumerate((x, w, bias, g)))
        calls: tuple[tuple[Any, ...], ...] = (
            (convolution.conv, a, b, c), (convolution.conv_input, d, b, x.shape[2:]),
            (convolution.conv_weight, d, a, w.shape[2:]),
        )  # fmt: skip
        for function, *given in calls:
            empty = Empty(memory, 4, at_end)
            monkeypatch.setattr(convolution, "empty", empty)
            monkeypatch.setattr(arranging, "empty", empty)
            function(*given, *geometry)


@pytest.mark.parametrize("case", CASES[:8], ids=str)
def test_the_number_of_threads_changes_no_bit(case: Any) -> None:
    x, w, bias, g, geometry = arrays(case, "float32")
    before, results = get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            results.append((
                convolution.conv(x, w, bias, *geometry), convolution.conv_input(g, w, x.shape[2:], *geometry),
                convolution.conv_weight(g, x, w.shape[2:], *geometry),
            ))  # fmt: skip
    finally:
        set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_any_layout() -> None:
    x, w, bias, g, geometry = arrays(CASES[1], "float32")
    rest = x.shape[2:], *geometry
    y, dx = convolution.conv(x, w, bias, *geometry), convolution.conv_input(g, w, *rest)
    dw = convolution.conv_weight(g, x, w.shape[2:], *geometry)
    last = [np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (x, g)]
    x_last, g_last = (np.moveaxis(a, -1, 1) for a in last)
    found = convolution.conv(x_last, np.asfortranarray(w), bias, *geometry)
    assert np.moveaxis(found, 1, -1).flags.c_contiguous
    np.testing.assert_array_equal(found, y)
    found = convolution.conv_input(g_last, w, *rest)
    assert np.moveaxis(found, 1, -1).flags.c_contiguous
    np.testing.assert_array_equal(found, dx)
    np.testing.assert_array_equal(convolution.conv_weight(g_last, x_last, w.shape[2:], *geometry), dw)
    wide = np.zeros((*x.shape[:3], 2 * x.shape[3]), np.float32)
    wide[..., ::2] = x
    np.testing.assert_array_equal(convolution.conv(wide[..., ::2], w, bias, *geometry), y)
    turned = np.ascontiguousarray(x[::-1, ::-1, ::-1, ::-1])[::-1, ::-1, ::-1, ::-1]
    np.testing.assert_array_equal(convolution.conv(turned, w, bias, *geometry), y)


def test_infinities_stay_in_the_windows_that_see_them() -> None:
    for case in (CASES[0], CASES[1], CASES[4]):
        x, w, _, g, geometry = arrays(case, "float64")
        x[0, 0, 3, -1], g[0, 0, 1, -1] = np.inf, np.nan
        given = (x, w), (g, w, x.shape[2:]), (g, x, w.shape[2:])
        expected: tuple[Any, ...] = exact.convolution, exact.convolution_input_grad, exact.convolution_weight_grad
        results = (
            convolution.conv(x, w, None, *geometry), convolution.conv_input(*given[1], *geometry),
            convolution.conv_weight(*given[2], *geometry),
        )  # fmt: skip
        for result, function, arguments in zip(results, expected, given, strict=True):
            np.testing.assert_allclose(result, function(*arguments, *geometry), rtol=1e-10, atol=1e-12)


def test_sizes_that_the_windows_do_not_reach() -> None:
    g, w = normal((2, 3, 4)), normal((3, 2, 2), seed=1)
    rest = (3,), (0,), (1,), 1
    found = convolution.conv_input(g, w, (13,), *rest)
    np.testing.assert_allclose(found, exact.convolution_input_grad(g, w, (13,), *rest), rtol=1e-13)
    assert not found[:, :, 11:].any()
    x = normal((2, 2, 14), seed=2)
    found = convolution.conv_weight(g, x, (2,), *rest)
    np.testing.assert_allclose(found, exact.convolution_weight_grad(g, x, (2,), *rest), rtol=1e-13)


def test_what_is_left_to_numpy() -> None:
    x, w, bias, g, geometry = arrays(CASES[0], "float32")
    assert convolution.conv(x[:0], w, bias, *geometry) is NotImplemented
    assert convolution.conv(x, w.astype(np.float64), None, *geometry) is NotImplemented
    assert convolution.conv(x.astype(np.int64), w.astype(np.int64), None, *geometry) is NotImplemented
    assert convolution.conv(x.astype(">f4"), w.astype(">f4"), None, *geometry) is NotImplemented
    assert convolution.conv(x, w, bias[:2], *geometry) is NotImplemented
    assert convolution.conv(x[:, :2], w, bias, *geometry) is NotImplemented
    assert convolution.conv(x, w, bias, *geometry[:3], 3) is NotImplemented
    assert convolution.conv(x[:, :, :1, :1], w, bias, (1, 1), (0, 0), (1, 1), 1) is NotImplemented
    assert convolution.conv_input(g, w, (2, 2), *geometry) is NotImplemented
    assert convolution.conv_weight(g, x[:1], (3, 3), *geometry) is NotImplemented


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_public_functions_and_their_gradients(dtype: str) -> None:
    calls: list[tuple[Any, ...]] = [
        (lambda x, w, b: F.conv1d(x, w, b, 2, 1), (2, 3, 12), (4, 3, 3), 4),
        (lambda x, w, b: F.conv2d(x, w, b, padding="same", dilation=2), (2, 3, 9, 8), (5, 3, 3, 2), 5),
        (lambda x, w, b: F.conv2d(x, w, b, (2, 1), 1, groups=3), (2, 3, 9, 8), (6, 1, 3, 3), 6),
        (lambda x, w, b: F.conv3d(x, w, b, padding=1), (1, 2, 4, 5, 6), (3, 2, 3, 3, 3), 3),
        (lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), (2, 3, 5, 4), (3, 4, 3, 3), 4),
    ]  # fmt: skip
    for call, *shapes, channels in calls:
        found = []
        for smallest in (0, OFF):
            with natively(smallest):
                given = [normal(s, seed=i) for i, s in enumerate((*shapes, (channels,)))]
                tensors = [wg.tensor(a).to(getattr(wg, dtype)).requires_grad_() for a in given]
                y = call(*tensors)
                y.backward(wg.tensor(normal(y.shape, seed=9)).to(y.dtype))
                results = [y, *(t.grad for t in tensors)]
                found.append([t.detach().to(wg.float64).numpy() for t in results])
        limit = {"float64": 1e-12, "float32": 2e-5}.get(dtype, 3e-2)
        for mine, numpys in zip(*found, strict=True):
            np.testing.assert_allclose(mine, numpys, rtol=limit, atol=limit * np.abs(numpys).max())
