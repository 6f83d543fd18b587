"""Calls that have a simpler equal: each rule here gives the same bits, for NaN, infinities and signed zeros too.

A rule looks at one call, whose arguments are simple already, and returns the value that its result is, or None.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from wengert.array.dtype import BOOL, FLOAT, INTEGER, DType, bfloat16, bool_, float16, float32, float64
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.rewriting import Rewriter, rewritten

__all__ = ["in_rows", "same_layout", "simplify"]


def simplify(graph: Graph) -> Graph:
    """Apply the rules, from front to back."""
    return rewritten(graph, _simpler)


def _simpler(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if not isinstance(node.op, Op):
        return None
    rule = RULES.get(node.op.name)
    found = None if rule is None else rule(node, rewriter)
    return None if found is None else (found,)


# ---- what a rule asks


def same_layout(a: Value, b: Value) -> bool:
    """Whether two values have one shape and dtype, and lie in memory in the same way."""
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True)) or 0 in a.shape


def _call_of(name: str, value: Any) -> Node | None:
    """Return the call of an operator that makes a value."""
    node = value.node if isinstance(value, Value) else None
    return node if node is not None and isinstance(node.op, Op) and node.op.name == name else None


def _number(argument: Any, rewriter: Rewriter) -> Any:
    """Return an argument as a number, if it is one or a constant of one element, also expanded; else None."""
    if isinstance(argument, Value):
        expanded = _call_of("expand", argument)
        argument = argument if expanded is None else expanded.arguments[0]
        array = rewriter.graph.constants.get(argument)
        return array.reshape(-1)[0] if array is not None and array.size == 1 else None
    return argument


def _itself(node: Node, argument: Any) -> Value | None:
    """Return an argument if the result is it, in the same layout."""
    return argument if isinstance(argument, Value) and same_layout(argument, node.results[0]) else None


# ---- arithmetic


def _times_one(node: Node, rewriter: Rewriter) -> Value | None:
    a, b = node.arguments
    for one, other in ((b, a), (a, b)):
        if _number(one, rewriter) == 1 and node.results[0].dtype.category >= INTEGER:
            return _itself(node, other)
    return None


def _by_one(node: Node, rewriter: Rewriter) -> Value | None:
    value, other = node.arguments
    return _itself(node, value) if _number(other, rewriter) == 1 else None


def _plus_zero(node: Node, rewriter: Rewriter) -> Value | None:
    """x + (-0.0) is x; x + 0.0 is not where x is -0.0. Integers have one zero."""
    a, b, alpha = node.arguments
    if alpha != 1:
        return None
    for zero, other in ((b, a), (a, b)):
        if _is_zero(_number(zero, rewriter), node.results[0].dtype, negative=True):
            return _itself(node, other)
    return None


def _minus_zero(node: Node, rewriter: Rewriter) -> Value | None:
    value, other, _ = node.arguments
    return _itself(node, value) if _is_zero(_number(other, rewriter), node.results[0].dtype, negative=False) else None


def _is_zero(number: Any, dtype: DType, negative: bool) -> bool:
    """Whether a number is zero, among floats the one of the given sign."""
    if number is None or number != 0 or dtype.category == BOOL or dtype.category > FLOAT:
        return False
    return dtype.category == INTEGER or bool(np.signbit(float(number))) is negative


def _negated_twice(node: Node, rewriter: Rewriter) -> Value | None:
    inner = _call_of("neg", node.arguments[0])
    return None if inner is None else _itself(node, inner.arguments[0])


def _conjugate(node: Node, rewriter: Rewriter) -> Value | None:
    value = node.arguments[0]
    return _itself(node, value) if isinstance(value, Value) and value.dtype.category <= FLOAT else None


# ---- dtypes

_EXACT: Final[dict[DType, tuple[DType, ...]]] = {  # floats that hold every value of another
    float16: (float32, float64),
    bfloat16: (float32, float64),
    float32: (float64,),
}


def _cast(node: Node, rewriter: Rewriter) -> Value | None:
    """Leave out a cast to the dtype that is there, and the first of two casts where it loses nothing."""
    value, dtype = node.arguments
    if value.dtype is dtype:
        return _itself(node, value)
    inner = _call_of("cast", value)
    if inner is None:
        return None
    first = inner.arguments[0]
    exact = value.dtype in _EXACT.get(first.dtype, ()) and dtype.category == FLOAT
    truth = first.dtype.category == BOOL and value.dtype.category <= FLOAT
    if not exact and not truth:
        return None
    if first.dtype is dtype:
        return _itself(node, first)
    return rewriter.call(node.op, first, dtype, like=node, strides=node.results[0].strides)


# ---- layouts


def _clone(node: Node, rewriter: Rewriter) -> Value | None:
    return _itself(node, node.arguments[0])


def _copied(node: Node, rewriter: Rewriter) -> Value | None:
    """A copy with another shape and dtype is a cast, then an expansion."""
    value, size, dtype = node.arguments
    if value.dtype is not dtype:
        value = rewriter.call(operators()["cast"], value, dtype, like=node)
    if value.shape == size:
        return value if value is not node.arguments[0] else _itself(node, value)
    return rewriter.call(operators()["expand"], value, size, like=node, strides=node.results[0].strides)


def _same(node: Node, rewriter: Rewriter) -> Value | None:
    return _itself(node, node.arguments[0])


def _transpose(node: Node, rewriter: Rewriter) -> Value | None:
    value, *dims = node.arguments
    inner = _call_of("transpose", value)
    if inner is not None and set(inner.arguments[1:]) == set(dims):
        return _itself(node, inner.arguments[0])
    return _itself(node, value) if dims[0] == dims[1] else None


def _permute(node: Node, rewriter: Rewriter) -> Value | None:
    value, dims = node.arguments
    inner = _call_of("permute", value)
    if inner is not None:
        value, first = inner.arguments
        dims = tuple(first[d] for d in dims)
    if dims == tuple(range(len(dims))):
        return _itself(node, value)
    if inner is None:
        return None
    return rewriter.call(node.op, value, dims, like=node, strides=node.results[0].strides)


def _reshape(node: Node, rewriter: Rewriter) -> Value | None:
    """A reshape of a reshape is one of what lies in rows; what does not may be copied by the first."""
    value = node.arguments[0]
    inner = _call_of("reshape", value) or _call_of("unsqueeze", value) or _call_of("squeeze", value)
    if inner is not None and in_rows(inner.arguments[0]):
        first = inner.arguments[0]
        if first.shape == node.results[0].shape:
            return _itself(node, first)
        return rewriter.call(node.op, first, node.results[0].shape, like=node, strides=node.results[0].strides)
    return _itself(node, value)


def in_rows(value: Value) -> bool:
    """Whether a value lies in memory in the order of its elements, without gaps."""
    step = value.dtype.itemsize
    for n, stride in zip(reversed(value.shape), reversed(value.strides), strict=True):
        if n != 1 and stride != step:
            return 0 in value.shape
        step *= n
    return True


# ---- filling


def _masked_fill(node: Node, rewriter: Rewriter) -> Value | None:
    """Masked filling with a number that the dtype holds is a choice."""
    value, mask, number = node.arguments
    filler = _filler(number, value.dtype, rewriter)
    if filler is None:
        return None
    return rewriter.call(operators()["choose"], mask, filler, value, like=node, strides=node.results[0].strides)


def _fill(node: Node, rewriter: Rewriter) -> Value | None:
    """What is filled with a number does not depend on what it was."""
    value, number = node.arguments
    filler = _filler(number, value.dtype, rewriter)
    if filler is None:
        return None
    return rewriter.call(operators()["expand"], filler, value.shape, like=node, strides=(0,) * len(value.shape))


def _filler(value: Any, dtype: DType, rewriter: Rewriter) -> Value | None:
    """Return a value of no dimensions that holds a number in a dtype, or None where the operator is to complain."""
    if isinstance(value, Value):
        return value if value.shape == () and value.dtype is dtype else None
    if dtype.category == INTEGER and type(value) is not bool:
        if type(value) is not int or not np.iinfo(dtype.numpy).min <= value <= np.iinfo(dtype.numpy).max:
            return None
    elif isinstance(value, complex) and dtype.category <= FLOAT:
        return None
    with np.errstate(all="ignore"):
        return rewriter.graph.constant(Spec((), dtype), np.asarray(value, dtype.numpy))


def _triangle(node: Node, rewriter: Rewriter) -> Value | None:
    """A triangle of matrices is a choice by a mask."""
    value, diagonal = node.arguments
    rows, columns = value.shape[-2:]
    mask = np.tri(rows, columns, diagonal if node.op.name == "tril" else diagonal - 1, dtype=bool)
    if node.op.name == "triu":
        mask = ~mask
    zero = rewriter.graph.constant(Spec((), value.dtype), np.zeros((), value.dtype.numpy))
    where = rewriter.graph.constant(Spec(mask.shape, bool_), mask)
    return rewriter.call(operators()["choose"], where, value, zero, like=node, strides=node.results[0].strides)


RULES: Final[dict[str, Callable[[Node, Rewriter], Value | None]]] = {
    "add": _plus_zero, "cast": _cast, "clone": _clone, "conj": _conjugate, "copied": _copied, "expand": _same, "fill": _fill,
    "masked_fill": _masked_fill, "mul": _times_one, "neg": _negated_twice, "permute": _permute, "pow": _by_one,
    "reshape": _reshape, "squeeze": _same, "sub": _minus_zero, "sum_to_size": _same, "transpose": _transpose,
    "tril": _triangle, "triu": _triangle, "true_divide": _by_one,
}  # fmt: skip
