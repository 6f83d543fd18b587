"""What a kernel costs: bytes that it must move, and operations that it computes, for given sizes."""

import operator
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Final

from wengert.loops.accesses import expressions
from wengert.loops.ir import Kernel, Let, Loop, Statement, Store, Update
from wengert.loops.scalar import BINARY_MATH, UNARY_MATH, Scalar, index, postorder, size_of, var

__all__ = ["MATH_FLOPS", "bytes_of", "computed", "estimate", "flops_of"]

MATH_FLOPS: Final = 20  # what a mathematical function counts for: about the length of its polynomial
_SLOW: Final = {"div": 4, "sqrt": 4, "quotient": 10, "remainder": 10, "fma": 2}


def flops_of(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Return about how many operations a kernel computes; what does not change in a loop counts outside it.

    Example:
        >>> from wengert.loops.text import parse
        >>> k = parse("kernel f(x: f32[n: 1], out y: f32[n: 1], a: f32)\\n  for i in 0:n\\n    y[i] = x[i] * exp(a) + 1.0\\n")
        >>> flops_of(k, {"n": 100})
        220
    """
    return _Walk(kernel, sizes).flops()


def bytes_of(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """Return how many bytes a kernel reads and writes at least: each element that it uses once.

    Example:
        >>> from wengert.loops.text import parse
        >>> k = parse("kernel f(x: f32[n: 1], out y: f32[n: 1])\\n  for i in 0:n\\n    y[i] = x[i] + x[0]\\n")
        >>> bytes_of(k, {"n": 100})
        800
    """
    total = 0
    walk = _Walk(kernel, sizes)
    for name, (reads, writes) in walk.traffic().items():
        b = kernel.buffer(name)
        shape = zip(b.dims, b.strides, strict=True)
        most = prod(sizes[d] if isinstance(d, str) else d for d, stride in shape if stride != 0)
        total += size_of(b.dtype) * (min(reads, most) + min(writes, most))
    return total


def estimate(x: Scalar, known: Mapping[Scalar, int]) -> int:
    """Return about what an index expression is, from values of sizes and loop variables; 0 for what is not known."""
    if x in known or x.op == "const":
        return known[x] if x in known else int(x.data)
    operation = _INTEGERS.get(x.op)
    return 0 if operation is None else operation(*(estimate(a, known) for a in x.args))


_INTEGERS: Final[dict[str, Callable[..., int]]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "minimum": min, "maximum": max,
    "quotient": lambda a, b: a // b if b else 0,
}  # fmt: skip


class _Walk:
    """Goes through the statements with the number of times that each is executed.

    Attributes:
        known: about what sizes and loop variables are. depth: the level of loops at which an expression changes. rounds:
            how often each level of the loops around is executed.
    """

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int]) -> None:
        self.kernel, self.sizes = kernel, sizes
        self.known: dict[Scalar, int] = {}
        self.depth: dict[Scalar, int] = {}
        self.rounds: list[int] = [1]

    def statements(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        """Yield every statement, with ``rounds`` and ``depth`` as they are there."""
        for s in body:
            self.look(expressions(s))
            yield s
            if isinstance(s, Let):
                self.depth[var(s.name, s.value.dtype)] = self.depth[s.value]
            elif isinstance(s, Loop):
                yield from self.inside(s)

    def look(self, roots: tuple[Scalar, ...]) -> None:
        level = len(self.rounds) - 1
        for x in postorder(roots):
            if x.op == "size":
                self.known[x] = self.sizes[x.data]
            if x.args:
                self.depth[x] = max(self.depth[a] for a in x.args)
            else:
                self.depth.setdefault(x, level if x.op == "var" else 0)

    def inside(self, loop: Loop) -> Iterator[Statement]:
        start, stop = estimate(loop.start, self.known), estimate(loop.stop, self.known)
        variable = index(loop.variable)
        self.known[variable] = (start + max(stop - 1, start)) // 2
        self.rounds.append(self.rounds[-1] * len(range(start, stop, loop.step)))
        self.depth[variable] = len(self.rounds) - 1
        self.depth.update((x, len(self.rounds) - 1) for fold in loop.folds for x in fold.results)
        yield from self.statements(loop.body)
        self.rounds.pop()
        self.depth.update((x, len(self.rounds) - 1) for fold in loop.folds for x in fold.results)

    def flops(self) -> int:
        total = 0
        for s in self.statements(self.kernel.body):
            if isinstance(s, Update | Store):
                total += self.rounds[-1] * (isinstance(s, Update) or s.add)
            total += sum(_weight(x) * self.rounds[self.depth[x]] for x in computed(s))
        return total

    def traffic(self) -> dict[str, list[int]]:
        """Per buffer how many elements are read, and written."""
        found: dict[str, list[int]] = {b.name: [0, 0] for b in self.kernel.buffers}
        for s in self.statements(self.kernel.body):
            uses = [(x.data[0], 0) for x in postorder(expressions(s)) if x.op == "load"]
            if isinstance(s, Store):
                uses += [(s.buffer, 1), *([(s.buffer, 0)] if s.add else [])]
            for name, way in uses:
                if name in found:
                    found[name][way] += self.rounds[-1]
        return found


def computed(s: Statement) -> list[Scalar]:
    """Return the operations that a statement computes, without those of indices and loop bounds."""
    roots = (s.value,) if isinstance(s, Let | Store) else s.values if isinstance(s, Update) else ()
    found: dict[Scalar, None] = {}
    stack = list(roots)
    while stack:
        x = stack.pop()
        if x.args and x.op not in ("load", "lookup") and x not in found:
            found[x] = None
            stack.extend(x.args)
    return [x for x in found if x.op != "bits"]


def _weight(x: Scalar) -> int:
    return MATH_FLOPS if x.op in UNARY_MATH or x.op in BINARY_MATH else _SLOW.get(x.op, 1)
