"""Native kernels of reductions: sums, means, extremes with and without places, truths, variances."""

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from wengert.array.dtype import DType, dtype_of
from wengert.array.order import empty_in_order, memory_order
from wengert.array.shape import reduced
from wengert.codegen.target import host
from wengert.loops.layout import space
from wengert.loops.reducing import COLUMNS, Reduction, reduction
from wengert.loops.rows import arithmetic
from wengert.loops.scalar import DTYPES, Scalar, cast, const, is_float, make
from wengert.loops.tracing import Untraceable, name_of, placeholder
from wengert.operators.reduce import summed_dtype
from wengert.runtime.ahead import Ahead
from wengert.runtime.calls import Absent
from wengert.runtime.eager import kernel
from wengert.runtime.launch import Launcher, pointer
from wengert.runtime.pointwise import computed
from wengert.runtime.pool import empty
from wengert.runtime.recent import Recent
from wengert.runtime.recording import active, ascontiguous, current

__all__ = ["reduce", "total"]

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

    def __init__(self, array: Any, dims: tuple[int, ...], dtypes: tuple[Any, ...], cut: bool) -> None:
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
        if cut and tasks < FEW and any(self.reduced):
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
    array: Any, dims: Any, monoid: str, folded: Any, element: Element, key: str, parts: tuple[Any, ...] = (),
    cut: bool = True,
) -> Any:  # fmt: skip
    """Return the state of a monoid over some dimensions of an array, one array per part, without these dimensions.

    Args:
        dims: the dimensions, or None for all. folded: the NumPy dtype that is folded. element: from an element, and its place
            in the reduced dimension, to a state; ``key`` names it. parts: the NumPy dtypes of the results, if not ``folded``.
        cut: whether few results may come in parts that are to be combined.

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
    layout = _Layout(array, dims, dtypes, cut)
    narrow = layout.reduced[-1] and layout.where.sizes[-1] < NARROWEST and not _recorded()
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


def total(parts: Any) -> Any:
    """Return the sum of the parts that an array holds along its first dimension.

    Raises:
        Absent: while there is no kernel.
    """
    found = parts[0] if len(parts) == 1 else _combined("sum", parts)
    if found is NotImplemented:
        raise Absent
    return found


# ---- operators


# How the parts of a reduction are combined.
COMBINED: Final = {
    "sum": np.add, "max": np.maximum, "min": np.minimum, "any": np.logical_or, "all": np.logical_and,
}  # fmt: skip


def _value(dtype: str) -> Element:
    return lambda x, i: (cast(cast(x, arithmetic(x.dtype)) if is_float(x.dtype) else x, dtype),)


def _recorded() -> bool:
    """Whether kernels are being recorded: then NumPy would be slow at any size, since it comes between them."""
    return bool(active[0]) and current() is not None


def _combined(monoid: str, parts: Any) -> Any:
    """Return the parts of a reduction as one."""
    if not _recorded():
        return COMBINED[monoid].reduce(parts, axis=0)
    found = reduce(parts, 0, monoid, parts.dtype, _value(name_of(parts.dtype)), f"parts {parts.dtype}", cut=False)
    return found if found is NotImplemented else found[0][0, ...]


def _finished(found: Any, monoid: str, array: Any, dims: Any, keepdim: Any) -> Any:
    """Combine the parts of a reduction and give the result its shape."""
    if found is NotImplemented:
        return NotImplemented
    out = found[0][0, ...] if len(found[0]) == 1 else _combined(monoid, found[0])
    if out is NotImplemented or not keepdim:
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
    total = _finished(found, "sum", array, dim, keepdim)
    if not dtype.is_half or total is NotImplemented:
        return total
    return ascontiguous(total, dtype.numpy) if _recorded() else total.astype(dtype.numpy)


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
    return _finished(found, "sum", target, None, False)


@kernel("count_nonzero")
def count_nonzero(input: Any, dim: Any = None) -> Any:
    """Return the number of elements that are not zero."""
    if input.dtype.kind not in "fiub" or not _recorded():  # NumPy counts as fast as memory gives
        return NotImplemented
    shape = reduced(input.shape, dim, False)
    if math.prod(shape) == input.size:
        one = cast(cast(placeholder(0, name_of(input.dtype)), "bool"), "i64")
        found = computed("not zero", one, np.dtype(np.int64), input)
        return found if found is NotImplemented else found.reshape(shape)

    def counted(x: Scalar, i: Scalar) -> tuple[Scalar, ...]:
        return (cast(cast(x, "bool"), "i64"),)

    found = reduce(input, dim, "sum", np.dtype(np.int64), counted, "not zero")
    return _finished(found, "sum", input, dim, False)


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
    if not _recorded():
        return np.divide(total, total.dtype.type(count))
    name = name_of(total.dtype)
    quotient = make("div", (placeholder(0, name), placeholder(1, name)))
    return computed("mean", quotient, total.dtype, total, float(count))


# ---- norms and variances


@kernel("linalg_vector_norm")
def linalg_vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    """Return the norm of order 1 or 2 of float32 numbers, whose squares float64 can hold and add up."""
    if x.dtype != np.float32 or ord not in (1, 2) or not x.ndim or (dtype is not None and dtype.numpy != x.dtype):
        return NotImplemented

    def power(x: Scalar, i: Scalar) -> tuple[Scalar, ...]:
        wide = cast(x, "f64")
        return (wide * wide if ord == 2 else make("abs", (wide,)),)

    found = reduce(x, dim, "sum", np.dtype(np.float64), power, f"power {ord}")
    total = _finished(found, "sum", x, dim, keepdim)
    if total is NotImplemented:
        return NotImplemented
    if not _recorded():
        return (np.sqrt(total) if ord == 2 else total).astype(np.float32)
    norm = placeholder(0, "f64")
    return computed(f"norm {ord}", cast(make("sqrt", (norm,)) if ord == 2 else norm, "f32"), x.dtype, total)


def _spread(input: Any, dim: Any, correction: Any, keepdim: Any, root: bool) -> Any:
    """Return the variance along dimensions in two passes, or its root."""
    if input.dtype not in (np.float32, np.float64) or not input.ndim:
        return NotImplemented
    center = mean(input, dim, True)
    if center is NotImplemented:
        return NotImplemented
    name = name_of(input.dtype)
    x, y = placeholder(0, name), placeholder(1, name)
    squares = computed("square of deviation", (x - y) * (x - y), input.dtype, input, center)
    total = squares if squares is NotImplemented else _sum(squares, dim, keepdim, dtype_of(input.dtype))
    if total is NotImplemented:
        return NotImplemented
    freedom = max(0.0, float(input.size // max(1, center.size) - correction))
    found = make("div", (x, y))
    return computed("spread", make("sqrt", (found,)) if root else found, input.dtype, total, freedom)


@kernel("variance")
def variance(input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    """Return Σ (x - mean)² / (n - correction)."""
    return _spread(input, dim, correction, keepdim, False)


@kernel("deviation")
def deviation(input: Any, dim: Any, correction: Any, keepdim: Any) -> Any:
    """Return the root of the variance."""
    return _spread(input, dim, correction, keepdim, True)


# ---- extremes and truths


def _extreme(monoid: str) -> Any:
    def extreme(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if input.dtype.kind not in "fiu" or input.dtype.itemsize < 4 or input.ndim == 0:
            return NotImplemented
        name = name_of(input.dtype)
        found = reduce(input, dim, monoid, input.dtype, _value(name), "value")
        return _finished(found, monoid, input, dim, keepdim)

    return extreme


kernel("amax")(_extreme("max"))
kernel("amin")(_extreme("min"))


def _truth(monoid: str) -> Any:
    def truth(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if input.dtype.kind not in "fiub" or input.dtype == np.uint8 or input.ndim == 0:
            return NotImplemented
        found = reduce(input, dim, monoid, np.dtype(bool), _value("bool"), "truth")
        return _finished(found, monoid, input, dim, keepdim)

    return truth


kernel("any")(_truth("any"))
kernel("all")(_truth("all"))


def _placed(monoid: str) -> Any:
    """Return ``(array, dim) -> (values, places)`` for one reduced dimension."""

    def element(x: Scalar, i: Scalar) -> tuple[Scalar, ...]:
        return x, i

    def placed(array: Any, dim: Any, keepdim: Any) -> Any:
        if array.dtype.kind not in "fiu" or array.dtype.itemsize < 4 or array.ndim == 0 or not isinstance(dim, int):
            return NotImplemented
        if array.shape[dim] * FEW > array.size and not _recorded():  # NumPy's search is as fast as memory
            return NotImplemented
        parts, rows = (array.dtype, np.dtype(np.int64)), np.moveaxis(array, dim, -1)
        rows = ascontiguous(rows) if _recorded() else rows
        found = reduce(rows, -1, monoid, array.dtype, element, "placed", parts, cut=False)
        if found is NotImplemented:
            return NotImplemented
        return [np.expand_dims(part[0, ...], dim) if keepdim else part[0, ...] for part in found]

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


def _in_line(array: Any, dim: Any, keepdim: Any) -> tuple[Any, Any]:
    """Return an array as a vector and its dimension, if all elements are looked at and lie in their order."""
    whole = dim is None and not keepdim and array.ndim and array.flags.c_contiguous
    return (array.reshape(-1), 0) if whole else (array, dim)


@kernel("argmax")
def argmax(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
    """Return where the largest elements along a dimension are."""
    found = _largest(*_in_line(input, dim, keepdim), keepdim)
    return NotImplemented if found is NotImplemented else found[1]


@kernel("argmin")
def argmin(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
    """Return where the smallest elements along a dimension are."""
    found = _smallest(*_in_line(input, dim, keepdim), keepdim)
    return NotImplemented if found is NotImplemented else found[1]
