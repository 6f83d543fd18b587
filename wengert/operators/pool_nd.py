"""Pooling over the last dimensions, however many, with any dimensions before them.

``max_pool`` and ``adaptive_max_pool`` give maxima with their positions, along which their derivatives gather and
scatter; ``avg_pool`` and ``adaptive_avg_pool`` are linear.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from wengert.array.dtype import int64
from wengert.core.arguments import Inexact, Integer, Number, Real
from wengert.core.families import linear, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import adaptive_pooling, pooling

__all__ = [
    "adaptive_avg_pool", "adaptive_avg_pool_transpose", "adaptive_max_pool", "avg_pool", "avg_pool_transpose",
    "max_pool", "max_unpool", "pool_gather", "pool_scatter",
]  # fmt: skip

Sizes = Sequence[int]


def _split(shape: Sizes, dims: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the leading and the spatial sizes."""
    return tuple(shape[: len(shape) - dims]), tuple(shape[len(shape) - dims :])


def _spatial(shape: Sizes, like: Sizes) -> tuple[int, ...]:
    """Return the spatial sizes, as many as ``like`` has."""
    return _split(shape, len(like))[1]


def _scattered(g: Any, indices: Any, input_shape: Sizes, like: Sizes) -> Any:
    return ops.pool_scatter(g, indices, _spatial(input_shape, like))


