"""Reads and writes of buffers: addresses, masks, guards, and how elements lie in memory.

An access knows how far apart its lanes are. Neighbours in memory are one vector load; one element for all lanes is a
uniform load; anything else gathers. With bounds checks each index is compared with its dimension: an access outside is
left out, and its number is written to the kernel's last argument.
"""

from typing import Any

from llvmlite import ir

from wengert.codegen.lanes import (
    BOOL,
    BYTE,
    I32,
    I64,
    POINTER,
    Lanes,
    Value,
    constant,
    element_type,
    splat,
    vector_of,
)  # fmt: skip
from wengert.codegen.operations import any_lane, suffix
from wengert.loops.ir import Buffer
from wengert.loops.scalar import Scalar, size_of

__all__ = ["read", "read_table", "write"]


def coefficient(emitter: Any, x: Scalar) -> int | None:
    """Return how much an index grows from lane to lane; None if that is not a constant."""
    if x.op == "index":
        return emitter.lanes.step if x.data == emitter.lanes.variable else 0
    if x.op in ("var", "load"):
        return None if emitter.value(x).vector else 0
    found = [coefficient(emitter, a) for a in x.args]
    if all(c == 0 for c in found):
        return 0
    if x.op in ("add", "sub", "neg"):
        if any(c is None for c in found):
            return None
        a, b = found[0] or 0, (found[1] or 0 if len(found) > 1 else 0)
        return {"add": a + b, "sub": a - b, "neg": -a}[x.op]
    if x.op == "mul":
        for number, other in (x.args, x.args[::-1]):
            c = coefficient(emitter, other)
            if number.op == "const" and c is not None:
                return int(number.data) * c
    return None


class Place:
    """Where the lanes of one access lie.

    Attributes:
        base: the address of the first lane, or a vector with that of each. step: bytes from lane to lane (a number, or an LLVM
            value); 0 if all have one element. width: how many lanes there are. element: the LLVM type in memory.
        mask: the lanes that take part, or None for all.
    """

    __slots__ = ("align", "base", "element", "mask", "step", "width")

    def __init__(self, base: Any, step: Any, width: int, dtype: str, mask: Value | None) -> None:
        self.base, self.step, self.width, self.mask = base, step, width, mask
        self.align, self.element = size_of(dtype), element_type(dtype)

    @property
    def single(self) -> bool:
        """Whether all lanes have one element."""
        return isinstance(self.step, int) and self.step == 0 and not isinstance(self.base.type, ir.VectorType)

    @property
    def dense(self) -> bool:
        """Whether the lanes are neighbours in memory."""
        return isinstance(self.step, int) and self.step == self.align


def place(emitter: Any, buffer: Buffer, indices: tuple[Scalar, ...], mask: Value | None) -> Place:
    """Return where an access lies; ``mask`` tells its lanes."""
    lanes: Lanes | None = emitter.lanes
    width = 1 if lanes is None else lanes.width
    moves = [0 if lanes is None else coefficient(emitter, i) for i in indices]
    known = all(m is not None for m in moves)
    builder, base = emitter.builder, emitter.pointer(buffer.name)
    offset: Any = None
    step: Any = None
    for d, (i, move) in enumerate(zip(indices, moves, strict=True)):
        stride = emitter.stride(buffer, d)
        if stride is None:
            continue
        if known:
            offset = _plus(builder, offset, _times(builder, emitter.first_lane(i), stride))
            step = _plus(builder, step, _times(builder, ir.Constant(I64, move), stride)) if move else step
        else:
            at = emitter.spread(emitter.value(i))
            offset = _plus(builder, offset, builder.mul(at, splat(builder, stride, width)))
    base = base if offset is None else _address(builder, base, offset)
    step = step.constant if isinstance(step, ir.Constant) else 0 if step is None else step
    return Place(base, step, width, buffer.dtype, mask)


def _address(builder: Any, base: Any, offset: Any) -> Any:
    """Return an address (or a vector of them) some bytes on."""
    found = builder.gep(base, [offset], source_etype=BYTE)
    if isinstance(offset.type, ir.VectorType):
        found.type = vector_of(POINTER, offset.type.count)
    return found


def _times(builder: Any, a: Any, b: Any) -> Any:
    if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
        return ir.Constant(I64, a.constant * b.constant)
    if isinstance(b, ir.Constant) and b.constant == 1:
        return a
    return builder.mul(a, b)


def _plus(builder: Any, a: Any, b: Any) -> Any:
    return b if a is None else builder.add(a, b)


