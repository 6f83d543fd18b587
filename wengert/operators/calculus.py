"""Differences, gradients and integrals of sampled functions along one dimension."""

from collections.abc import Sequence
from typing import Any

from wengert.array.shape import axes_of, axis_of
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError

__all__ = ["cumulative_trapezoid", "diff", "gradient", "trapezoid"]


def _from(x: Any, dim: int, start: int, step: int = 0) -> Any:
    """Return the elements from ``start`` on, less ``step`` at the end."""
    size = x.shape[dim]
    return ops.narrow(x, dim, min(start, size), max(0, size - start - step))


@composite(
    method=True,
    samples=lambda s: [
        s((2, 4)), s((2, 4), 2), s((2, 4), 1, 0), s((2, 4), 0), s((2, 2), 5),
        s((2, 4), 0, prepend=s.tensor((2, 1))),
        s((2, 4), prepend=s.tensor((2, 1)), append=s.tensor((2, 2))), s((4,), kind="boolean"), s((4,), kind="integer"),
        s.error(ValueError, "at least 1 dimension", ()), s.error(ValueError, "n must not be negative", (3,), -1),
    ],
)  # fmt: skip
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Return the ``n``-th differences x[i+1] - x[i] along ``dim``; of bools, whether neighbours differ.

    Args:
        prepend, append: tensors to join to the input along ``dim`` first.
    """
    if input.ndim < 1:
        raise ShapeError("diff(): input must have at least 1 dimension, got a 0-d tensor")
    if n < 0:
        raise ValueError(f"diff(): n must not be negative, got {n}")
    dim = axis_of(dim, input.ndim)
    if not n:  # nothing is joined to it either, as in PyTorch and NumPy
        return ops.clone(input)
    parts = [part for part in (prepend, input, append) if part is not None]
    x = parts[0] if len(parts) == 1 else ops.cat(parts, dim)
    for _ in range(n):
        later, earlier = _from(x, dim, 1), _from(x, dim, 0, 1)
        x = ops.logical_xor(later, earlier) if x.dtype.category == 0 else later - earlier
    return x


def _widths(name: str, y: Any, x: Any, dx: Any, dim: int) -> Any:
    """Return the widths of the intervals between samples: a number, or a tensor that goes with the intervals of y."""
    if x is None:
        return 1 if dx is None else dx
    if dx is not None:
        raise TypeError(f"{name}(): give x or dx, not both")
    if x.ndim == 1 and y.ndim != 1:
        if x.shape[0] != y.shape[dim]:
            raise ShapeError(
                f"{name}(): {x.shape[0]} points x do not fit dimension {dim} of y of shape {tuple(y.shape)}"
            )
        x = ops.reshape(x, [-1 if i == dim else 1 for i in range(y.ndim)])
    return ops.diff(x, dim=dim - y.ndim)


def _integral_samples(s: Any) -> list[Any]:
    return [
        s((2, 4)), s((2, 4), dx=0.5), s((2, 4), (4,)), s((2, 4), (2, 4)), s((2, 4), dim=0), s((2, 4), (2,), dim=0),
        s((4,), (4,)), s((2, 1)), s.error(ValueError, "do not fit", (2, 4), (3,)),
        s.error(TypeError, "not both", (4,), (4,), dx=1.0),
    ]  # fmt: skip


@composite(method=False, aliases=("trapz",), samples=_integral_samples)
def trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Any:
    """Return the integral of samples ``y`` along ``dim`` by the trapezoidal rule, at points ``x`` or ``dx`` apart."""
    dim = axis_of(dim, y.ndim)
    width = _widths("trapezoid", y, x, dx, dim)
    return ops.sum((_from(y, dim, 1) + _from(y, dim, 0, 1)) * width, dim) / 2


@composite(method=False, samples=_integral_samples)
def cumulative_trapezoid(y: Any, x: Any = None, *, dx: Any = None, dim: int = -1) -> Any:
    """Return the running integral of samples ``y`` along ``dim`` by the trapezoidal rule; see :func:`trapezoid`."""
    dim = axis_of(dim, y.ndim)
    width = _widths("cumulative_trapezoid", y, x, dx, dim)
    return ops.cumsum((_from(y, dim, 1) + _from(y, dim, 0, 1)) * width, dim) / 2


# ---- gradient


def _spacings(input: Any, spacing: Any, dims: tuple[int, ...]) -> list[Any]:
    """Return, for each dimension, the distance of neighbouring samples or a vector of their coordinates."""
    if isinstance(spacing, Tensor) or not isinstance(spacing, Sequence):
        spacing = [spacing] * len(dims)
    if len(spacing) != len(dims):
        raise ValueError(f"gradient(): {len(spacing)} spacings do not fit {len(dims)} dimensions")
    for dim, h in zip(dims, spacing, strict=True):
        if isinstance(h, Tensor) and h.ndim and tuple(h.shape) != (input.shape[dim],):
            raise ShapeError(
                f"gradient(): dimension {dim} of size {input.shape[dim]} takes as many coordinates, got shape "
                f"{tuple(h.shape)}"
            )
    return list(spacing)


def _edge(x: Any, h: Any, dim: int, order: int, first: bool) -> Any:
    """Return the one-sided difference quotient of order 1 or 2 at one end, the dimension kept."""
    size = x.shape[dim]
    places = range(order + 1) if first else range(size - 1, size - order - 2, -1)
    values = [ops.narrow(x, dim, i, 1) for i in places]
    if isinstance(h, Tensor) and h.ndim:
        points = [ops.narrow(h, 0, i, 1) for i in places]
        near, far = points[1] - points[0], points[-1] - points[0]
    else:
        near = h if first else -h
        far = near * order
    if order == 1:
        return (values[1] - values[0]) / _along(near, x.ndim, dim)
    near, far = _along(near, x.ndim, dim), _along(far, x.ndim, dim)
    return (
        values[1] * (far / (near * (far - near)))
        - values[0] * ((near + far) / (near * far))
        - values[2] * (near / (far * (far - near)))
    )


def _along(h: Any, ndim: int, dim: int) -> Any:
    return ops.reshape(h, [-1 if i == dim else 1 for i in range(ndim)]) if isinstance(h, Tensor) and h.ndim else h


def _inner(x: Any, h: Any, dim: int) -> Any:
    """Return the central difference quotient, of second order for uneven spacings too."""
    before, here, after = (ops.narrow(x, dim, i, x.shape[dim] - 2) for i in range(3))
    if not (isinstance(h, Tensor) and h.ndim):
        return (after - before) / (2 * h)
    steps = ops.diff(h)
    left = _along(ops.narrow(steps, 0, 0, len(steps) - 1), x.ndim, dim)
    right = _along(ops.narrow(steps, 0, 1, len(steps) - 1), x.ndim, dim)
    total = left + right
    return (
        after * (left / (right * total)) + here * ((right - left) / (left * right)) - before * (right / (left * total))
    )


@composite(
    samples=lambda s: [
        s((5,)), s((3, 4)), s((3, 4), dim=1), s((3, 4), spacing=0.5, dim=[0, 1], edge_order=2),
        s((2, 4), spacing=[2.0, 0.5]), s((4,), spacing=[s.array([0.0, 1.0, 3.0, 4.0])]),
        s((4,), spacing=[s.array([0.0, 1.0, 3.0, 4.0])], edge_order=2),
        s.error(ValueError, "at least 3", (2,), edge_order=2), s.error(ValueError, "edge_order", (4,), edge_order=3),
        s.error(ValueError, "spacings", (3, 4), spacing=[1.0]),
    ],
)  # fmt: skip
def gradient(input: Any, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Any, ...]:
    """Return the partial derivatives of a sampled function: central differences inside, one-sided ones at the ends.

    Args:
        spacing: the distance of neighbouring samples, for all dimensions or one for each; or a list with a vector of
            coordinates for each dimension; 1 by default. dim: an int or several; None for all. edge_order: 1 or 2.
    """
    if edge_order not in (1, 2):
        raise ValueError(f"gradient(): edge_order must be 1 or 2, got {edge_order}")
    dims = axes_of(dim, input.ndim)
    found = []
    for d, h in zip(dims, _spacings(input, 1 if spacing is None else spacing, dims), strict=True):
        if input.shape[d] <= edge_order:
            raise ShapeError(
                f"gradient(): dimension {d} of size {input.shape[d]} needs at least {edge_order + 1} samples"
            )
        ends = [_edge(input, h, d, edge_order, first) for first in (True, False)]
        found.append(ops.cat((ends[0], _inner(input, h, d), ends[1]), d))
    return tuple(found)
