"""Padding: with a constant, by reflection, with the border element, periodically. All of it is linear in the tensor."""

from collections.abc import Sequence
from typing import Any

from wengert.array.shape import as_int
from wengert.core.apply import execute
from wengert.core.arguments import Anything, Number
from wengert.core.families import composite, linear, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import padding as kernels

__all__ = ["constant_pad_nd", "edge_pad", "edge_pad_transpose", "pad"]

Pairs = list[tuple[int, int]]


def _pairs(pad: Any, ndim: int) -> Pairs:
    """Return PyTorch's flat list (the last dimension first) as (before, after) per dimension, in their order.

    Raises:
        ShapeError: for an odd number of sizes, or more than the tensor has room for.
    """
    if not isinstance(pad, Sequence) or isinstance(pad, str):
        raise TypeError(f"pad(): pad must be a sequence of ints, got {type(pad).__name__}")
    sizes = [as_int(p, "pad") for p in pad]
    if len(sizes) % 2 or len(sizes) > 2 * ndim:
        raise ShapeError(
            f"pad(): pad must hold two sizes for each padded dimension, the last dimension first, and at most "
            f"{2 * ndim} for a tensor of {ndim} dimensions, got {len(sizes)}: {tuple(sizes)}"
        )
    return list(zip(sizes[-2::-2], sizes[::-2], strict=True))


def _padded(shape: Sequence[int], pairs: Pairs) -> tuple[int, ...]:
    kept = len(shape) - len(pairs)
    sizes = [n + before + after for n, (before, after) in zip(shape[kept:], pairs, strict=True)]
    left = [n + min(before, 0) + min(after, 0) for n, (before, after) in zip(shape[kept:], pairs, strict=True)]
    if any(size < 0 for size in (*sizes, *left)):
        raise ShapeError(f"pad(): {pairs} (before, after) remove more elements than shape {tuple(shape)} has")
    return (*shape[:kept], *sizes)


def _pad_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    _pairs(values[1], values[0].ndim - 1)  # the batch itself is not padded
    return execute(op, values)


def _opposite(pad: Sequence[int]) -> tuple[int, ...]:
    return tuple(-p for p in pad)


@operator(
    vjp={"input": lambda g, pad: ops.constant_pad_nd(g, _opposite(pad))},
    jvp={"input": lambda t, pad: ops.constant_pad_nd(t, pad)},
    batch=_pad_batch,
    spec=lambda input, pad, value=0: Spec(_padded(input.shape, _pairs(pad, input.ndim)), input.dtype),
    widen=False,
    method=False,
    samples=lambda s: [
        s((2, 3), pad=(1, 2)), s((2, 3), pad=(1, 0, 0, 2), value=1.5), s((2, 4), pad=(-1, -2)),
        s((2, 3), pad=(-1, 2, 1, -1)), s((2,), pad=()), s((), pad=()), s((0, 2), pad=(1, 1, 2, 0)),
        s((2, 3), pad=(-3, 0)), s((2, 2), pad=(-2, 2)), s((2,), pad=(1, 0), kind="complex"),
        s((2,), pad=(0, 1), value=7, kind="integer"), s((2,), pad=(1, 1), kind="boolean"),
        s.error(RuntimeError, "two sizes for each", (2,), pad=(1, 1, 1)),
        s.error(RuntimeError, "two sizes for each", (2,), pad=(1, 1, 1, 1)),
        s.error(RuntimeError, "remove more elements", (2,), pad=(-2, -1)),
        s.error(RuntimeError, "remove more elements", (2,), pad=(-3, 2)),
        s.error(TypeError, "must be an int", (2,), pad=(0.5, 1)),
    ],
)  # fmt: skip
def constant_pad_nd(input: Anything, pad: Any, value: Any = 0) -> Any:
    """Pad the last dimensions with ``value``; negative sizes remove elements. See :func:`wengert.nn.functional.pad`."""
    pairs = _pairs(pad, input.ndim)
    _padded(input.shape, pairs)
    return kernels.pad_constant(input, pairs, value)


def _edge_samples(s: Any) -> list[Any]:
    return [
        s((1, 2, 4), pad=(2, 1), mode="reflect"), s((1, 3), pad=(2, 1), mode="replicate"),
        s((1, 3), pad=(3, 1), mode="circular"), s((1, 3, 3), pad=(1, 2, 0, 1), mode="reflect"),
        s((3, 2), pad=(1, 0, 2, 2), mode="replicate"), s((2, 3), pad=(-1, 1, 1, 0), mode="circular"),
        s((1, 4), pad=(-1, 2), mode="reflect"), s((1, 4), pad=(2, -2), mode="replicate"),
        s((0, 2), pad=(1, 1), mode="replicate"), s((2, 2), pad=(0, 0), mode="reflect"),
        s((1, 3), pad=(1, 1), mode="circular", kind="complex"),
    ]  # fmt: skip


