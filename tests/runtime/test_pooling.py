"""Pooling by native kernels: values, positions, averages and their transposes, against NumPy's kernels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import OFF, load
from wengert.kernels import pooling as exact
from wengert.runtime import pooling
from wengert.settings import settings
from wengert.testing.guarded import GuardedMemory
from wengert.testing.opcheck_native import natively

F = wg.nn.functional

CLOSE = {"float32": 2e-6, "float64": 4e-15}

# shape, kernel, stride, padding, dilation, ceil_mode
CASES = [
    ((3, 4, 28, 28), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 4, 27, 29), (3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 20, 21), (3, 2), (1, 1), (1, 1), (1, 1), False),
    ((2, 40), (3,), (3,), (1,), (1,), False),
    ((2, 40), (4,), (2,), (2,), (1,), True),
    ((2, 40, 37), (3, 2), (2, 1), (0, 0), (2, 3), False),
    ((2, 40, 37), (2, 3), (1, 2), (0, 0), (1, 2), True),
    ((5, 5), (2, 2), (2, 2), (0, 0), (1, 1), True),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0), (1, 1), False),
    ((2, 9, 64), (9, 64), (1, 1), (0, 0), (1, 1), False),
    ((3, 7, 16), (1, 1), (2, 2), (0, 0), (1, 1), False),
]  # fmt: skip


@pytest.fixture(autouse=True)
def made_when_needed() -> Iterator[None]:
    """Let kernels be made when they are asked for."""
    before, settings.native = settings.native, "wait"
    load()
    yield
    settings.native = before


def normal(shape: Any, dtype: str, seed: int = 0) -> Any:
    return np.random.default_rng(sum(shape) + seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_maxima_and_their_positions(case: Any, dtype: str) -> None:
    shape, kernel, *rest = case
    plain = normal(shape, dtype)
    equal = np.round(plain).astype(dtype)
    special = equal.copy()
    special.reshape(-1)[::3], special.reshape(-1)[4::7], special[..., -1] = -np.inf, np.nan, np.inf
    for x in (plain, equal, special, np.full_like(plain, -np.inf)):
        values, indices = pooling.max_pool(x, kernel, *rest)
        expected, positions = exact.max_pool(x, kernel, *rest)
        assert values.dtype == dtype
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(indices, positions)
    size, g = shape[len(shape) - len(kernel) :], normal(values.shape, dtype, 1)
    scattered = pooling.pool_scatter(g, indices, size)
    np.testing.assert_allclose(scattered, exact.max_pool_input_grad(g, indices, size), rtol=1e-6)
    gathered = pooling.pool_gather(plain, indices, len(kernel))
    np.testing.assert_array_equal(gathered, exact.max_pool_gather(plain, indices, len(kernel)))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("case", [case for case in CASES if max(case[4]) == 1], ids=str)
@pytest.mark.parametrize(("include", "divisor"), [(True, None), (False, None), (True, -3)])
def test_averages(case: Any, dtype: str, include: bool, divisor: int | None) -> None:
    shape, kernel, stride, padding, _, ceil = case
    x, rest = normal(shape, dtype), (kernel, stride, padding, ceil, include, divisor)
    y = pooling.avg_pool(x, *rest)
    expected = exact.avg_pool(x.astype(np.float64), *rest)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, rtol=0, atol=4 * CLOSE[dtype])
    g, size = normal(y.shape, dtype, 1), shape[len(shape) - len(kernel) :]
    found = pooling.avg_pool_transpose(g, size, *rest)
    assert found.dtype == dtype
    expected = exact.avg_pool_input_grad(g.astype(np.float64), size, *rest)
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * CLOSE[dtype])


class Empty:
    """Makes arrays in one guarded room after the other."""

    def __init__(self, memory: GuardedMemory, first: int, at_end: bool) -> None:
        self.memory, self.room, self.at_end = memory, first, at_end

    def __call__(self, shape: Any, dtype: Any) -> Any:
        self.room += 1
        return self.memory.place(self.room - 1, np.empty(shape, dtype), self.at_end)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_outside_of_the_arrays_is_touched(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, kernel, stride, padding, dilation, ceil = case
    memory, size = GuardedMemory(8, 1 << 18), shape[len(shape) - len(kernel) :]
    for at_end in (True, False):
        x = memory.place(0, normal(shape, "float32"), at_end)
        monkeypatch.setattr(pooling, "empty", Empty(memory, 1, at_end))
        values, indices = pooling.max_pool(x, kernel, stride, padding, dilation, ceil)
        pooling.pool_scatter(values, indices, size)
        pooling.pool_gather(x, indices, len(kernel))
        if max(dilation) == 1:
            y = pooling.avg_pool(x, kernel, stride, padding, ceil)
            pooling.avg_pool_transpose(y, size, kernel, stride, padding, ceil)


def test_what_is_left_to_numpy() -> None:
    x, plain = normal((2, 8, 8), "float32"), ((2, 2), (2, 2), (0, 0), (1, 1), False)
    for unserved in (x[:0], x.astype(np.int64), x.astype(np.float16), x.swapaxes(1, 2), x.astype(">f4")):
        assert pooling.max_pool(unserved, *plain) is NotImplemented
        assert pooling.avg_pool(unserved, *plain[:3], False) is NotImplemented
    assert pooling.max_pool(x, (9, 9), (1, 1), (0, 0), (1, 1), False) is NotImplemented
    assert pooling.max_pool(x, (2, 2), (1, 1), (2, 2), (1, 1), False) is NotImplemented
    assert pooling.max_pool(x, (3, 3), (1, 1), (1, 1), (2, 2), False) is NotImplemented
    assert pooling.max_pool(x, (1, 2, 2), (1, 2, 2), (0, 0, 0), (1, 1, 1), False) is NotImplemented
    assert pooling.avg_pool(x, *plain[:3], False, True, 0) is NotImplemented
    assert pooling.avg_pool_transpose(x, (4, 4), *plain[:3], False) is NotImplemented
    positions = np.full((2, 4, 4), 64)
    assert pooling.pool_scatter(x[:, :4, :4].copy(), positions, (8, 8)) is NotImplemented
    assert pooling.pool_gather(x, positions, 2) is NotImplemented
    with natively(), pytest.raises(IndexError, match="out of bounds"):
        F.max_unpool2d(wg.zeros(2, 4, 4), wg.tensor(positions), 2)


@pytest.mark.parametrize("dtype", CLOSE)
def test_public_functions_and_their_gradients(dtype: str) -> None:
    calls: list[Any] = [
        lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool1d(x.flatten(2), 3, 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda x: F.avg_pool2d(x, 2, ceil_mode=True),
        lambda x: F.adaptive_avg_pool2d(x, 2), lambda x: F.max_pool3d(x, 2),
    ]  # fmt: skip
    array = normal((2, 3, 12, 13), dtype)
    for call in calls:
        found = []
        for smallest in (0, OFF):
            with natively(smallest):
                x = wg.tensor(array, requires_grad=True)
                y = call(x)
                (y * y).sum().backward()
                assert x.grad is not None
                found.append((y.detach().numpy(), x.grad.numpy()))
        for mine, numpys in zip(*found, strict=True):
            np.testing.assert_allclose(mine, numpys, rtol=0, atol=64 * CLOSE[dtype])
