"""Sampling an image or a volume at the positions of a grid, and grids of affine maps.

The argument ``points`` of the operators here is a grid, and moves of it: with moves they give the derivative along
them, one after the other. ``sampled`` is linear in the image and in each move. With its transposes, ``sampled_input``
in the image and ``sampled_grid`` in one more move, it is closed under differentiation: a derivative at the grid is
another move.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.arguments import Floating, Tensors
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import ShapeError
from wengert.kernels import grid_sample as kernels
from wengert.kernels import grid_sample_moves as derivatives
from wengert.operators.checks import same_dtype
from wengert.operators.fold_batch import fold_all

__all__ = ["affine_grid", "grid_sample", "sampled", "sampled_grid", "sampled_input"]

Points = tuple[Any, ...]


def _each(points: Points, function: Callable[[Points], Any]) -> list[Any]:
    """Return the cotangents of the grid and of each move; ``function`` gives that of a move added to its argument."""
    return [function(points), *[function((*points[:i], *points[i + 1 :])) for i in range(1, len(points))]]


def _along(points: Points, tangents: Sequence[Any], function: Callable[[Points], Any]) -> Any:
    """Return the tangent of ``function(points)``: that of the grid is one more move, that of a move takes its place."""
    terms = [function((*points, tangents[0]))] if tangents[0] is not None else []
    for i, t in enumerate(tangents[1:], 1):
        if t is not None:
            terms.append(function((*points[:i], t, *points[i + 1 :])))
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# Positions away from elements, where the derivatives of linear sampling jump.
_GRID = [[[[-0.4, 0.3], [0.7, -0.2]], [[0.1, 0.55], [1.3, -0.35]]]]
_VOLUME = [[[[[-0.4, 0.3, 0.15], [0.7, -0.2, 0.6]]]]]
_WAYS = (
    ("bilinear", "zeros", False),
    ("bilinear", "border", True),
    ("bilinear", "reflection", False),
    ("nearest", "zeros", False),
    ("bicubic", "zeros", False),
    ("bicubic", "reflection", True),
)


def _samples(arguments: Any, sized: bool = False) -> Any:
    """Return the samples of an operator: images in every way, a volume, and some with moves."""
    image, results = (1, 2, 3, 4), (1, 2, 2, 2)

    def calls(s: Any) -> list[Any]:
        size = {"size": image[2:]} if sized else {}
        found = [s(*arguments(image, results, [s.array(_GRID)]), way=way, **size) for way in _WAYS]
        for mode, count in (("bilinear", 1), ("bicubic", 1), ("bicubic", 2)):
            moved = arguments(image, results, [s.array(_GRID), *[(1, 2, 2, 2)] * count])
            found.append(s(*moved, way=(mode, "zeros", False), **size))
        volume = arguments((1, 1, 2, 3, 2), (1, 1, 1, 1, 2), [s.array(_VOLUME)])
        return [*found, s(*volume, way=_WAYS[0], **({"size": (2, 3, 2)} if sized else {}))]

    return calls


def _sampled_spec(input: Spec, points: tuple[Spec, ...], way: Any) -> Spec:
    kernels.check_sampling("grid_sample", input.shape, points[0].shape, way[0], way[1])
    return Spec((*input.shape[:2], *points[0].shape[1:-1]), input.dtype)


def _sampled_input_spec(g: Spec, points: tuple[Spec, ...], size: Any, way: Any) -> Spec:
    shape = (*g.shape[:2], *size)
    kernels.check_sampling("grid_sample_input_grad", shape, points[0].shape, way[0], way[1], g.shape)
    return Spec(shape, g.dtype)


def _sampled_grid_spec(g: Spec, input: Spec, points: tuple[Spec, ...], way: Any) -> Spec:
    kernels.check_sampling("grid_sample_grid_grad", input.shape, points[0].shape, way[0], way[1], g.shape)
    return Spec(points[0].shape, g.dtype)


@operator(
    vjp={
        "input": lambda g, points, input_shape, way: ops.sampled_input(g, points, tuple(input_shape[2:]), way),
        "points": lambda g, input, points, way: _each(points, lambda p: ops.sampled_grid(g, input, p, way)),
    },
    jvp={
        "input": lambda t, points, way: ops.sampled(t, points, way),
        "points": lambda t, input, points, way: _along(points, t, lambda p: ops.sampled(input, p, way)),
    },
    batch=fold_all,
    spec=_sampled_spec,
    home=(),
    samples=_samples(lambda image, results, points: (image, points)),
)
def sampled(input: Floating, points: Tensors, way: Any) -> Any:
    """Return the samples of an image (N, C, *spatial) at a grid (N, *results, dims).

    Args:
        points: the grid, and moves of it. way: (mode, padding_mode, align_corners).
    """
    grid, *moves = points
    return derivatives.moved(input, grid, moves, *way) if moves else kernels.grid_sample(input, grid, *way)


@operator(
    vjp={
        "g": lambda v, points, way: ops.sampled(v, points, way),
        "points": lambda v, g, points, way: _each(points, lambda p: ops.sampled_grid(g, v, p, way)),
    },
    jvp={
        "g": lambda t, points, size, way: ops.sampled_input(t, points, size, way),
        "points": lambda t, g, points, size, way: _along(points, t, lambda p: ops.sampled_input(g, p, size, way)),
    },
    batch=fold_all,
    spec=_sampled_input_spec,
    home=(),
    samples=_samples(lambda image, results, points: (results, points), sized=True),
)
def sampled_input(g: Floating, points: Tensors, size: Any, way: Any) -> Any:
    """Transpose of ``sampled`` in the image, of spatial shape ``size``."""
    grid, *moves = points
    if moves:
        return derivatives.moved_input_grad(g, grid, moves, size, *way)
    return kernels.grid_sample_input_grad(g, grid, size, *way)


@operator(
    vjp={
        "g": lambda v, input, points, way: ops.sampled(input, (*points, v), way),
        "input": lambda v, g, points, input_shape, way: ops.sampled_input(g, (*points, v), tuple(input_shape[2:]), way),
        "points": lambda v, g, input, points, way: _each(points, lambda p: ops.sampled_grid(g, input, (*p, v), way)),
    },
    jvp={
        "g": lambda t, input, points, way: ops.sampled_grid(t, input, points, way),
        "input": lambda t, g, points, way: ops.sampled_grid(g, t, points, way),
        "points": lambda t, g, input, points, way: _along(points, t, lambda p: ops.sampled_grid(g, input, p, way)),
    },
    batch=fold_all,
    spec=_sampled_grid_spec,
    home=(),
    samples=_samples(lambda image, results, points: (results, image, points)),
)
def sampled_grid(g: Floating, input: Floating, points: Tensors, way: Any) -> Any:
    """Transpose of ``sampled`` in one more move: the derivative of ⟨g, sampled⟩ at the grid."""
    grid, *moves = points
    if moves:
        return derivatives.moved_grid_grad(g, input, grid, moves, *way)
    return kernels.grid_sample_grid_grad(g, input, grid, *way)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((1, 2, 3, 4), s.array(_GRID), align_corners=False),
        s((1, 2, 3, 4), s.array(_GRID), "bicubic", "border", True),
        s((1, 1, 2, 3, 2), s.array(_VOLUME), padding_mode="reflection", align_corners=False),
        s.error(RuntimeError, r"takes a grid", (1, 1, 2, 2), (2, 1, 1, 2)),
        s.error(RuntimeError, "is for images", (1, 1, 2, 3, 2), s.array(_VOLUME), "bicubic"),
        s.error(RuntimeError, "empty array", (1, 1, 0, 2), s.array(_GRID)),
        s.error(ValueError, "no mode", (1, 1, 2, 2), s.array(_GRID), "cubic"),
        s.error(ValueError, "padding_mode 'mirror'", (1, 1, 2, 2), s.array(_GRID), padding_mode="mirror"),
    ],
)
def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Return the values of an image at the positions of a grid.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: (N, h, w, 2) or (N, d, h, w, 3): for each result the position x, y (, z), the image's last dimension
            first, where -1 and 1 are its borders, or with ``align_corners`` the centres of its corner elements.
        mode: ``"bilinear"`` (trilinear for volumes), ``"nearest"`` or ``"bicubic"`` (images only).
        padding_mode: what lies outside: ``"zeros"``, the ``"border"``, or the image's ``"reflection"``.

    Returns:
        (N, C, h, w) or (N, C, d, h, w). Where the gradient at the grid jumps, it is that of larger coordinates.

    Raises:
        RuntimeError: for shapes that do not fit. ValueError: for an unknown mode. TypeError: for different dtypes.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.grid_sample(wg.tensor([[[[1.0, 3.0]]]]), wg.zeros(1, 1, 1, 2))
        tensor([[[[2.]]]])
    """
    same_dtype("grid_sample", input=input, grid=grid)
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise ShapeError(
            "grid_sample(): input (N, C, H, W) takes a grid (N, h, w, 2), input (N, C, D, H, W) a grid (N, d, h, w, 3); got "
            f"{tuple(input.shape)} and {tuple(grid.shape)}"
        )
    return ops.sampled(input, (grid,), (mode, padding_mode, bool(align_corners)))


