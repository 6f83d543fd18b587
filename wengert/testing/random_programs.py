"""Random programs as Python text: functions of tensors that use operators, views, writes, gradients and random numbers.

A program grows a statement at a time: each is run where it stands, and left out if it raises. What is kept is text, so that a
failing case can be read, made small by leaving lines out, and run alone.
"""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import wengert as wg

__all__ = ["Case", "drawn", "random_case"]

DTYPES = ("float32",) * 5 + ("float64",) * 3 + ("int64", "int64", "int32", "bool", "float16", "bfloat16", "uint8")
FLOATS = ("float16", "bfloat16", "float32", "float64")

UNARY = (
    "abs",
    "exp",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "neg",
    "square",
    "floor",
    "sign",
    "erf",
    "log1p",
    "sqrt",
    "clone",
    "detach",
    "reciprocal",
    "round",
    "trunc",
    "isnan",
    "logical_not",
    "contiguous",
    "expm1",
    "atan",
    "nan_to_num",
)
BINARY = ("+", "-", "*", "/", "//", "%", ">", "<=", "==", "!=")
NAMED = (
    "maximum",
    "minimum",
    "atan2",
    "where(x > 0, x,",
    "fmod",
    "hypot",
    "xlogy",
    "logaddexp",
    "logical_and",
    "pow",
)
REDUCED = (
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "std",
    "logsumexp",
    "argmax",
    "any",
    "all",
    "cumsum",
    "softmax",
    "log_softmax",
    "norm",
    "var",
    "argmin",
    "count_nonzero",
    "cumprod",
    "nansum",
    "median",
    "argsort",
)
VIEWS = (
    "{x}[{s}]",
    "{x}[{s}]",
    "{x}[..., {s}]",
    "{x}.t()",
    "{x}.transpose(0, -1)",
    "{x}.reshape(-1)",
    "{x}.unsqueeze({d})",
    "{x}.squeeze()",
    "{x}.expand(2, *{x}.shape)",
    "{x}.diagonal()",
    "{x}.unbind(0)[0]",
    "{x}.view(-1)",
    "{x}.flatten()",
    "{x}.movedim(0, -1)",
    "{x}.chunk(2, {d})[0]",
    "{x}.narrow({d}, 0, 1)",
    "{x}.split(1, 0)[-1]",
    "{x}.swapaxes(0, -1)",
    "{x}[None]",
    "{x}.view(1, *{x}.shape)",
    "{x}.unfold(0, 2, 1)",
    "{x}.permute(*reversed(range({x}.ndim)))",
)
SLICES = ("0", "-1", "1:", ":-1", "::2", "None", ":, 0", ":, 1:", "1:, :2", ":0", "...", ":1", "..., 0", "None, 0")
WRITES = (
    "{x}.add_({y})",
    "{x}.mul_({y})",
    "{x}.copy_({y})",
    "{x}.zero_()",
    "{x}.fill_({c})",
    "{x}[{s}] = {y}",
    "{x}[{s}] = {c}",
    "{x}[{s}] += {y}",
    "{x}[{s}] *= {c}",
    "{x}.sub_({y}, alpha=2)",
    "{x}.clamp_(-1, 1)",
    "{x} += {y}",
    "{x}.neg_()",
    "{x}.masked_fill_({x} > 0, {c})",
    "{x}.t()[{s}].add_({c})",
    "{x}.view(-1)[1:].mul_({c})",
    "{x}.diagonal().fill_({c})",
    "{x}[{x} > 0.5] = {c}",
    "{x}.div_(2)",
    "{x}.relu_()",
    "{x}.unsqueeze(0).add_({y})",
    "{x}.index_fill_(0, wg.tensor([0]), {c})",
    "{x}.unbind(0)[-1].copy_({y})",
    "wg.add({x}, {y}, out={y})",
    "{x}.reshape(-1)[:2].fill_({c})",
    "{x}.addcmul_({y}, {y})",
    "wg.mul({x}, {c}, out={x}[{s}])",
    "{x}.cumsum_(0)",
    "{x}.transpose(0, -1).copy_({y})",
    "{x}[[0]] = {y}",
    "{x}.scatter_(0, wg.zeros_like({x}, dtype=wg.int64), {c})",
    "{x}.exp_()",
    "{x}.bernoulli_(0.5)",
    "{x}.normal_()",
    "{x}.data.add_({c})",
    "{x}.detach().mul_({c})",
    "{x}.squeeze().add_({c})",
)
OTHERS = (
    "{x} @ {y}",
    "{x} @ {x}.t()",
    "{x}.t() @ {x}",
    "wg.cat([{x}, {y}], 0)",
    "wg.stack([{x}, {x}], -1)",
    "wg.where({x} > 0, {x}, {y})",
    "wg.where({x} > {y}, {x}, {c})",
    "{x}.masked_fill({x} > 0, {c})",
    "{x}.clamp(-1, 1)",
    "{x}.flip(0)",
    "{x}.roll(1, 0)",
    "{x}[[0, -1]]",
    "{x}[wg.tensor([0, 0, 1])]",
    "{x}.gather(0, wg.zeros_like({x}, dtype=wg.int64))",
    "{x}.index_select(0, wg.tensor([0, 0]))",
    "{x}.to(wg.{k})",
    "{x}.to(wg.{k})",
    "{x}.to({y}.dtype)",
    "{x}.float()",
    "wg.zeros_like({x})",
    "wg.ones_like({x}) * {y}",
    "wg.arange({x}.shape[0])",
    "wg.randn_like({x}.float())",
    "wg.rand({x}.shape)",
    "wg.randint(0, 5, {x}.shape)",
    "{x}.bernoulli()",
    "wg.nn.functional.dropout({x}, 0.5)",
    "wg.nn.functional.gelu({x})",
    "wg.nn.functional.layer_norm({x}, {x}.shape[-1:])",
    "wg.nn.functional.linear({x}, {y})",
    "wg.nn.functional.mse_loss({x}, {y})",
    "wg.randperm({x}.shape[0])",
    "wg.einsum('ij,kj->ik', {x}, {y})",
    "{x}.sort(0)[0]",
    "{x}.topk(2, 0)[1]",
    "{x}.max(0)[0]",
    "{x}.max(0)[1]",
    "{x}.tril()",
    "{x}.repeat(2, *[1] * ({x}.ndim - 1))",
    "{x}.sum() * {y}",
    "{x} * {x}.shape[0]",
    "wg.outer({x}.reshape(-1), {y}.reshape(-1))",
    "{x}.lerp({y}, 0.5)",
    "wg.tensor({c}) * {x}",
    "{x}.requires_grad_(False) if not {x}.requires_grad else {x}",
    "{x}.T.contiguous()",
    "wg.addcmul({x}, {y}, {y})",
    "{x}.numel() + {y}",
    "wg.nn.functional.pad({x}, (1, 0))",
    "{x}.kthvalue(1, 0)[0]",
    "{x}.index_add(0, wg.tensor([0]), {x}[:1])",
    "wg.tensor([1.0, 2.0])[0] * {x}",
    "wg.full_like({x}, {c}) - {y}",
    "{x}.unique()",
    "{x}[{x} > 0]",
    "{x}.nonzero()",
    "wg.linspace(0, 1, {x}.shape[0])",
    "wg.no_grad()(lambda: {x} * {y})()",
    "wg.nn.functional.softplus({x}) - {y}",
    "{x} ** 2",
    "{x}.abs() ** {c}",
    "2 ** {x}",
    "{c} - {x}",
    "{c} / {x}",
    "{x}.new_zeros(2, 3)",
    "{x}.broadcast_to(2, *{x}.shape)",
    "{x}.addmm({y}, {y}.t())",
    "-{x}",
    "wg.func.vmap(lambda a: a.sin() * 2)({x})",
    "wg.func.grad(lambda a: (a * a).sum())({x}.float())",
)
BLOCKS = (
    "if {x}.sum() > 0:\n    {t} = {x} * 2\nelse:\n    {t} = {x} - 1",
    "if {x}.any():\n    {x}.mul_(0.5)\n{t} = {x} + 1",
    "with wg.no_grad():\n    {x}.add_({y})",
    "with wg.no_grad():\n    {t} = {x} * {y}",
    "with wg.no_grad():\n    {x}[{s}].copy_({y})",
    "{t} = float({x}.max()) + {y}",
    "{t} = {x}\nfor row in {x}:\n    {t} = {t} + row",
    "{t} = {x}.clone()\n{u} = {t}[{s}]\n{t}.mul_({c})\n{u}.add_({c})",
    "{t} = {x} * {c}\n{u} = {t}.detach()\n{t}.add_({y})",
    "{t}, {u} = {x}.chunk(2, 0)\n{t}.add_({u})",
    "{t}, {u} = {x}.max(0)",
)
BACKWARD = (
    "({x} * {x}).sum().backward()",
    "{x}.sum().backward(retain_graph=True)",
    "({x} * {y}).mean().backward()",
    "{t} = wg.autograd.grad(({x} * {x}).sum(), {p}, allow_unused=True)[0]",
    "{t} = wg.autograd.grad(({x} * {p}).sum(), {p}, create_graph=True)[0]",
    "{p}.grad = None",
    "{t} = {p}.grad * 2 if {p}.grad is not None else {x}",
    "opt.zero_grad()\n(({x} * {p}) ** 2).sum().backward()\nopt.step()",
    "opt.zero_grad()\n{x}.sum().backward()\nopt.step()",
    "opt.step()",
    "(({x} - {p}) ** 2).sum().backward()\n{p}.grad.mul_({c})\nopt.step()",
    "(({x} * {p}) ** 2).sum().backward()\nwg.nn.utils.clip_grad_norm_([p0, p1], 1.0)\nopt.step()",
)
OPTIMISERS = (
    "wg.optim.SGD([p0, p1], lr=0.1)",
    "wg.optim.SGD([p0, p1], lr=0.1, momentum=0.9)",
    "wg.optim.Adam([p0, p1], lr=0.01)",
    "wg.optim.AdamW([p0, p1], lr=0.01)",
    "wg.optim.RMSprop([p0], lr=0.01)",
    "wg.optim.Adagrad([p1, p0], lr=0.01)",
)


