"""Sampling an image or a volume at the positions of a grid, and grids of affine maps.

``sampled`` takes, beside image and grid, moves of the grid, and gives the derivative of the samples along them; without moves
the samples themselves. It is linear in the image and in each move. With its transposes, ``sampled_input`` in the image
and ``sampled_grid`` in one more move, it is closed under differentiation: the derivative at the grid is another move.
"""

from typing import Any

import numpy as np

from wengert.core.arguments import Floating, Tensors
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.kernels import grid_sample as kernels
from wengert.kernels import grid_sample_moves as derivatives
from wengert.operators.checks import same_dtype

__all__ = ["affine_grid", "grid_sample", "sampled", "sampled_grid", "sampled_input"]

Way = Any  # mode, padding_mode and align_corners


def _replaced(moves: tuple[Any, ...], changes: Any, function: Any) -> Any:
    """Return Σᵢ f(moves with the i-th one changed): the derivative of what is linear in each move."""
    total = None
    for i, change in enumerate(changes):
        if change is not None:
            term = function((*moves[:i], change, *moves[i + 1 :]))
            total = term if total is None else total + term
    return total


def _without(moves: tuple[Any, ...], i: int) -> tuple[Any, ...]:
    return (*moves[:i], *moves[i + 1 :])


# Positions away from elements, where the derivatives of linear sampling jump.
_GRID = [[[[-0.4, 0.3], [0.7, -0.2]], [[0.1, 0.55], [1.3, -0.35]]]]
_VOLUME = [[[[[-0.4, 0.3, 0.15], [0.7, -0.2, 0.6]]]]]
_WAYS = (
    ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False), ("nearest", "zeros", False),
    ("bicubic", "zeros", False), ("bicubic", "reflection", True),
)  # fmt: skip


def _samples(arguments: Any, sized: bool = False) -> Any:
    """Return the samples of an operator: images in every way, a volume, and some with moves."""
    image, points = (1, 2, 3, 4), (1, 2, 2, 2)

    def calls(s: Any) -> list[Any]:
        size = {"size": image[2:]} if sized else {}
        found = [s(*arguments(image, points, s.array(_GRID), []), way=way, **size) for way in _WAYS]
        for way, count in (("bilinear", 1), ("bicubic", 1), ("bicubic", 2)):
            moved = arguments(image, points, s.array(_GRID), [points] * count)
            found.append(s(*moved, way=(way, "zeros", False), **size))
        volume = arguments((1, 1, 2, 3, 2), (1, 1, 1, 1, 2), s.array(_VOLUME), [])
        return [*found, s(*volume, way=_WAYS[0], **({"size": (2, 3, 2)} if sized else {}))]

    return calls


def _total(total: Any, out: Any) -> Any:
    return ops.zeros_like(out) if total is None else total


@operator(
    vjp={
        "input": lambda g, grid, moves, input_shape, way: ops.sampled_input(
            g, grid, moves, tuple(input_shape[2:]), way
        ),
        "grid": lambda g, input, grid, moves, way: ops.sampled_grid(g, input, grid, moves, way),
        "moves": lambda g, input, grid, moves, way: [
            ops.sampled_grid(g, input, grid, _without(moves, i), way) for i in range(len(moves))
        ],
    },
    jvp={
        "input": lambda t, grid, moves, way: ops.sampled(t, grid, moves, way),
        "grid": lambda t, input, grid, moves, way: ops.sampled(input, grid, (*moves, t), way),
        "moves": lambda t, input, grid, moves, way, out: _total(
            _replaced(moves, t, lambda changed: ops.sampled(input, grid, changed, way)), out
        ),
    },
    spec=lambda input, grid, moves, way: Spec((*input.shape[:2], *grid.shape[1:-1]), input.dtype),
    home=(),
    samples=_samples(lambda image, points, grid, moves: (image, grid, moves)),
)
def sampled(input: Floating, grid: Floating, moves: Tensors, way: Way) -> Any:
    """Return the samples of an image (N, C, *spatial) at a grid (N, *points, dims), or their derivative along moves."""
    if moves:
        return derivatives.moved(input, grid, moves, *way)
    return kernels.grid_sample(input, grid, *way)


@operator(
    vjp={
        "g": lambda v, grid, moves, way: ops.sampled(v, grid, moves, way),
        "grid": lambda v, g, grid, moves, way: ops.sampled_grid(g, v, grid, moves, way),
        "moves": lambda v, g, grid, moves, way: [
            ops.sampled_grid(g, v, grid, _without(moves, i), way) for i in range(len(moves))
        ],
    },
    jvp={
        "g": lambda t, grid, moves, size, way: ops.sampled_input(t, grid, moves, size, way),
        "grid": lambda t, g, grid, moves, size, way: ops.sampled_input(g, grid, (*moves, t), size, way),
        "moves": lambda t, g, grid, moves, size, way, out: _total(
            _replaced(moves, t, lambda changed: ops.sampled_input(g, grid, changed, size, way)), out
        ),
    },
    spec=lambda g, grid, moves, size, way: Spec((*g.shape[:2], *size), g.dtype),
    home=(),
    samples=_samples(lambda image, points, grid, moves: (points, grid, moves), sized=True),
)
def sampled_input(g: Floating, grid: Floating, moves: Tensors, size: Any, way: Way) -> Any:
    """Transpose of ``sampled`` in the image, of spatial shape ``size``."""
    if moves:
        return derivatives.moved_input_grad(g, grid, moves, size, *way)
    return kernels.grid_sample_input_grad(g, grid, size, *way)


