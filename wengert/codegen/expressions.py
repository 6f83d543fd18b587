"""Scalar expressions as LLVM values, each computed once where it is first needed."""

from typing import Any

from llvmlite import ir

from wengert.codegen import access, halves
from wengert.codegen.lanes import POINTER, Lanes, Value, constant, splat, type_of, vector_of
from wengert.codegen.operations import OPERATIONS, any_lane, convert
from wengert.codegen.target import host
from wengert.codegen.vecmath import EXPANSIONS
from wengert.loops.ir import Buffer, Kernel
from wengert.loops.scalar import Scalar, cast, const, make, size_of

__all__ = ["Expressions"]

I64 = ir.IntType(64)


class Expressions:
    """Emits scalar expressions into a builder.

    Attributes:
        lanes: the vectorised loop that is being emitted, or None. first: per vectorised loop variable its value in the first
            lane. memo: scopes of known values, innermost last; what is computed in a loop's body or a branch is forgotten
            after it.
        arguments: what the kernel was called with, by kind and key. accumulators: the variables of folds, by name and part.
    """

    def __init__(self, kernel: Kernel, module: Any, function: Any) -> None:
        self.kernel, self.module, self.function = kernel, module, function
        self.entry = function.append_basic_block("entry")
        self.start = function.append_basic_block("start")
        self.builder = ir.IRBuilder(self.start)
        self.lanes: Lanes | None = None
        self.first: dict[str, Any] = {}
        self.memo: list[dict[Scalar, Value]] = [{}]
        self.arguments: dict[tuple[str, Any], Any] = {}
        self.accumulators: dict[tuple[str, int], Any] = {}
        self.stages: dict[str, Buffer] = {}
        self.checks = False
        self._expanded: dict[Scalar, Scalar | None] = {}
        self._names: dict[Scalar, frozenset[str]] = {}
        self._accesses = 0

    # ---- what is known

    def known(self, x: Scalar) -> Value | None:
        """Return the value of an expression that was computed where it can be seen from here."""
        for scope in reversed(self.memo):
            value = scope.get(x)
            if value is not None:
                return value
        return None

    def names(self, x: Scalar) -> frozenset[str]:
        """Return what an expression depends on: the buffers it reads, loop variables, folds and bound names."""
        found = self._names
        stack = [x]
        while stack:
            node = stack[-1]
            waiting = [a for a in node.args if a not in found]
            if node in found or not waiting:
                stack.pop()
                own = {"load": node.data, "var": node.data, "index": (node.data,)}.get(node.op, ())
                found[node] = frozenset(own[:1]).union(*(found[a] for a in node.args))
            else:
                stack += waiting
        return found[x]

    def forget(self, names: set[str]) -> None:
        """Drop the known values that depend on buffers or folds that are about to change."""
        for scope in self.memo:
            for node in [n for n in scope if not self.names(n).isdisjoint(names)]:
                if node.op != "index":
                    del scope[node]

    # ---- values

    def value(self, x: Scalar) -> Value:
        """Return the value of an expression; deep ones are walked without recursion."""
        stack = [x]
        while stack:
            node = stack[-1]
            if self.known(node) is not None:
                stack.pop()
                continue
            other = self.expanded(node)
            waiting = [a for a in ((other,) if other is not None else _needed(node)) if self.known(a) is None]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            found = self._node(node) if other is None else self.known(other)
            assert found is not None
            self.memo[-1][node] = found
            stack.pop()
        result = self.known(x)
        assert result is not None
        return result

    def expanded(self, x: Scalar) -> Scalar | None:
        """Return what a function, or a conversion that the processor lacks, is made of; None for what it has."""
        if x not in self._expanded:
            rule = EXPANSIONS.get(x.op)
            self._expanded[x] = rule(*x.args) if rule is not None else _half_conversion(x) if x.op == "cast" else None
        return self._expanded[x]

    def spread(self, value: Value) -> Any:
        """Return a value as a vector."""
        if value.vector:
            return value.llvm
        assert self.lanes is not None
        return splat(self.builder, value.llvm, self.lanes.width)

    def together(self, *values: Value) -> list[Value]:
        """Return values as vectors if any of them is one."""
        if not any(v.vector for v in values):
            return list(values)
        return [Value(self.spread(v), True) for v in values]

    def both_hold(self, a: Value | None, b: Value | None) -> Value | None:
        """Return the conjunction of two conditions, each of which may be absent."""
        if a is None or b is None:
            return b if a is None else a
        a, b = self.together(a, b)
        return Value(self.builder.and_(a.llvm, b.llvm), a.vector)

    def first_lane(self, x: Scalar) -> Any:
        """Return an index that is affine in the vectorised variable, as it is in the first lane."""
        if self.lanes is None or self.lanes.variable not in self.names(x) or x.op not in _AFFINE:
            return self.value(x).llvm
        if x.op == "index":
            return self.first[x.data]
        return OPERATIONS[x.op](self.builder, x.op, "i64", [self.first_lane(a) for a in x.args])

    def local(self, typ: Any) -> Any:
        """Return the address of a variable of the function; LLVM keeps it in a register."""
        with self.builder.goto_block(self.entry):
            variable = self.builder.alloca(typ)
        variable.type = POINTER  # llvmlite gives it a typed pointer, which calls must not name
        return variable

    # ---- buffers

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of a name; a stage is one too."""
        found = self.stages.get(name)
        return self.kernel.buffer(name) if found is None else found

    def pointer(self, name: str) -> Any:
        """Return the address of a buffer."""
        return self.arguments["pointer", name]

    def stride(self, buffer: Buffer, dimension: int) -> Any:
        """Return the bytes between neighbours of a dimension; None where all are one element."""
        fixed = buffer.strides[dimension]
        if fixed is None:
            return self.arguments["stride", (buffer.name, dimension)]
        return ir.Constant(I64, fixed * size_of(buffer.dtype)) if fixed else None

    def active(self, guard: Value | None) -> Value | None:
        """Return which lanes are on and have a guard that holds; None: all."""
        mask = None if self.lanes is None or self.lanes.mask is None else Value(self.lanes.mask, True)
        return self.both_hold(mask, guard)

    def checked(self, buffer: Buffer, indices: tuple[Scalar, ...], mask: Value | None) -> Value | None:
        """With bounds checks: note an access outside its buffer, and take its lanes out of the mask."""
        if not self.checks:
            return mask
        self._accesses += 1
        builder, inside = self.builder, None
        for i, dim in zip(indices, buffer.dims, strict=True):
            limit = const(dim, "i64") if isinstance(dim, int) else make("size", (), "i64", dim)
            at, end = self.together(self.value(i), self.value(limit))
            inside = self.both_hold(inside, Value(builder.icmp_unsigned("<", at.llvm, end.llvm), at.vector))
        if inside is None:
            return mask
        wrong = self.both_hold(Value(builder.not_(inside.llvm), inside.vector), mask)
        assert wrong is not None
        with builder.if_then(any_lane(builder, wrong.llvm), likely=False):
            builder.store(ir.Constant(I64, self._accesses), self.arguments["fault", None])
        return self.both_hold(inside, mask)

    # ---- nodes

    def _node(self, x: Scalar) -> Value:
        """Emit one node whose arguments are known."""
        if x.op in _LEAVES:
            return _LEAVES[x.op](self, x)
        args = [self.known(a) for a in x.args]
        assert all(a is not None for a in args)
        kinds = [a.vector for a in args if a is not None]
        vector = any(kinds)
        llvm = [a.llvm if a.vector or not vector else self.spread(a) for a in args if a is not None]
        kind = type_of(x.dtype)
        if vector:
            assert self.lanes is not None
            kind = vector_of(kind, self.lanes.width)
        if x.op == "select":
            condition = args[0].llvm if args[0] is not None and not kinds[0] else llvm[0]
            return Value(self.builder.select(condition, *llvm[1:]), vector)
        if x.op == "cast":
            return Value(self._cast(x, llvm[0], kind), vector)
        if x.op == "bits":
            return Value(llvm[0] if kind == llvm[0].type else self.builder.bitcast(llvm[0], kind), vector)
        return Value(OPERATIONS[x.op](self.builder, x.op, x.args[0].dtype, llvm), vector)

    def _cast(self, x: Scalar, llvm: Any, kind: Any) -> Any:
        """Emit a conversion; float16 goes through LLVM's type where the processor has instructions for it."""
        vector = isinstance(llvm.type, ir.VectorType)
        half = vector_of(ir.HalfType(), llvm.type.count) if vector else ir.HalfType()
        if x.dtype == "f16":
            return self.builder.bitcast(self.builder.fptrunc(llvm, half), kind)
        if x.args[0].dtype == "f16":
            return self.builder.fpext(self.builder.bitcast(llvm, half), kind)
        return convert(self.builder, x, llvm, kind)

    def _const(self, x: Scalar) -> Value:
        return Value(constant(x.data, x.dtype), False)

    def _argument(self, x: Scalar) -> Value:
        return Value(self.arguments[x.op, x.data], False)

    def _index(self, x: Scalar) -> Value:
        """Return the vectorised loop variable as a vector; others are known."""
        lanes = self.lanes
        if lanes is None or lanes.variable != x.data:
            raise KeyError(f"loop variable '{x.data}' is not known here")
        counts = ir.Constant(vector_of(I64, lanes.width), [k * lanes.step for k in range(lanes.width)])
        return Value(self.builder.add(splat(self.builder, self.first[x.data], lanes.width), counts), True)

    def _running(self, x: Scalar) -> Value:
        """Return what a fold holds so far, inside its loop."""
        if x.data not in self.accumulators:
            raise KeyError(f"'{x.data[0]}' is not known here")
        found = self.builder.load(*_variable(self.accumulators[x.data]))
        return Value(found, isinstance(found.type, ir.VectorType))

    def _load(self, x: Scalar) -> Value:
        name, guarded = x.data
        guard = self.known(x.args[-1]) if guarded else None
        return access.read(self, self.buffer(name), x.args[:-1] if guarded else x.args, guard)

    def _lookup(self, x: Scalar) -> Value:
        at = self.known(x.args[0])
        assert at is not None
        return access.read_table(self, x.data, x.dtype, x.args[0].dtype, at)

    def _rarely(self, x: Scalar) -> Value:
        """Emit the rare side of a choice where some lane needs it."""
        builder = self.builder
        condition, usual = self.known(x.args[0]), self.known(x.args[2])
        assert condition is not None
        assert usual is not None
        vector = condition.vector or usual.vector or self.lanes is not None  # the rare side may vary
        start = self.spread(usual) if vector else usual.llvm
        result = self.local(start.type)
        builder.store(start, result)
        with builder.if_then(any_lane(builder, condition.llvm), likely=False):
            self.memo.append({})
            rare = self.value(x.args[1])
            choice = self.spread(condition) if vector else condition.llvm
            builder.store(builder.select(choice, self.spread(rare) if vector else rare.llvm, start), result)
            self.memo.pop()
        return Value(builder.load(result, typ=start.type), vector)


