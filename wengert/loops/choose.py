"""How a kernel runs where nobody says otherwise: the moves that are made on it, chosen by a few rules.

The choice is a schedule, which can be printed, changed and applied like any other::

    moves = choice(kernel, vector_bytes=32)
    kernel = apply(kernel, [m for m in moves if m[0] != "unroll"]).kernel
"""

from collections.abc import Iterator
from typing import Final

from wengert.errors import KernelError
from wengert.loops.accesses import Access, accesses
from wengert.loops.affine import Facts
from wengert.loops.cost import computed
from wengert.loops.ir import Kernel, Let, Loop, Store, walk
from wengert.loops.moves import MOVES, Move, apply
from wengert.loops.scalar import BINARY_MATH, DTYPES, UNARY_MATH, Scalar, index, size_of

__all__ = ["BLOCK", "choice", "choose"]

BLOCK: Final = 4096  # iterations of a vectorised loop that one thread takes at a time
_ACCUMULATORS: Final = 4  # of a fold: an addition takes about 4 steps, and one can begin in each
_HALVES: Final = ("f16", "bf16")


def choose(kernel: Kernel, vector_bytes: int) -> Kernel:
    """Return the kernel with the moves that :func:`choice` names."""
    return apply(kernel, choice(kernel, vector_bytes)).kernel


def choice(kernel: Kernel, vector_bytes: int) -> list[Move]:
    """Return the schedule for a machine with vectors of so many bytes.

    Of each nest of loops the one is vectorised along which most accesses are neighbours in memory, in as many lanes as
    elements of the narrowest dtype that is computed with fill a register. A vectorised fold gets four accumulators, so that
    they need not wait for each other (two where it calls functions, which are long enough). The outermost loop becomes
    parallel, by blocks if it is the vectorised one.

    Example:
        >>> from wengert.loops.text import parse
        >>> k = parse("kernel copy(x: f32[n: 1], out y: f32[n: 1])\\n  for i in 0:n\\n    y[i] = x[i]\\n")
        >>> choice(k, 32)
        [('vectorize', 'i', 8), ('tile', 'i', 4096), ('parallelize', 'i_block')]
    """
    maker = _Maker(kernel)
    for leaf in _leaves(kernel):
        if all(_loop(maker.kernel, name).lanes == 1 for name in leaf):
            _vectorize(maker, leaf, vector_bytes)
    _parallelize(maker)
    return maker.moves


class _Maker:
    """A kernel that moves are tried on."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.moves: list[Move] = []

    def make(self, *move: str | int) -> bool:
        """Make a move, if it can be made."""
        try:
            self.kernel = MOVES[str(move[0])](self.kernel, *move[1:])
        except KernelError:
            return False
        self.moves.append(move)
        return True


def _named(kernel: Kernel) -> dict[str, Loop]:
    """The loops by the names that moves know them by."""
    loops = [s for s in walk(kernel.body) if isinstance(s, Loop)]
    variables = [loop.variable for loop in loops]
    seen: dict[str, int] = {}
    found = {}
    for loop in loops:
        number = seen[loop.variable] = seen.get(loop.variable, -1) + 1
        found[f"{loop.variable}.{number}" if variables.count(loop.variable) > 1 else loop.variable] = loop
    return found


def _loop(kernel: Kernel, name: str) -> Loop:
    return _named(kernel)[name]


def _leaves(kernel: Kernel) -> Iterator[tuple[str, ...]]:
    """The names of every loop without loops in it, after those of the loops around it."""
    named = _named(kernel)

    def below(body: tuple[object, ...], around: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for s in body:
            if isinstance(s, Loop):
                chain = (*around, next(name for name, loop in named.items() if loop is s))
                inner = list(below(s.body, chain))
                yield from inner or [chain]

    return below(kernel.body, ())


def _vectorize(maker: _Maker, leaf: tuple[str, ...], vector_bytes: int) -> None:
    """Vectorise one loop of a nest: the innermost, unless more lies side by side along another."""
    lanes = vector_bytes // _narrowest(_loop(maker.kernel, leaf[-1]))
    found = accesses(maker.kernel)
    inner_first = list(reversed(leaf))
    inner_first.sort(key=lambda name: -_neighbours(found, _loop(maker.kernel, name), _loop(maker.kernel, leaf[-1])))
    for name in inner_first:
        if lanes > 1 and maker.make("vectorize", name, min(lanes, 64)):
            loop = _loop(maker.kernel, name)
            if loop.folds:
                calls = any(x.op in UNARY_MATH or x.op in BINARY_MATH for s in walk(loop.body) for x in computed(s))
                maker.make("unroll", name, _ACCUMULATORS // 2 if calls else _ACCUMULATORS)
            return


def _narrowest(loop: Loop) -> int:
    """The bytes of the narrowest dtype that a loop computes with; of what it moves, if it computes nothing."""
    dtypes = {x.dtype for s in walk(loop.body) for x in computed(s)} - {"bool", *_HALVES}
    if not dtypes:
        dtypes = {s.value.dtype for s in walk(loop.body) if isinstance(s, Store | Let)}
    dtypes |= {f.dtype for f in loop.folds} if not dtypes else set()
    return min((size_of(d) for d in dtypes if d in DTYPES), default=8)


def _neighbours(found: list[Access], loop: Loop, leaf: Loop) -> int:
    """How many accesses of a leaf are side by side along a loop, less those that are apart."""
    inside = [a for a in found if a.buffer and any(each.body is leaf.body for each in a.loops)]
    return sum(_step(a, index(loop.variable)) for a in inside)


def _step(access: Access, variable: Scalar) -> int:
    """1 if an access moves by one element along a loop, 0 if it stays, -1 if it jumps."""
    facts = Facts()
    moves = [facts.linear(i).terms.get(variable, 0) for i in access.index]
    hidden = any(variable in _inside(atom) for i in access.index for atom in facts.linear(i).terms)
    if hidden:
        return -1
    if not any(moves):
        return 0
    return 1 if moves[-1] == 1 and not any(moves[:-1]) else -1


def _inside(atom: object) -> set[Scalar]:
    """What an atom that is no variable itself is made of."""
    found: set[Scalar] = set()
    stack = list(atom.args) if isinstance(atom, Scalar) else []
    while stack:
        x = stack.pop()
        found.add(x)
        stack.extend(x.args)
    return found


def _parallelize(maker: _Maker) -> None:
    """Make the outermost loop parallel, and the loop that it consists of, if it has one of its own."""
    outer = maker.kernel.body[-1] if maker.kernel.body else None
    if not isinstance(outer, Loop):
        return
    name = next(n for n, loop in _named(maker.kernel).items() if loop is outer)
    if outer.lanes > 1 or outer.unroll > 1:
        blocks = f"{outer.variable}_block"
        nested = any(isinstance(s, Loop) for s in outer.body)
        before, made = maker.kernel, list(maker.moves)
        if not (maker.make("tile", name, 8 * outer.lanes if nested else BLOCK) and maker.make("parallelize", blocks)):
            maker.kernel, maker.moves = before, made
        return
    if maker.make("parallelize", name):
        inner = outer.body[0]
        if len(outer.body) == 1 and isinstance(inner, Loop) and inner.lanes == 1:
            maker.make("parallelize", next(n for n, loop in _named(maker.kernel).items() if loop.body is inner.body))
