"""Random kernels with random data: every construct of the loop IR, in any nesting that the verifier allows.

An *exact* sample uses operations with one right result, on any bits (NaN, infinities, the ends of the integers). The others
also use mathematical functions and folds of floats, on tame data; nothing jumps there (no comparison, rounding or conversion to
an integer of an inexact value), so that results may be compared with a tolerance.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from wengert.loops.ir import Buffer, Fold, Kernel, Let, Loop, Param, Stage, Statement, Store, Update, load, size
from wengert.loops.scalar import (
    DTYPES,
    Scalar,
    bits,
    cast,
    const,
    index,
    is_float,
    is_integer,
    lookup,
    make,
    param,
    rarely,
    select,
)  # fmt: skip
from wengert.testing.random_arrays import random_layout, random_numbers

__all__ = ["Sample", "random_sample"]

_EXTENTS: Final = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 33)
_POINTS: Final = 500  # iterations of a whole nest, about
_COMPUTE: Final = ("f32", "f32", "f32", "f32", "f64", "f64", "i32", "i64", "u8", "i8", "i16", "u16", "u32", "u64")
_SMOOTH: Final = (
    "tanh",
    "sin",
    "cos",
    "atan",
    "erf",
    "sigmoid",
    "softplus",
    "gelu",
    "gelu_tanh",
    "silu",
    "log_sigmoid",
    "ndtr",
    "cbrt",
    "asinh",
)
_FOLDS: Final = {
    "exact float": ("max", "min", "argmax", "argmin"),
    "float": ("sum", "sum", "max", "min", "prod", "welford", "log_sum_exp"),
    "integer": ("sum", "prod", "max", "min", "argmax", "argmin"),
    "bool": ("any", "all"),
}  # fmt: skip


@dataclass
class Sample:
    """A kernel with the data it runs on.

    Attributes:
        arrays: a prefilled array for each buffer. exact: whether its results have one right value.
    """

    kernel: Kernel
    sizes: dict[str, int]
    params: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, Any]]
    exact: bool


@dataclass
class _Value:
    """A named value in scope."""

    x: Scalar
    inexact: bool


@dataclass
class _Scope:
    """What a place of the kernel can use."""

    loops: dict[str, str] = field(default_factory=dict)  # loop variable → its size
    values: list[_Value] = field(default_factory=list)
    rows: list[tuple[Stage, str]] = field(default_factory=list)  # filled stages, with the size of each

    def inner(self, **changes: Any) -> "_Scope":
        return replace(self, loops=dict(self.loops), values=list(self.values), rows=list(self.rows), **changes)


def random_sample(seed: int, number: int) -> Sample:
    """Return the sample of a number; the same one each time."""
    return _Builder(seed, number).sample()


class _Builder:
    def __init__(self, seed: int, number: int) -> None:
        self.r = random.Random(f"{seed}:{number}")
        self.data = np.random.default_rng(self.r.getrandbits(64))
        self.exact = self.r.random() < 0.5
        self.wild = self.exact and self.r.random() < 0.6
        self.main = self.r.choice(_COMPUTE)
        self.sizes: dict[str, int] = {}
        self.buffers: list[Buffer] = []
        self.params: dict[str, Any] = {}
        self.param_dtypes: dict[str, str] = {}
        self.arrays: dict[str, Any] = {}
        self.count = 0

    def sample(self) -> Sample:
        r = self.r
        names = ["i", "j", "k"][: r.choice((0, 1, 1, 2, 2, 2, 3))]
        points = 1
        for name, each in zip(("n", "m", "p"), names, strict=False):
            most = (
                _POINTS // points if each == names[-1] or r.random() < 0.2 else 8
            )  # the innermost loop is the long one
            self.sizes[name] = r.choice([e for e in _EXTENTS if e <= most])
            points *= max(1, self.sizes[name])
        pending = list(zip(names, self.sizes, strict=True))
        body = self.block(pending, _Scope())
        if r.random() < 0.15 and pending:
            body += self.block(pending[:1], _Scope())
        params = tuple(Param(name, dtype) for name, dtype in self.param_dtypes.items())
        kernel = Kernel("random", tuple(self.buffers), tuple(self.sizes), tuple(body), params)
        return Sample(kernel, self.sizes, self.params, self.arrays, self.exact)

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def depth(self) -> int:
        return self.r.choice((1, 2, 2, 3))

    # ---- statements

    def block(self, pending: list[tuple[str, str]], scope: _Scope) -> list[Statement]:
        """Statements that go through the loops in ``pending``, and store something in the innermost."""
        body: list[Statement] = []
        for _ in range(self.r.choice((0, 0, 1, 2))):
            body.append(self.let(scope))
        if not pending:
            return body + [self.store(scope) for _ in range(self.r.choice((1, 1, 1, 2)))]
        forms: list[Callable[..., list[Statement]]] = [self.each, self.each, self.fold, self.fold, self.rows, self.scan]
        return body + self.r.choice(forms)(pending, scope)

    def let(self, scope: _Scope) -> Let:
        value, inexact = self.maybe_inexact(self.dtype(), self.depth(), scope)
        found = Let(self.name("t"), value)
        scope.values.append(_Value(make("var", (), value.dtype, (found.name, 0)), inexact))
        return found

    def loop(self, each: tuple[str, str], scope: _Scope, body: list[Statement], folds: tuple[Fold, ...] = ()) -> Loop:
        """A loop within 0 … size, by some step."""
        r, (name, n) = self.r, each
        start, stop, step = const(0, "i64"), size(n), 1
        form = r.random()
        outer = [v for v in scope.loops if v != name]
        if form < 0.08:
            start = const(r.randint(1, 3), "i64")
        elif form < 0.16:
            step = r.randint(2, 4)
        elif form < 0.22 and outer:
            stop = make("minimum", (size(n), index(r.choice(outer)) + 1))
        elif form < 0.27 and outer:
            start = index(r.choice(outer))
        elif form < 0.31 and len(self.sizes) > 1:
            stop = make("minimum", (size(r.choice(list(self.sizes))), size(n)))
        return Loop(name, start, stop, tuple(body), folds, step)

    def each(self, pending: list[tuple[str, str]], scope: _Scope) -> list[Statement]:
        inner = scope.inner()
        inner.loops[pending[0][0]] = pending[0][1]
        return [self.loop(pending[0], scope, self.block(pending[1:], inner))]

    def fold(self, pending: list[tuple[str, str]], scope: _Scope) -> list[Statement]:
        """A fold over the first loop (or the first two), then the rest with its results."""
        count = 2 if len(pending) > 1 and self.r.random() < 0.25 else 1
        loops, rest = pending[:count], pending[count:]
        inner = scope.inner()
        inner.loops.update(loops)
        body: list[Statement] = [self.let(inner) for _ in range(self.r.choice((0, 0, 1)))]
        folds, results = [], []
        for _ in range(self.r.choice((1, 1, 2))):
            made, update, inexact = self.update(inner, loops[-1][0])
            folds.append(made)
            body.append(update)
            results += [_Value(x, inexact) for x in made.results]
        around = scope.inner()
        around.loops[loops[0][0]] = loops[0][1]
        if count == 2:
            body = [self.loop(loops[1], around, body)]
        outer = self.loop(loops[0], scope, body, tuple(folds))
        scope.values += results
        after = rest + (loops[:1] if self.r.random() < 0.3 else [])
        return [outer, *self.block(after, scope)]

    def update(self, scope: _Scope, variable: str) -> tuple[Fold, Update, bool]:
        dtype = self.main if self.r.random() < 0.8 else "bool"
        kind = (
            "bool" if dtype == "bool" else "integer" if is_integer(dtype) else "exact float" if self.exact else "float"
        )
        monoid = self.r.choice(_FOLDS[kind])
        fold = Fold(self.name("s"), dtype, monoid)
        value, inexact = self.maybe_inexact(dtype, 2, scope)
        values: tuple[Scalar, ...] = (value,)
        if monoid.startswith("arg"):
            values = (self.expr(dtype, 2, scope, exact=True), index(variable))
            inexact = False
        elif monoid == "welford":
            values = (const(1.0, dtype), value, const(0.0, dtype))
        elif monoid == "log_sum_exp":
            values = (value, const(1.0, dtype))
        elif monoid == "prod" and is_float(dtype):
            values = (1.0 + make("tanh", (value,)) * 0.125,)
        inexact = inexact or (is_float(dtype) and monoid in ("sum", "prod", "welford", "log_sum_exp"))
        return fold, Update(fold.name, values), inexact

    def scan(self, pending: list[tuple[str, str]], scope: _Scope) -> list[Statement]:
        """A fold whose value so far is stored in every iteration."""
        inner = scope.inner()
        inner.loops[pending[0][0]] = pending[0][1]
        fold, update, inexact = self.update(inner, pending[0][0])
        inner.values += [_Value(x, inexact) for x in fold.results]
        loop = Loop(pending[0][0], const(0, "i64"), size(pending[0][1]), (update, self.store(inner)), (fold,))
        scope.values += [_Value(x, inexact) for x in fold.results]
        return [loop, *self.block(pending[1:], scope)]

    def rows(self, pending: list[tuple[str, str]], scope: _Scope) -> list[Statement]:
        """A stage that one loop fills and the next ones read."""
        name, n = pending[0]
        inner = scope.inner()
        inner.loops[name] = n
        value, inexact = self.maybe_inexact(self.dtype(), 2, inner)
        value = value if value.dtype != "bool" else cast(value, "u8")
        row = Stage(self.name("row"), value.dtype, size(n))
        filled = Loop(name, const(0, "i64"), size(n), (Store(row.name, (index(name),), value),))
        if not inexact:
            scope.rows.append((row, n))
        return [row, filled, *self.each(pending, scope)]

    def store(self, scope: _Scope) -> Store:
        """A store to a buffer of its own, at a place of its own for every iteration (or added anywhere)."""
        r = self.r
        loops = list(scope.loops.items())
        r.shuffle(loops)
        if loops and r.random() < 0.12:
            return self.scatter(scope)
        dtype = self.main if r.random() < 0.6 else r.choice(list(DTYPES))
        value, _ = self.maybe_inexact("f32" if dtype in ("f16", "bf16") else dtype, self.depth(), scope)
        places: list[Scalar] = []
        dims: list[str | int] = []
        for name, n in loops:
            flip = r.random() < 0.15
            places.append(size(n) - 1 - index(name) if flip else index(name))
            dims.append(n)
        if r.random() < 0.1:
            places.append(const(1, "i64"))
            dims.append(3)
        guard = self.expr("bool", 2, scope, exact=True) if r.random() < 0.15 else None
        inout = r.random() < 0.2
        buffer = self.buffer(tuple(dims), dtype, "inout" if inout else "out")
        if inout and r.random() < 0.7 and dtype not in ("bool", "f16", "bf16"):
            old = load(buffer, *places)
            value = make("maximum", (old, value)) if self.exact else old - value
        add = inout and r.random() < 0.3 and dtype not in ("bool", "f16", "bf16")
        if dtype in ("f16", "bf16") and r.random() < 0.1:
            return Store(buffer.name, tuple(places), const(r.choice((0.0, 1.0, -1.5)), dtype), guard)
        return Store(buffer.name, tuple(places), cast(value, dtype), guard, add)

    def scatter(self, scope: _Scope) -> Store:
        """Add at a place that is looked up."""
        dtype = self.main
        target = self.r.choice(list(self.sizes))
        at = self.place(target, scope)
        value, _ = self.maybe_inexact(dtype, 2, scope)
        buffer = self.buffer((target,), dtype, "inout")
        i, guard = at
        return Store(buffer.name, (i,), value, guard, True)

    # ---- buffers

    def buffer(self, dims: tuple[str | int, ...], dtype: str, role: str, limit: int | None = None) -> Buffer:
        """A new buffer in any layout, with its data (integers from 0 to ``limit``, if given)."""
        shape = tuple(map(self.extent, dims))
        data = random_numbers(self.data, dtype, shape, self.wild, limit)
        data, strides = random_layout(self.r, data, role == "in")
        made = Buffer(self.name("x" if role == "in" else "y"), dtype, dims, strides, role)
        self.buffers.append(made)
        self.arrays[made.name] = data
        return made

    def place(self, n: str | int, scope: _Scope) -> tuple[Scalar, Scalar | None]:
        """An index for a dimension, and the guard that it needs."""
        r = self.r
        here = [index(v) for v, m in scope.loops.items() if m == n]
        form = r.random()
        if here and form < 0.7:
            i = r.choice(here)
            return (i if r.random() < 0.8 else size(str(n)) - 1 - i), None
        limit = size(n) if isinstance(n, str) else const(n, "i64")
        if isinstance(n, int) and n > 0 and form < 0.5:
            return const(r.randrange(n), "i64"), None
        loops = [index(v) for v in scope.loops]
        if loops and form < 0.8 and (self.sizes[n] if isinstance(n, str) else n):
            held = self.buffer(
                (scope.loops[r.choice(loops).data],), r.choice(("i64", "i32", "u8")), "in", self.extent(n)
            )
            variable = r.choice([v for v, m in scope.loops.items() if m == held.dims[0]])
            return cast(load(held, index(variable)), "i64"), None
        factor, by = r.choice((1, 1, 2, -1)), r.choice((-2, -1, 1, 2, 3))
        i = (
            (r.choice(loops) * factor if factor != 1 else r.choice(loops)) + by
            if loops
            else const(r.randint(-1, 3), "i64")
        )
        if r.random() < 0.2:
            i = i % r.randint(1, 4) if r.random() < 0.5 else i // r.randint(1, 3)
        return i, i.ge(0) & i.lt(limit)

    def extent(self, n: str | int) -> int:
        return self.sizes[n] if isinstance(n, str) else n

    # ---- expressions

    def dtype(self) -> str:
        return self.main if self.r.random() < 0.7 else self.r.choice((*_COMPUTE, "bool"))

    def maybe_inexact(self, dtype: str, depth: int, scope: _Scope) -> tuple[Scalar, bool]:
        """An expression, and whether its value is inexact."""
        exact = self.exact or not is_float(dtype) or self.r.random() < 0.2
        return self.expr(dtype, depth, scope, exact), not exact

    def expr(self, dtype: str, depth: int, scope: _Scope, exact: bool) -> Scalar:
        if depth <= 0 or self.r.random() < 0.15:
            return self.leaf(dtype, scope, exact)

        def of(wanted: str, exactly: bool = exact) -> Scalar:
            return self.expr(wanted, depth - 1, scope, exactly)

        if dtype == "bool":
            return self.boolean(of)
        if is_integer(dtype):
            return self.integer(dtype, of)
        return self.exact_float(dtype, of) if exact else self.smooth(dtype, of)

    def boolean(self, of: Any) -> Scalar:
        r = self.r
        if r.random() < 0.3:
            return make(r.choice(("and", "or", "xor")), (of("bool"), of("bool"))) if r.random() < 0.8 else ~of("bool")
        dtype = r.choice((*_COMPUTE, self.main, self.main))
        return make(r.choice(("eq", "ne", "lt", "le", "gt", "ge")), (of(dtype, True), of(dtype, True)))

    def integer(self, dtype: str, of: Any) -> Scalar:
        r = self.r
        form = r.random()
        if form < 0.55:
            ops = ("add", "sub", "mul", "and", "or", "xor", "minimum", "maximum", "quotient", "remainder", "shl", "shr")
            return make(r.choice(ops), (of(dtype), of(dtype)))
        if form < 0.65:
            return make(r.choice(("neg", "abs", "not")), (of(dtype),))
        if form < 0.75:
            return self.choice(dtype, of)
        if form < 0.8:
            table = tuple(r.randint(0, 100) for _ in range(4))
            return lookup(table, of(dtype) & 3, dtype)
        if form < 0.85 and dtype in ("i32", "u32", "i64", "u64"):
            x = of("f32" if DTYPES[dtype] == 32 else "f64", True)
            return bits(select(x.eq(x), x, 0.0), dtype)
        return cast(of(r.choice(_COMPUTE), True), dtype)

    def choice(self, dtype: str, of: Any) -> Scalar:
        pick = select if self.r.random() < 0.7 else rarely
        return pick(of("bool", True), of(dtype), of(dtype))

    def exact_float(self, dtype: str, of: Any) -> Scalar:
        r = self.r
        form = r.random()
        if form < 0.45:
            return make(r.choice(("add", "sub", "mul", "div", "minimum", "maximum")), (of(dtype), of(dtype)))
        if form < 0.65:
            return make(r.choice(("neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint")), (of(dtype),))
        if form < 0.72:
            return make("fma", (of(dtype), of(dtype), of(dtype)))
        if form < 0.8:
            return self.choice(dtype, of)
        if form < 0.85:
            sign = of(dtype)
            return make("copysign", (of(dtype), select(sign.eq(sign), sign, 1.0)))
        if form < 0.9:
            return lookup(tuple(r.choice((0.0, -0.0, 1.5, -2.25, 1e30)) for _ in range(4)), of("i32") & 3, dtype)
        if form < 0.94:
            return bits(of("u32" if dtype == "f32" else "i64"), dtype)
        return cast(of(r.choice(_COMPUTE)), dtype)

    def smooth(self, dtype: str, of: Any) -> Scalar:
        r = self.r
        form = r.random()
        if form < 0.35:
            return make(r.choice(("add", "sub", "mul", "minimum", "maximum")), (of(dtype), of(dtype)))
        if form < 0.45:
            return of(dtype) / (abs(of(dtype)) + 1.0)
        if form < 0.5:
            return make("fma", (of(dtype), of(dtype), of(dtype)))
        if form < 0.55:
            return make("sqrt", (abs(of(dtype)) + 0.5,))
        if form < 0.65:
            return self.choice(dtype, of)
        if form < 0.8:
            return make(r.choice(_SMOOTH), (of(dtype),))
        if form < 0.9:
            return make(r.choice(("exp", "exp2", "sinh", "cosh", "expm1", "tan")), (make("tanh", (of(dtype),)),))
        if form < 0.97:
            x = 1.0 + abs(of(dtype))
            return make(r.choice(("log", "log2", "log10", "log1p", "rsqrt", "lgamma", "acosh")), (x,))
        return cast(of("f64" if dtype == "f32" else "f32"), dtype)

    def leaf(self, dtype: str, scope: _Scope, exact: bool) -> Scalar:
        r = self.r
        form = r.random()
        known = [v.x for v in scope.values if not (exact and v.inexact) and (not v.inexact or is_float(dtype))]
        if known and form < 0.3:
            return _converted(r.choice(known), dtype)
        if form < 0.38 and scope.loops:
            return _converted(index(r.choice(list(scope.loops))), dtype)
        if form < 0.44:
            return _converted(self.param(), dtype)
        if form < 0.55:
            return self.constant(dtype)
        if scope.rows and form < 0.7:
            row, n = r.choice(scope.rows)
            i, guard = self.place(n, scope)
            return _converted(load(row, i, guard=guard), dtype)
        return _converted(self.load(scope, dtype), dtype)

    def param(self) -> Scalar:
        if not self.param_dtypes or (len(self.param_dtypes) < 3 and self.r.random() < 0.3):
            name, dtype = self.name("a"), self.r.choice((*_COMPUTE, "bool"))
            self.param_dtypes[name] = dtype
            self.params[name] = random_numbers(self.data, dtype, (), self.wild)[()]
        name = self.r.choice(list(self.param_dtypes))
        return param(name, self.param_dtypes[name])

    def constant(self, dtype: str) -> Scalar:
        if dtype == "bool":
            return const(self.r.random() < 0.5, dtype)
        if is_float(dtype):
            return const(self.r.choice((0.0, -0.0, 0.5, 1.0, -1.5, 2.0, 0.1, 3.25)), dtype)
        return const(self.r.choice((0, 1, -1, 2, 3, 7, 100)), dtype)

    def load(self, scope: _Scope, dtype: str) -> Scalar:
        inputs = [b for b in self.buffers if b.role == "in"]
        if inputs and (len(inputs) >= 4 or self.r.random() < 0.5):
            source = self.r.choice(inputs)
        else:
            options: list[str | int] = [*dict.fromkeys(scope.loops.values()), *([3] if self.r.random() < 0.2 else [])]
            dims = tuple(d for d in options if self.r.random() < 0.8)
            kinds = (dtype, dtype, *(("f16", "bf16") if is_float(dtype) else ()), self.r.choice(list(DTYPES)))
            source = self.buffer(dims, self.r.choice(kinds), "in")
        places = [self.place(d, scope) for d in source.dims]
        guards = [g for _, g in places if g is not None]
        guard = guards[0] if guards else None
        for g in guards[1:]:
            assert guard is not None
            guard = guard & g
        return load(source, *(i for i, _ in places), guard=guard)


def _converted(x: Scalar, dtype: str) -> Scalar:
    """Return a value as another dtype; float16 and bfloat16 go by way of float32."""
    return cast(cast(x, "f32") if x.dtype in ("f16", "bf16") else x, dtype)
