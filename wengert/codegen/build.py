"""Words for code that writes LLVM IR directly: kernels, loops with carried values, addresses in bytes, partial vectors.

Offsets, strides and counts are Python integers where they are known, LLVM values of 64 bits where not: every word here
takes both. A body is a Python function that emits code where the builder stands.

Example:
    A kernel that doubles the float32 numbers of its one buffer, eight at a time and the rest under a mask::

        def body(b, i, _):
            x = at(b, buffer, times(b, i, 4))
            lanes = first_lanes(b, minus(b, end, i), 8)
            v = read(b, x, FLOAT8, lanes)
            write(b, b.fadd(v, v), x, lanes)

        b, args, begin, end = kernel("double")
        buffer = slot(b, args, 0, POINTER)
        loop(b, begin, end, body, step=8)
        text = finish(b)
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from wengert.codegen.lanes import BYTE, I32, I64, POINTER, splat, vector_of
from wengert.codegen.operations import intrinsic

__all__ = [
    "at", "below", "choose", "divide_up", "finish", "first_lanes", "function", "kernel", "loop", "minimum", "minus", "number",
    "plus", "prefetch", "read", "read_first", "slot", "times", "when", "write", "write_first",
]  # fmt: skip

VOID = ir.VoidType()


def function(
    module: Any, name: str, result: Any, arguments: Sequence[Any], *, internal: bool = False
) -> tuple[Any, list[Any]]:
    """Open a function: return a builder inside it and its arguments. An ``internal`` one is only called, never inlined."""
    made = ir.Function(module, ir.FunctionType(result, arguments), name)
    made.attributes.add("nounwind")
    if internal:
        made.linkage = "internal"
        made.attributes.add("noinline")
    return ir.IRBuilder(made.append_basic_block("entry")), list(made.args)


def kernel(name: str) -> tuple[Any, Any, Any, Any]:
    """Open a kernel in a module of its own: return a builder inside it, its slots, and the ends of its range."""
    b, (args, begin, end) = function(ir.Module(name), name, VOID, [POINTER, I64, I64])
    args.attributes.add("noalias")
    return b, args, begin, end


def finish(b: Any) -> str:
    """Return from the function the builder stands in, and return its module as text."""
    b.ret_void()
    return str(b.module)


def slot(b: Any, args: Any, index: int, kind: Any = I64) -> Any:
    """Read a slot of a kernel's arguments as a value of a type of at most 64 bits."""
    return b.load(at(b, args, 8 * index), align=8, typ=kind)


def number(value: Any) -> Any:
    """Return a Python integer as an LLVM constant; a value as it is."""
    return ir.Constant(I64, value) if isinstance(value, int) else value


def _is(x: Any, value: int) -> bool:
    return isinstance(x, int) and x == value