_LEAVES = {
    "const": Expressions._const, "size": Expressions._argument, "param": Expressions._argument, "index": Expressions._index,
    "var": Expressions._running, "load": Expressions._load, "lookup": Expressions._lookup, "rarely": Expressions._rarely,
}  # fmt: skip


_AFFINE = ("index", "add", "sub", "neg", "mul")


def _variable(variable: Any) -> tuple[Any, str, None, Any]:
    """Return the arguments of ``builder.load`` for a variable."""
    return variable, "", None, variable.allocated_type


def _needed(x: Scalar) -> tuple[Scalar, ...]:
    """Return the arguments that must be known before a node is emitted."""
    return (x.args[0], x.args[2]) if x.op == "rarely" else x.args


def _half_conversion(x: Scalar) -> Scalar | None:
    """Return a conversion from or to a half in operations on bits, where the processor has none."""
    old, new, value = x.args[0].dtype, x.dtype, x.args[0]
    if new in ("f16", "bf16"):
        if old == "f64":
            return cast(halves.narrow_double(value), new)
        if old != "f32":
            return cast(cast(value, "f32"), new)
        if new == "bf16":
            return halves.pack_bfloat16(value)
        return None if host().half else halves.pack_float16(value)
    if old in ("f16", "bf16"):
        if new != "f32":
            return cast(cast(value, "f32"), new)
        if old == "bf16":
            return halves.unpack_bfloat16(value)
        return None if host().half else halves.unpack_float16(value)
    return None
