"""The markers that a declaration's arguments are annotated with.

Tensors: ``Anything``, ``Number``, ``Real``, ``Inexact``, ``Floating``, ``Complex``, ``Integral``, ``Integer``,
``Boolean`` say which dtypes are accepted; with ``OrScalar`` a Python number may stand for the tensor; ``Tensors`` is a
sequence of them. The others say how an argument is normalised before the kernel and the rules see it:
``Axis`` (counted from the front), ``AxisOrNone``, ``Axes`` (a tuple; None means all), ``Dims`` and ``Size`` (tuples that
may be given int by int), ``Int``, ``DTypeOrNone``, ``One``, ``Two``, ``Three`` (an int or that many ints).
"""

from typing import Annotated, Any

from wengert.core import signature as s

__all__ = [
    "Anything", "AnythingOrScalar", "Axes", "Axis", "AxisOrNone", "Boolean", "Complex", "DTypeOrNone", "Dims", "Floating",
    "FloatingOrScalar", "Inexact", "InexactOrScalar", "Int", "Integer", "IntegerOrScalar", "Integral", "IntegralOrScalar",
    "Number", "NumberOrScalar", "One", "Real", "RealOrScalar", "Size", "Tensors", "Three", "Two",
]  # fmt: skip

Anything = Annotated[Any, s.Input("any")]
Number = Annotated[Any, s.Input("number")]
Real = Annotated[Any, s.Input("real")]
Inexact = Annotated[Any, s.Input("inexact")]
Floating = Annotated[Any, s.Input("floating")]
Complex = Annotated[Any, s.Input("complex")]
Integral = Annotated[Any, s.Input("integral")]
Integer = Annotated[Any, s.Input("integer")]
Boolean = Annotated[Any, s.Input("boolean")]
AnythingOrScalar = Annotated[Any, s.Input("any", scalar=True)]
NumberOrScalar = Annotated[Any, s.Input("number", scalar=True)]
RealOrScalar = Annotated[Any, s.Input("real", scalar=True)]
InexactOrScalar = Annotated[Any, s.Input("inexact", scalar=True)]
FloatingOrScalar = Annotated[Any, s.Input("floating", scalar=True)]
IntegralOrScalar = Annotated[Any, s.Input("integral", scalar=True)]
IntegerOrScalar = Annotated[Any, s.Input("integer", scalar=True)]
Tensors = Annotated[Any, s.Input("any", many=True)]

Axis = Annotated[Any, s.AXIS]
AxisOrNone = Annotated[Any, s.AXIS_OR_NONE]
Axes = Annotated[Any, s.AXES]
Dims = Annotated[Any, s.DIMS]
Size = Annotated[Any, s.SIZE]
Int = Annotated[Any, s.INT]
DTypeOrNone = Annotated[Any, s.DTYPE]
One = Annotated[Any, s.ONE]
Two = Annotated[Any, s.TWO]
Three = Annotated[Any, s.THREE]
