"""Grids and tables from vectors: meshgrid, cartesian_prod, vander."""

from typing import Any

from wengert.array.shape import as_int
from wengert.core.apply import as_tensor
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import ShapeError

__all__ = ["cartesian_prod", "meshgrid", "vander"]


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
