"""The matrix product of a small tile, the one loop that all contractions spend their time in.

A tile of sums (``rows`` x ``vectors`` vectors) stays in registers while k runs: every turn reads ``vectors`` vectors of
B and spreads one element of A per row over a vector. Callers nest their own loops around it and hand the sums from turn to
turn: over blocks of k, over the (kh, kw) of a convolution, over any batch of matrices whose products are summed.

Use, inside an emitter (``b`` is an ``llvmlite.ir.IRBuilder``, strides are in bytes)::

    how = arithmetic("f32", host())                       # how numbers are read, multiplied and summed
    tile = tile_of(how, host())                           # rows, vectors, lanes that fit the registers
    rows = row_pointers(b, a, row_stride, tile.rows, last)  # rows after row `last` repeat it: nothing outside is read
    sums = zeros(how, tile)
    def turn(b, i, sums):                                 # one matrix of the batch
        left = Left([at(b, p, times(b, i, a_step)) for p in rows], k_stride)
        right = Right(at(b, w, times(b, i, b_step)), k_stride_of_b)
        return multiply_add(b, how, tile, left, right, k, sums)
    sums = loop(b, 0, batch, turn, carry=sums)
    write(b, sums[r * tile.vectors + v], at(b, c, ...))   # the sum of row r and vector v

The order of a sum is that of k, whatever the tile: a tile with fewer rows or under a mask gives the same bits.
A. Heinecke et al., "LIBXSMM" (2016), and E. Georganas et al., "Harnessing deep learning via a single building block"
(arXiv 1906.06440), section 2, have the batch-reduce form.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from llvmlite import ir

from wengert.codegen.build import at, loop, minimum, number, read, times
from wengert.codegen.lanes import I32, splat, type_of, vector_of
from wengert.codegen.operations import intrinsic
from wengert.codegen.target import Target
from wengert.loops.scalar import DTYPES

__all__ = [
    "Arithmetic",
    "Left",
    "Right",
    "Tile",
    "arithmetic",
    "multiply_add",
    "row_pointers",
    "tile_of",
    "widen",
    "zeros",
]


class Arithmetic(NamedTuple):
    """How numbers are read, multiplied and summed.

    Attributes:
        operand: the dtype of both operands in memory. total: the dtype of the sums.
        group: how many neighbours along k one lane holds: 2 where pairs are multiplied and summed in one instruction.
            Operands are then laid out in such pairs, k and strides count pairs, and an odd k is filled up with a 0.
        dot: LLVM's name of that instruction, where it has no form in plain LLVM IR.
    """

    operand: str
    total: str
    group: int = 1
    dot: str = ""

    @property
    def size(self) -> int:
        """The bytes of what one lane reads: an element, or a group of them."""
        return DTYPES[self.operand] * self.group // 8


class Tile(NamedTuple):
    """The sums that are kept in registers: ``rows`` times ``vectors`` vectors of ``lanes`` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """The elements of a row of the tile."""
        return self.vectors * self.lanes


class Left(NamedTuple):
    """The operand whose elements are spread over vectors: a pointer per row, and the bytes from k to k + 1."""

    pointers: Sequence[Any]
    step: Any


class Right(NamedTuple):
    """The operand that is read in vectors: neighbours along a row, and the bytes from k to k + 1.

    Attributes:
        pointer: of its first element. step: bytes along k. mask: the lanes of the last vector that may be read (None: all).
    """

    pointer: Any
    step: Any
    mask: Any = None


_PLAIN: Final = {
    "f32": Arithmetic("f32", "f32"), "f64": Arithmetic("f64", "f64"), "bf16": Arithmetic("bf16", "f32"),
    "i8": Arithmetic("i8", "i32"),
}  # fmt: skip


def _is_arm(target: Target) -> bool:
    return target.triple.startswith(("aarch64", "arm64"))


def _bfloat_dot(target: Target) -> str:
    if _is_arm(target):
        return "llvm.aarch64.neon.bfdot.v4f32.v8bf16"
    return f"llvm.x86.avx512bf16.dpbf16ps.{target.vector_bytes * 8}"


def arithmetic(dtype: str, target: Target, *, packed: bool = False) -> Arithmetic:
    """Return how products of a dtype are computed on a machine.

    ``packed`` operands were laid out for the purpose: bfloat16 in pairs where the machine has their dot product, else as
    float32; int8 as pairs of int16, or as int32 where the machine has no product of such pairs.

    Raises:
        TypeError: for other dtypes than f32, f64, bf16 and i8.
    """
    if dtype not in _PLAIN:
        raise TypeError(
            f"the contraction microkernel multiplies {', '.join(_PLAIN)}, not {dtype}; cast the operands to one of them"
        )
    if packed and dtype == "bf16":
        return Arithmetic("bf16", "f32", 2, _bfloat_dot(target)) if target.dot else _PLAIN["f32"]
    if packed and dtype == "i8":
        return Arithmetic("i32", "i32") if _is_arm(target) else Arithmetic("i16", "i32", 2)
    return _PLAIN[dtype]


