"""Derivative rules as scalar expressions: a rule runs on tensors whose payload is one element that is not there yet.

The rules of element-wise operators are written with operators, so running them at a level where each operator builds
its expression gives the whole rule as one.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import dtype_of
from wengert.core.apply import common_dtype
from wengert.core.interpret import Level, Payload, entered
from wengert.core.operator import Op
from wengert.core.tensor import Tensor, from_array
from wengert.loops.scalar import Scalar, cast, const, make
from wengert.loops.tracing import Symbol, Untraceable, computed, name_of, placeholder, symbols

__all__ = ["converted", "lowered", "trace_elements", "trace_rule", "trace_update"]


class Element(Payload):
    """One element: a symbol."""

    __slots__ = ("symbol",)

    level: "ElementLevel"

    def __init__(self, symbol: Symbol, level: "ElementLevel") -> None:
        self.symbol, self.level = symbol, level
        self.shape, self.dtype = (), symbol.dtype

    @property
    def parts(self) -> tuple[Any, ...]:
        raise Untraceable("the memory of an element")

    def values(self, what: str) -> Any:
        raise Untraceable(what)

    def exported(self, what: str) -> Any:
        raise Untraceable(what)


class ElementLevel(Level):
    """The level at which element-wise operators build expressions; any other operator is refused."""

    title = "an element-wise kernel"

    def run(self, op: Op, values: list[Any]) -> tuple[Any, ...]:
        if op.batch != "broadcast" or not op.single:
            raise Untraceable(op.name)
        dtype = None if op.promote is None else common_dtype(op, values).numpy
        arguments = [self._argument(v, dtype) if i in op.signature.inputs else v for i, v in enumerate(values)]
        return (self._tensor(lowered(op, arguments)),)

    def lift(self, tensor: Any) -> Any:
        array = tensor._payload
        if type(array) is not np.ndarray or array.ndim:
            raise Untraceable("an array beside an element")
        dtype = array.dtype
        return self._tensor(Symbol(const(array.item(), name_of(dtype)), dtype))

    def tensor(self, position: int, dtype: Any) -> Any:
        """Return the tensor that stands for an argument."""
        return self._tensor(Symbol(placeholder(position, name_of(dtype)), dtype))

    def _tensor(self, symbol: Symbol) -> Any:
        dtype_of(symbol.dtype)
        return from_array(Element(symbol, self))

    def _argument(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, Tensor):
            symbol = value._payload.symbol
            return symbol if dtype is None or symbol.dtype == dtype else symbol.astype(dtype)
        return value if value is None or dtype is None else np.asarray(value, dtype)[()]


def lowered(op: Op, arguments: Sequence[Any]) -> Symbol:
    """Return what an element-wise operator computes of symbols and numbers, given as its kernel takes them.

    Raises:
        Untraceable: if its kernel is no function of single elements, and the declaration does not say another.
    """
    signature = op.signature
    if op.lowering is not None:
        rest = [a for i, a in enumerate(arguments) if i not in signature.inputs]
        name = op.lowering(*rest) if callable(op.lowering) else op.lowering
        inputs = [arguments[i] for i in signature.inputs]
        kind = next(a.dtype for a in inputs if isinstance(a, Symbol))
        scalars = [computed(a.scalar if isinstance(a, Symbol) else const(a, name_of(kind))) for a in inputs]
        return Symbol(cast(make(name, tuple(scalars)), name_of(kind)), kind)
    at = signature.positional
    options = dict(zip(signature.names[at:], arguments[at:], strict=True))
    kernel = functools.partial(op.kernel, **options) if options else op.kernel
    try:
        found = kernel(*arguments[:at])
    except Exception as error:  # NumPy's turn: it will do, or complain
        raise Untraceable(str(error)) from error
    if not isinstance(found, Symbol):
        raise Untraceable("the result is not an element")
    return found


def trace_rule(rule: Callable[..., Any], arguments: Sequence[Any], dtypes: Sequence[Any]) -> tuple[Scalar, Any]:
    """Return a derivative rule as an expression of placeholders, and its NumPy dtype.

    Args:
        rule: ``(cotangent, ...) -> cotangent``. arguments: what it takes. dtypes: the NumPy dtype where a tensor stands.

    Raises:
        Untraceable: if it uses more than element-wise operators.
    """
    with entered(ElementLevel()) as level:
        assert isinstance(level, ElementLevel)
        given = [a if d is None else level.tensor(i, d) for i, (a, d) in enumerate(zip(arguments, dtypes, strict=True))]
        try:
            found = rule(*given)
        except Exception as error:  # the rule itself will run, or complain
            raise Untraceable(str(error)) from error
        if not isinstance(found, Tensor) or not isinstance(found._payload, Element):
            raise Untraceable("the result is not an element")
        symbol = found._payload.symbol
    return symbol.scalar, symbol.dtype


def trace_elements(function: Callable[[list[Any]], Sequence[Any]], dtypes: Sequence[Any]) -> list[tuple[Scalar, Any]]:
    """Return what a function of tensors computes of single elements: an expression and a NumPy dtype for each result.

    Args:
        function: takes a list of tensors, uses element-wise operators, and returns tensors. dtypes: the NumPy dtypes of what
            it takes; element number i stands for ``placeholder(i, …)``.

    Raises:
        Untraceable: if it uses more than element-wise operators.
    """
    with entered(ElementLevel()) as level:
        assert isinstance(level, ElementLevel)
        found = []
        for result in function([level.tensor(i, d) for i, d in enumerate(dtypes)]):
            if not isinstance(result, Tensor):
                raise Untraceable("the result is not an element")
            tensor = result if isinstance(result._payload, Element) else level.lift(result)
            found.append((tensor._payload.symbol.scalar, tensor._payload.symbol.dtype))
    return found


def converted(tensor: Any, dtype: Any) -> Any:
    """Return a tensor that stands for an element as one of another NumPy dtype."""
    held = tensor._payload
    if not isinstance(held, Element):
        return from_array(held.astype(dtype))
    return held.level._tensor(held.symbol.astype(dtype))


def trace_update(
    formula: Callable[..., None], arguments: Sequence[Any], dtypes: Sequence[Any]
) -> list[tuple[int, Scalar]]:
    """Return what a formula writes into its arguments: their positions, and expressions of what they were.

    Raises:
        Untraceable: if it does more than write elements from elements.
    """
    given = symbols(arguments, dtypes)
    before = [s.scalar if isinstance(s, Symbol) else None for s in given]
    try:
        formula(*given)
    except (TypeError, AttributeError, IndexError) as error:
        raise Untraceable(str(error)) from error
    return [(i, s.scalar) for i, s in enumerate(given) if isinstance(s, Symbol) and s.scalar is not before[i]]