def _pointers(emitter: Any, at: Place) -> Any:
    """Return one address per lane."""
    builder = emitter.builder
    if isinstance(at.base.type, ir.VectorType):
        return at.base
    step = ir.Constant(I64, at.step) if isinstance(at.step, int) else at.step
    counts = ir.Constant(vector_of(I64, at.width), list(range(at.width)))
    return _address(builder, at.base, builder.mul(counts, splat(builder, step, at.width)))


def _zero(kind: Any) -> Any:
    vector = isinstance(kind, ir.VectorType)
    number = 0.0 if isinstance(kind.element if vector else kind, (ir.FloatType, ir.DoubleType)) else 0
    return ir.Constant(kind, [number] * kind.count if vector else number)


def _mask_of(emitter: Any, at: Place) -> Any:
    """Return the mask of a vector access as a vector."""
    if at.mask is None:
        return ir.Constant(vector_of(BOOL, at.width), [1] * at.width)
    return emitter.spread(at.mask)


def read(emitter: Any, buffer: Buffer, indices: tuple[Scalar, ...], guard: Value | None) -> Value:
    """Emit a load. Lanes that are off, or whose guard does not hold, are 0."""
    mask = emitter.checked(buffer, indices, emitter.active(guard))
    at = place(emitter, buffer, indices, mask)
    if at.single and (guard is None or not guard.vector) and not (emitter.checks and mask is not None and mask.vector):
        condition = guard if guard is not None else mask if emitter.checks else None
        return Value(_truth(emitter, _read_one(emitter, at, condition), buffer.dtype), False)
    kind = vector_of(at.element, at.width)
    if at.dense and at.mask is None:
        found = emitter.builder.load(at.base, align=at.align, typ=kind)
    elif _by_copy(emitter, at, guard):
        found = _read_copy(emitter, at, kind)
    else:
        align, mask_, zero = ir.Constant(I32, at.align), _mask_of(emitter, at), _zero(kind)
        if at.dense:
            found = _masked(emitter.builder, "masked.load", kind, [at.base, align, mask_, zero], kind)
        else:
            pointers = _pointers(emitter, at)
            found = _masked(emitter.builder, "masked.gather", kind, [pointers, align, mask_, zero], kind, pointers.type)
    return Value(_truth(emitter, found, buffer.dtype), True)


def _by_copy(emitter: Any, at: Place, guard: Value | None) -> bool:
    """Whether the last lanes of a loop go through a copy: no processor but those with AVX-512 masks elements this small."""
    return at.dense and at.align < 4 and guard is None and not emitter.checks and emitter.lanes.left is not None


def _copy(emitter: Any, at: Place, to: Any, source: Any) -> None:
    """Copy the lanes that are on, which are the first ones."""
    builder = emitter.builder
    count = builder.mul(emitter.lanes.left, ir.Constant(I64, at.align))
    function = builder.module.declare_intrinsic("llvm.memcpy", [POINTER, POINTER, I64])
    builder.call(function, [to, source, count, ir.Constant(BOOL, 0)])


def _read_copy(emitter: Any, at: Place, kind: Any) -> Any:
    temporary = emitter.local(kind)
    emitter.builder.store(_zero(kind), temporary)
    _copy(emitter, at, temporary, at.base)
    return emitter.builder.load(temporary, typ=kind)


def _read_one(emitter: Any, at: Place, condition: Value | None) -> Any:
    """Read one element: a lane that is on is enough to know that it is there."""
    builder = emitter.builder
    if condition is None:
        return builder.load(at.base, align=at.align, typ=at.element)
    result = emitter.local(at.element)
    builder.store(_zero(at.element), result)
    with builder.if_then(any_lane(builder, condition.llvm)):
        builder.store(builder.load(at.base, align=at.align, typ=at.element), result)
    return builder.load(result, typ=at.element)


def read_table(emitter: Any, table: tuple[Any, ...], dtype: str, index_dtype: str, at: Value) -> Value:
    """Read a constant table, at indices kept inside it."""
    builder, module = emitter.builder, emitter.module
    kind = ir.ArrayType(element_type(dtype), len(table))
    constants = module.__dict__.setdefault("tables", {})
    found = constants.get((dtype, table))
    if found is None:
        found = ir.GlobalVariable(module, kind, f"table{len(constants)}")
        found.initializer = ir.Constant(kind, [constant(v, dtype) for v in table])
        found.global_constant, found.linkage = True, "internal"
        constants[dtype, table] = found
    limit = constant(len(table) - 1, index_dtype)
    limit = splat(builder, limit, at.llvm.type.count) if at.vector else limit
    place_ = builder.select(builder.icmp_unsigned("<", at.llvm, limit), at.llvm, limit)
    wide = vector_of(I64, place_.type.count) if at.vector else I64
    if place_.type != wide:
        place_ = builder.zext(place_, wide)
    bytes_ = constant(size_of(dtype), "i64")
    offset = builder.mul(place_, splat(builder, bytes_, place_.type.count) if at.vector else bytes_)
    address = _address(builder, found, offset)
    if not at.vector:
        return Value(builder.load(address, align=size_of(dtype), typ=element_type(dtype)), False)
    result = vector_of(element_type(dtype), address.type.count)
    all_on = ir.Constant(vector_of(BOOL, address.type.count), [1] * address.type.count)
    arguments = [address, ir.Constant(I32, size_of(dtype)), all_on, _zero(result)]
    return Value(_masked(builder, "masked.gather", result, arguments, result, address.type), True)


