"""Moves: rewritings of a kernel that change how it runs and keep what it computes.

A move takes a kernel, the variable of a loop (``"j"``, or ``"j.1"`` for the second loop of that name), and numbers; it
checks that the result means the same, and returns it, or raises :class:`KernelError` that says why not. Folds may be
combined in another order. A schedule is a list of moves as data, such as ``[("tile", "i", 64), ("vectorize", "i", 8)]``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, NoReturn

from wengert.errors import KernelError
from wengert.loops.accesses import accesses, apart_in_order, conflicts, expressions
from wengert.loops.ir import (
    MONOIDS,
    Buffer,
    Kernel,
    Let,
    Loop,
    Stage,
    Statement,
    Store,
    Update,
    load,
    size,
    walk,
)  # fmt: skip
from wengert.loops.scalar import Scalar, const, index, make, postorder, substitute
from wengert.loops.text import line_of, show
from wengert.loops.verify import verify

__all__ = [
    "MOVES", "Move", "Scheduled", "apply", "find", "fuse", "parallelize", "reorder", "split_fold", "stage", "tile", "unroll",
    "vectorize",
]  # fmt: skip

Move = tuple[Any, ...]  # the name of a move, and its arguments after the kernel


class Place(NamedTuple):
    """A loop in a kernel: the positions that lead to it, itself, and the loops around it."""

    path: tuple[int, ...]
    loop: Loop
    around: tuple[Loop, ...]


@dataclass(frozen=True)
class Scheduled:
    """A kernel with the moves that led to it.

    Attributes:
        kernel: the result. history: each move with the kernel before it.
    """

    kernel: Kernel
    history: tuple[tuple[Move, Kernel], ...]

    def explain(self) -> str:
        """Return the kernel before and after every move."""
        text = ""
        for move, before in self.history:
            name, *arguments = move
            text += f"{show(before)}\n{name}({', '.join(map(repr, arguments))})\n\n"
        return text + show(self.kernel)


def apply(kernel: Kernel, schedule: Sequence[Move]) -> Scheduled:
    """Make moves one after the other.

    Example:
        >>> from wengert.loops.text import parse
        >>> k = parse("kernel copy(x: f32[n: 1], out y: f32[n: 1])\\n  for i in 0:n\\n    y[i] = x[i]\\n")
        >>> done = apply(k, [("tile", "i", 1024), ("parallelize", "i_block"), ("vectorize", "i", 8)])
        >>> print(show(done.kernel), end="")
        kernel copy(x: f32[n: 1], out y: f32[n: 1])
          parallel i_block in 0:n step 1024
            for i in i_block:minimum(i_block + 1024, n) by 8 lanes
              y[i] = x[i]
    """
    history = []
    for move in schedule:
        name, *arguments = move
        if name not in MOVES:
            raise KernelError(f"{name!r} is no move; known are {', '.join(MOVES)}")
        history.append((move, kernel))
        kernel = MOVES[name](kernel, *arguments)
    return Scheduled(kernel, tuple(history))


# ---- finding and replacing loops


def find(kernel: Kernel, name: str) -> Place:
    """Return the loop of a variable; ``"j.1"`` is the second of several."""
    variable, _, number = name.partition(".")
    found = [p for p in _places(kernel.body, (), ()) if p.loop.variable == variable]
    if not found:
        known = dict.fromkeys(p.loop.variable for p in _places(kernel.body, (), ()))
        raise KernelError(f"no loop of {kernel.name} has the variable {variable!r}; known are {', '.join(known)}")
    if len(found) > 1 and not number:
        raise KernelError(
            f"{len(found)} loops have the variable {variable!r}: name one {variable}.0 … {variable}.{len(found) - 1}"
        )
    if number and not (number.isdecimal() and int(number) < len(found)):
        raise KernelError(f"there are {len(found)} loops over {variable!r}, so no {name!r}")
    return found[int(number or 0)]


def _places(body: tuple[Statement, ...], path: tuple[int, ...], around: tuple[Loop, ...]) -> list[Place]:
    found = []
    for n, s in enumerate(body):
        if isinstance(s, Loop):
            found += [Place((*path, n), s, around), *_places(s.body, (*path, n), (*around, s))]
    return found


def _put(
    body: tuple[Statement, ...], path: tuple[int, ...], new: tuple[Statement, ...], count: int = 1
) -> tuple[Statement, ...]:
    """Replace ``count`` statements at a path."""
    n, *rest = path
    if rest:
        loop = body[n]
        assert isinstance(loop, Loop)
        return (*body[:n], replace(loop, body=_put(loop.body, tuple(rest), new, count)), *body[n + 1 :])
    return (*body[:n], *new, *body[n + count :])


def _with(kernel: Kernel, place: Place, *new: Statement, count: int = 1) -> Kernel:
    """Return the kernel with a loop replaced, if that is a kernel."""
    changed = kernel.with_body(_put(kernel.body, place.path, new, count))
    verify(changed)
    return changed


def _refuse(move: str, kernel: Kernel, statement: Statement, why: str) -> NoReturn:
    raise KernelError(f"{move}: {why}\n{line_of(kernel, statement)}")


def _fresh(kernel: Kernel, name: str) -> str:
    """Return a name that nothing in the kernel has."""
    taken = {*(b.name for b in kernel.buffers), *kernel.sizes, *(p.name for p in kernel.params)}
    for s in walk(kernel.body):
        taken |= (
            {s.variable, *(f.name for f in s.folds)}
            if isinstance(s, Loop)
            else {s.buffer if isinstance(s, Store) else s.name}
        )
    number, found = 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _mentions(statements: tuple[Statement, ...], names: set[str]) -> bool:
    """Whether expressions read values or loop variables of some names."""
    roots = [x for s in walk(statements) for x in expressions(s)]
    return any(
        (x.data if x.op == "index" else x.data[0]) in names for x in postorder(roots) if x.op in ("var", "index")
    )


def _rewrite(
    statements: tuple[Statement, ...], change: Callable[[Scalar], Scalar], names: dict[str, str]
) -> tuple[Statement, ...]:
    """Change every expression of statements, and the names of the folds that updates go to."""
    found: list[Statement] = []
    for s in statements:
        if isinstance(s, Loop):
            body = _rewrite(s.body, change, names)
            found.append(replace(s, start=change(s.start), stop=change(s.stop), body=body))
        elif isinstance(s, Let):
            found.append(replace(s, value=change(s.value)))
        elif isinstance(s, Store):
            guard = None if s.guard is None else change(s.guard)
            found.append(replace(s, index=tuple(map(change, s.index)), value=change(s.value), guard=guard))
        elif isinstance(s, Update):
            found.append(replace(s, name=names.get(s.name, s.name), values=tuple(map(change, s.values))))
        else:
            found.append(replace(s, size=change(s.size)))
    return tuple(found)


# ---- the moves


def tile(kernel: Kernel, variable: str, count: int) -> Kernel:
    """Split a loop in blocks of ``count`` iterations.

    ::

        for i in 0:n                  for i_block in 0:n step 64
          y[i] = x[i]                   for i in i_block:minimum(i_block + 64, n)
                                          y[i] = x[i]

        fold i in 0:n                 fold i_block in 0:n step 64
          s = sum(x[i])                 fold i in i_block:minimum(i_block + 64, n)
                                          s_block = sum(x[i])
                                        s = sum(s_block)

    A fold whose value is read on the way (a scan) stays one fold, of the outer loop. A parallel loop becomes a parallel
    loop over blocks; lanes and unrolling go to the inner loop.
    """
    place = find(kernel, variable)
    loop = place.loop
    if count < 1:
        _refuse("tile", kernel, loop, f"a block has at least one iteration, got {count}")
    outer = _fresh(kernel, f"{loop.variable}_block")
    start, span = index(outer), const(count * loop.step, "i64")
    stop = make("minimum", (start + span, loop.stop))
    running = _mentions(loop.body, {f.name for f in loop.folds})
    names = {} if running else {f.name: _fresh(kernel, f"{f.name}_block") for f in loop.folds}
    folds = tuple(replace(f, name=names[f.name]) for f in loop.folds if not running)
    body = _rewrite(loop.body, lambda x: x, names)
    inner = replace(loop, start=start, stop=stop, body=body, folds=folds, parallel=False)
    updates = tuple(Update(f.name, part.results) for f, part in zip(loop.folds, folds, strict=False))
    blocks = replace(loop, variable=outer, step=count * loop.step, body=(inner, *updates), lanes=1, unroll=1)
    return _with(kernel, place, blocks)


def reorder(kernel: Kernel, variable: str) -> Kernel:
    """Swap a loop with the one loop that it consists of.

    ::

        for i in 0:n                  for j in 0:m
          for j in 0:m                  for i in 0:n
            y[i, j] = x[j, i]             y[i, j] = x[j, i]
    """
    place = find(kernel, variable)
    outer = place.loop
    if len(outer.body) != 1 or not isinstance(outer.body[0], Loop):
        _refuse("reorder", kernel, outer, "the loop must consist of one loop")
    inner = outer.body[0]
    bounds = {x for b in (inner.start, inner.stop) for x in postorder((b,)) if x.op in ("index", "var", "load")}
    if any(x.op != "var" and (x.op == "load" or x.data == outer.variable) for x in bounds):
        _refuse("reorder", kernel, inner, f"the bounds of this loop depend on {outer.variable!r}")
    if inner.folds:
        _refuse("reorder", kernel, inner, "the folds of this loop would become those of the outer one")
    if conflicts(kernel, outer, back=inner):
        _refuse(
            "reorder", kernel, outer, "a later iteration may use an element that an earlier one writes, or the reverse"
        )
    if outer.parallel != inner.parallel:
        _refuse("reorder", kernel, outer, "only the outermost loops can be parallel: reorder first, then parallelize")
    swapped = replace(inner, folds=outer.folds, body=(replace(outer, folds=(), body=inner.body),))
    return _with(kernel, place, swapped)


def vectorize(kernel: Kernel, variable: str, lanes: int) -> Kernel:
    """Run ``lanes`` iterations of a loop as one vector, the last ones under a mask.

    ::

        for i in 0:n                  for i in 0:n by 8 lanes
          y[i] = x[i]                   y[i] = x[i]
    """
    place = find(kernel, variable)
    return _with(kernel, place, replace(place.loop, lanes=lanes))


def unroll(kernel: Kernel, variable: str, count: int) -> Kernel:
    """Write out ``count`` steps of a loop; a fold gets as many accumulators, so that they need not wait for each other.

    ::

        fold i in 0:n by 8 lanes      fold i in 0:n by 8 lanes unroll 4
          s = sum(x[i])                 s = sum(x[i])
    """
    place = find(kernel, variable)
    return _with(kernel, place, replace(place.loop, unroll=count))


def parallelize(kernel: Kernel, variable: str) -> Kernel:
    """Let several threads share the iterations of the outermost loop (or of the loop that a parallel loop consists of).

    ::

        for i in 0:n                  parallel i in 0:n
          y[i] = x[i]                   y[i] = x[i]
    """
    place = find(kernel, variable)
    return _with(kernel, place, replace(place.loop, parallel=True))


def stage(kernel: Kernel, variable: str, buffer: str, axis: int = -1) -> Kernel:
    """Copy what an iteration reads of one dimension of a buffer, once, to memory of its own.

    ::

        for i in 0:n                  for i in 0:n
          fold j in 0:d                 stage x_row: f32[d]
            m = max(x[j, i])            for x_place in 0:d
          for j in 0:d                    x_row[x_place] = x[x_place, i]
            y[i, j] = x[j, i] - m       fold j in 0:d
                                          m = max(x_row[j])
                                        for j in 0:d
                                          y[i, j] = x_row[j] - m
    """
    place = find(kernel, variable)
    loop, source = place.loop, next((b for b in kernel.buffers if b.name == buffer), None)
    if source is None:
        _refuse("stage", kernel, loop, f"{buffer!r} is no buffer of the kernel")
    axis = range(len(source.dims))[axis]
    if any(isinstance(s, Store) and s.buffer == buffer for s in walk(loop.body)):
        _refuse("stage", kernel, loop, f"{buffer!r} is written in this loop")
    loads = {x for s in walk(loop.body) for x in postorder(expressions(s)) if x.op == "load" and x.data[0] == buffer}
    if not loads:
        _refuse("stage", kernel, loop, f"{buffer!r} is not read in this loop")
    fixed = {tuple(i for d, i in enumerate(x.args[: len(source.dims)]) if d != axis) for x in loads}
    inner = {s.variable for s in walk(loop.body) if isinstance(s, Loop)} | {
        s.name for s in walk(loop.body) if isinstance(s, Let)
    }
    inner |= {f.name for s in walk((loop,)) if isinstance(s, Loop) for f in s.folds}
    row = next(iter(fixed))
    if len(fixed) > 1 or any(
        (n.data if n.op == "index" else n.data[0]) in inner for n in postorder(row) if n.op in ("index", "var")
    ):
        _refuse("stage", kernel, loop, f"one iteration reads several rows of {buffer!r} along dimension {axis}")
    if any(x.data[1] for x in loads):
        _refuse("stage", kernel, loop, f"{buffer!r} is read under a guard: its row may not exist")
    if any(axis not in a.outside_of() and a.outside_of() for a in accesses(kernel) if a.buffer == buffer):
        _refuse("stage", kernel, loop, f"the row of {buffer!r} is not proven to be inside it")
    return _staged(kernel, place, source, axis, row)


def _staged(kernel: Kernel, place: Place, source: Buffer, axis: int, row: tuple[Scalar, ...]) -> Kernel:
    loop, dim = place.loop, source.dims[axis]
    extent = size(dim) if isinstance(dim, str) else const(dim, "i64")
    local = Stage(_fresh(kernel, f"{source.name}_row"), source.dtype, extent)
    at = _fresh(kernel, f"{source.name}_place")
    copied = load(source, *row[:axis], index(at), *row[axis:])
    copy = Loop(at, const(0, "i64"), extent, (Store(local.name, (index(at),), copied),))

    def change(x: Scalar) -> Scalar:
        known: dict[Scalar, Scalar] = {}
        for n in postorder((x,)):
            if n.op == "load" and n.data[0] == source.name:
                known[n] = load(local, substitute(n.args[axis], known))
        return substitute(x, known)

    return _with(kernel, place, replace(loop, body=(local, copy, *_rewrite(loop.body, change, {}))))


def fuse(kernel: Kernel, variable: str) -> Kernel:
    """Join a loop with the one after it, which has the same bounds.

    ::

        fold j in 0:d                 fold j in 0:d
          s = sum(x[j])                 s = sum(x[j])
        fold k in 0:d                   t = sum(x[j] * x[j])
          t = sum(x[k] * x[k])
    """
    place = find(kernel, variable)
    first = place.loop
    siblings = place.around[-1].body if place.around else kernel.body
    n = place.path[-1]
    if n + 1 >= len(siblings) or not isinstance(siblings[n + 1], Loop):
        _refuse("fuse", kernel, first, "the loop must be followed by another loop")
    second = siblings[n + 1]
    assert isinstance(second, Loop)
    shape = [(s.start, s.stop, s.step, s.parallel, s.lanes, s.unroll) for s in (first, second)]
    if shape[0] != shape[1]:
        _refuse(
            "fuse",
            kernel,
            second,
            f"this loop differs from loop {first.variable!r} in its bounds, step, lanes or unrolling",
        )
    if _mentions(second.body, {f.name for f in first.folds}):
        _refuse("fuse", kernel, second, "this loop needs the result of the first one's fold")
    known = {index(second.variable): index(first.variable)}
    body = (*first.body, *_rewrite(second.body, lambda x: substitute(x, dict(known)), {}))
    joined = replace(first, folds=(*first.folds, *second.folds), body=body)
    fused = _with(kernel, place, joined, count=2)
    early = {id(s) for s in walk(joined.body[: len(first.body)])}
    inside = [a for a in accesses(fused) if any(each.body is joined.body for each in a.loops) and a.buffer]
    written = {a.buffer for a in inside if a.write}
    before, after = ([a for a in inside if (id(a.statement) in early) == wanted] for wanted in (True, False))
    for a in before:
        for b in after:
            if a.buffer == b.buffer and (a.write or b.write) and not apart_in_order(b, a, joined, written):
                _refuse(
                    "fuse",
                    kernel,
                    second,
                    f"an iteration of this loop may need {a.buffer!r} as a later one of the first leaves it",
                )
    return fused


def split_fold(kernel: Kernel, variable: str, count: int) -> tuple[Kernel, Kernel]:
    """Fold blocks of ``count`` iterations into scratch buffers in parallel, and those in a second kernel.

    ::

        kernel f(x: f32[n: 1], out y: f32[])
          fold i in 0:n
            s = sum(x[i])
          y[] = s

        kernel f_blocks(x: f32[n: 1], out s_part0: f32[blocks: 1])
          parallel block in 0:blocks
            fold i in block * 4096:minimum(block * 4096 + 4096, n)
              s_block = sum(x[i])
            s_part0[block] = s_block

        kernel f_rest(out y: f32[], s_part0: f32[blocks: 1])
          fold block in 0:blocks
            s = sum(s_part0[block])
          y[] = s

    The caller gives ``blocks`` = ⌈iterations / count⌉, and the scratch buffers. The result does not depend on the number of
    threads. The loop stands at the top of the kernel, with nothing but named values before it.
    """
    place = find(kernel, variable)
    loop = place.loop
    before, after = kernel.body[: place.path[0]], kernel.body[place.path[0] + 1 :]
    if place.around or not all(isinstance(s, Let) for s in before) or not loop.folds:
        _refuse("split_fold", kernel, loop, "expected a fold at the top of the kernel, after nothing but named values")
    if any(isinstance(s, Store) and s.buffer in {b.name for b in kernel.buffers} for s in walk(loop.body)):
        _refuse("split_fold", kernel, loop, "the loop also stores: split the kernel, or the loop, first")
    if _mentions(loop.body, {f.name for f in loop.folds}):
        _refuse("split_fold", kernel, loop, "the loop reads what it has folded so far")
    blocks, block = _fresh(kernel, "blocks"), _fresh(kernel, "block")
    scratch = {
        (f.name, n): Buffer(_fresh(kernel, f"{f.name}_part{n}"), part.dtype, (blocks,), (1,), "out")
        for f in loop.folds for n, part in enumerate(f.results)
    }  # fmt: skip
    names = {f.name: _fresh(kernel, f"{f.name}_block") for f in loop.folds}
    parts = tuple(replace(f, name=names[f.name]) for f in loop.folds)
    begin = index(block) * (count * loop.step)
    start = begin if loop.start is const(0, "i64") else loop.start + begin
    stop = make("minimum", (start + count * loop.step, loop.stop))
    inner = replace(loop, start=start, stop=stop, folds=parts, body=_rewrite(loop.body, lambda x: x, names))
    stores = tuple(
        Store(scratch[f.name, n].name, (index(block),), r)
        for f, p in zip(loop.folds, parts, strict=True)
        for n, r in enumerate(p.results)
    )
    over = Loop(block, const(0, "i64"), size(blocks), (inner, *stores), parallel=True)
    first = _kernel(kernel, "blocks", (*before, over), tuple(scratch.values()), blocks)
    updates = tuple(
        Update(f.name, tuple(load(scratch[f.name, n], block) for n in range(MONOIDS[f.monoid].parts)))
        for f in loop.folds
    )
    again = Loop(block, const(0, "i64"), size(blocks), updates, loop.folds)
    held = tuple(replace(b, role="in") for b in scratch.values())
    second = _kernel(kernel, "rest", (*before, again, *after), held, blocks)
    return first, second


def _kernel(kernel: Kernel, suffix: str, body: tuple[Statement, ...], more: tuple[Buffer, ...], blocks: str) -> Kernel:
    """Return a kernel with a part of another's body, and of its arguments those that the part uses."""
    nodes = [x for s in walk(body) for x in postorder(expressions(s))]
    used = {s.buffer for s in walk(body) if isinstance(s, Store)} | {x.data[0] for x in nodes if x.op == "load"}
    params = {x.data for x in nodes if x.op == "param"}
    buffers = (*(b for b in kernel.buffers if b.name in used), *more)
    sizes = {x.data for x in nodes if x.op == "size"} | {d for b in buffers for d in b.dims if isinstance(d, str)}
    made = Kernel(
        f"{kernel.name}_{suffix}", buffers, tuple(s for s in (*kernel.sizes, blocks) if s in sizes), body,
        tuple(p for p in kernel.params if p.name in params),
    )  # fmt: skip
    verify(made)
    return made


MOVES: Final[dict[str, Callable[..., Kernel]]] = {
    "tile": tile, "reorder": reorder, "vectorize": vectorize, "unroll": unroll, "parallelize": parallelize, "stage": stage,
    "fuse": fuse,
}  # fmt: skip
