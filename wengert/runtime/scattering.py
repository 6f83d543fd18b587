"""Elements read and combined at computed positions by native kernels, each called like its operator.

They give NotImplemented where NumPy should do the work: for dtypes without kernels, small arrays, while a kernel is being
made, and for a position out of range, of which NumPy's kernel then tells. What meets at one place is combined in the order
in which it stands, as NumPy does it, on any number of threads. Half precision is combined in float32.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wengert.codegen import scattering
from wengert.core.apply import execute
from wengert.core.native import native
from wengert.core.registry import operators
from wengert.core.tensor import from_array
from wengert.kernels.scatter import identity
from wengert.loops.scalar import make, select
from wengert.loops.tracing import placeholder
from wengert.operators.gather import check_bounds
from wengert.runtime.calls import dtype_name, kernels, or_numpy, slots
from wengert.runtime.checking import in_range, known_inside
from wengert.runtime.eager import kernel
from wengert.runtime.pointwise import computed
from wengert.runtime.pool import empty, zeros
from wengert.runtime.recording import ascontiguous, assign, current
from wengert.runtime.threads import get_num_threads
from wengert.tape.modes import no_grad

__all__ = [
    "add_rows", "columns_of_parts", "first_outside", "gather", "index_add", "index_read", "index_transpose", "index_write",
    "inside", "place_along", "scatter_add", "scatter_reduce", "scatter_write", "take", "take_rows",
]  # fmt: skip

Array = NDArray[Any]
Complaint = Callable[[], Any]

GRAIN: Final = 16384  # elements of a chunk
LINE: Final = 64  # bytes of a cache line, which no two threads should write
_SHORT: Final = ("uint8", "uint16", "uint32")  # unsigned integers that int64 holds
_REDUCTIONS: Final = ("sum", "prod", "mean", "amax", "amin")
UNITS: Final = (1, 2, 4, 8, 16)  # bytes of rows that are moved as one integer


def _sides(shape: Sequence[int], dim: int) -> tuple[int, int, int]:
    """Return a shape as (outer, n, inner) around a dimension."""
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def _few(moved: int) -> bool:
    """Return whether so few elements are moved that NumPy is as fast, however large the arrays are."""
    return moved < max(native.smallest if current() is None else 1, 1)


def first_outside(positions: Array, size: int) -> int | None:
    """Return where the first of contiguous int64 positions is that is not in [0, size); None if all are."""
    blocks = -(-positions.size // GRAIN)
    answers = np.empty(blocks, np.int64)
    arguments = slots(positions, positions.size, GRAIN, size, answers)
    kernels("first_outside", scattering.first_outside).run("first_outside", arguments, blocks)
    found = answers[answers >= 0]
    return int(found[0]) if found.size else None


def inside(index: Array, size: int, complain: Complaint, *, negative: bool = False) -> Array | None:
    """Return an index as contiguous int64 in [0, size), or None if it is not inside."""
    if index.dtype.kind != "i" and index.dtype.name not in _SHORT:
        return None
    positions = ascontiguous(index, np.int64)
    if current() is not None:
        if negative:
            x, n = placeholder(0, "i64"), placeholder(1, "i64")
            positions = computed("position", select(x.lt(0), make("add", (x, n)), x), positions.dtype, positions, size)
        in_range(positions, size, None, complain)
        return positions
    wrong = first_outside(positions, size)
    if wrong is not None and negative and positions.flat[wrong] < 0:
        positions = np.where(positions < 0, positions + size, positions)
        wrong = first_outside(positions, size)
    return positions if wrong is None else None


def _complaint(name: str, *arguments: Any) -> Complaint:
    """Return what raises the error of an operator, which depends on the index and on the shapes of other arrays."""

    def tensor(argument: Any) -> Any:
        if isinstance(argument, list | tuple) and argument and isinstance(argument[0], np.ndarray):
            return tuple(map(tensor, argument))
        if not isinstance(argument, np.ndarray):
            return argument
        known = (
            argument if argument.dtype.kind in "iu" else np.broadcast_to(np.zeros((), argument.dtype), argument.shape)
        )
        return from_array(known)

    def complain() -> None:
        with no_grad():
            execute(operators()[name], [tensor(a) for a in arguments])

    return complain


def _all_inside(flag: Array, complain: Complaint) -> bool:
    """Return whether a kernel that ran has met no position outside; while kernels are recorded, see to it at each call."""
    mine = current()
    if mine is None:
        return not flag[0]

    def again() -> None:
        flag[0] = 0
        complain()

    mine.kept.append(flag)
    mine.require(flag, again)
    return True


# ---- reading


def _taken(x: Array, dim: int, index: Array, complain: Complaint, *, negative: bool) -> Any:
    """Return the slices of ``x`` along ``dim`` at the positions, whose dimensions take the place of ``dim``."""
    outer, size, inner = _sides(x.shape, dim)
    if _few(index.size * outer * inner) or not _movable(x, index):
        return NotImplemented
    width = inner * x.itemsize
    found = kernels("take", scattering.take, width if width in UNITS else 0)
    out, flag = empty((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype), np.zeros(1, np.int64)
    given, positions = ascontiguous(x), ascontiguous(index, np.int64)
    arguments = slots(given, positions, out, size, index.size, width, flag, size if negative else 0)
    found.run("take", arguments, outer * index.size, max(GRAIN // inner, 1))
    return out if _all_inside(flag, complain) else NotImplemented


def _movable(x: Array, index: Array) -> bool:
    """Return whether elements are bytes that can be moved, and the index holds signed or short integers."""
    return x.dtype.isnative and not x.dtype.hasobject and (index.dtype.kind == "i" or index.dtype.name in _SHORT)


@kernel("take_rows")
@or_numpy
def take_rows(weight: Array, index: Array, padding_idx: Any = None, by_freq: Any = False) -> Any:
    """Return the rows of a table at ``index``, in its shape."""
    if not weight.ndim:
        return NotImplemented
    return _taken(weight, 0, index, _complaint("take_rows", weight, index, padding_idx, by_freq), negative=False)


@kernel("index_read")
@or_numpy
def index_read(input: Array, indices: Sequence[Array], dims: Sequence[int]) -> Any:
    """Return the slices that one index names along one dimension; negative positions count from the end."""
    if len(dims) > 1:
        return NotImplemented
    return _taken(input, dims[0], indices[0], _complaint("index_read", input, indices, dims), negative=True)


def _alike(shape: Sequence[int], index: Array, dim: int) -> bool:
    """Return whether an index covers every dimension of a shape but the one that is indexed."""
    return 0 < len(shape) == index.ndim and all(
        n == m for d, (n, m) in enumerate(zip(shape, index.shape, strict=True)) if d != dim
    )


@kernel("take")
@or_numpy
def take(input: Array, index: Array) -> Any:
    """Return the elements at positions in row-major order, in the shape of the index."""
    if not input.flags.c_contiguous:
        return NotImplemented
    return _taken(input.reshape(-1), 0, index, _complaint("take", input, index), negative=True)


@kernel("gather")
@or_numpy
def gather(input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Any:
    """Return ``out[i][j] = input[index[i][j]][j]`` for ``dim`` 0, and likewise along any other dimension."""
    complain = _complaint("gather", input, dim, index, sparse_grad)
    if not input.ndim or index.ndim != input.ndim:
        return NotImplemented
    read = input[tuple(slice(None) if d == dim % input.ndim else slice(n) for d, n in enumerate(index.shape))]
    if _few(index.size) or not _alike(read.shape, index, dim):
        return NotImplemented
    if not _movable(read, index) or read.itemsize not in UNITS:
        return NotImplemented
    outer, size, inner = _sides(read.shape, dim)
    middle = index.shape[dim]
    found = kernels("gather", scattering.gather, read.itemsize, inner == 1)
    out, flag = empty(index.shape, read.dtype), np.zeros(1, np.int64)
    given, positions = ascontiguous(read), ascontiguous(index, np.int64)
    found.run(
        "gather", slots(given, positions, out, size, middle, inner, flag, 0), outer * middle, max(GRAIN // inner, 1)
    )
    return out if _all_inside(flag, complain) else NotImplemented


@kernel("bounded_index")
def bounded_index(index: Array, size: int, name: str, dim: int) -> Any:
    """Return positions, which are checked at each call of a program."""
    if current() is None or not index.size:
        return NotImplemented
    positions = inside(index, size, lambda: check_bounds(name, index, dim, size))
    if positions is None:
        return NotImplemented
    out = empty(index.shape, index.dtype)
    assign(out, index)
    known_inside(out, size)
    return out


# ---- combining


def columns_of_parts(inner: int, itemsize: int) -> tuple[int, int]:
    """Return into how many parts to divide the columns, and the columns of a part: whole cache lines."""
    line = max(LINE // itemsize, 1)
    share = max(-(-inner // get_num_threads()), 1)
    share = -(-share // line) * line
    return max(-(-inner // share), 1), share


def _reals(array: Array) -> Array:
    """Return complex numbers as pairs of real ones, in a dimension of their own."""
    return array.view(array.real.dtype).reshape(*array.shape, 2)


def _combine_rows(reduce: str, out: Array, dim: int, positions: Array, source: Array) -> None:
    """Combine slices of ``source`` with those of ``out``, a contiguous array, that positions name along ``dim``."""
    if out.dtype.kind == "c":
        out, source = _reals(out), _reals(source)
    outer, size, inner = _sides(out.shape, dim)
    parts, share = columns_of_parts(inner, out.itemsize)
    found = kernels("combine_rows", scattering.combine_rows, reduce, dtype_name(out.dtype))
    arguments = slots(out, positions, source, size, positions.size, inner, share, parts)
    found.run("combine_rows", arguments, outer * parts, max(GRAIN // (positions.size * share), 1))


def _combine(reduce: str, out: Array, dim: int, positions: Array, source: Array) -> None:
    """Combine elements of ``source`` with those of ``out``, a contiguous array, that positions name along ``dim``."""
    outer, size, inner = _sides(out.shape, dim)
    middle = positions.shape[dim]
    parts, share = columns_of_parts(inner, out.itemsize)
    found = kernels("combine", scattering.combine, reduce, dtype_name(out.dtype), inner == 1)
    arguments = slots(out, positions, source, size, middle, inner, share, parts)
    found.run("combine", arguments, outer * parts, max(GRAIN // (middle * share), 1))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype that elements are combined in, or None if kernels cannot."""
    name = dtype.name if dtype.isnative else ""
    if name in ("float16", "bfloat16"):
        return np.dtype(np.float32)
    return dtype if name in ("complex64", "complex128") or dtype_name(dtype) else None


