"""Padding against index arithmetic written out, and its transposes against the property that defines them."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.support import Array, assert_transposed, normal
from wengert.errors import ShapeError
from wengert.kernels.padding import pad_constant, pad_constant_transpose, pad_edges, pad_edges_transpose

PADS: list[tuple[tuple[int, ...], list[tuple[int, int]]]] = [
    ((5,), [(2, 3)]),
    ((5,), [(0, 0)]),
    ((2, 5), [(2, 0)]),
    ((2, 3, 5), [(2, 1), (0, 4)]),
    ((2, 3, 4, 5), [(1, 3), (2, 2), (4, 4)]),
    ((4, 5), [(0, 2), (-1, 2)]),
    ((4, 5), [(-2, 1), (3, -1)]),
    ((4, 5), [(-1, -1), (-2, -1)]),
    ((4,), [(3, -3)]),
    ((4,), [(-3, 1)]),
    ((0, 4, 5), [(1, 2), (2, 1)]),
]


def sources(size: int, before: int, after: int, mode: str) -> list[int]:
    """Return, for each position of a padded dimension, the element that stands there, or -1."""
    if mode == "circular":
        kept = list(range(max(0, -before), size - max(0, -after)))
        positions = range(-max(before, 0), len(kept) + max(after, 0))
        return [kept[p % len(kept)] for p in positions]
    found = []
    for p in range(-before, size + after):
        if 0 <= p < size:
            found.append(p)
        elif mode == "constant":
            found.append(-1)
        elif mode == "replicate":
            found.append(0 if p < 0 else size - 1)
        else:
            found.append(-p if p < 0 else 2 * (size - 1) - p)
    return found


def reference(x: Array, pads: list[tuple[int, int]], mode: str, value: float = 0) -> Array:
    for axis, (before, after) in enumerate(pads, x.ndim - len(pads)):
        taken = sources(x.shape[axis], before, after, mode)
        parts = [np.full_like(x.take([0], axis), value) if i < 0 else x.take([i], axis) for i in taken]
        x = np.concatenate(parts, axis)
    return x


def allowed(shape: tuple[int, ...], pads: list[tuple[int, int]], mode: str) -> bool:
    for size, pair in zip(shape[len(shape) - len(pads) :], pads, strict=True):
        kept = size + sum(min(p, 0) for p in pair) if mode == "circular" else size
        if max(pair) > {"reflect": size - 1, "circular": kept}.get(mode, 100):
            return False
    return True


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex64, np.int32, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("shape", "pads"), PADS)
@pytest.mark.parametrize("value", [0, 1])
def test_constant(shape: Any, pads: Any, value: Any, dtype: Any) -> None:
    x = normal(shape).astype(dtype)
    result = pad_constant(x, pads, value)
    np.testing.assert_array_equal(result, reference(x, pads, "constant", value))
    assert result.dtype == x.dtype
    result[...] = 0  # it is a new array
    np.testing.assert_array_equal(x, normal(shape).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize(("shape", "pads"), PADS)
def test_constant_has_its_transpose(shape: Any, pads: Any, dtype: Any) -> None:
    assert_transposed(lambda x: pad_constant(x, pads), lambda g: pad_constant_transpose(g, pads), normal(shape, dtype))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("shape", "pads"), PADS)
def test_edges(shape: Any, pads: Any, mode: Any) -> None:
    x = normal(shape)
    if not allowed(shape, pads, mode):
        with pytest.raises(ShapeError, match="can add at most"):
            pad_edges(x, pads, mode)
        return
    result = pad_edges(x, pads, mode)
    np.testing.assert_array_equal(result, reference(x, pads, mode))
    assert not np.shares_memory(result, x)
    for dtype in (np.float64, np.float32, np.complex128, np.int64):
        assert_transposed(
            lambda x: pad_edges(x, pads, mode), lambda g: pad_edges_transpose(g, pads, mode), normal(shape, dtype)
        )


@pytest.mark.parametrize(
    ("shape", "pads", "mode", "message"),
    [
        ((3,), [(3, 0)], "reflect", r"at most 2 elements .* dimension 0 with size 3, got \(3, 0\)"),
        ((3,), [(0, 4)], "circular", "at most 3"),
        ((4,), [(-2, 3)], "circular", "at most 2"),
        ((0,), [(1, 0)], "replicate", "at most 0"),
        ((0,), [(1, 0)], "reflect", "at most 0"),
        ((2, 3), [(-2, -2)], "replicate", "remove more elements"),
        ((3,), [(1, 1), (1, 1)], "replicate", "2 pairs of pads"),
    ],
)
def test_what_does_not_fit_is_refused(shape: Any, pads: Any, mode: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        pad_edges(np.zeros(shape), pads, mode)


def test_constant_refuses_to_remove_more_than_there_is() -> None:
    with pytest.raises(ShapeError, match="remove more elements"):
        pad_constant(np.zeros((2, 3)), [(-2, -2)])


def test_an_unknown_mode_is_refused() -> None:
    mode: Any = "mirror"
    with pytest.raises(ValueError, match="'mirror'"):
        pad_edges(np.zeros(3), [(1, 1)], mode)
