"""What a kernel must be: names defined before use, dtypes that agree, folds and lanes where they may be, accesses inside.

``verify`` raises for what is wrong; ``unproven`` lists the accesses that are not proven to be inside their buffers, which
only the caller's data can keep there (a gathered index).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, NoReturn

from wengert.errors import KernelError
from wengert.loops.accesses import Access, accesses, conflicts, expressions
from wengert.loops.ir import MONOIDS, Buffer, Fold, Kernel, Let, Loop, Stage, Statement, Store, Update, walk
from wengert.loops.parser import KEYWORDS
from wengert.loops.scalar import BINARY_MATH, DTYPES, OPS, UNARY_MATH, Scalar, is_float, is_integer, postorder
from wengert.loops.text import line_of, show_scalar

__all__ = ["Unproven", "unproven", "verify"]

_LANES: Final = 64
_FLOATS: Final = frozenset(
    (*UNARY_MATH, *BINARY_MATH, "div", "sqrt", "fma", "floor", "ceil", "trunc", "rint", "copysign")
)
_INTEGERS: Final = frozenset(("quotient", "remainder", "shl", "shr"))
_NUMBERS: Final = frozenset(("add", "sub", "mul", "neg", "abs"))
_BITS: Final = frozenset(("and", "or", "xor", "not"))
_MOVES: Final = frozenset(("select", "rarely", "cast", "bits"))  # what may be done with a float16 or bfloat16
_HALVES: Final = ("f16", "bf16")


class Unproven(NamedTuple):
    """An access that may be outside: its line, the buffer ("" for a constant table), and the dimension."""

    statement: Statement
    buffer: str
    axis: int


def unproven(kernel: Kernel) -> list[Unproven]:
    """Return the accesses that are not proven to be inside their buffers, for any sizes, from loops and guards alone.

    Example:
        >>> from wengert.loops.text import parse
        >>> text = "kernel take(x: f32[n: 1], at: i64[m: 1], out y: f32[m: 1])\\n  for i in 0:m\\n    y[i] = x[at[i]]\\n"
        >>> [(u.buffer, u.axis) for u in unproven(parse(text))]
        [('x', 0)]
    """
    found = (Unproven(a.statement, a.buffer, axis) for a in accesses(kernel) for axis in a.outside_of())
    return list(dict.fromkeys(found))


def verify(kernel: Kernel) -> None:
    """Check a kernel.

    Raises:
        KernelError: with the line of the first mistake.
    """
    _Verifier(kernel).run()


class _Verifier:
    """Walks a kernel once, outer statements first.

    Attributes:
        defined: name → dtypes of its parts, of every value in scope. running: the folds of the loops around. varying: for each
            name in scope, whether its value differs between the lanes of the vectorised loop around, if there is one.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.here: Statement | None = None
        self.defined: dict[str, tuple[str, ...]] = {}
        self.buffers: dict[str, Buffer | Stage] = {}
        self.loops: list[Loop] = []
        self.stored: set[str] = set()
        self.updated: set[str] = set()
        self.varying: set[str] = set()
        self.folds: set[str] = set()
        self.updates = [s.name for s in walk(kernel.body) if isinstance(s, Update)]

    def fail(self, problem: str) -> NoReturn:
        raise KernelError(f"{problem}\n{line_of(self.kernel, self.here)}")

    def check(self, condition: bool, problem: str) -> None:
        if not condition:
            self.fail(problem)

    def run(self) -> None:
        kernel = self.kernel
        self.new_name(kernel.name)
        self.defined.clear()
        for name in kernel.sizes:
            self.new_name(name)
            self.defined[name] = ("i64",)
        for p in kernel.params:
            self.new_name(p.name)
            self.check(p.dtype in DTYPES, f"the param {p.name!r} has the unknown dtype {p.dtype!r}")
            self.defined[p.name] = (p.dtype,)
        for b in kernel.buffers:
            self.new_name(b.name)
            self.argument(b)
            self.buffers[b.name] = b
        self.block(kernel.body)
        self.independent()

    def new_name(self, name: str) -> None:
        self.check(
            name.isidentifier()
            and name.isascii()
            and name.partition("_")[0] not in ("inf", "nan")
            and name not in KEYWORDS
            and name not in DTYPES,
            f"{name!r} cannot be a name: expected letters, digits and _, and no word of the text form",
        )
        taken = name in self.defined or name in self.buffers or name in self.folds
        self.check(not taken, f"the name {name!r} has a meaning here already; every value needs a name of its own")

    def argument(self, b: Buffer) -> None:
        self.check(b.dtype in DTYPES, f"the buffer {b.name!r} has the unknown dtype {b.dtype!r}")
        self.check(b.role in ("in", "out", "inout"), f"the role of {b.name!r} is {b.role!r}; expected in, out or inout")
        self.check(
            len(b.dims) == len(b.strides), f"{b.name!r} has {len(b.dims)} dimensions and {len(b.strides)} strides"
        )
        for dim, stride in zip(b.dims, b.strides, strict=True):
            known = dim in self.kernel.sizes if isinstance(dim, str) else dim >= 0
            self.check(known, f"the dimension {dim!r} of {b.name!r} is no size of the kernel")
            self.check(stride in (None, 0, 1), f"a stride of {b.name!r} is {stride}; only 0 and 1 can be fixed")
            self.check(
                stride != 0 or b.role == "in", f"{b.name!r} is written, but its stride 0 makes one element of several"
            )

    # ---- statements

    def block(self, body: tuple[Statement, ...]) -> None:
        defined, buffers = dict(self.defined), dict(self.buffers)
        for statement in body:
            self.here = statement
            for x in expressions(statement):
                self.expression(x)
            if isinstance(statement, Loop):
                self.loop(statement)
            elif isinstance(statement, Let):
                self.new_name(statement.name)
                self.defined[statement.name] = (statement.value.dtype,)
                if self.differs(statement.value):
                    self.varying.add(statement.name)
            elif isinstance(statement, Store):
                self.store(statement)
            elif isinstance(statement, Update):
                self.update(statement)
            else:
                self.stage(statement)
        self.defined, self.buffers = defined, buffers

    def store(self, s: Store) -> None:
        buffer = self.buffer(s.buffer)
        self.check(isinstance(buffer, Stage) or buffer.role != "in", f"{s.buffer!r} is an input: it cannot be written")
        self.indices(s.buffer, s.index)
        self.check(
            s.value.dtype == buffer.dtype, f"a {s.value.dtype} value is stored in {s.buffer!r} of dtype {buffer.dtype}"
        )
        self.check(s.guard is None or s.guard.dtype == "bool", "a guard must be a bool")
        if s.add:
            self.check(
                buffer.dtype != "bool" and buffer.dtype not in _HALVES,
                f"'+=' is not defined for {buffer.dtype} elements",
            )
            self.read(s.buffer)
        self.stored.add(s.buffer)

    def update(self, s: Update) -> None:
        owner = next((n for n, loop in enumerate(self.loops) if any(f.name == s.name for f in loop.folds)), None)
        if owner is None:
            self.fail(f"{s.name!r} is no fold of a loop around this line")
        fold = next(f for f in self.loops[owner].folds if f.name == s.name)
        wanted = MONOIDS[fold.monoid].dtypes(fold.dtype)
        given = tuple(v.dtype for v in s.values)
        self.check(given == wanted, f"the {fold.monoid} {s.name!r} takes values of dtypes {wanted}, got {given}")
        for loop in self.loops[owner + 1 :]:
            self.check(loop.lanes == 1, f"{s.name!r} is a fold of loop {self.loops[owner].variable!r}, but loop "
                       f"{loop.variable!r} within it runs in {loop.lanes} lanes; fold over it first")  # fmt: skip
        self.updated.add(s.name)

    def stage(self, s: Stage) -> None:
        self.new_name(s.name)
        self.check(s.dtype in DTYPES, f"the stage {s.name!r} has the unknown dtype {s.dtype!r}")
        self.check(s.size.dtype == "i64", f"the size of a stage is an i64, got {s.size.dtype}")
        fixed = all(
            x.op in ("size", "const", "add", "sub", "mul", "quotient", "minimum", "maximum")
            for x in postorder((s.size,))
        )
        if not fixed:
            self.fail(f"the size of a stage is made of sizes and numbers alone, got {show_scalar(s.size)}")
        vector = next((loop for loop in self.loops if loop.lanes > 1), None)
        if vector is not None:
            self.fail(
                f"a stage belongs to one iteration, but loop {vector.variable!r} runs {vector.lanes} of them at once"
            )
        self.buffers[s.name] = s
        self.stored.discard(s.name)

    def loop(self, loop: Loop) -> None:
        self.new_name(loop.variable)
        self.check(loop.start.dtype == loop.stop.dtype == "i64", "the bounds of a loop are of dtype i64")
        self.check(loop.step >= 1, f"the step of a loop is a positive number, got {loop.step}")
        self.check(1 <= loop.lanes <= _LANES, f"a loop has 1 to {_LANES} lanes, got {loop.lanes}")
        halves = loop.lanes.bit_count() == 1 or not loop.folds
        self.check(halves, f"the lanes of a loop that folds are combined by halves: a power of two, got {loop.lanes}")
        self.check(1 <= loop.unroll <= 64, f"a loop is unrolled 1 to 64 times, got {loop.unroll}")
        if loop.parallel:
            self.parallel(loop)
        self.vector(loop)
        for fold in loop.folds:
            self.fold(fold)
        outer_varying = set(self.varying)
        inside = {loop.variable: ("i64",), **{f.name: MONOIDS[f.monoid].dtypes(f.dtype) for f in loop.folds}}
        outer, self.defined = self.defined, {**self.defined, **inside}
        if loop.lanes > 1:
            self.varying |= inside.keys()
        elif self.varying:
            self.varying |= {f.name for f in loop.folds}  # the loop around is vectorised: each lane has its own result
        self.loops.append(loop)
        self.block(loop.body)
        self.loops.pop()
        self.here = loop
        missing = [f.name for f in loop.folds if f.name not in self.updated]
        self.check(not missing, f"nothing is folded into {', '.join(missing)} in this loop")
        self.defined = {**outer, **{f.name: MONOIDS[f.monoid].dtypes(f.dtype) for f in loop.folds}}
        self.varying = set() if loop.lanes > 1 else outer_varying | (self.varying & {f.name for f in loop.folds})

    def fold(self, fold: Fold) -> None:
        self.new_name(fold.name)
        self.check(fold.monoid in MONOIDS, f"the monoid {fold.monoid!r} is not known; known are {', '.join(MONOIDS)}")
        self.check(fold.monoid not in OPS, f"the monoid {fold.monoid!r} has the name of an operation")
        self.check(fold.dtype in DTYPES, f"the fold {fold.name!r} has the unknown dtype {fold.dtype!r}")
        self.check(fold.dtype not in _HALVES, f"a {fold.dtype} is a way to store: fold an f32, and cast the result")
        self.folds.add(fold.name)

    def parallel(self, loop: Loop) -> None:
        self.check(not loop.folds, "a parallel loop cannot fold: its iterations run on several threads")
        self.check(
            loop.lanes == loop.unroll == 1, "a parallel loop has no lanes and is not unrolled; its inner loops may"
        )
        body = self.kernel.body
        for outer in self.loops:
            self.check(
                outer.parallel and len(outer.body) == 1, "a parallel loop within another loop, or beside a statement"
            )
        if not self.loops:
            alone = body[-1] is loop and all(isinstance(s, Let) for s in body[:-1])
            self.check(alone, "a parallel loop is the last statement of a kernel, after nothing but named values")
        other = [
            x for bound in (loop.start, loop.stop) for x in postorder((bound,)) if x.op in ("index", "var", "load")
        ]
        self.check(not other, "the bounds of a parallel loop are made of sizes, params and numbers alone")

    def vector(self, loop: Loop) -> None:
        around = next((each for each in self.loops if each.lanes > 1), None)
        if around is None:
            return
        self.check(loop.lanes == 1, f"lanes within the lanes of loop {around.variable!r}")
        if self.differs(loop.start) or self.differs(loop.stop):
            self.fail(f"the bounds of this loop differ between the lanes of loop {around.variable!r}")

    # ---- expressions

    def differs(self, x: Scalar) -> bool:
        """Whether a value differs between the lanes of the vectorised loop around."""
        names = (n.data if n.op == "index" else n.data[0] for n in postorder((x,)) if n.op in ("index", "var"))
        return not self.varying.isdisjoint(names)

    def buffer(self, name: str) -> Buffer | Stage:
        found = self.buffers.get(name)
        return self.fail(f"{name!r} is no buffer here; known are {', '.join(self.buffers)}") if found is None else found

    def read(self, name: str) -> None:
        buffer = self.buffer(name)
        written = isinstance(buffer, Stage) or buffer.role == "out"
        self.check(not written or name in self.stored, f"{name!r} is read before it is written")

    def indices(self, name: str, index: Iterable[Scalar]) -> None:
        buffer, dtypes = self.buffer(name), [i.dtype for i in index]
        count = 1 if isinstance(buffer, Stage) else len(buffer.dims)
        self.check(len(dtypes) == count, f"{name!r} has {count} dimensions, got {len(dtypes)} indices")
        self.check(all(d == "i64" for d in dtypes), f"an index is an i64, got {', '.join(dtypes)}")

    def expression(self, root: Scalar) -> None:
        for x in postorder((root,)):
            if x.op in ("index", "size", "param", "var"):
                self.name(x)
            elif x.op == "load":
                name, guarded = x.data
                self.indices(name, x.args[:-1] if guarded else x.args)
                self.check(
                    x.dtype == self.buffer(name).dtype, f"{name!r} holds {self.buffer(name).dtype}, not {x.dtype}"
                )
                self.check(not guarded or x.args[-1].dtype == "bool", "a guard must be a bool")
                self.read(name)
            elif x.op == "lookup":
                self.check(is_integer(x.args[0].dtype), f"a table is read at an integer, got {x.args[0].dtype}")
                self.check(len(x.data) > 0, "a table needs at least one entry")
            elif x.args:
                self.operands(x)

    def operands(self, x: Scalar) -> None:
        dtype = x.args[-1].dtype if x.op in ("select", "rarely") else x.args[0].dtype
        if dtype in _HALVES and x.op not in _MOVES:
            self.fail(
                f"{x.op} of {dtype}: it is a way to store; cast to f32 first, as in f32({show_scalar(x.args[0])})"
            )
        if x.op == "cast":
            return self.conversion(x)
        fits = (
            is_float(dtype) if x.op in _FLOATS
            else is_integer(dtype) if x.op in _INTEGERS
            else dtype != "bool" if x.op in _NUMBERS
            else not is_float(dtype) if x.op in _BITS
            else True
        )  # fmt: skip
        if not fits:
            self.fail(f"{x.op} is not defined for {dtype}: {show_scalar(x)}")
        return None

    def conversion(self, x: Scalar) -> None:
        old, new = x.args[0].dtype, x.dtype
        for half, other in ((old, new), (new, old)):
            self.check(
                half not in _HALVES or other in ("f32", "f64"), f"a {half} is cast to and from f32 and f64, not {other}"
            )

    def name(self, x: Scalar) -> None:
        name, part = x.data if x.op == "var" else (x.data, 0)
        known = self.defined.get(name)
        if known is None:
            self.fail(f"{name!r} is not defined here")
        self.check(part < len(known), f"{name!r} has {len(known)} parts, there is no part {part}")
        self.check(known[part] == x.dtype, f"{name!r} is a {known[part]}, read as a {x.dtype}")
        for loop in self.loops:
            if any(f.name == name for f in loop.folds):
                once = name in self.updated and self.updates.count(name) == 1
                self.check(once, f"what {name!r} holds so far may be read only after its one update")
                self.check(
                    loop.lanes == loop.unroll == 1,
                    f"what {name!r} holds so far is not known in a loop with lanes or unrolling",
                )

    # ---- loops whose iterations run at once

    def independent(self) -> None:
        loops = [s for s in walk(self.kernel.body) if isinstance(s, Loop) and (s.parallel or s.lanes > 1)]
        found: list[Access] = accesses(self.kernel) if loops else []
        for loop in loops:
            pairs = conflicts(self.kernel, loop, found)
            if pairs:
                a, b = pairs[0]
                self.here = (a if a.write else b).statement
                self.fail(
                    f"two iterations of loop {loop.variable!r}, which run at once, are not proven to use different elements "
                    f"of {a.buffer!r}; make the loop serial"
                )