def _fresh(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return a contiguous copy in memory of the pool."""
    copy = empty(x.shape, dtype)
    assign(copy, x)
    return copy


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return zeros in memory of the pool."""
    if current() is None:
        return zeros(shape, dtype)
    return _fresh(np.broadcast_to(np.zeros((), dtype), shape), dtype)


def _narrowed(out: Array, dtype: np.dtype[Any]) -> Array:
    """Return what was combined in a wider dtype in that of the result."""
    return out if out.dtype == dtype else ascontiguous(out, dtype)


@or_numpy
def index_add(x: Array, dim: int, index: Array, src: Array) -> Any:
    """Return ``x`` with the slices of ``src`` added along ``dim`` where ``index``, a vector, says."""
    wide = _wide(x.dtype)
    expected = (*x.shape[:dim], index.size, *x.shape[dim + 1 :])
    if wide is None or _few(src.size) or index.ndim != 1 or src.shape != expected or src.dtype != x.dtype:
        return NotImplemented
    positions = inside(index, x.shape[dim], _complaint("index_add", x, dim, index, src))
    if positions is None:
        return NotImplemented
    out = _fresh(x, wide)
    _combine_rows("sum", out, dim, positions, ascontiguous(src, wide))
    return _narrowed(out, x.dtype)


@kernel("add_rows")
@or_numpy
def add_rows(input: Array, index: Array, count: int) -> Any:
    """Return a table of ``count`` rows of zeros with rows added where ``index`` says: the gradient of an embedding."""
    complain = _complaint("add_rows", input, index, count)
    return _added(input, index, 0, (count, *input.shape[index.ndim :]), complain, negative=False)


@kernel("index_transpose")
@or_numpy
def index_transpose(input: Array, indices: Sequence[Array], dims: Sequence[int], shape: Sequence[int]) -> Any:
    """Return zeros of ``shape`` to which slices are added where one index points along one dimension."""
    if len(dims) > 1:
        return NotImplemented
    complain = _complaint("index_transpose", input, indices, dims, shape)
    return _added(input, indices[0], dims[0], tuple(shape), complain, negative=True)


def _added(
    slices: Array, index: Array, dim: int, shape: tuple[int, ...], complain: Complaint, *, negative: bool
) -> Any:  # fmt: skip
    wide = _wide(slices.dtype)
    if wide is None or _few(slices.size):
        return NotImplemented
    positions = inside(index, shape[dim], complain, negative=negative)
    if positions is None:
        return NotImplemented
    out = _zeros(shape, wide)
    _combine_rows("sum", out, dim, positions, ascontiguous(slices, wide))
    return _narrowed(out, slices.dtype)


@kernel("scatter_add")
@or_numpy
def scatter_add(input: Array, dim: int, index: Array, src: Array) -> Any:
    """Return ``input`` with ``src`` added where ``index`` points along ``dim``; elements that meet add up."""
    return _scattered("sum", input, dim, index, src, True, _complaint("scatter_add", input, dim, index, src))


@kernel("scatter_reduce")
@or_numpy
def scatter_reduce(input: Array, dim: int, index: Array, src: Array, reduce: str, *, include_self: bool = True) -> Any:
    """Combine ``src`` with ``input`` where ``index`` points along ``dim``: "sum", "prod", "mean", "amax" or "amin"."""
    complain = _complaint("scatter_reduce", input, dim, index, src, reduce, include_self)
    return _scattered(reduce, input, dim, index, src, include_self, complain)


@kernel("scatter_write")
@or_numpy
def scatter_write(input: Array, dim: int, index: Array, src: Any) -> Any:
    """Return ``input`` with ``src`` where ``index`` points along ``dim``; of elements that meet the last stays."""
    if not isinstance(src, np.ndarray):
        src = np.broadcast_to(np.asarray(src).astype(input.dtype), index.shape)
    return _scattered("set", input, dim, index, src, True, _complaint("scatter_write", input, dim, index, src))


@kernel("place_along")
@or_numpy
def place_along(input: Array, dim: int, index: Array, size: int) -> Any:
    """Return zeros of ``size`` along ``dim`` with the elements at ``index``."""
    shape = tuple(size if d == dim % input.ndim else n for d, n in enumerate(input.shape))
    whole = np.broadcast_to(np.zeros((), input.dtype), shape)
    complain = _complaint("place_along", input, dim, index, size)
    return _scattered("set", whole, dim % input.ndim, index, input, True, complain)


@kernel("index_write")
@or_numpy
def index_write(input: Array, value: Any, indices: Sequence[Array], dims: Sequence[int], accumulate: bool) -> Any:
    """Return ``input`` with a value written, or added, where one index points along one dimension."""
    value = value if isinstance(value, np.ndarray) else np.asarray(value).astype(input.dtype)
    wide, (index, *others), (dim, *_) = _wide(input.dtype), indices, dims
    if wide is None or others or value.dtype != input.dtype or _few(index.size) or (accumulate and wide.kind == "b"):
        return NotImplemented
    complain = _complaint("index_write", input, value, indices, dims, accumulate)
    positions = inside(index, input.shape[dim], complain, negative=True)
    if positions is None:
        return NotImplemented
    source = np.broadcast_to(value, (*input.shape[:dim], *index.shape, *input.shape[dim + 1 :]))
    out = _fresh(input, wide)
    _combine_rows("sum" if accumulate else "set", out, dim, positions, ascontiguous(source, wide))
    return _narrowed(out, input.dtype)


def _scattered(
    reduce: str, x: Array, dim: int, index: Array, src: Array, include_self: bool, complain: Complaint
) -> Any:  # fmt: skip
    wide = _wide(x.dtype)
    if wide is None or wide.kind == "c" or _few(index.size) or src.dtype != x.dtype:
        return NotImplemented
    if (
        reduce not in (*_REDUCTIONS, "set")
        or (reduce == "mean" and wide.kind == "b")
        or not _alike(x.shape, index, dim)
    ):
        return NotImplemented
    if src.ndim != x.ndim or any(n > m for n, m in zip(index.shape, src.shape, strict=True)):
        return NotImplemented
    if reduce == "mean" and current() is not None:
        return NotImplemented
    positions = inside(index, x.shape[dim], complain)
    if positions is None:
        return NotImplemented
    source = ascontiguous(src[tuple(slice(n) for n in index.shape)], wide)
    out = _fresh(x, wide)
    if not include_self:
        start = np.asarray(identity(reduce, wide), wide)  # type: ignore[arg-type]
        _combine("set", out, dim, positions, _fresh(np.broadcast_to(start, index.shape), wide))
    _combine("sum" if reduce == "mean" else reduce, out, dim, positions, source)
    if reduce == "mean":
        _divide(out, dim, positions, include_self)
    return _narrowed(out, x.dtype)


def _divide(total: Array, dim: int, positions: Array, include_self: bool) -> None:
    """Turn sums into means, in place; means of integers are rounded down."""
    counts = np.full(total.shape, int(include_self), np.int64)
    _combine("sum", counts, dim, positions, np.ones(positions.shape, np.int64))
    np.maximum(counts, 1, out=counts)
    with np.errstate(all="ignore"):
        if total.dtype.kind == "f":
            total /= counts.astype(total.dtype)
        else:
            total[...] = total // counts
