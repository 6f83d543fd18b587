"""Where a kernel reads and writes: every access with the loops, guards and named values around it."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from wengert.loops.affine import Facts, Linear
from wengert.loops.ir import Buffer, Kernel, Let, Loop, Stage, Statement, Store, Update, size, walk
from wengert.loops.scalar import Scalar, const, index, make, postorder, substitute, var

__all__ = ["Access", "accesses", "apart_in_order", "conflicts", "expressions"]


@dataclass(frozen=True)
class Access:
    """One read or write of a buffer, a stage, or a constant table.

    Attributes:
        statement: whose line it is in. buffer: its name ("" for a table). dims: the limits of the indices. index: the indices,
            without names of values. loops: the loops around it, outer first, their bounds without names of values.
        guard: the condition under which it happens, or None. write: whether it writes. outside: of a stage, how many of
            ``loops`` are around it; the others share its memory.
    """

    statement: Statement
    buffer: str
    dims: tuple[Scalar, ...]
    index: tuple[Scalar, ...]
    loops: tuple[Loop, ...]
    guard: Scalar | None
    write: bool
    outside: int = 0

    @property
    def place(self) -> Hashable:
        """What two accesses of one kernel share that are to the same elements."""
        return self.buffer, self.index, self.guard, id(self.loops)

    def facts(self) -> Facts:
        """Return what is known where the access happens."""
        facts = Facts()
        for loop in self.loops:
            enter(facts, loop)
        if self.guard is not None:
            facts.assume(self.guard)
        return facts

    def outside_of(self) -> list[int]:
        """Return the dimensions in which the access is not proven to be inside."""
        facts = self.facts()
        return [
            axis
            for axis, (i, dim) in enumerate(zip(self.index, self.dims, strict=True))
            if not (
                facts.implies(facts.linear(i)) and facts.implies(facts.linear(dim).minus(facts.linear(i)).shifted(-1))
            )
        ]


def enter(facts: Facts, loop: Loop) -> None:
    """Note what is known in the body of a loop."""
    i, start = facts.linear(index(loop.variable)), facts.linear(loop.start)
    facts.known += [i.minus(start), facts.linear(loop.stop).minus(i).shifted(-1)]
    if loop.step > 1:
        rounds = Linear(0, {("rounds", loop.variable): loop.step})
        facts.known += [i.minus(start).minus(rounds), rounds.minus(i.minus(start))]


def expressions(statement: Statement) -> tuple[Scalar, ...]:
    """Return the expressions of a statement itself, without those of a loop's body."""
    if isinstance(statement, Loop):
        return statement.start, statement.stop
    if isinstance(statement, Let):
        return (statement.value,)
    if isinstance(statement, Stage):
        return (statement.size,)
    if isinstance(statement, Update):
        return statement.values
    return (*statement.index, statement.value, *(() if statement.guard is None else (statement.guard,)))


def accesses(kernel: Kernel) -> list[Access]:
    """Return every access of a kernel, in the order of its text."""
    return list(_Walk(kernel).block(kernel.body, ()))


def _dims(buffer: Buffer) -> tuple[Scalar, ...]:
    return tuple(size(d) if isinstance(d, str) else const(d, "i64") for d in buffer.dims)


class _Walk:
    def __init__(self, kernel: Kernel) -> None:
        self.dims = {b.name: _dims(b) for b in kernel.buffers}
        self.outside = dict.fromkeys(self.dims, 0)
        self.values: dict[Scalar, Scalar] = {}  # named values → what they stand for
        self.written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}

    def plain(self, x: Scalar) -> Scalar:
        """Return an expression without the names of values."""
        return substitute(x, dict(self.values)) if self.values else x

    def changes(self, x: Scalar) -> bool:
        """Whether a value may be another one later in the same iteration."""
        return x.op == "var" or (x.op == "load" and x.data[0] in self.written)

    def block(self, body: tuple[Statement, ...], loops: tuple[Loop, ...]) -> Iterator[Access]:
        before = dict(self.values)
        for statement in body:
            for x in postorder(expressions(statement)):
                if x.op in ("load", "lookup"):
                    yield self.read(statement, x, loops)
            if isinstance(statement, Loop):
                plain = replace(statement, start=self.plain(statement.start), stop=self.plain(statement.stop))
                yield from self.block(statement.body, (*loops, plain))
            elif isinstance(statement, Let):
                value = self.plain(statement.value)
                if not any(self.changes(x) for x in postorder((value,))):
                    self.values[var(statement.name, value.dtype)] = value
            elif isinstance(statement, Stage):
                self.dims[statement.name] = (self.plain(statement.size),)
                self.outside[statement.name] = len(loops)
            elif isinstance(statement, Store):
                yield from self.write(statement, loops)
        self.values = before

    def read(self, statement: Statement, x: Scalar, loops: tuple[Loop, ...]) -> Access:
        if x.op == "lookup":
            i = self.plain(x.args[0])
            i = i if i.dtype == "i64" else make("cast", (i,), "i64")
            return Access(statement, "", (const(len(x.data), "i64"),), (i,), loops, None, False)
        name, guarded = x.data
        args = tuple(map(self.plain, x.args))
        places, guard = (args[:-1], args[-1]) if guarded else (args, None)
        return Access(statement, name, self.dims[name], places, loops, guard, False, self.outside[name])

    def write(self, statement: Store, loops: tuple[Loop, ...]) -> Iterator[Access]:
        guard = None if statement.guard is None else self.plain(statement.guard)
        places = tuple(map(self.plain, statement.index))
        access = Access(statement, statement.buffer, self.dims[statement.buffer], places, loops, guard, True)
        access = replace(access, outside=self.outside[statement.buffer])
        if statement.add:
            yield replace(access, write=False)
        yield access


