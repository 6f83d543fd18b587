"""Every operator, with its derivative, inside a compiled function: on plans, with their memory overwritten between calls."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.registry import operators
from wengert.testing.case import Case
from wengert.testing.opcheck_compiled import check_compiled
from wengert.testing.samples import ErrorSample, samples_of

GROUPS = 16


def _first_sample(op: Any) -> Any:
    return next((s for s in samples_of(op) if not isinstance(s, ErrorSample)), None)


@pytest.mark.parametrize("group", range(GROUPS))
def test_operators_in_compiled_functions(group: int) -> None:
    """The first sample of each; those that need values before they are computed say so and are counted."""
    checked = 0
    for name, op in sorted(operators().items())[group::GROUPS]:
        sample = _first_sample(op)
        if sample is None:
            continue
        np.random.seed(0)
        wg.manual_seed(0)
        try:
            checked += check_compiled(Case(op, sample), ("native",))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    assert checked > 25
