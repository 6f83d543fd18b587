"""What every example in a docstring may use without importing it: ``np`` and ``wg``.

Native kernels are waited for, so that a test does the same in every run.
"""

import gc
import os
from typing import Any

os.environ.setdefault("WENGERT_NATIVE", "wait")

import numpy as np
import pytest

import wengert as wg


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> None:
    """Put ``np`` and ``wg`` into the names of each doctest."""
    doctest_namespace.update(np=np, wg=wg)


def pytest_collection_finish() -> None:
    """Leave the tests themselves, which are tens of thousands, out of every later search for garbage."""
    gc.collect()
    gc.freeze()
