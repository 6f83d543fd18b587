"""The forward-mode meaning of one operator: how its declared rules push tangents through a call."""

from typing import Any

from wengert.core.apply import execute
from wengert.core.operator import Op
from wengert.core.plan import argument_names
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["push"]


def push(op: Op, values: list[Any], results: tuple[Any, ...], tangents: dict[int, Any]) -> tuple[Any, ...]:
    """Return the tangents of an operator's results.

    Args:
        op: the operator. values: its bound arguments. results: what it returned for them.
        tangents: by argument index, the tangent of a tensor argument (a tuple of them for a sequence).
    """
    if op.jvp == "linear":
        pushed = execute(
            op, [_tangent_or_zero(v, i, tangents) if i in op.signature.inputs else v for i, v in enumerate(values)]
        )
        return pushed if isinstance(pushed, tuple) else (pushed,)
    if op.jvp == "bilinear":
        terms = [execute(op, [t if i == k else v for i, v in enumerate(values)]) for k, t in tangents.items()]
        return (_total(terms),)
    if callable(op.jvp):
        named = {op.signature.names[i]: tangents.get(i) for i in op.signature.inputs}
        found = op.jvp(named, *_arguments(op, op.jvp, values, results))
        return found if isinstance(found, tuple) else (found,)
    terms = []
    for k, t in tangents.items():
        rule = op.jvp[op.signature.names[k]]
        terms.append(rule(t, *_arguments(op, rule, values, results)))
    return _sum_of(terms, results)


def _sum_of(terms: list[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(terms[0], tuple):
        return tuple(_total([t for t in column if t is not None]) for column in zip(*terms, strict=True))
    total = _total(terms)
    if total._payload.shape != results[0]._payload.shape:
        total = ops.expand(total, results[0]._payload.shape)
    return (total,)


def _total(terms: list[Any]) -> Any:
    total = terms[0] if terms else None
    for term in terms[1:]:
        total = ops.add(total, term)
    return total


def _tangent_or_zero(value: Any, index: int, tangents: dict[int, Any]) -> Any:
    if index in tangents:
        return tangents[index]
    if isinstance(value, tuple):
        return tuple(_tangent_or_zero(v, -1, tangents) for v in value)
    return ops.zeros_like(value) if isinstance(value, Tensor) else value


def _arguments(op: Op, rule: Any, values: list[Any], results: tuple[Any, ...]) -> list[Any]:
    """Return what a rule names, from a call's values and results."""
    index, found = op.signature.index, []
    outputs = dict(zip(op.outputs, results, strict=False))
    for name in argument_names(rule):
        if name in index:
            found.append(values[index[name]])
        elif name in outputs:
            found.append(results if op.variable else outputs[name])
        else:
            owner, _, what = name.rpartition("_")
            value = values[index[owner]]
            found.append(_facts(value, what))
    return found


def _facts(value: Any, what: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_facts(v, what) for v in value)
    return value._payload.shape if what == "shape" else value.dtype
