"""The operations of scalar expressions as LLVM instructions, on elements and on vectors alike."""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir

from wengert.codegen.lanes import BOOL, vector_of
from wengert.loops.scalar import DTYPES, Scalar, is_float

__all__ = ["OPERATIONS", "convert", "intrinsic"]

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and_", "or": "or_", "xor": "xor"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INTRINSIC = {
    "sqrt": "sqrt", "fma": "fma", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "copysign": "copysign",
}  # fmt: skip


def suffix(kind: Any) -> str:
    """Return how the name of an intrinsic spells a type."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return f"i{kind.width}"
    return {ir.FloatType: "f32", ir.DoubleType: "f64", ir.HalfType: "f16", ir.PointerType: "p0"}[type(kind)]


def intrinsic(builder: Any, name: str, result: Any, arguments: list[Any], *overloads: Any) -> Any:
    """Call ``llvm.name`` with the overloaded types in its name (those of the result, if none are given)."""
    full = ".".join(["llvm", name, *map(suffix, overloads or (result,))])
    module = builder.module
    function = module.globals.get(full)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [a.type for a in arguments]), full)
    return builder.call(function, arguments)


def _signed(dtype: str) -> bool:
    return dtype[0] == "i"


def _constant(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def _arithmetic(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    return getattr(builder, (_FLOAT if is_float(dtype) else _INTEGER)[op])(*args)


def _compare(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    symbol = _COMPARE[op]
    if is_float(dtype):
        return (builder.fcmp_unordered if op == "ne" else builder.fcmp_ordered)(symbol, *args)
    return (builder.icmp_signed if _signed(dtype) else builder.icmp_unsigned)(symbol, *args)


def _extreme(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    """The smaller or larger of two; a NaN wins. LLVM's own ``maximum`` also orders zeros by sign, at twice the cost."""
    x, y = args
    found = builder.select(_compare(builder, "lt" if op == "minimum" else "gt", dtype, args), x, y)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, found) if is_float(dtype) else found