@dataclass(frozen=True)
class Case:
    """A random program.

    Attributes:
        held: statements that make what the function holds. arguments: expressions, of ``n`` and ``k`` (number of the call).
        body: statements. returned: an expression. calls: the size ``n`` of each call. outside: whether the caller walks back
            from the results.
    """

    held: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    body: tuple[str, ...]
    returned: tuple[str, ...]
    calls: tuple[int, ...]
    outside: bool = False

    def text(self) -> str:
        """Return the program as code: ``build()`` gives what is held, and the function; ``arguments(n, k)`` those of a call."""
        names = ", ".join(name for name, _ in self.arguments)
        made = "\n".join(f"{name} = {how}" for name, how in self.arguments)
        returned = "".join(f"{name}, " for name in self.returned)
        return "\n".join([
            "import wengert as wg", "from wengert.testing.random_programs import drawn", "", "",
            "def build():", *_indented(self.held), *_indented([f"def step({names}):"]),
            *_indented(_indented([*self.body, f"return ({returned})"])), "    return dict(locals())", "", "",
            "def arguments(n, k):", *_indented([made, f"return [{names}]"]), "", "",
            f"CALLS = {self.calls}", f"OUTSIDE = {self.outside}",
        ])  # fmt: skip


def _indented(statements: Any) -> list[str]:
    return ["    " + line for statement in statements for line in statement.split("\n")]


