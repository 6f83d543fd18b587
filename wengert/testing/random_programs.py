"""Random programs as Python text: functions of tensors that use operators, views, writes, gradients and random numbers.

A program grows a statement at a time: each is run where it stands, and left out if it raises. What is kept is text, so that a
failing case can be read, made small by leaving lines out, and run alone.
"""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import wengert as wg
from wengert.testing.random_statements import (
    BACKWARD,
    BETWEEN,
    BINARY,
    BLOCKS,
    CALLED,
    DTYPES,
    FLOATS,
    MODULES,
    NAMED,
    OPTIMISERS,
    OTHERS,
    REDUCED,
    SLICES,
    UNARY,
    VIEWS,
    WRITES,
)

__all__ = ["Case", "drawn", "indented", "random_case"]


@dataclass(frozen=True)
class Case:
    """A random program.

    Attributes:
        held: statements that make what the function holds. arguments: expressions, of ``n`` and ``k`` (number of the call).
        body: statements. returned: an expression. calls: the size ``n`` of each call. outside: whether the caller walks back
            from the results. between: what the caller does after each call.
    """

    held: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    body: tuple[str, ...]
    returned: tuple[str, ...]
    calls: tuple[int, ...]
    outside: bool = False
    between: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the program as code: ``build()`` gives what is held, and the function; ``arguments(n, k)`` those of a call."""
        names = ", ".join(name for name, _ in self.arguments)
        made = "\n".join(f"{name} = {how}" for name, how in self.arguments)
        returned = "".join(f"{name}, " for name in self.returned)
        return "\n".join([
            "import wengert as wg", "from wengert.testing.random_programs import drawn", "", "",
            "def build():", *indented(self.held), *indented([f"def step({names}):"]),
            *indented(indented([*self.body, f"return ({returned})"])), "    return dict(locals())", "", "",
            "def arguments(n, k):", *indented([made, f"return [{names}]"]), "", "",
            f"CALLS = {self.calls}", f"OUTSIDE = {self.outside}", f"BETWEEN = {self.between}",
        ])  # fmt: skip


def indented(statements: Any) -> list[str]:
    """Return the lines of statements, one step further in."""
    return ["    " + line for statement in statements for line in statement.split("\n")]


def drawn(seed: int, shape: tuple[int, ...], dtype: str, grad: bool = False) -> Any:
    """Return a tensor of small random quarters."""
    values = np.random.default_rng(seed).integers(-8, 9, shape)
    if dtype in FLOATS:
        out = wg.from_numpy(np.asarray(values / 4.0)).to(getattr(wg, dtype))
    elif dtype == "complex64":
        out = wg.from_numpy(np.asarray(values / 4.0 + 1j * (values % 3), np.complex64))
    else:
        out = wg.from_numpy(np.asarray(np.abs(values) if dtype == "uint8" else values)).to(getattr(wg, dtype))
    return out.requires_grad_() if grad else out


class _Growing:
    """A program that is being made: what its names hold now, as its statements are run one by one."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.space: dict[str, Any] = {"wg": wg, "drawn": drawn, "n": 3, "k": 0}
        self.made = 0

    def names(self, wanted: Any = lambda t: True) -> list[str]:
        return [k for k, v in self.space.items() if isinstance(v, wg.Tensor) and k[0] in "acpv" and wanted(v)]

    def pick(self, wanted: Any = lambda t: True) -> str:
        found = self.names(wanted) or self.names()
        return self.random.choice(found[-4:] if self.random.random() < 0.5 else found)

    def shape(self, sized: bool = False) -> str:
        sizes = ("n", "n", "3", "1", "2", "4") if sized else ("3", "3", "3", "1", "2", "4")
        dims = [self.random.choice(sizes) for _ in range(self.random.choice((0, 1, 1, 2, 2, 2, 3)))]
        if self.random.random() < 0.06 and dims:
            dims[0] = "0"
        return "(" + "".join(d + ", " for d in dims) + ")"

    def filled(self, template: str) -> str:
        x = self.pick()
        like = self.space[x]
        close = self.random.random() < 0.7
        y = (
            self.pick(lambda t: t.ndim == 0 or t.shape[-1:] == like.shape[-1:] or 1 in t.shape[-1:])
            if close
            else self.pick()
        )
        grows = [k for k in self.names() if k[0] == "p"]
        t, u = f"v{self.made}", f"v{self.made + 1}"
        self.made += 2
        return template.format(
            x=x, y=y, t=t, u=u, s=self.random.choice(SLICES), c=self.random.choice((0, 1, 2, -1, 0.5, 1.5)),
            d=self.random.choice((0, -1, 1)), k=self.random.choice(DTYPES), p=self.random.choice(grows) if grows else x,
        )  # fmt: skip

    def statement(self) -> str:
        r = self.random.random()
        if r < 0.2:
            return self.filled(self.random.choice(WRITES))
        if r < 0.3:
            return self.filled(self.random.choice(BACKWARD))
        if r < 0.37:
            return self.filled(self.random.choice(BLOCKS))
        if r < 0.45 and "m0" in self.space:
            return self.filled(self.random.choice(CALLED))
        return self.filled("{t} = " + self.expression())

    def expression(self) -> str:
        choose = self.random.choice
        kind = choose(("unary", "binary", "binary", "named", "reduced", "view", "view", "other", "other", "other"))
        if kind == "unary":
            return "{x}." + choose(UNARY) + "()"
        if kind == "binary":
            return "{x} " + choose(BINARY) + choose((" {y}", " {y}", " {c}"))
        if kind == "named":
            name = choose(NAMED)
            return "wg.where({x} > 0, {x}, {y})" if "where" in name else f"wg.{name}({{x}}, {{y}})"
        if kind == "reduced":
            return "{x}." + choose(REDUCED) + choose(("()", "(0)", "(-1)", "(0, keepdim=True)", "(-1)"))
        return choose(VIEWS) if kind == "view" else choose(OTHERS)

    def run(self, statement: str) -> bool:
        """Run a statement; whether it is one for the program."""
        try:
            exec(statement, self.space)
        except Exception:
            return False
        return all(v.numel() <= 4000 for v in self.space.values() if isinstance(v, wg.Tensor))


