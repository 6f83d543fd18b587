"""What every example in a docstring may use without importing it: ``np`` and ``wg``."""

from typing import Any

import numpy as np
import pytest

import wengert as wg


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> None:
    """Put ``np`` and ``wg`` into the names of each doctest."""
    doctest_namespace.update(np=np, wg=wg)
