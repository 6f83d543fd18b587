"""Formulas of optimisers in a program that is captured, also those that are to be skipped under a condition."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.core.place import here
from wengert.graph.ir import Value
from wengert.graph.operations import Formula
from wengert.graph.storage import spec_of

__all__ = ["conditional", "enter_formula"]


def enter_formula(level: Any, formula: Formula, tensors: Sequence[Any], numbers: Sequence[Value]) -> None:
    """Enter a formula in a program, and write its results into the tensors: where the condition holds, if there is one.

    Args:
        level: the capture. tensors: parameter, gradient, moments. numbers: the rest of what the formula takes.
    """
    written = [tensors[i] for i in formula.written]
    condition = level.provided.taken_over([level.payload_of(t).storage for t in written])
    if condition is not None:
        formula, numbers = conditional(formula), [*numbers, condition]
    arguments = (*(level.value_of(t) for t in tensors), *numbers)
    results = level.call(formula, arguments, [(spec_of(t), None) for t in written], here(1))
    with level.provided.aside(condition is not None):
        for tensor, result in zip(written, results, strict=True):
            if type(tensor._payload) is np.ndarray:
                level.admit(formula.name, tensor, result)
            level.write(formula.name, tensor, result)


def conditional(formula: Formula) -> Formula:
    """Return a formula that takes one more number, and changes nothing where that is false."""
    update = formula.function

    def function(p: Any, g: Any, moments: Sequence[Any], *numbers: Any) -> None:
        *given, holds = numbers
        targets = (p, *moments)
        before = [np.positive(a) for a in targets]  # a copy, of an array as of a symbol
        update(p, g, moments, *given)
        for target, old in zip(targets, before, strict=True):
            target[...] = np.where(holds, target, old)

    return Formula(formula.name, ("conditional", formula.key), function, formula.apply, formula.moments)