_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _by_number(name: str, dims: int, input: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    """Sample as :func:`grid_sample` does, its options given by their numbers in PyTorch."""
    if mode not in range(3) or padding not in range(3):
        raise ValueError(f"{name}(): interpolation_mode and padding_mode must be 0, 1 or 2, got {mode} and {padding}")
    if dims and input.ndim != dims + 2:
        raise ShapeError(f"{name}(): input must have {dims + 2} dimensions, got shape {tuple(input.shape)}")
    return ops.grid_sample(input, grid, _MODES[mode], _PADDINGS[padding], align_corners)


@composite(samples=lambda s: [s((1, 2, 3, 4), s.array(_GRID), 0, 0, False)])
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Sample as :func:`wengert.nn.functional.grid_sample` does: 0, 1, 2 are bilinear, nearest, bicubic; zeros, border, …"""
    return _by_number("grid_sampler", 0, input, grid, interpolation_mode, padding_mode, align_corners)


@composite(samples=lambda s: [s((1, 2, 3, 4), s.array(_GRID), 2, 1, True)])
def grid_sampler_2d(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Sample images as :func:`grid_sampler` does."""
    return _by_number("grid_sampler_2d", 2, input, grid, interpolation_mode, padding_mode, align_corners)


@composite(samples=lambda s: [s((1, 1, 2, 3, 2), s.array(_VOLUME), 0, 2, False)])
def grid_sampler_3d(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    """Sample volumes as :func:`grid_sampler` does."""
    return _by_number("grid_sampler_3d", 3, input, grid, interpolation_mode, padding_mode, align_corners)


def _centres(size: int, align_corners: bool) -> Any:
    """Return the coordinates of the elements of a dimension."""
    if size == 1:
        return np.zeros(1)
    return np.linspace(-1, 1, size) * (1 if align_corners else (size - 1) / size)


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 2, 3), size=[2, 1, 2, 3], align_corners=False),
        s((1, 2, 3), size=(1, 1, 2, 2), align_corners=True),
        s((1, 3, 4), size=(1, 1, 2, 1, 2), align_corners=False),
        s.error(ValueError, "theta must be", (2, 3), size=(1, 1, 2, 2)),
        s.error(ValueError, "size must be", (1, 2, 3), size=(1, 2, 2)),
    ],
)
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
            f"affine_grid(): theta must be a floating-point tensor of shape {(sizes[0], dims, dims + 1)} for "
            f"size {sizes}, got {theta.dtype} of shape {tuple(theta.shape)}"
        )
    axes = np.meshgrid(*[_centres(n, bool(align_corners)) for n in sizes[2:]], indexing="ij")
    base = np.stack([*axes[::-1], np.ones(sizes[2:])], -1).reshape(-1, dims + 1)
    grid = from_array(base).to(theta.dtype) @ theta.mT
    return ops.reshape(grid, (sizes[0], *sizes[2:], dims))
