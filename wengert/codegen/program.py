"""Imperative code as LLVM IR, for kernels that are no loops of expressions: cells, loops, branches, calls.

Values carry Python's operators; variables are memory of the function that LLVM turns into registers::

    code = Program("sum_to").function("sum_to", (I64,), I64)
    total = code.cell(code.i64(0))
    with code.loop(0, code.arguments[0]) as i:
        total.set(total.get() + i)
    code.give(total.get())
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

from llvmlite import ir

from wengert.codegen.lanes import BYTE, I32, I64, POINTER, splat, vector_of
from wengert.codegen.operations import intrinsic

__all__ = ["KERNEL", "Cell", "Code", "Program", "Word"]

KERNEL = (POINTER, I64, I64)  # the arguments of every native kernel: slots, begin, end

Operand = Union["Word", int, float]


def _is_float(kind: Any) -> bool:
    return isinstance(kind.element if isinstance(kind, ir.VectorType) else kind, ir.FloatType | ir.DoubleType)


class Word:
    """A value of a function: an integer, a float, a pointer, or a vector of these.

    ``+ - * & | ^ <<`` and ``>>`` (which brings in zeros) build instructions; a Python number takes the other operand's
    type. ``lt``, ``le``, ``eq``, ``ne`` compare signed integers and floats (``ne`` is true of a NaN), ``below`` unsigned ones.
    """

    __slots__ = ("code", "llvm")

    def __init__(self, code: "Code", llvm: Any) -> None:
        self.code = code
        self.llvm = llvm

    def _do(self, name: str, other: Operand) -> "Word":
        return Word(self.code, getattr(self.code.builder, name)(self.llvm, self.like(other).llvm))

    def like(self, other: Operand) -> "Word":
        """Return a number as a value of this one's type."""
        if isinstance(other, Word):
            return other
        return self.code.constant(other, self.llvm.type)

    @property
    def _prefix(self) -> str:
        return "f" if _is_float(self.llvm.type) else ""

    def __add__(self, other: Operand) -> "Word":
        return self._do(self._prefix + "add", other)

    def __sub__(self, other: Operand) -> "Word":
        return self._do(self._prefix + "sub", other)

    def __mul__(self, other: Operand) -> "Word":
        return self._do(self._prefix + "mul", other)

    def __and__(self, other: Operand) -> "Word":
        return self._do("and_", other)

    def __or__(self, other: Operand) -> "Word":
        return self._do("or_", other)

    def __xor__(self, other: Operand) -> "Word":
        return self._do("xor", other)

    def __lshift__(self, other: Operand) -> "Word":
        return self._do("shl", other)

    def __rshift__(self, other: Operand) -> "Word":
        return self._do("lshr", other)

    def __floordiv__(self, other: Operand) -> "Word":
        return self._do("udiv", other)

    def __invert__(self) -> "Word":
        return Word(self.code, self.code.builder.not_(self.llvm))

    def _compare(self, symbol: str, other: Operand, unsigned: bool = False) -> "Word":
        builder = self.code.builder
        if _is_float(self.llvm.type):
            compare = builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_unsigned if unsigned else builder.icmp_signed
        return Word(self.code, compare(symbol, self.llvm, self.like(other).llvm))

    def lt(self, other: Operand) -> "Word":
        """Return whether this is less (signed)."""
        return self._compare("<", other)

    def le(self, other: Operand) -> "Word":
        """Return whether this is less or equal (signed)."""
        return self._compare("<=", other)

    def below(self, other: Operand) -> "Word":
        """Return whether this is less, both taken as unsigned integers."""
        return self._compare("<", other, unsigned=True)

    def eq(self, other: Operand) -> "Word":
        """Return whether both are equal."""
        return self._compare("==", other)

    def ne(self, other: Operand) -> "Word":
        """Return whether they differ; a NaN differs from everything."""
        return self._compare("!=", other)

    def to(self, kind: Any, signed: bool = False) -> "Word":
        """Return an integer with another number of bits: cut, or filled up with zeros (``signed``: with the sign)."""
        old, new = (t.element if isinstance(t, ir.VectorType) else t for t in (self.llvm.type, kind))
        builder = self.code.builder
        if old == new:
            return self
        name = "trunc" if new.width < old.width else "sext" if signed else "zext"
        return Word(self.code, getattr(builder, name)(self.llvm, kind))