def tile_of(how: Arithmetic, target: Target) -> Tile:
    """Return the tile for a machine: its sums, a row of B and an element of A fill the registers.

    Three vectors wide and not two: a turn then loads less (with 16 registers 7 values for 12 products, and not 8).
    """
    return Tile(target.registers // 4, 3, target.vector_bytes * 8 // DTYPES[how.total])


def zeros(how: Arithmetic, tile: Tile) -> list[Any]:
    """Return the sums to begin with."""
    kind = vector_of(type_of(how.total), tile.lanes)
    return [ir.Constant(kind, [0] * tile.lanes)] * (tile.rows * tile.vectors)


def row_pointers(b: Any, pointer: Any, stride: Any, rows: int, last: Any = None) -> list[Any]:
    """Return the addresses of some rows; those after row ``last`` are that of ``last``, so that all may be read."""
    if last is None:
        return [at(b, pointer, times(b, r, stride)) for r in range(rows)]
    return [pointer, *(at(b, pointer, times(b, minimum(b, r, last), stride)) for r in range(1, rows))]


def widen(b: Any, value: Any, dtype: str, total: str) -> Any:
    """Return a value, or a vector of them, as read from memory in the dtype of the sums."""
    if dtype == total:
        return value
    kind = type_of(total) if not isinstance(value.type, ir.VectorType) else vector_of(type_of(total), value.type.count)
    if dtype in ("i8", "i16"):
        return b.sext(value, kind)
    bits = I32 if not isinstance(value.type, ir.VectorType) else vector_of(I32, value.type.count)
    shift = ir.Constant(bits, 16 if bits is I32 else [16] * value.type.count)
    return b.bitcast(b.shl(b.zext(value, bits), shift), kind)  # a bfloat16 is the upper half of a float32


class _Brain(ir.Type):  # type: ignore[misc] # llvmlite is not typed
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Brain)

    def __hash__(self) -> int:
        return hash(_Brain)


def _dot_bfloat16(b: Any, how: Arithmetic, x: Any, y: Any, total: Any) -> Any:
    """Add the products of bfloat16 pairs, in the machine's one instruction."""
    pairs = vector_of(_Brain(), 2 * total.type.count)
    kind = ir.FunctionType(total.type, [total.type, pairs, pairs])
    dot = b.module.globals.get(how.dot) or ir.Function(b.module, kind, how.dot)
    return b.call(dot, [total, b.bitcast(x, pairs), b.bitcast(y, pairs)])


def _dot_int16(b: Any, how: Arithmetic, x: Any, y: Any, total: Any) -> Any:
    """Add the products of int16 pairs; written so that LLVM finds the instruction (pmaddwd, vpdpwssd)."""
    count = total.type.count
    halves, whole = vector_of(ir.IntType(16), 2 * count), vector_of(I32, 2 * count)
    products = b.mul(b.sext(b.bitcast(x, halves), whole), b.sext(b.bitcast(y, halves), whole))
    even, odd = (ir.Constant(vector_of(I32, count), list(range(i, 2 * count, 2))) for i in (0, 1))
    nothing = ir.Constant(whole, ir.Undefined)
    pairs = b.add(b.shuffle_vector(products, nothing, even), b.shuffle_vector(products, nothing, odd))
    return b.add(total, pairs)


def _product(b: Any, how: Arithmetic, x: Any, y: Any, total: Any) -> Any:
    if how.group == 2:
        return (_dot_int16 if how.operand == "i16" else _dot_bfloat16)(b, how, x, y, total)
    if how.total == "i32":
        return b.add(total, b.mul(x, y))
    return intrinsic(b, "fmuladd", total.type, [x, y, total])  # one rounding where the machine has it, two where not


def multiply_add(
    b: Any, how: Arithmetic, tile: Tile, left: Left, right: Right, k: Any, sums: Sequence[Any]
) -> list[Any]:
    """Emit ``sums[r, :] += sum over i < k of left[r, i] * right[i, :]`` and return the new sums, row by row.

    Reads ``k`` elements (or groups) of every row of A, and of B ``k`` rows of ``tile.columns`` elements, less those that
    the mask leaves out.
    """
    one = I32 if how.group == 2 else type_of(how.operand)
    some = vector_of(one, tile.lanes)

    def ready(value: Any) -> Any:
        return value if how.group == 2 else widen(b, value, how.operand, how.total)

    def turn(b: Any, i: Any, sums: list[Any]) -> list[Any]:
        line = at(b, right.pointer, times(b, i, right.step))
        columns = []
        for v in range(tile.vectors):
            mask = right.mask if v == tile.vectors - 1 else None
            columns.append(ready(read(b, at(b, line, v * tile.lanes * how.size), some, mask)))
        offset = times(b, i, left.step)
        for r, pointer in enumerate(left.pointers):
            x = splat(b, ready(read(b, at(b, pointer, offset), one)), tile.lanes)
            for v, y in enumerate(columns):
                place = r * tile.vectors + v
                sums[place] = _product(b, how, x, y, sums[place])
        return sums

    return loop(b, 0, number(k), turn, carry=sums)