def random_case(seed: int, number: int) -> Case:
    """Return the program of a number."""
    source = random.Random(f"program {seed}:{number}")
    wg.manual_seed(7)
    grown = _Growing(source)
    held, arguments = _start(grown, source)
    body: list[str] = []
    wanted = source.choice((2, 4, 6, 10))
    with np.errstate(all="ignore"):
        for _ in range(8 * wanted):
            if len(body) < wanted and grown.run(statement := grown.statement()):
                body.append(statement)
    names = [k for k in grown.names() if k[0] == "v" or source.random() < 0.2]
    returned = [k for k in names if source.random() < 0.6] or names[-1:]
    calls = source.choice(((3, 3, 3), (3, 3, 3, 3), (3, 2, 3), (3, 1, 4, 3), (3, 0, 3, 0)))
    outside = source.random() < 0.4 and not any("backward(" in s or "grad(" in s for s in body)
    between = source.sample(BETWEEN, source.choice((0, 0, 1, 2)))
    between = [statement for statement in between if grown.run(statement)]
    return Case(tuple(held), tuple(arguments), tuple(body), tuple(returned), calls, outside, tuple(between))


def _start(grown: _Growing, source: random.Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Return statements for what is held, and expressions for arguments."""
    shape = source.choice(("(3,)", "(3, 3)", "(1,)", "(2, 3)"))
    held = [
        f"p0 = wg.nn.Parameter(drawn(1, {shape}, '{source.choice(('float32', 'float64'))}'))",
        f"p1 = wg.nn.Parameter(drawn(2, {source.choice(('(3,)', '()', '(3, 1)'))}, 'float32'))",
        f"opt = {source.choice(OPTIMISERS)}",
    ]
    if source.random() < 0.25:
        held.append(f"m0 = {source.choice(MODULES)}")
    for i in range(source.choice((0, 1, 2))):
        held.append(f"c{i} = drawn({10 + i}, {grown.shape()}, '{source.choice(DTYPES)}')")
        if source.random() < 0.3:
            held.append(
                f"cv{i} = c{i}{source.choice(('[1:]', '.t()', '[..., 0]', '.view(-1)', '[None]', '.detach()'))}"
            )
    arguments = []
    for i in range(source.choice((1, 1, 2, 3))):
        dtype = source.choice(DTYPES)
        grad = source.choice((", True", ", True", ", k % 2 == 1")) if dtype in FLOATS and source.random() < 0.3 else ""
        kind = f"'{dtype}'" if source.random() < 0.9 else f"'{dtype}' if k % 2 else 'float64'"
        how = f"drawn({20 + i} + k, {grown.shape(sized=True)}, {kind}{grad})"
        if source.random() < 0.2:
            how += source.choice((".t()", "[1:]", "[..., ::2]", " * 1", "[:: -1 if k % 2 else 1]", "[k % 2 :]"))
        arguments.append((f"a{i}", how))
    if source.random() < 0.1:
        arguments.append(("a9", f"a0{source.choice(('', '[1:]', '.t()', '.detach()', '.view(-1)'))}"))
    if source.random() < 0.2:
        arguments.append(("n9", "k % 2"))
    held = [s for s in held if grown.run(s)]
    return held, [(name, how) for name, how in arguments if grown.run(f"{name} = {how}")]