class Cell:
    """A variable of a function."""

    __slots__ = ("code", "kind", "place")

    def __init__(self, code: "Code", place: Any, kind: Any) -> None:
        self.code = code
        self.place = place
        self.kind = kind

    def get(self) -> Word:
        """Return its value."""
        return Word(self.code, self.code.builder.load(self.place, typ=self.kind))

    def set(self, value: Word) -> None:
        """Give it a value."""
        self.code.builder.store(value.llvm, self.place)


class Code:
    """The body of a function while it is written; statements go where the last one ended."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.builder = ir.IRBuilder(function.append_basic_block())
        self.arguments = [Word(self, a) for a in function.args]
        self._entry = function.entry_basic_block

    # ---- values

    def constant(self, value: Any, kind: Any) -> Word:
        """Return a constant; of a vector type, one in every lane."""
        many = isinstance(kind, ir.VectorType)
        return Word(self, ir.Constant(kind, [value] * kind.count if many else value))

    def i64(self, value: int) -> Word:
        """Return an integer of 64 bits."""
        return self.constant(value, I64)

    def select(self, condition: Word, yes: Word, no: Operand) -> Word:
        """Return ``yes`` where the condition holds, else ``no``."""
        return Word(self, self.builder.select(condition.llvm, yes.llvm, yes.like(no).llvm))

    def smaller(self, a: Word, b: Operand) -> Word:
        """Return the smaller of two signed integers."""
        return self.select(a.lt(b), a, b)

    def call(self, function: Any, *arguments: Word) -> Word:
        """Call a function of the same program."""
        return Word(self, self.builder.call(function, [a.llvm for a in arguments]))

    def intrinsic(self, name: str, kind: Any, *arguments: Word, overloads: Sequence[Any] = ()) -> Word:
        """Call ``llvm.name``."""
        return Word(self, intrinsic(self.builder, name, kind, [a.llvm for a in arguments], *overloads))

    def any_of(self, mask: Word) -> Word:
        """Return whether any lane of a mask is on."""
        return self.intrinsic("vector.reduce.or", ir.IntType(1), mask, overloads=(mask.llvm.type,))

    def spread(self, value: Word, lanes: int) -> Word:
        """Return a vector whose lanes all hold a value."""
        return Word(self, splat(self.builder, value.llvm, lanes))

    def lane(self, vector: Word, number: int) -> Word:
        """Return one lane of a vector."""
        return Word(self, self.builder.extract_element(vector.llvm, ir.Constant(I32, number)))

    def shuffle(self, a: Word, b: Word, lanes: Sequence[int]) -> Word:
        """Return the lanes of two vectors, counted through, in the order given."""
        return Word(
            self, self.builder.shuffle_vector(a.llvm, b.llvm, ir.Constant(vector_of(I32, len(lanes)), list(lanes)))
        )

    # ---- memory

    def cell(self, value: Word) -> Cell:
        """Return a new variable that holds a value."""
        cell = Cell(self, self.room(value.llvm.type).llvm, value.llvm.type)
        cell.set(value)
        return cell

    def room(self, kind: Any, count: int = 1) -> Word:
        """Return the address of memory of this call, for ``count`` values."""
        with self.builder.goto_block(self._entry):
            if self._entry.instructions:
                self.builder.position_before(self._entry.instructions[0])
            place = self.builder.alloca(kind, count)
            place.type = POINTER  # as LLVM has it: an address of anything
            return Word(self, place)

    def at(self, base: Word, place: Operand, kind: Any) -> Word:
        """Return the address of element ``place`` of an array of ``kind``."""
        index = place if isinstance(place, Word) else self.i64(int(place))
        return Word(self, self.builder.gep(base.llvm, [index.llvm], source_etype=kind))

    def load(self, base: Word, place: Operand, kind: Any, lanes: int = 1) -> Word:
        """Return an element of an array of ``kind``, or ``lanes`` of them from there on as a vector."""
        address = self.at(base, place, kind).llvm
        return Word(
            self, self.builder.load(address, align=_align(kind), typ=kind if lanes == 1 else vector_of(kind, lanes))
        )

    def store(self, value: Word, base: Word, place: Operand) -> None:
        """Write an element (or several, of a vector) of an array of the value's type."""
        kind = value.llvm.type.element if isinstance(value.llvm.type, ir.VectorType) else value.llvm.type
        self.builder.store(value.llvm, self.at(base, place, kind).llvm, align=_align(kind))

    def copy(self, target: Word, source: Word, size: Word) -> None:
        """Copy ``size`` bytes between places that do not overlap."""
        self._memory("memcpy", (POINTER, POINTER, I64), target, source, size)

    def clear(self, target: Word, size: Operand) -> None:
        """Set ``size`` bytes to zero."""
        self._memory("memset", (POINTER, I64), target, self.constant(0, BYTE), self.number(size))

    def number(self, value: Operand) -> Word:
        """Return a size as a value."""
        return value if isinstance(value, Word) else self.i64(int(value))

    def _memory(self, name: str, overloads: tuple[Any, ...], *arguments: Word) -> None:
        volatile = self.constant(0, ir.IntType(1))
        self.intrinsic(name, ir.VoidType(), *arguments, volatile, overloads=overloads)

    def slot(self, number: int, kind: Any = I64) -> Word:
        """Return a slot of a kernel's arguments, as an integer or as a pointer."""
        return Word(self, self.builder.load(self.at(self.arguments[0], number, I64).llvm, typ=kind))

    # ---- control

    @contextmanager
    def loop(self, start: Operand, stop: Operand, step: Operand = 1) -> Iterator[Word]:
        """Run the block for start, start + step, … while below ``stop`` (signed)."""
        variable = self.cell(self.number(start))
        head, body, done = (self.function.append_basic_block() for _ in range(3))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        place = variable.get()
        self.builder.cbranch(place.lt(stop).llvm, body, done)
        self.builder.position_at_end(body)
        yield place
        variable.set(place + step)
        self.builder.branch(head)
        self.builder.position_at_end(done)

    @contextmanager
    def repeat(self) -> Iterator["Escape"]:
        """Run the block again and again, until ``escape.when(condition)``."""
        body, done = (self.function.append_basic_block() for _ in range(2))
        self.builder.branch(body)
        self.builder.position_at_end(body)
        yield Escape(self, done)
        self.builder.branch(body)
        self.builder.position_at_end(done)

    @contextmanager
    def when(self, condition: Word) -> Iterator[None]:
        """Run the block if the condition holds."""
        with self.builder.if_then(condition.llvm):
            yield

    @contextmanager
    def either(self, condition: Word) -> Iterator[tuple[Any, Any]]:
        """Give two blocks, ``with yes:`` and ``with no:``; the condition chooses."""
        with self.builder.if_else(condition.llvm) as branches:
            yield branches

    def give(self, value: Word | None = None) -> None:
        """Return from the function."""
        if value is None:
            self.builder.ret_void()
        else:
            self.builder.ret(value.llvm)