def conflicts(
    kernel: Kernel, loop: Loop, found: list[Access] | None = None, back: Loop | None = None
) -> list[tuple[Access, Access]]:
    """Return the pairs of accesses that two iterations of a loop may make to the same element, one of them a write.

    No pair means that its iterations may run in any order, or at once; with ``back``, a loop within it, that no later
    iteration of ``loop`` conflicts with an earlier one at a larger ``back``. Buffers are taken not to overlap, and different
    indices of a written buffer to be different elements.
    """
    found = accesses(kernel) if found is None else found
    inside = [a for a in found if _depth(a, loop) is not None and a.buffer and a.outside <= (_depth(a, loop) or 0)]
    written = {a.buffer for a in inside if a.write}
    inside = [a for a in inside if a.buffer in written]
    found_apart: dict[Any, bool] = {}  # many accesses are to one place
    pairs = []
    for n, a in enumerate(inside):
        for b in inside[n:]:
            if a.buffer == b.buffer and (a.write or b.write):
                key = frozenset((a.place, b.place))
                if key not in found_apart:
                    found_apart[key] = _apart(a, b, loop, written, back)
                if not found_apart[key]:
                    pairs.append((a, b))
    return pairs


def _depth(access: Access, loop: Loop) -> int | None:
    """How many loops are around a loop, if it is one around the access."""
    same = (n for n, each in enumerate(access.loops) if each.variable == loop.variable and each.body is loop.body)
    return next(same, None)


def _apart(a: Access, b: Access, loop: Loop, written: set[str], back: Loop | None) -> bool:
    """Whether different iterations of a loop make two accesses to different elements."""
    return apart_in_order(a, b, loop, written, back) and (
        a.place == b.place or apart_in_order(b, a, loop, written, back)
    )


def apart_in_order(a: Access, b: Access, loop: Loop, written: set[str], back: Loop | None = None) -> bool:
    """Whether no iteration of a loop makes access ``b`` to an element that an earlier one makes access ``a`` to."""
    depth = _depth(a, loop)
    assert depth is not None
    facts = a.facts()
    other = _other_iteration(b, depth, written)
    for each in other.loops[depth:]:
        enter(facts, each)
    if other.guard is not None:
        facts.assume(other.guard)
    for each, sign in [(loop, 1), *([(back, -1)] if back is not None else [])]:
        here, there = facts.linear(index(each.variable)), facts.linear(index(each.variable + "'"))
        facts.known.append(there.minus(here).times(sign).shifted(-each.step))
    return facts.excludes([facts.linear(j).minus(facts.linear(i)) for i, j in zip(a.index, other.index, strict=True)])


def _other_iteration(access: Access, depth: int, written: set[str]) -> Access:
    """Return an access as another iteration of its loop number ``depth`` makes it: what that loop changes is renamed."""
    fixed = {loop.variable for loop in access.loops[:depth]}
    known: dict[Scalar, Scalar] = {}
    roots = [*access.index, *(b for loop in access.loops for b in (loop.start, loop.stop))]
    for x in postorder([*roots, *([access.guard] if access.guard is not None else [])]):
        if x.op == "index" and x.data not in fixed:
            known[x] = index(x.data + "'")
        elif x.op == "var":
            known[x] = var(x.data[0] + "'", x.dtype, x.data[1])
        elif x.op == "load" and x.data[0] in written:
            known[x] = var(x.data[0] + "'", x.dtype, id(x))
    loops = tuple(
        loop if n < depth else replace(
            loop, variable=loop.variable + "'", start=substitute(loop.start, known), stop=substitute(loop.stop, known)
        )
        for n, loop in enumerate(access.loops)
    )  # fmt: skip
    places = tuple(substitute(i, known) for i in access.index)
    guard = None if access.guard is None else substitute(access.guard, known)
    return replace(access, loops=loops, index=places, guard=guard)