def _truth(emitter: Any, found: Any, dtype: str) -> Any:
    """Return what was read as a value: a bool is a byte in memory."""
    return emitter.builder.icmp_unsigned("!=", found, _zero(found.type)) if dtype == "bool" else found


def _byte(emitter: Any, value: Any, dtype: str) -> Any:
    """Return a value as it lies in memory."""
    if dtype != "bool":
        return value
    return emitter.builder.zext(
        value, vector_of(BYTE, value.type.count) if isinstance(value.type, ir.VectorType) else BYTE
    )


def _masked(builder: Any, name: str, result: Any, arguments: list[Any], *overloads: Any) -> Any:
    if name in ("masked.load", "masked.store"):
        overloads = (*overloads, POINTER)
    full = ".".join(["llvm", name, *map(suffix, overloads)])
    function = builder.module.globals.get(full)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in arguments]), full)
    return builder.call(function, arguments)


def write(
    emitter: Any, buffer: Buffer, indices: tuple[Scalar, ...], value: Value, guard: Value | None, add: bool
) -> None:
    """Emit a store (``add``: to what is there)."""
    builder = emitter.builder
    mask = emitter.checked(buffer, indices, emitter.active(guard))
    at = place(emitter, buffer, indices, mask)
    if at.single:
        (_write_lane if value.vector else _write_one)(emitter, at, value, buffer.dtype, add)
        return
    llvm = _byte(emitter, emitter.spread(value), buffer.dtype)
    if add:
        llvm = _sum(builder, at, emitter.spread(read(emitter, buffer, indices, guard)), llvm)
    align, void = ir.Constant(I32, at.align), ir.VoidType()
    if at.dense and at.mask is None:
        builder.store(llvm, at.base, align=at.align)
    elif _by_copy(emitter, at, guard):
        temporary = emitter.local(llvm.type)
        builder.store(llvm, temporary)
        _copy(emitter, at, at.base, temporary)
    elif at.dense:
        _masked(builder, "masked.store", void, [llvm, at.base, align, _mask_of(emitter, at)], llvm.type)
    else:
        pointers = _pointers(emitter, at)
        _masked(
            builder, "masked.scatter", void, [llvm, pointers, align, _mask_of(emitter, at)], llvm.type, pointers.type
        )


def _sum(builder: Any, at: Place, there: Any, more: Any) -> Any:
    return (
        builder.fadd(there, more) if isinstance(at.element, (ir.FloatType, ir.DoubleType)) else builder.add(there, more)
    )


def _write_lane(emitter: Any, at: Place, value: Value, dtype: str, add: bool) -> None:
    """Write the value of the lane that is on to one element; that no two are, the verifier has shown."""
    builder, width = emitter.builder, value.llvm.type.count
    llvm, align = _byte(emitter, value.llvm, dtype), ir.Constant(I32, at.align)
    pointers = _address(builder, at.base, ir.Constant(vector_of(I64, width), [0] * width))
    mask = ir.Constant(vector_of(BOOL, width), [1] * width) if at.mask is None else emitter.spread(at.mask)
    if add:
        kind = llvm.type
        there = _masked(builder, "masked.gather", kind, [pointers, align, mask, _zero(kind)], kind, pointers.type)
        llvm = _sum(builder, at, there, llvm)
    _masked(builder, "masked.scatter", ir.VoidType(), [llvm, pointers, align, mask], llvm.type, pointers.type)


def _write_one(emitter: Any, at: Place, value: Value, dtype: str, add: bool) -> None:
    """Write one element, where the mask (of any lane) says so."""
    builder = emitter.builder

    def store() -> None:
        llvm = _byte(emitter, value.llvm, dtype)
        if add:
            llvm = _sum(builder, at, builder.load(at.base, align=at.align, typ=at.element), llvm)
        builder.store(llvm, at.base, align=at.align)

    if at.mask is None:
        store()
    else:
        with builder.if_then(any_lane(builder, at.mask.llvm)):
            store()