def drawn(seed: int, shape: tuple[int, ...], dtype: str, grad: bool = False) -> Any:
    """Return a tensor of small random quarters."""
    values = np.random.default_rng(seed).integers(-8, 9, shape)
    if dtype in FLOATS:
        out = wg.from_numpy(np.asarray(values / 4.0)).to(getattr(wg, dtype))
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
    calls = source.choice(((3, 3, 3), (3, 3, 3, 3), (3, 2, 3), (3, 1, 4, 3)))
    outside = source.random() < 0.4 and not any("backward(" in s or "grad(" in s for s in body)
    return Case(tuple(held), tuple(arguments), tuple(body), tuple(returned), calls, outside)


def _start(grown: _Growing, source: random.Random) -> tuple[list[str], list[tuple[str, str]]]:
    """Return statements for what is held, and expressions for arguments."""
    shape = source.choice(("(3,)", "(3, 3)", "(1,)", "(2, 3)"))
    held = [
        f"p0 = wg.nn.Parameter(drawn(1, {shape}, '{source.choice(('float32', 'float64'))}'))",
        f"p1 = wg.nn.Parameter(drawn(2, {source.choice(('(3,)', '()', '(3, 1)'))}, 'float32'))",
        f"opt = {source.choice(OPTIMISERS)}",
    ]
    for i in range(source.choice((0, 1, 2))):
        held.append(f"c{i} = drawn({10 + i}, {grown.shape()}, '{source.choice(DTYPES)}')")
        if source.random() < 0.3:
            held.append(
                f"cv{i} = c{i}{source.choice(('[1:]', '.t()', '[..., 0]', '.view(-1)', '[None]', '.detach()'))}"
            )
    arguments = []
    for i in range(source.choice((1, 1, 2, 3))):
        dtype = source.choice(DTYPES)
        grad = ", True" if dtype in FLOATS and source.random() < 0.3 else ""
        how = f"drawn({20 + i} + k, {grown.shape(sized=True)}, '{dtype}'{grad})"
        if source.random() < 0.2:
            how += source.choice((".t()", "[1:]", "[..., ::2]", " * 1"))
        arguments.append((f"a{i}", how))
    if source.random() < 0.1:
        arguments.append(("a9", f"a0{source.choice(('', '[1:]', '.t()', '.detach()', '.view(-1)'))}"))
    held = [s for s in held if grown.run(s)]
    return held, [(name, how) for name, how in arguments if grown.run(f"{name} = {how}")]