def _negate(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    return builder.fneg(args[0]) if is_float(dtype) else builder.neg(args[0])


def _absolute(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    if is_float(dtype):
        return intrinsic(builder, "fabs", args[0].type, args)
    if not _signed(dtype):
        return args[0]
    return intrinsic(builder, "abs", args[0].type, [args[0], ir.Constant(BOOL, 0)])


def _rounding(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    return intrinsic(builder, _INTRINSIC[op], args[0].type, args) if is_float(dtype) else args[0]


def _divide(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    """Integer division rounded down; the divisors 0 and -1, which would trap, never reach the instruction."""
    a, b = args
    zero, one, minus = (_constant(b.type, value) for value in (0, 1, -1))
    none = builder.icmp_signed("==", b, zero)
    if not _signed(dtype):
        safe = builder.select(none, one, b)
        found = builder.udiv(a, safe) if op == "quotient" else builder.urem(a, safe)
        return builder.select(none, zero, found)
    flips = builder.icmp_signed("==", b, minus)
    safe = builder.select(builder.or_(none, flips), one, b)
    quotient = builder.sdiv(a, safe)
    rest = builder.sub(a, builder.mul(quotient, safe))
    down = builder.and_(builder.icmp_signed("!=", rest, zero), builder.icmp_signed("<", builder.xor(rest, safe), zero))
    if op == "quotient":
        found = builder.select(down, builder.add(quotient, minus), quotient)
        found = builder.select(flips, builder.neg(a), found)
    else:
        found = builder.select(down, builder.add(rest, safe), rest)
    return builder.select(none, zero, found)


def _remainder(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    """The remainder with the sign of the divisor, as Python's ``%`` and ``numpy.remainder``."""
    if not is_float(dtype):
        return _divide(builder, op, dtype, args)
    raise TypeError("float remainders are written with fmod")


def _shift(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    """Shifts; those by the width or more, which LLVM leaves open, give 0 (or the sign)."""
    x, by = args
    bits = DTYPES[dtype]
    signed_right = op == "shr" and _signed(dtype)
    shift = builder.shl if op == "shl" else builder.ashr if signed_right else builder.lshr
    if isinstance(by, ir.Constant):
        amount = by.constant[0] if isinstance(by.type, ir.VectorType) else by.constant
        amount = getattr(amount, "constant", amount)
        if 0 <= amount < bits:
            return shift(x, by)
        return builder.ashr(x, _constant(by.type, bits - 1)) if signed_right else _constant(x.type, 0)
    inside = builder.icmp_unsigned("<", by, _constant(by.type, bits))
    if signed_right:
        return shift(x, builder.select(inside, by, _constant(by.type, bits - 1)))
    return builder.select(inside, shift(x, builder.select(inside, by, _constant(by.type, 0))), _constant(x.type, 0))


def _not(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    return builder.not_(args[0])


def _intrinsic(builder: Any, op: str, dtype: str, args: list[Any]) -> Any:
    return intrinsic(builder, _INTRINSIC[op], args[0].type, args)


Emit = Callable[[Any, str, str, list[Any]], Any]

# Every operation that is not a leaf, a choice or a conversion: (builder, operation, dtype of the operands, operands) → value.
OPERATIONS: Final[dict[str, Emit]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "and", "or", "xor"), _arithmetic),
    **dict.fromkeys(_COMPARE, _compare),
    **dict.fromkeys(("minimum", "maximum"), _extreme),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint"), _rounding),
    **dict.fromkeys(("sqrt", "fma", "copysign"), _intrinsic),
    **dict.fromkeys(("shl", "shr"), _shift),
    "neg": _negate, "abs": _absolute, "not": _not, "quotient": _divide, "remainder": _remainder,
}  # fmt: skip


def convert(builder: Any, node: Scalar, x: Any, kind: Any) -> Any:
    """Convert a value to ``node.dtype``, whose LLVM type (or vector type) is ``kind``; halves are expanded before."""
    old, new = node.args[0].dtype, node.dtype
    if new == "bool":
        if is_float(old):
            return builder.fcmp_unordered("!=", x, ir.Constant(x.type, _zeros(x.type, 0.0)))
        return builder.icmp_unsigned("!=", x, ir.Constant(x.type, _zeros(x.type, 0)))
    if is_float(old) and is_float(new):
        return builder.fpext(x, kind) if DTYPES[new] > DTYPES[old] else builder.fptrunc(x, kind)
    if is_float(new):
        return builder.sitofp(x, kind) if _signed(old) else builder.uitofp(x, kind)
    if is_float(old):
        return _to_integer(builder, new, x, kind)
    if DTYPES[new] == DTYPES[old]:
        return x
    if DTYPES[new] < DTYPES[old]:
        return builder.trunc(x, kind)
    return builder.sext(x, kind) if _signed(old) else builder.zext(x, kind)


def _to_integer(builder: Any, dtype: str, x: Any, kind: Any) -> Any:
    """Convert a float by way of 32 or 64 bits, the least number of which stands for what they cannot hold."""
    word = ir.IntType(32 if DTYPES[dtype] < 32 or dtype == "i32" else 64)
    limit = ir.Constant(x.type, _zeros(x.type, 2.0 ** (word.width - 1)))
    large = None
    if dtype == "u64":
        large = builder.fcmp_ordered(">=", x, limit)
        x = builder.select(large, builder.fsub(x, limit), x)
    inside = builder.fcmp_ordered("<", intrinsic(builder, "fabs", x.type, [x]), limit)
    x = builder.select(inside, x, builder.fneg(limit))
    whole = builder.fptosi(x, vector_of(word, kind.count) if isinstance(kind, ir.VectorType) else word)
    if large is not None:
        whole = builder.xor(whole, builder.select(large, _constant(kind, 1 << 63), _constant(kind, 0)))
    return whole if whole.type == kind else builder.trunc(whole, kind)


def _zeros(kind: Any, value: Any) -> Any:
    return [value] * kind.count if isinstance(kind, ir.VectorType) else value


def any_lane(builder: Any, mask: Any) -> Any:
    """Return whether any lane of a mask is on."""
    if not isinstance(mask.type, ir.VectorType):
        return mask
    return intrinsic(builder, "vector.reduce.or", BOOL, [mask], vector_of(BOOL, mask.type.count))