def _pooled(
    name: str, shape: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[int, ...]:
    counts = pooling.pool_counts(name, shape, kernel, stride, padding, dilation, ceil_mode)
    return (*_split(shape, len(kernel))[0], *counts)


def _placed_spec(name: str, input: Spec, indices: Spec, size: Sizes) -> Spec:
    pooling.check_places(name, input.shape, indices.shape, size)
    return Spec((*_split(input.shape, len(size))[0], *size), input.dtype)


def _taken_spec(input: Spec, indices: Spec, dims: int) -> Spec:
    pooling.check_taken(input.shape, indices.shape, dims)
    return Spec(indices.shape, input.dtype)


@operator(
    vjp={"input": lambda g, indices, size: ops.pool_gather(g, indices, len(size))},
    jvp={"input": lambda t, indices, size: ops.pool_scatter(t, indices, size)},
    batch="front",
    spec=partial(_placed_spec, "max_pool_input_grad"),
    home=(),
    samples=lambda s: [
        s((2, 3), s.array([[0, 2, 2], [3, 1, 0]]), size=(4,)), s((1, 2, 2), s.array([[[0, 5], [1, 1]]]), size=(2, 3)),
        s((0, 2), s.tensor((0, 2), kind="integer"), size=(3,)),
        s.error(IndexError, "out of bounds", (2,), s.array([0, 3]), size=(3,)),
    ],
)  # fmt: skip
def pool_scatter(input: Number, indices: Integer, size: Any) -> Any:
    """Add elements into zeros of spatial shape ``size`` at flat positions."""
    return pooling.max_pool_input_grad(input, indices, size)


@operator(
    vjp={"input": lambda g, indices, dims, input_shape: ops.pool_scatter(g, indices, _split(input_shape, dims)[1])},
    jvp={"input": lambda t, indices, dims: ops.pool_gather(t, indices, dims)},
    batch="front",
    spec=_taken_spec,
    home=(),
    samples=lambda s: [
        s((2, 4), s.array([[0, 2, 2], [3, 1, 0]]), dims=1), s((1, 2, 3), s.array([[[0, 5], [1, 1]]]), dims=2),
        s((0, 3), s.tensor((0, 2), kind="integer"), dims=1),
        s.error(RuntimeError, "do not fit x", (2, 3), s.array([[0, 1]]), dims=1),
    ],
)  # fmt: skip
def pool_gather(input: Number, indices: Integer, dims: Any) -> Any:
    """Take the elements at flat positions of the last ``dims`` dimensions."""
    return pooling.max_pool_gather(input, indices, dims)


@operator(
    vjp={"input": lambda g, indices, size: ops.pool_gather(g, indices, len(size))},
    jvp={"input": lambda t, indices, size: ops.max_unpool(t, indices, size)},
    batch="front",
    spec=partial(_placed_spec, "max_unpool"),
    widen=False,
    home=(),
    samples=lambda s: [
        s((2, 2), s.array([[0, 2], [3, 1]]), size=(4,)), s((1, 2, 2), s.array([[[0, 5], [1, 3]]]), size=(2, 3)),
        s(s.array([2.0, 2.0]), s.array([1, 1]), size=(3,), grad=False),
        s.error(RuntimeError, "do not fit an array", (1, 2), s.array([[0]]), size=(4,)),
        s.error(RuntimeError, "no spatial shape", (1, 2), s.array([[0, 1]]), size=(-2,)),
    ],
)  # fmt: skip
def max_unpool(input: Number, indices: Integer, size: Any) -> Any:
    """Write elements into zeros of spatial shape ``size`` at flat positions."""
    return pooling.max_unpool(input, indices, size)


def _max_spec(
    input: Spec, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[Spec, Spec]:
    shape = _pooled("max_pool", input.shape, kernel, stride, padding, dilation, ceil_mode)
    return Spec(shape, input.dtype), Spec(shape, int64)


def _window(
    kernel: Sizes, stride: Any = None, padding: Any = None, dilation: Any = None, ceil_mode: bool = False
) -> dict[str, Any]:
    """Return the arguments of a sample."""
    found = {
        "kernel": kernel,
        "stride": stride or kernel,
        "padding": padding or (0,) * len(kernel),
        "ceil_mode": ceil_mode,
    }
    return found if dilation is None else {**found, "dilation": dilation}


@operator(
    outputs=("values", "indices"),
    vjp={"input": lambda g, indices, kernel, input_shape: _scattered(g[0], indices, input_shape, kernel)},
    jvp={"input": lambda t, indices, kernel: (ops.pool_gather(t, indices, len(kernel)), None)},
    batch="front",
    spec=_max_spec,
    home=(),
    samples=lambda s: [
        s((2, 5), **_window((2,), dilation=(1,))), s((1, 2, 5), **_window((3,), (2,), (1,), (1,), True)),
        s((1, 3, 4), **_window((2, 2), (1, 2), (1, 0), (1, 2))),
        s((1, 2, 2, 3), **_window((2, 1, 2), dilation=(1, 1, 1))), s((0, 2, 4), **_window((2,), dilation=(1,))),
        s((1, 4), **_window((2,), dilation=(1,)), kind="integer"),
        s(s.array([[1.0, 1.0, np.nan, 0.0]]), **_window((2,), dilation=(1,)), grad=False),
        s(s.array([[-np.inf, -np.inf]]), **_window((2,), dilation=(1,)), grad=False),
        s.error(RuntimeError, "no window", (1, 2), **_window((3,), dilation=(1,))),
        s.error(RuntimeError, "more than half", (1, 4), **_window((2,), padding=(2,), dilation=(1,))),
    ],
)  # fmt: skip
def max_pool(input: Real, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any) -> Any:
    """Return the maximum of each window and its flat position; of equal ones the first, and NaN before all."""
    return pooling.max_pool(input, kernel, stride, padding, dilation, ceil_mode)


def _avg_spec(
    input: Spec, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Spec:  # fmt: skip
    pooling.check_divisor(divisor_override)
    return Spec(_pooled("avg_pool", input.shape, kernel, stride, padding, (1,) * len(kernel), ceil_mode), input.dtype)


def _avg_transpose_spec(
    input: Spec, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool,
    count_include_pad: Any = True, divisor_override: Any = None,
) -> Spec:  # fmt: skip
    given = Spec((*_split(input.shape, len(kernel))[0], *size), input.dtype)
    _avg_spec(given, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return given


@linear(
    transpose=lambda g, input_shape, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override: (
        ops.avg_pool_transpose(
            g, _spatial(input_shape, kernel), kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
        )
    ),
    batch="front",
    spec=_avg_spec,
    home=(),
    samples=lambda s: [
        s((2, 5), **_window((2,))), s((1, 2, 5), **_window((3,), (2,), (1,), None, True)),
        s((1, 3, 4), **_window((2, 2), (1, 2), (1, 0)), count_include_pad=False),
        s((1, 4), **_window((2,)), divisor_override=3), s((1, 2, 2, 3), **_window((2, 1, 2))),
        s((0, 2, 4), **_window((2,))), s((1, 4), **_window((2,)), kind="complex"),
        s((1, 4), **_window((2,)), kind="integer"),
        s.error(ValueError, "must not be 0", (1, 4), **_window((2,)), divisor_override=0),
        s.error(TypeError, "must be an int or None", (1, 4), **_window((2,)), divisor_override="two"),
        s.error(RuntimeError, "no window", (1, 2), **_window((3,))),
    ],
)  # fmt: skip
def avg_pool(
    input: Number, kernel: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Return the average of each window."""
    return pooling.avg_pool(input, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)


@linear(
    transpose=lambda g, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override: ops.avg_pool(
        g, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    ),
    batch="front",
    spec=_avg_transpose_spec,
    home=(),
    samples=lambda s: [
        s((2, 2), size=(5,), **_window((2,))), s((1, 3), size=(5,), **_window((3,), (2,), (1,), None, True)),
        s((1, 4, 2), size=(3, 4), **_window((2, 2), (1, 2), (1, 0)), count_include_pad=False),
        s((1, 2), size=(4,), **_window((2,)), divisor_override=3),
    ],
)  # fmt: skip
def avg_pool_transpose(
    input: Number, size: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Spread averages evenly over their windows: the transpose of ``avg_pool``."""
    return pooling.avg_pool_input_grad(
        input, size, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _parts_spec(input: Spec, size: Sizes) -> Spec:
    lead, sizes = _split(input.shape, len(size))
    if any(n < 0 for n in size) or any(n < 1 for n in sizes):
        raise ShapeError(f"adaptive pooling: cannot divide spatial shape {sizes} into {tuple(size)} parts")
    return Spec((*lead, *size), input.dtype)


@linear(
    transpose=lambda g, input_shape, size: ops.adaptive_avg_pool_transpose(g, _spatial(input_shape, size)),
    batch="front",
    spec=_parts_spec,
    home=(),
    samples=lambda s: [
        s((2, 5), size=(3,)), s((1, 4, 3), size=(2, 2)), s((1, 2, 3, 2), size=(1, 1, 1)), s((1, 3), size=(5,)),
        s((1, 3), size=(0,)), s((1, 3), size=(2,), kind="complex"),
        s.error(RuntimeError, "cannot divide", (1, 0), size=(2,)),
        s.error(RuntimeError, "cannot divide", (1, 3), size=(-1,)),
    ],
)  # fmt: skip
def adaptive_avg_pool(input: Inexact, size: Any) -> Any:
    """Return averages over ``size`` parts of each spatial dimension."""
    return adaptive_pooling.adaptive_avg_pool(input, size)


@linear(
    transpose=lambda g, input_shape, size: ops.adaptive_avg_pool(g, _spatial(input_shape, size)),
    batch="front",
    spec=lambda input, size: Spec((*_split(input.shape, len(size))[0], *size), input.dtype),
    home=(),
    samples=lambda s: [s((2, 3), size=(5,)), s((1, 2, 2), size=(4, 3)), s((1, 5), size=(3,))],
)
def adaptive_avg_pool_transpose(input: Inexact, size: Any) -> Any:
    """Spread averages evenly over their parts: the transpose of ``adaptive_avg_pool``."""
    return adaptive_pooling.adaptive_avg_pool_input_grad(input, size)


def _adaptive_max_spec(input: Spec, size: Sizes) -> tuple[Spec, Spec]:
    found = _parts_spec(input, size)
    return found, Spec(found.shape, int64)


@operator(
    outputs=("values", "indices"),
    vjp={"input": lambda g, indices, size, input_shape: _scattered(g[0], indices, input_shape, size)},
    jvp={"input": lambda t, indices, size: (ops.pool_gather(t, indices, len(size)), None)},
    batch="front",
    spec=_adaptive_max_spec,
    home=(),
    samples=lambda s: [
        s((2, 5), size=(3,)), s((1, 4, 3), size=(2, 2)), s((1, 2, 3, 2), size=(1, 2, 1)), s((1, 3), size=(5,)),
        s((1, 3), size=(0,)), s(s.array([[1.0, np.nan, 2.0]]), size=(1,), grad=False),
        s.error(RuntimeError, "cannot divide", (1, 0), size=(2,)),
    ],
)  # fmt: skip
def adaptive_max_pool(input: Real, size: Any) -> Any:
    """Return the maximum of each of ``size`` parts of each spatial dimension, and its flat position."""
    return adaptive_pooling.adaptive_max_pool(input, size)
