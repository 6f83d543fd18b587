"""How the elements of an operation's arrays lie together: the fewest loops that visit all of them.

Arrays that are broadcast together are looked at as one iteration space with strides per array. Dimensions of size 1
go, neighbours that every array walks evenly become one, and the dimension with the smallest strides goes innermost. Two
calls whose spaces have the same *pattern* run the same kernel.
"""

from typing import Any, NamedTuple

__all__ = ["Space", "space"]


class Space(NamedTuple):
    """An iteration space.

    Attributes:
        sizes: of the loops, outermost first. strides: for each array, bytes per loop. pattern: for each array, per loop, 1
            (neighbours, innermost loop only), 0 (one element for all) or None (given with the call).
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    pattern: tuple[tuple[int | None, ...], ...]


def space(shape: tuple[int, ...], arrays: list[Any]) -> Space:
    """Return the space of arrays that broadcast to ``shape``; the first one decides the order of the loops."""
    rank = len(shape)
    steps = [_steps(a, shape) for a in arrays]
    dims = [d for d in range(rank) if shape[d] != 1]
    dims.sort(key=lambda d: tuple(-abs(s[d]) for s in steps))
    sizes: list[int] = []
    rows: list[list[int]] = [[] for _ in arrays]
    for d in reversed(dims):  # innermost first
        if sizes and all(s[d] == row[-1] * sizes[-1] for s, row in zip(steps, rows, strict=True)):
            sizes[-1] *= shape[d]
            continue
        sizes.append(shape[d])
        for s, row in zip(steps, rows, strict=True):
            row.append(s[d])
    if not sizes:
        sizes, rows = [1], [[a.itemsize] for a in arrays]  # one element lies as many neighbours do
    sizes.reverse()
    strides = tuple(tuple(reversed(row)) for row in rows)
    last = len(sizes) - 1
    pattern = tuple(
        tuple(0 if s == 0 else 1 if k == last and s == a.itemsize else None for k, s in enumerate(row))
        for row, a in zip(strides, arrays, strict=True)
    )
    return Space(tuple(sizes), strides, pattern)


def _steps(array: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an array's strides in the shape it is broadcast to."""
    lead = len(shape) - array.ndim
    own = (0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True))
    return (*(0,) * lead, *own)
