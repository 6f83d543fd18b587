"""Grids and tables from vectors: meshgrid, cartesian_prod, combinations, vander."""

import itertools
import math
from typing import Any

import numpy as np

from wengert.array.shape import as_int
from wengert.core.apply import as_tensor
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import ShapeError

__all__ = ["cartesian_prod", "combinations", "meshgrid", "vander"]


@composite(samples=lambda s: [s((2,), (3,)), s((2,), (), (1,)), s((2,), (3,), indexing="xy")])
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Return the coordinates of the grid that vectors span, a tensor for each; "xy" swaps the first two dimensions."""
    found = [
        as_tensor(v) for v in (tensors[0] if len(tensors) == 1 and isinstance(tensors[0], list | tuple) else tensors)
    ]
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"meshgrid(): indexing must be 'ij' or 'xy', got {indexing!r}")
    wrong = next((v for v in found if v.ndim > 1), None)
    if wrong is not None or not found:
        given = "nothing" if wrong is None else f"shape {tuple(wrong.shape)}"
        raise ShapeError(f"meshgrid() takes vectors and 0-d tensors, got {given}")
    shape = tuple(v.numel() for v in found)
    swap = indexing == "xy" and len(found) > 1
    grids = []
    for k, v in enumerate(found):
        lined = ops.reshape(v, tuple(v.numel() if d == k else 1 for d in range(len(found))))
        grid = ops.expand(lined, shape)
        grids.append(ops.transpose(grid, 0, 1) if swap else grid)
    return tuple(grids)


@composite(samples=lambda s: [s((2,), (3,)), s((2,))])
def cartesian_prod(*tensors: Any) -> Any:
    """Return every combination of one element from each vector, one per row; a single vector is returned as it is."""
    for k, tensor in enumerate(tensors):
        if as_tensor(tensor).ndim != 1:
            raise ShapeError(
                f"cartesian_prod(): tensor {k} must be a vector, got shape {tuple(as_tensor(tensor).shape)}"
            )
    if len(tensors) == 1:
        return as_tensor(tensors[0])
    return ops.stack([ops.reshape(grid, (-1,)) for grid in ops.meshgrid(*tensors)], -1)


@composite(
    samples=lambda s: [
        s((4,)), s((3,), r=3), s((3,), r=2, with_replacement=True), s((2,), r=3), s((3,), r=0), s((3,), r=1), s((0,)),
        s.error(ValueError, "takes a vector", (2, 2)), s.error(ValueError, "must not be negative", (2,), r=-1),
    ]
)  # fmt: skip
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    """Return every choice of ``r`` elements of a vector, one per row, in the order of :func:`itertools.combinations`."""
    input, r = as_tensor(input), as_int(r, "r")
    if input.ndim != 1:
        raise ShapeError(f"combinations() takes a vector, got shape {tuple(input.shape)}")
    if r < 0:
        raise ValueError(f"combinations(): r must not be negative, got {r}")
    if r == 0:
        return input.new_empty(0)
    n = input.shape[0]
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    count = (math.comb(n + r - 1, r) if n else 0) if with_replacement else math.comb(n, r)
    places = np.fromiter(itertools.chain.from_iterable(choose(range(n), r)), np.int64, count * r)
    return ops.take(input, from_array(places.reshape(count, r)))


@composite(
    samples=lambda s: [
        s((3,)),
        s((2,), N=4),
        s((3,), N=2, increasing=True),
        s((2,), N=0, kind="integer"),
        s((2,), kind="integer"),
    ]
)
def vander(x: Any, N: int | None = None, *, increasing: bool = False) -> Any:
    """Return the Vandermonde matrix of a vector: its powers N-1 … 0 (0 … N-1 if ``increasing``) as columns."""
    x = as_tensor(x)
    if x.ndim != 1:
        raise ShapeError(f"vander() takes a vector, got shape {tuple(x.shape)}")
    count = x.numel() if N is None else as_int(N, "N")
    if count < 0:
        raise ShapeError(f"vander(): N must not be negative, got {count}")
    powers = ops.arange(count) if increasing else ops.arange(count - 1, -1, -1)
    return ops.pow(ops.unsqueeze(x, -1), powers)
