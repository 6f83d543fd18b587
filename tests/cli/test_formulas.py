"""Rules are shown as the formulas that they compute."""

import math
from typing import Any, NamedTuple

import pytest

from wengert.cli.formulas import formula, spec_formulas


class Spec(NamedTuple):
    shape: Any
    dtype: Any


class ops:  # noqa: N801 - the name under which rules reach other operators
    tanh = math.tanh


def rules(factor: float) -> dict[str, Any]:
    return {
        "same line": (lambda g: g + 1, lambda g: g * factor),
        "operator": lambda g, out: ops.tanh(g) - math.exp(out),
    }


def single(g: Any, input_shape: tuple[int, ...]) -> Any:
    """A docstring."""
    return ops.tanh(g) if input_shape else g


def several(g: Any) -> Any:
    """A docstring."""
    if g > 0:
        return -g
    return g


def checked_spec(x: Any, dim: int) -> Spec:
    """A rule that names its parts first."""
    shape = x.shape[:dim]
    return Spec(shape, x.dtype)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (rules(2.5)["same line"][0], "g + 1"),
        (rules(2.5)["same line"][1], "g * 2.5"),
        (rules(2.5)["operator"], "tanh(g) - exp(out)"),
        (single, "tanh(g) if input_shape else g"),
        (several, "if g > 0:\n    return -g\nreturn g"),
    ],
)
def test_a_rule_is_shown_as_what_it_computes(rule, expected) -> None:
    assert formula(rule) == expected


def test_a_rule_without_source_is_shown_by_its_arguments() -> None:
    names: dict[str, Any] = {}
    exec("def made(g, out): return g", names)
    assert formula(names["made"]) == "made(g, out)"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (lambda x, dim: Spec(x.shape[dim:], x.dtype), ("x.shape[dim:]", "x.dtype")),
        (lambda x: x, ("that of x", "that of x")),
        (lambda x: (len(x), Spec((), x.dtype))[1], ("()", "x.dtype")),
        (checked_spec, ("x.shape[:dim]", "x.dtype")),
        (lambda x: x.spec(), None),
    ],
)
def test_a_spec_rule_is_shown_as_shape_and_dtype(spec, expected) -> None:
    assert spec_formulas(spec) == expected
