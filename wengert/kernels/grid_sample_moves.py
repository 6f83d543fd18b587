"""Derivatives of sampling at the positions of a grid, of any order.

A sample is Σₙ xₙ Wₙ over the neighbours n of a position, and Wₙ a product of weights per dimension. As the grid moves
along directions h₁ … hₖ, one after the other, Wₙ is replaced by its derivative Σ h₁[d₁] … hₖ[dₖ] ∂_d₁ … ∂_dₖ Wₙ. Linear
weights have one derivative per dimension, cubic ones three.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wengert.kernels.grid_sample import (
    PaddingMode,
    SampleMode,
    Taps,
    _all_taps,
    _channels_first,
    _neighbours,
    _rows,
    _taken,
)  # fmt: skip
from wengert.kernels.scatter import accumulate_rows

__all__ = ["moved", "moved_grid_grad", "moved_input_grad"]

Array = NDArray[Any]


def moved(
    x: Array, grid: Array, moves: Sequence[Array], mode: SampleMode, padding_mode: PaddingMode, align_corners: bool
) -> Array:
    """Derivative of ``grid_sample(x, grid)`` along ``moves``, each of the grid's shape: an array of the samples' shape.

    Example:
        >>> x, grid = np.array([[[[1.0, 3.0]]]]), np.zeros((1, 1, 1, 2))
        >>> moved(x, grid, [np.array([[[[1.0, 0.0]]]])], "bilinear", "zeros", False)
        array([[[[2.]]]])
    """
    all_taps = _all_taps("grid_sample", x.shape, grid, mode, padding_mode, align_corners)
    weigh = _Weights(all_taps, grid, x.shape[2:], moves, mode, align_corners)
    rows, out = _rows(x), np.zeros((grid[..., 0].size, x.shape[1]), x.dtype)
    for position, inside, chosen in _neighbours(all_taps, x.shape[2:]):
        out += _taken(rows, position, inside) * weigh(chosen)[:, None]
    return _channels_first(out, len(x), grid.shape[1:-1])


def moved_input_grad(
    g: Array, grid: Array, moves: Sequence[Array], spatial_shape: Sequence[int], mode: SampleMode,
    padding_mode: PaddingMode, align_corners: bool,
) -> Array:  # fmt: skip
    """Transpose of :func:`moved` in ``x``, of spatial shape ``spatial_shape``."""
    all_taps = _all_taps(
        "grid_sample", (*g.shape[:2], *spatial_shape), grid, mode, padding_mode, align_corners, g.shape
    )
    weigh = _Weights(all_taps, grid, spatial_shape, moves, mode, align_corners)
    rows, out = _rows(g), np.zeros((len(g) * math.prod(spatial_shape), g.shape[1]), g.dtype)
    for position, inside, chosen in _neighbours(all_taps, spatial_shape):
        accumulate_rows(np.add, out, position[inside], rows[inside] * weigh(chosen)[inside, None])
    return _channels_first(out, len(g), spatial_shape)


def moved_grid_grad(
    g: Array, x: Array, grid: Array, moves: Sequence[Array], mode: SampleMode, padding_mode: PaddingMode,
    align_corners: bool,
) -> Array:  # fmt: skip
    """Derivative of ``<g, moved(x, grid, moves)>`` in ``grid``, an array of its shape."""
    all_taps = _all_taps("grid_sample", x.shape, grid, mode, padding_mode, align_corners, g.shape)
    weigh = _Weights(all_taps, grid, x.shape[2:], moves, mode, align_corners)
    rows, cotangents, dims = _rows(x), _rows(g), len(all_taps)
    out = np.zeros((dims, len(cotangents)), g.dtype)
    for position, inside, chosen in _neighbours(all_taps, x.shape[2:]):
        along = np.einsum("pc,pc->p", cotangents, _taken(rows, position, inside))
        for dim in range(dims):
            out[dims - 1 - dim] += along * weigh(chosen, dim)
    return np.ascontiguousarray(out.T).reshape(grid.shape)


class _Weights:
    """Derivatives, along given moves, of the weight of a neighbour at every point."""

    def __init__(
        self, all_taps: Sequence[Taps], grid: Array, sizes: Sequence[int], moves: Sequence[Array], mode: SampleMode,
        align_corners: bool,
    ) -> None:  # fmt: skip
        # A grid has the last spatial dimension first.
        self.moves = [[h[..., d].reshape(-1) for d in reversed(range(len(sizes)))] for h in moves]
        self.orders = [[taps.weights, taps.slopes] for taps in all_taps]
        self.points = grid[..., 0].size
        if mode == "bicubic":
            for d, (orders, size) in enumerate(zip(self.orders, sizes, strict=True)):
                scale = (size - 1) / 2 if align_corners else size / 2
                coordinate = grid[..., len(sizes) - 1 - d].reshape(len(grid), -1)
                position = (coordinate + 1) * scale - (0 if align_corners else 0.5)
                orders += _cubic_orders(position - np.floor(position), coordinate.dtype.type(scale))

    def __call__(self, chosen: Sequence[int], *more: int) -> Array:
        """Return the derivative along the moves, and along the dimensions ``more``."""
        total = np.zeros(self.points, self.orders[0][0].dtype)
        for dims in itertools.product(range(len(self.orders)), repeat=len(self.moves)):
            counts = [(*dims, *more).count(d) for d in range(len(self.orders))]
            if all(count < len(orders) for count, orders in zip(counts, self.orders, strict=True)):
                factors = [orders[n][c] for orders, n, c in zip(self.orders, counts, chosen, strict=True)]
                weight = functools.reduce(np.multiply, factors).reshape(-1)
                total += functools.reduce(np.multiply, [h[d] for h, d in zip(self.moves, dims, strict=True)], weight)
        return total


def _cubic_orders(t: Array, scale: Any) -> list[Array]:
    """Return the second and third derivatives of cubic weights (Keys, 1981, with a = -3/4) in the grid's coordinate."""
    a, second, third = -0.75, [], []
    for offset in (-1, 0, 1, 2):
        distance = np.abs(t - offset)
        second.append(np.where(distance <= 1, 6 * (a + 2) * distance - 2 * (a + 3), (6 * distance - 10) * a))
        third.append(np.where(distance <= 1, 6 * (a + 2), 6 * a) * (1 if offset < 1 else -1))
    return [np.stack(second) * scale**2, np.stack(third) * scale**3]