@operator(
    vjp={
        "g": lambda v, input, grid, moves, way: ops.sampled(input, grid, (*moves, v), way),
        "input": lambda v, g, grid, moves, input_shape, way: ops.sampled_input(
            g, grid, (*moves, v), tuple(input_shape[2:]), way
        ),
        "grid": lambda v, g, input, grid, moves, way: ops.sampled_grid(g, input, grid, (*moves, v), way),
        "moves": lambda v, g, input, grid, moves, way: [
            ops.sampled_grid(g, input, grid, (*_without(moves, i), v), way) for i in range(len(moves))
        ],
    },
    jvp={
        "g": lambda t, input, grid, moves, way: ops.sampled_grid(t, input, grid, moves, way),
        "input": lambda t, g, grid, moves, way: ops.sampled_grid(g, t, grid, moves, way),
        "grid": lambda t, g, input, grid, moves, way: ops.sampled_grid(g, input, grid, (*moves, t), way),
        "moves": lambda t, g, input, grid, moves, way, out: _total(
            _replaced(moves, t, lambda changed: ops.sampled_grid(g, input, grid, changed, way)), out
        ),
    },
    spec=lambda g, input, grid, moves, way: Spec(grid.shape, g.dtype),
    home=(),
    samples=_samples(lambda image, points, grid, moves: (points, image, grid, moves)),
)
def sampled_grid(g: Floating, input: Floating, grid: Floating, moves: Tensors, way: Way) -> Any:
    """Transpose of ``sampled`` in one more move: the derivative of ⟨g, sampled⟩ at the grid."""
    if moves:
        return derivatives.moved_grid_grad(g, input, grid, moves, *way)
    return kernels.grid_sample_grid_grad(g, input, grid, *way)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((1, 2, 3, 4), s.array(_GRID)), s((1, 2, 3, 4), s.array(_GRID), "bicubic", "border", True),
        s((1, 1, 2, 3, 2), s.array(_VOLUME), padding_mode="reflection"),
        s.error(RuntimeError, r"takes a grid", (1, 1, 2, 2), (2, 1, 1, 2)),
        s.error(ValueError, "no mode", (1, 1, 2, 2), s.array(_GRID), "cubic"),
    ],
)  # fmt: skip
def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Return the values of an image at the positions of a grid.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: (N, h, w, 2) or (N, d, h, w, 3): for each result the position x, y (, z), the last dimension of the image first,
            where -1 and 1 are the image's borders, or with ``align_corners`` the centres of its corner elements.
        mode: ``"bilinear"`` (trilinear for volumes), ``"nearest"`` or ``"bicubic"`` (images only).
        padding_mode: what lies outside: ``"zeros"``, the ``"border"``, or the image's ``"reflection"``.

    Returns:
        (N, C, h, w) or (N, C, d, h, w). The gradient at the grid is that of the side of larger coordinates where it jumps.

    Raises:
        RuntimeError: for shapes that do not fit. ValueError: for an unknown mode. TypeError: for different dtypes.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.grid_sample(wg.tensor([[[[1.0, 3.0]]]]), wg.zeros(1, 1, 1, 2))
        tensor([[[[2.]]]])
    """
    same_dtype("grid_sample", input=input, grid=grid)
    return ops.sampled(input, grid, (), (mode, padding_mode, bool(align_corners)))


def _centres(size: int, align_corners: bool) -> Any:
    """Return the coordinates of the elements of a dimension."""
    if size == 1:
        return np.zeros(1)
    return np.linspace(-1, 1, size) * (1 if align_corners else (size - 1) / size)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 2, 3), size=[2, 1, 2, 3]), s((1, 2, 3), size=(1, 1, 1, 2), align_corners=True),
        s((1, 3, 4), size=(1, 1, 2, 1, 2)), s.error(ValueError, "theta must be", (2, 3), size=(1, 1, 2, 2)),
        s.error(ValueError, "size must be", (1, 2, 3), size=(1, 2, 2)),
    ],
)  # fmt: skip
def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """Return the grid at which :func:`wengert.nn.functional.grid_sample` applies affine maps.

    Args:
        theta: (N, 2, 3) for images, (N, 3, 4) for volumes. size: the result's, (N, C, H, W) or (N, C, D, H, W).

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3).
    """
    sizes = tuple(size)
    dims = len(sizes) - 2
    if dims not in (2, 3) or min(sizes) < 1:
        raise ValueError(f"affine_grid(): size must be a positive (N, C, H, W) or (N, C, D, H, W), got {sizes}")
    if tuple(theta.shape) != (sizes[0], dims, dims + 1) or not theta.is_floating_point():
        raise ValueError(
            f"affine_grid(): theta must be a floating-point tensor of shape {(sizes[0], dims, dims + 1)} for size {sizes}, "
            f"got {theta.dtype} of shape {tuple(theta.shape)}"
        )
    axes = np.meshgrid(*[_centres(n, bool(align_corners)) for n in sizes[2:]], indexing="ij")
    base = np.stack([*axes[::-1], np.ones(sizes[2:])], -1).reshape(-1, dims + 1)
    grid = ops.from_numpy(base).to(theta.dtype) @ theta.mT
    return ops.reshape(grid, (sizes[0], *sizes[2:], dims))