def _edge_spec(input: Spec, pad: Any, mode: Any) -> Spec:
    pairs = _pairs(pad, input.ndim)
    kernels.check_edges(input.shape, pairs, mode)
    return Spec(_padded(input.shape, pairs), input.dtype)


def _edge_transpose_spec(input: Spec, pad: Any, mode: Any) -> Spec:
    shape = _padded(input.shape, _pairs(_opposite(pad), input.ndim))
    kernels.check_edges(shape, _pairs(pad, input.ndim), mode)
    return Spec(shape, input.dtype)


@linear(
    transpose=lambda g, pad, mode: ops.edge_pad_transpose(g, pad, mode),
    batch=_pad_batch,
    spec=_edge_spec,
    widen=False,
    home=(),
    samples=lambda s: [
        *_edge_samples(s),
        s.error(RuntimeError, "at most 1 elements", (1, 2), pad=(2, 0), mode="reflect"),
        s.error(RuntimeError, "at most 2 elements", (1, 2), pad=(0, 3), mode="circular"),
        s.error(RuntimeError, "at most 1 elements", (1, 3), pad=(-2, 3), mode="circular"),
        s.error(ValueError, "mode must be", (1, 2), pad=(0, 0), mode="mirror"),
    ],
)
def edge_pad(input: Number, pad: Any, mode: str) -> Any:
    """Pad the last dimensions with elements of the tensor itself."""
    return kernels.pad_edges(input, _pairs(pad, input.ndim), mode)  # type: ignore[arg-type]


@linear(
    transpose=lambda g, pad, mode: ops.edge_pad(g, pad, mode),
    batch=_pad_batch,
    spec=_edge_transpose_spec,
    home=(),
    samples=lambda s: [
        s((1, 2, 7), pad=(2, 1), mode="reflect"), s((1, 6), pad=(2, 1), mode="replicate"),
        s((1, 7), pad=(3, 1), mode="circular"), s((5, 3), pad=(1, 0, 2, 2), mode="replicate"),
        s((2, 3), pad=(-1, 1), mode="circular"),
        s.error(RuntimeError, "at most 1 elements", (1, 4), pad=(2, 0), mode="reflect"),
        s.error(ValueError, "mode must be", (1, 2), pad=(0, 0), mode="mirror"),
    ],
)  # fmt: skip
def edge_pad_transpose(input: Number, pad: Any, mode: str) -> Any:
    """Add padded elements to those they are copies of: the transpose of ``edge_pad``."""
    return kernels.pad_edges_transpose(input, _pairs(pad, input.ndim), mode)  # type: ignore[arg-type]


@composite(
    home="nn.functional",
    samples=lambda s: [
        s((2, 3), pad=(1, 2)), s((2, 3), pad=[1, 1, -1, 0], value=2.0), s((2, 3), pad=(1, 1), mode="replicate"),
        s((1, 2, 3), pad=(2, 1), mode="reflect"), s((1, 2, 3), pad=(0, 3), mode="circular"),
        s((2,), pad=(1, 0), kind="boolean"),
        s.error(ValueError, "'constant', 'reflect', 'replicate' or 'circular'", (2, 3), pad=(1, 1), mode="mirror"),
        s.error(ValueError, "takes no value", (2, 3), pad=(1, 1), mode="reflect", value=1.0),
    ],
)  # fmt: skip
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Pad the last dimensions of a tensor, or crop them by negative sizes.

    Args:
        pad: two sizes for each dimension, before and after, the last dimension first: ``(left, right, top, bottom)``.
        mode: ``"constant"`` pads with ``value`` (default 0); ``"reflect"`` mirrors at the border element, which is not
            repeated; ``"replicate"`` repeats it; ``"circular"`` goes on at the other side.

    Raises:
        RuntimeError: for sizes that do not fit, or more than ``"reflect"`` and ``"circular"`` have elements for.
        ValueError: for an unknown mode, or a ``value`` that the mode does not use.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.pad(wg.tensor([1.0, 2.0, 3.0]), (2, 1), mode="reflect")
        tensor([3., 2., 1., 2., 3., 2.])
    """
    if mode == "constant":
        return ops.constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueError(f"pad(): mode must be 'constant', 'reflect', 'replicate' or 'circular', got {mode!r}")
    if value:
        raise ValueError(f"pad(): mode {mode!r} takes no value, got {value!r}")
    return ops.edge_pad(input, pad, mode)
