"""Python's operators on tensors: ``x + y``, ``2 - x``, ``x **= 3``, ``x == y`` …

Each is a fast lane of the operator it stands for. An operand that is neither a tensor, an array nor a number gives
``NotImplemented``, so that Python asks the other operand, compares by identity (``==``), or raises ``TypeError``.
"""

from typing import Any

import numpy as np

from wengert.core.apply import call
from wengert.core.lanes import binary_lane, reflected_lane
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators import bitwise, compare, pointwise

__all__: list[str] = []

_OPERANDS = (Tensor, bool, int, float, complex, np.ndarray, np.generic)

# Python's name, our operator, and whether its two operands may change places.
_BINARY = (
    ("add", pointwise.add, True),
    ("sub", pointwise.sub, False),
    ("mul", pointwise.mul, True),
    ("truediv", pointwise.true_divide, False),
    ("floordiv", pointwise.floor_divide, False),
    ("mod", pointwise.remainder, False),
    ("pow", pointwise.pow, False),
    ("and", bitwise.bitwise_and, True),
    ("or", bitwise.bitwise_or, True),
    ("xor", bitwise.bitwise_xor, True),
    ("lshift", bitwise.bitwise_left_shift, False),
    ("rshift", bitwise.bitwise_right_shift, False),
)
_UNARY = (("neg", pointwise.neg), ("pos", pointwise.positive), ("abs", pointwise.abs), ("invert", bitwise.bitwise_not))
_COMPARISONS = (compare.eq, compare.ne, compare.lt, compare.le, compare.gt, compare.ge)


def _operate(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator, or decline operands it has no meaning for."""
    for value in args:
        if not isinstance(value, _OPERANDS):
            return NotImplemented
    return call(op, args, kwargs)


def _forward(op: Any) -> Any:
    """Return ``(input, other) -> op(input, other)``, a method of the left operand."""
    if op.ufunc is not None:
        return binary_lane(op, _operate)
    return lambda input, other: _operate(op, (input, other), {})


def _reflected(op: Any) -> Any:
    """Return ``(other, input) -> op(input, other)``, a method of the right operand."""
    if op.ufunc is not None:
        return reflected_lane(op, _operate)
    return lambda other, input: _operate(op, (input, other), {})


def _attach_all() -> None:
    for name, function, commutes in _BINARY:
        op = function.op
        forward = _forward(op)
        attach(f"__{name}__", forward)
        attach(f"__r{name}__", forward if commutes else _reflected(op))
        attach(f"__i{name}__", getattr(ops, f"{op.name}_"))
    for name, function in _UNARY:
        attach(f"__{name}__", function)
    for function in _COMPARISONS:
        attach(f"__{function.op.name}__", _forward(function.op))


_attach_all()