def plus(b: Any, x: Any, y: Any) -> Any:
    """Return ``x + y``."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if _is(x, 0) or _is(y, 0):
        return y if _is(x, 0) else x
    return b.add(number(x), number(y))


def minus(b: Any, x: Any, y: Any) -> Any:
    """Return ``x - y``."""
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    return x if _is(y, 0) else b.sub(number(x), number(y))


def times(b: Any, x: Any, y: Any) -> Any:
    """Return ``x * y``."""
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    if _is(x, 0) or _is(y, 0):
        return 0
    if _is(x, 1) or _is(y, 1):
        return y if _is(x, 1) else x
    return b.mul(number(x), number(y))


def below(b: Any, x: Any, y: Any) -> Any:
    """Return whether ``x < y``, as signed numbers."""
    return b.icmp_signed("<", number(x), number(y))


def minimum(b: Any, x: Any, y: Any) -> Any:
    """Return the smaller of two signed numbers."""
    return b.select(below(b, x, y), number(x), number(y))


def divide_up(b: Any, x: Any, y: int) -> Any:
    """Return ``ceil(x / y)`` of a number that is not negative."""
    return b.udiv(number(plus(b, x, y - 1)), number(y))


def at(b: Any, pointer: Any, *offsets: Any) -> Any:
    """Return an address some bytes further."""
    for offset in offsets:
        if not _is(offset, 0):
            pointer = b.gep(pointer, [number(offset)], source_etype=BYTE)
    return pointer


def loop(
    b: Any,
    start: Any,
    stop: Any,
    body: Callable[[Any, Any, list[Any]], Sequence[Any] | None],
    *,
    step: Any = 1,
    carry: Sequence[Any] = (),
) -> list[Any]:
    """Emit ``for i in range(start, stop, step)`` and return the carried values as the last turn left them.

    ``body(b, i, carried)`` emits a turn and returns the new carried values. ``step`` is positive.
    """
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("loop", "turn", "done"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(number(start), before)
    carried = [b.phi(value.type) for value in carry]
    for phi, value in zip(carried, carry, strict=True):
        phi.add_incoming(value, before)
    b.cbranch(below(b, i, stop), inside, after)
    b.position_at_end(inside)
    new = body(b, i, list(carried)) or ()
    i.add_incoming(plus(b, i, step), b.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(after)
    return list(carried)


def when(b: Any, condition: Any, body: Callable[[Any], None]) -> None:
    """Emit ``body(b)`` under a condition."""
    with b.if_then(condition):
        body(b)


def choose(
    b: Any, condition: Any, yes: Callable[[Any], Sequence[Any] | None], no: Callable[[Any], Sequence[Any] | None]
) -> list[Any]:
    """Emit two branches and return the values that the one which runs has made."""
    ends = []
    with b.if_else(condition) as (then, otherwise):
        for branch, body in ((then, yes), (otherwise, no)):
            with branch:
                values = list(body(b) or ())
                ends.append((values, b.block))
    (first, from_yes), (second, from_no) = ends
    found = []
    for one, other in zip(first, second, strict=True):
        phi = b.phi(one.type)
        phi.add_incoming(one, from_yes)
        phi.add_incoming(other, from_no)
        found.append(phi)
    return found


def first_lanes(b: Any, count: Any, lanes: int) -> Any:
    """Return the mask of the first ``count`` lanes; all of them if there are more."""
    numbers = ir.Constant(vector_of(I32, lanes), list(range(lanes)))
    inside = b.trunc(minimum(b, count, lanes), I32)
    return b.icmp_signed("<", numbers, splat(b, inside, lanes))


def read(b: Any, pointer: Any, kind: Any, mask: Any = None) -> Any:
    """Load a value of a type; of a vector under a mask only the lanes that are on, the others are 0.

    It may lie anywhere: NumPy has arrays whose elements are not aligned.
    """
    if mask is None:
        return b.load(pointer, align=1, typ=kind)
    zero = ir.Constant(kind, [0] * kind.count)
    return intrinsic(b, "masked.load", kind, [pointer, ir.Constant(I32, 1), mask, zero], kind, POINTER)


def prefetch(b: Any, pointer: Any, *, write: bool = False, cache: int = 1) -> None:
    """Ask for a line of memory in the first, second or third cache; the address may be anything."""
    hint = [ir.Constant(I32, value) for value in (int(write), 4 - cache, 1)]
    intrinsic(b, "prefetch", VOID, [pointer, *hint], POINTER)


def write(b: Any, value: Any, pointer: Any, mask: Any = None) -> None:
    """Store a value; of a vector under a mask only the lanes that are on."""
    kind = value.type
    if mask is None:
        b.store(value, pointer, align=1)
    else:
        intrinsic(b, "masked.store", VOID, [value, pointer, ir.Constant(I32, 1), mask], kind, POINTER)


def read_first(b: Any, pointer: Any, kind: Any, count: Any) -> Any:
    """Load the first ``count`` elements of a vector, or all if there are more; the other lanes are 0."""
    whole = b.icmp_signed(">=", number(count), number(kind.count))
    return choose(
        b,
        whole,
        lambda b: [read(b, pointer, kind)],
        lambda b: [read(b, pointer, kind, first_lanes(b, count, kind.count))],
    )[0]


def write_first(b: Any, value: Any, pointer: Any, count: Any) -> None:
    """Store the first ``count`` elements of a vector, or all if there are more."""
    lanes = value.type.count
    with b.if_else(b.icmp_signed(">=", number(count), number(lanes))) as (whole, part):
        with whole:
            write(b, value, pointer)
        with part:
            write(b, value, pointer, first_lanes(b, count, lanes))