class Escape:
    """The way out of a ``repeat``."""

    def __init__(self, code: Code, done: Any) -> None:
        self._code = code
        self._done = done

    def when(self, condition: Word) -> None:
        """Leave the loop if the condition holds."""
        on = self._code.function.append_basic_block()
        self._code.builder.cbranch(condition.llvm, self._done, on)
        self._code.builder.position_at_end(on)


class Program:
    """A module of functions; ``str(program)`` is its LLVM IR."""

    def __init__(self, name: str) -> None:
        self._module = ir.Module(name)

    def function(self, name: str, arguments: Sequence[Any], result: Any = None) -> Code:
        """Begin a function that only this program calls; ``code.function`` is what ``call`` takes."""
        code = self.kernel(name, arguments, result)
        code.function.linkage = "internal"
        return code

    def kernel(self, name: str, arguments: Sequence[Any] = KERNEL, result: Any = None) -> Code:
        """Begin a function that is called from outside."""
        kind = ir.FunctionType(result or ir.VoidType(), list(arguments))
        return Code(ir.Function(self._module, kind, name))

    def __str__(self) -> str:
        return str(self._module)


def _align(kind: Any) -> int:
    """Return the alignment that elements have in memory: their own size, at most 8 bytes."""
    width = {ir.FloatType: 32, ir.DoubleType: 64}.get(type(kind)) or kind.width
    return min(max(width // 8, 1), 8)
