"""Native kernels of reductions: sums, means, extremes with and without places, truths, variances."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.dtype import DType, dtype_of
from wengert.array.order import empty_in_order, memory_order
from wengert.codegen.target import host
from wengert.loops.layout import space
from wengert.loops.reducing import COLUMNS, Reduction, reduction
from wengert.loops.rows import arithmetic
from wengert.loops.scalar import DTYPES, Scalar, cast, const, is_float, make
from wengert.loops.tracing import Untraceable, name_of
from wengert.operators.reduce import summed_dtype
from wengert.runtime.ahead import Ahead
from wengert.runtime.eager import kernel
from wengert.runtime.launch import Launcher, pointer
from wengert.runtime.pool import empty
from wengert.runtime.recent import Recent
from wengert.runtime.recording import active, at_each_call, current, writable

__all__ = ["reduce"]

TASK = 32768  # elements: what one thread takes at a time
FEW = 8  # tasks: with fewer, the reduced loop is cut
PARTS = 64  # how many parts a reduction with few results is cut into, at most
NARROWEST = 16  # a row of fewer neighbours is not worth a fold

Element = Callable[[Scalar, Scalar], tuple[Scalar, ...]]
_kernels: Recent[Any, Ahead[Launcher]] = Recent(1024)


def _lanes(*dtypes: str) -> int:
    return max(2, host().vector_bytes * 8 // max(8, *(DTYPES[d] for d in dtypes)))


def _order_of_results(array: Any, dims: tuple[int, ...]) -> list[int]:
    """Return the order in memory of the dimensions that are left of an array without ``dims``."""
    left = [d for d in range(array.ndim) if d not in dims]
    return [left.index(d) for d in memory_order(array) if d in left]


class _Layout:
    """How the loops of one reduction lie, and how it is cut.

    Attributes:
        outs: the results. where: the iteration space of the array and the results. reduced: per loop, whether it is.
        columns: whether neighbours are kept. parts, length: how the outermost reduced loop is cut (1: it is not).
    """

    def __init__(self, array: Any, dims: tuple[int, ...], dtypes: tuple[Any, ...]) -> None:
        kept = tuple(n for d, n in enumerate(array.shape) if d not in dims)
        # NumPy's places are in C's order
        order = _order_of_results(array, dims) if len(dtypes) == 1 else range(len(kept))
        shape = tuple(1 if d in dims else n for d, n in enumerate(array.shape))
        self.outs = [empty_in_order(kept, d, order, empty) for d in dtypes]
        self.where = space(array.shape, [array, *(out.reshape(shape) for out in self.outs)])
        sizes = self.where.sizes
        self.reduced = tuple(s == 0 and n != 1 for s, n in zip(self.where.strides[1], sizes, strict=True))
        self.columns = not self.reduced[-1]
        results = math.prod(n for n, r in zip(sizes, self.reduced, strict=True) if not r)
        tasks = -(-results // COLUMNS) if self.columns else results
        self.parts, self.length = 1, 0
        if tasks < FEW and any(self.reduced):
            size = sizes[self.reduced.index(True)]
            self.length = -(-size // max(1, min(PARTS, array.size // TASK, size)))
            self.parts = -(-size // self.length)
        if self.split:
            order = [0, *(d + 1 for d in order)]
            self.outs = [empty_in_order((self.parts, *kept), d, order, empty) for d in dtypes]

    @property
    def split(self) -> bool:
        """Whether there is more than one part."""
        return self.parts > 1

    @property
    def loops(self) -> tuple[Any, ...]:
        """What the structure of the kernel depends on."""
        own, *results = self.where.pattern
        return tuple(zip(self.reduced, own, zip(*results, strict=True), strict=True))

    def slots(self, array: Any) -> list[int]:
        """Return the arguments of the kernel."""
        own, *results = zip(self.where.strides, self.where.pattern, strict=True)
        slots: list[int] = []
        for out, (strides, pattern) in zip(self.outs, results, strict=True):
            slots += [pointer(out), *out.strides[: int(self.split)]]
            slots += [s for s, p, r in zip(strides, pattern, self.reduced, strict=True) if p is None and not r]
        slots += [pointer(array), *(s for s, p in zip(*own, strict=True) if p is None), *self.where.sizes]
        return [*slots, self.parts, self.length] if self.split else slots

    @property
    def tasks(self) -> int:
        """Return how many iterations the parallel loops have."""
        kept = [n for n, r in zip(self.where.sizes, self.reduced, strict=True) if not r]
        if self.columns:
            kept[-1] = -(-kept[-1] // COLUMNS)
        return self.parts * math.prod(kept)


def reduce(
    array: Any, dims: Any, monoid: str, folded: Any, element: Element, key: str, parts: tuple[Any, ...] = ()
) -> Any:
    """Return the state of a monoid over some dimensions of an array, one array per part, without these dimensions.

    Args:
        dims: the dimensions, or None for all. folded: the NumPy dtype that is folded. element: from an element, and its place
            in the reduced dimension, to a state; ``key`` names it. parts: the NumPy dtypes of the results, if not ``folded``.

    Returns:
        A list of arrays with one more dimension in front, whose elements are to be combined yet. NotImplemented while there
        is no kernel, or where NumPy is to do it.
    """
    dims = tuple(range(array.ndim)) if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    dims = tuple(d % array.ndim for d in dims)
    if not array.flags.aligned or not array.size:
        return NotImplemented
    dtypes = parts or (folded,)
    try:
        names = tuple(name_of(np.dtype(d)) for d in (array.dtype, folded, *dtypes))
    except Untraceable:
        return NotImplemented
    layout = _Layout(array, dims, dtypes)
    narrow = layout.reduced[-1] and layout.where.sizes[-1] < NARROWEST
    if not any(layout.reduced) or narrow or (layout.columns and len(dtypes) > 1):
        return NotImplemented
    what = Reduction(monoid, names[0], names[1], names[2:], layout.loops, layout.split, _lanes(*names[:2]))
    found = _kernels.get((what, key))
    if found is None:
        found = _kernels[what, key] = Ahead(
            lambda: Launcher(f"reduce {key} {what}", lambda: reduction("reduce", what, element))
        )
    launch = found.get()
    if launch is None:
        return NotImplemented
    tasks = layout.tasks
    launch(layout.slots(array), tasks, max(1, TASK * tasks // array.size))
    return layout.outs if layout.split else [out[None] for out in layout.outs]


# ---- operators


def _value(dtype: str) -> Element:
    return lambda x, i: (cast(cast(x, arithmetic(x.dtype)) if is_float(x.dtype) else x, dtype),)


def _combined(combine: Any, parts: Any) -> Any:
    """Return the parts of a reduction as one; while kernels are recorded, that is done at each call."""
    if not active[0] or current() is None:
        return combine(parts)
    out = empty(parts.shape[1:], parts.dtype)
    at_each_call(lambda: np.copyto(writable(out), combine(parts)))
    return out


def _finished(found: Any, combine: Any, array: Any, dims: Any, keepdim: Any) -> Any:
    """Combine the parts of a reduction and give the result its shape."""
    if found is NotImplemented:
        return NotImplemented
    out = found[0][0, ...] if len(found[0]) == 1 else _combined(combine, found[0])
    if not keepdim:
        return out
    dims = range(array.ndim) if dims is None else [d % array.ndim for d in ((dims,) if isinstance(dims, int) else dims)]
    return out.reshape([1 if d in dims else n for d, n in enumerate(array.shape)])


def _sum(array: Any, dim: Any, keepdim: Any, dtype: DType) -> Any:
    """Return a sum in ``dtype``; those of halves are folded in float32."""
    folded = np.dtype(np.float32) if dtype.is_half else dtype.numpy
    if folded.kind not in "fiu" or array.ndim == 0:
        return NotImplemented
    name = name_of(folded)
    found = reduce(array, dim, "sum", folded, _value(name), f"as {name}")
    total = _finished(found, lambda parts: np.add.reduce(parts, axis=0), array, dim, keepdim)
    return total.astype(dtype.numpy) if dtype.is_half and total is not NotImplemented else total


@kernel("sum")
def sum_(input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    """Return the sum along dimensions."""
    return _sum(input, dim, keepdim, summed_dtype(dtype_of(input.dtype), dtype))


@kernel("sum_to_size")
def sum_to_size(input: Any, size: Any) -> Any:
    """Return the sums over the dimensions that were broadcast."""
    lead = input.ndim - len(size)
    dims = (*range(lead), *(d + lead for d, n in enumerate(size) if n == 1 and input.shape[d + lead] != 1))
    if not dims:
        return NotImplemented
    found = _sum(input, dims, True, dtype_of(input.dtype))
    return found if found is NotImplemented else found.reshape(tuple(size))


@kernel("count_targets")
def count_targets(target: Any, ignore_index: int, dtype: DType) -> Any:
    """Return the number of targets that are not ignored."""
    if dtype.numpy not in (np.float32, np.float64) or target.dtype != np.int64 or not target.ndim:
        return NotImplemented
    name = name_of(dtype.numpy)

    def counted(x: Scalar, i: Scalar) -> tuple[Scalar, ...]:
        return (cast(make("ne", (x, const(ignore_index, "i64"))), name),)

    found = reduce(target, None, "sum", dtype.numpy, counted, f"not {ignore_index} as {name}")
    return _finished(found, lambda parts: np.add.reduce(parts, axis=0), target, None, False)


@kernel("mean")
def mean(input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    """Return the mean along dimensions, of float arrays."""
    found = dtype_of(input.dtype) if dtype is None else dtype
    if found.numpy.kind != "f" or found.is_half:
        return NotImplemented
    total = _sum(input, dim, keepdim, found)
    if total is NotImplemented:
        return NotImplemented
    count = input.size // max(1, total.size)
    return np.divide(total, total.dtype.type(count))


def _extreme(monoid: str, combine: Any) -> Any:
    def extreme(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if input.dtype.kind not in "fiu" or input.dtype.itemsize < 4 or input.ndim == 0:
            return NotImplemented
        name = name_of(input.dtype)
        found = reduce(input, dim, monoid, input.dtype, _value(name), "value")
        return _finished(found, lambda parts: combine(parts, axis=0), input, dim, keepdim)

    return extreme


kernel("amax")(_extreme("max", np.maximum.reduce))
kernel("amin")(_extreme("min", np.minimum.reduce))


def _truth(monoid: str, combine: Any) -> Any:
    def truth(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if input.dtype.kind not in "fiub" or input.dtype == np.uint8 or input.ndim == 0:
            return NotImplemented
        found = reduce(input, dim, monoid, np.dtype(bool), _value("bool"), "truth")
        return _finished(found, lambda parts: combine(parts, axis=0), input, dim, keepdim)

    return truth


kernel("any")(_truth("any", np.logical_or.reduce))
kernel("all")(_truth("all", np.logical_and.reduce))


def _placed(monoid: str) -> Any:
    """Return ``(array, dim) -> (values, places)`` for one reduced dimension."""

    def element(x: Scalar, i: Scalar) -> tuple[Scalar, ...]:
        return x, i

    def placed(array: Any, dim: Any, keepdim: Any) -> Any:
        if array.dtype.kind not in "fiu" or array.dtype.itemsize < 4 or array.ndim == 0 or not isinstance(dim, int):
            return NotImplemented
        if (
            array.shape[dim] * FEW > array.size
        ):  # NumPy's search is as fast as memory; and parts would be left to combine
            return NotImplemented
        parts = (array.dtype, np.dtype(np.int64))
        found = reduce(array, dim, monoid, array.dtype, element, "placed", parts)
        if found is NotImplemented:
            return NotImplemented
        return [_finished([part], None, array, dim, keepdim) for part in found]

    return placed


_largest, _smallest = _placed("argmax"), _placed("argmin")


@kernel("max_dim")
def max_dim(input: Any, dim: Any, keepdim: Any = False) -> Any:
    """Return the largest elements along a dimension, and where they are."""
    return _largest(input, dim, keepdim)


@kernel("min_dim")
def min_dim(input: Any, dim: Any, keepdim: Any = False) -> Any:
    """Return the smallest elements along a dimension, and where they are."""
    return _smallest(input, dim, keepdim)


@kernel("argmax")
def argmax(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
    """Return where the largest elements along a dimension are."""
    found = _largest(input, dim, keepdim)
    return NotImplemented if found is NotImplemented else found[1]


@kernel("argmin")
def argmin(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
    """Return where the smallest elements along a dimension are."""
    found = _smallest(input, dim, keepdim)
    return NotImplemented if found is NotImplemented else found[1]
