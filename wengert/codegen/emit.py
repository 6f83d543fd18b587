"""A kernel of the loop IR as LLVM IR with explicit vectors.

The function has the signature ``void name(ptr args, i64 begin, i64 end)``: ``args`` holds, in slots of eight bytes, for
each buffer its address and the byte strides that its structure does not fix, then the sizes, then the params. The range
is that of the parallel loops at the top of the kernel, counted row by row; a kernel without any is called with (0, 1).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from wengert.codegen import access
from wengert.codegen.expressions import Expressions
from wengert.codegen.lanes import BOOL, BYTE, I64, POINTER, Lanes, Value, constant, splat, type_of, vector_of
from wengert.codegen.operations import intrinsic
from wengert.codegen.stages import check_stages
from wengert.environment import variable
from wengert.errors import KernelError
from wengert.loops.ir import MONOIDS, Buffer, Fold, Kernel, Let, Loop, Stage, Statement, Store, Update, walk
from wengert.loops.scalar import OPS, Scalar, const, index, is_float, make, size_of

__all__ = ["bounds_checked", "emit", "slots"]

I32 = ir.IntType(32)


def bounds_checked() -> bool:
    """Whether generated code compares every index with its dimension (``WENGERT_BOUNDS_CHECK=1``)."""
    return bool(variable("WENGERT_BOUNDS_CHECK"))


def slots(kernel: Kernel) -> list[tuple[str, Any]]:
    """Return what the argument array of a kernel holds, in order.

    The entries are ("pointer", buffer), ("stride", (buffer, dimension)), ("size", name), ("param", name) and, with bounds
    checks, ("fault", None): where the number of an access outside its buffer is noted.
    """
    found: list[tuple[str, Any]] = []
    for buffer in kernel.buffers:
        found.append(("pointer", buffer.name))
        found += [("stride", (buffer.name, d)) for d, s in enumerate(buffer.strides) if s is None]
    found += [("size", name) for name in kernel.sizes]
    found += [("param", p.name) for p in kernel.params]
    return [*found, ("fault", None)] if bounds_checked() else found


def emit(
    kernel: Kernel, name: str = "kernel", module: Any = None, limits: Mapping[str, int] = MappingProxyType({})
) -> str:
    """Return the LLVM IR of a kernel.

    Args:
        module: one that may hold others already. limits: the largest values of sizes that whoever calls the kernel lets
            through; needed of those that a stage is made of.

    Raises:
        KernelError: if the stages of the kernel have no bound, or one that is too large.
    """
    check_stages(kernel, limits)
    module = ir.Module(kernel.name) if module is None else module
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64, I64]), name)
    function.attributes.add("nounwind")
    Emitter(kernel, module, function).run()
    return str(module)


class Emitter(Expressions):
    """Builds the function of one kernel, statement by statement."""

    def __init__(self, kernel: Kernel, module: Any, function: Any) -> None:
        super().__init__(kernel, module, function)
        self.checks = bounds_checked()
        self.folds: dict[str, Fold] = {f.name: f for s in walk(kernel.body) if isinstance(s, Loop) for f in s.folds}
        self.written = changes(kernel.body)

    def run(self) -> None:
        """Emit the whole function."""
        arguments, begin, end = self.function.args
        self.take_arguments(arguments)
        for s in walk(self.kernel.body):
            if isinstance(s, Stage):
                self.take_stage(s)
        statements = list(self.kernel.body)
        while statements and not isinstance(statements[0], Loop):
            self.statement(statements.pop(0))
        if statements and isinstance(statements[0], Loop) and statements[0].parallel:
            if len(statements) > 1:
                raise KernelError(f"kernel {self.kernel.name}: nothing may follow the parallel loops")
            self.parallel(statements[0], begin, end)
        else:
            self.block(tuple(statements))
        self.builder.ret_void()
        with self.builder.goto_block(self.entry):
            self.builder.branch(self.start)

    def take_arguments(self, arguments: Any) -> None:
        """Load the slots."""
        dtypes = {p.name: p.dtype for p in self.kernel.params}
        for i, (kind, key) in enumerate(slots(self.kernel)):
            at = self.builder.gep(arguments, [ir.Constant(I64, i)], source_etype=I64)
            if kind == "fault":
                self.arguments[kind, key] = at
                continue
            typ = POINTER if kind == "pointer" else type_of(dtypes[key]) if kind == "param" else I64
            found = self.builder.load(at, align=8, typ=BYTE if typ == BOOL else typ)
            self.arguments[kind, key] = self.builder.trunc(found, BOOL) if typ == BOOL else found

    def take_stage(self, stage: Stage) -> None:
        """Take the memory of a stage from the stack, once for the whole call."""
        size = self.value(make("maximum", (stage.size, const(0, "i64"))))
        count = self.builder.mul(size.llvm, ir.Constant(I64, size_of(stage.dtype)))
        memory = self.builder.alloca(BYTE, size=count)
        memory.align, memory.type = 64, POINTER
        self.arguments["pointer", stage.name] = memory
        self.stages[stage.name] = Buffer(stage.name, stage.dtype, (stage.size.data,), (1,))

    # ---- statements

    def block(self, statements: tuple[Statement, ...]) -> None:
        """Emit statements in order."""
        for statement in statements:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        """Emit one statement."""
        if isinstance(statement, Loop):
            self.loop(statement)
        elif isinstance(statement, Let):
            self.memo[-1][make("var", (), statement.value.dtype, (statement.name, 0))] = self.value(statement.value)
        elif isinstance(statement, Store):
            guard = None if statement.guard is None else self.value(statement.guard)
            value = self.value(statement.value)
            access.write(self, self.buffer(statement.buffer), statement.index, value, guard, statement.add)
            self.forget({statement.buffer})
        elif isinstance(statement, Update):
            self.update(statement)

    def update(self, statement: Update) -> None:
        """Fold values into the accumulators, where lanes are on."""
        fold = self.folds[statement.name]
        parts = [self.accumulators[fold.name, p] for p in range(MONOIDS[fold.monoid].parts)]
        old = [self.load(p) for p in parts]
        new = self.fused(fold, old[0], statement.values[0])
        new = self.combine(fold, old, [self.value(v) for v in statement.values]) if new is None else new
        mask = None if self.lanes is None else self.lanes.mask
        for part, before, after in zip(parts, old, new, strict=True):
            llvm = self.spread(after) if before.vector else after.llvm
            self.builder.store(llvm if mask is None else self.builder.select(mask, llvm, before.llvm), part)
        self.forget({fold.name})

    def fused(self, fold: Fold, old: Value, value: Scalar) -> list[Value] | None:
        """Return a sum with a product added to it, rounded once where the processor can; None for any other update."""
        if fold.monoid != "sum" or value.op != "mul" or not is_float(value.dtype) or self.known(value) is not None:
            return None
        old, a, b = self.together(old, *map(self.value, value.args))
        return [Value(intrinsic(self.builder, "fmuladd", old.llvm.type, [a.llvm, b.llvm, old.llvm]), old.vector)]

    def load(self, variable: Any) -> Value:
        """Return what a variable holds."""
        typ = variable.allocated_type
        return Value(self.builder.load(variable, typ=typ), isinstance(typ, ir.VectorType))

    def combine(self, fold: Fold, a: list[Value], b: list[Value]) -> list[Value]:
        """Emit the combination of two states of a monoid."""
        kind = MONOIDS[fold.monoid]
        dtypes = kind.dtypes(fold.dtype)
        left, right = (tuple(make("var", (), d, (side, i)) for i, d in enumerate(dtypes)) for side in ("·a", "·b"))
        self.memo.append(dict(zip(left + right, a + b, strict=True)))
        found = [self.value(v) for v in kind.combine(left, right)]
        self.memo.pop()
        return found

    # ---- loops

    def parallel(self, loop: Loop, begin: Any, end: Any) -> None:
        """Emit the parallel loops at the top as one loop over their iterations, row by row."""
        nest = [loop]
        while len(nest[-1].body) == 1 and isinstance(nest[-1].body[0], Loop) and nest[-1].body[0].parallel:
            nest.append(nest[-1].body[0])
        counts = [self.count(each) for each in nest]
        starts = [self.value(each.start).llvm for each in nest]

        def body(i: Any) -> None:
            self.memo.append({})
            rest = i
            for each, count, start in reversed(list(zip(nest, counts, starts, strict=True))):
                place = rest if each is loop else self.builder.urem(rest, count)
                rest = rest if each is loop else self.builder.udiv(rest, count)
                at = self.builder.add(start, self.builder.mul(place, ir.Constant(I64, each.step)))
                self.memo[-1][index(each.variable)] = Value(at, False)
            self.block(nest[-1].body)
            self.memo.pop()

        self.forget(changes(loop.body))
        self.range(begin, end, 1, body)

    def count(self, loop: Loop) -> Any:
        """Return how many iterations a loop has."""
        span = self.builder.sub(self.value(loop.stop).llvm, self.value(loop.start).llvm)
        return self.builder.sdiv(self.builder.add(span, ir.Constant(I64, loop.step - 1)), ir.Constant(I64, loop.step))

    def range(self, start: Any, stop: Any, step: int, body: Callable[[Any], None]) -> Any:
        """Emit ``for i in range(start, stop, step): body(i)`` and return i after it."""
        builder = self.builder
        head, inside, after = (self.function.append_basic_block(n) for n in ("head", "body", "after"))
        before = builder.block
        builder.branch(head)
        builder.position_at_end(head)
        i = builder.phi(I64)
        i.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", i, stop), inside, after)
        builder.position_at_end(inside)
        body(i)
        i.add_incoming(builder.add(i, ir.Constant(I64, step), flags=["nsw"]), builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return i

    def loop(self, loop: Loop) -> None:
        """Emit a loop: steps of ``lanes · unroll`` iterations with accumulators of their own, then what is left."""
        self.forget(changes(loop.body))
        spread = loop.lanes if loop.lanes > 1 else 1 if self.lanes is None else self.lanes.width
        copies = [self.start_folds(loop, spread) for _ in range(loop.unroll)]
        start, stop = self.first_lane(loop.start), self.first_lane(loop.stop)
        with self.builder.if_then(self.builder.icmp_signed("<", start, stop)):
            self.memo.append({})
            self.hoist(loop)
            self.iterations(loop, start, stop, copies)
            self.memo.pop()
        self.finish_folds(loop, copies)

    def iterations(self, loop: Loop, start: Any, stop: Any, copies: list[dict[tuple[str, int], Any]]) -> None:
        """Emit the iterations of a loop that has some.

        The vectors of a step are one of as many lanes, where nothing is accumulated: its parts do not wait for each other.
        """
        step, chunk = loop.lanes * loop.step, loop.lanes * loop.unroll * loop.step
        together = replace(loop, lanes=loop.lanes * loop.unroll) if loop.lanes > 1 and not loop.folds else None

        def whole(i: Any) -> None:
            if together is not None:
                self.iteration(together, i, {}, None)
                return
            for copy, accumulators in enumerate(copies):
                at = i if copy == 0 else self.builder.add(i, ir.Constant(I64, copy * step), flags=["nsw"])
                self.iteration(loop, at, accumulators, None)

        if chunk > loop.step:
            last = self.builder.sub(stop, ir.Constant(I64, chunk - loop.step))
            start = self.range(start, last, chunk, whole)

        def rest(i: Any) -> None:
            left = self.builder.sub(stop, i)
            if loop.step > 1:
                more = self.builder.add(left, ir.Constant(I64, loop.step - 1))
                left = self.builder.sdiv(more, ir.Constant(I64, loop.step))
            if loop.unroll > 1:  # several vectors may be left
                all_lanes = ir.Constant(I64, loop.lanes)
                left = self.builder.select(self.builder.icmp_signed("<", left, all_lanes), left, all_lanes)
            self.iteration(loop, i, copies[0], left if loop.lanes > 1 else None)

        self.range(start, stop, step, rest)

    def iteration(self, loop: Loop, i: Any, accumulators: dict[tuple[str, int], Any], left: Any) -> None:
        """Emit the body of a loop at ``i`` and the lanes after it, of which ``left`` are on (None: all)."""
        outer, vector = self.lanes, loop.lanes > 1
        self.accumulators.update(accumulators)
        self.memo.append({} if vector else {index(loop.variable): Value(i, False)})
        if vector:
            if outer is not None:
                raise ValueError(f"loop '{loop.variable}' is vectorised inside the vectorised loop '{outer.variable}'")
            mask = None if left is None else self.mask(left, loop.lanes)
            self.lanes = Lanes(loop.variable, loop.lanes, mask, left, loop.step)
            self.first[loop.variable] = i
        self.block(loop.body)
        self.lanes = outer
        self.memo.pop()

    def mask(self, left: Any, width: int) -> Any:
        """Return the mask of the first ``left`` lanes."""
        counts = ir.Constant(vector_of(I64, width), list(range(width)))
        return self.builder.icmp_signed("<", counts, splat(self.builder, left, width))

    # ---- folds

    def start_folds(self, loop: Loop, width: int) -> dict[tuple[str, int], Any]:
        """Return fresh accumulators of a loop, holding the identity."""
        found = {}
        for fold in loop.folds:
            for part, identity in enumerate(MONOIDS[fold.monoid].identity(fold.dtype)):
                value = constant(identity.data, identity.dtype)
                value = value if width == 1 else splat(self.builder, value, width)
                found[fold.name, part] = variable = self.local(value.type)
                self.builder.store(value, variable)
        return found

    def finish_folds(self, loop: Loop, copies: list[dict[tuple[str, int], Any]]) -> None:
        """Combine the copies of each accumulator, then its lanes, and make the result known."""
        for fold in loop.folds:
            results = fold.results
            states = [[self.load(copy[fold.name, p]) for p in range(len(results))] for copy in copies]
            while len(states) > 1:
                pairs = zip(states[::2], states[1::2], strict=False)
                states = [self.combined(fold, a, b, loop.lanes) for a, b in pairs] + states[len(states) // 2 * 2 :]
            state, width = states[0], loop.lanes
            while width > 1:
                width //= 2
                low, high = ([self.half(v, width, side) for v in state] for side in (0, 1))
                state = self.combined(fold, low, high, width)
            self.memo[-1].update(zip(results, state, strict=True))
            for part in range(len(results)):
                self.accumulators.pop((fold.name, part), None)

    def combined(self, fold: Fold, a: list[Value], b: list[Value], width: int) -> list[Value]:
        """Combine states outside their loop; ``width`` is the lanes of that loop which are left."""
        outer = self.lanes
        if width > 1:
            self.lanes = Lanes("", width, None)
        found = self.combine(fold, a, b)
        if self.lanes is not None:
            found = [Value(self.spread(v), True) for v in found]
        self.lanes = outer
        return found

    def half(self, value: Value, width: int, side: int) -> Value:
        """Return the lower or upper half of the lanes; an element, if one lane is left."""
        if width == 1:
            return Value(self.builder.extract_element(value.llvm, ir.Constant(I32, side)), False)
        lanes = ir.Constant(vector_of(I32, width), [side * width + k for k in range(width)])
        return Value(self.builder.shuffle_vector(value.llvm, ir.Constant(value.llvm.type, ir.Undefined), lanes), True)

    def hoist(self, loop: Loop) -> None:
        """Compute before a loop, which has iterations, what they have in common.

        A loop inside may have none: then what it reads need not be there, and is left to it.
        """
        own = {loop.variable, *(f.name for f in loop.folds)}
        for s in walk(loop.body):
            if isinstance(s, Loop):
                own |= {s.variable, *(f.name for f in s.folds)}
            elif isinstance(s, Let):
                own.add(s.name)
        own |= self.written | set(self.stages)
        for s in loop.body:
            if isinstance(s, Loop):
                self.hoist_from((s.start, s.stop), own)
                self.hoist_from(expressions(s.body), own | {b.name for b in self.kernel.buffers})
            else:
                self.hoist_from(expressions((s,)), own)

    def hoist_from(self, found: Iterable[Scalar], own: set[str]) -> None:
        """Compute the parts of expressions that depend on none of these names, and are no mere arithmetic."""
        stack, seen = list(found), set[Scalar]()
        while stack:
            node = stack.pop()
            if node in seen or not node.args:
                continue
            seen.add(node)
            if not self.names(node).isdisjoint(own):
                stack += node.args if node.op != "rarely" else (node.args[0], node.args[2])
            elif not OPS[node.op].symbol:
                self.value(node)


def changes(statements: tuple[Statement, ...]) -> set[str]:
    """Return the buffers that statements write, and the folds they update."""
    found = {s.buffer for s in walk(statements) if isinstance(s, Store)}
    return found | {s.name for s in walk(statements) if isinstance(s, Update)}


def expressions(statements: tuple[Statement, ...]) -> Iterator[Scalar]:
    """Yield every expression in statements."""
    for s in walk(statements):
        if isinstance(s, Let):
            yield s.value
        elif isinstance(s, Store):
            yield from (s.value, *s.index, *(() if s.guard is None else (s.guard,)))
        elif isinstance(s, Update):
            yield from s.values
        elif isinstance(s, Loop):
            yield from (s.start, s.stop)
