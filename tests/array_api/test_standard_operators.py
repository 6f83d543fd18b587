"""Operators by the standard, on request: 0-d tensors promote like others, // of infinities is no NaN."""

import operator

import numpy as np
import pytest

import wengert as wg
from wengert import array_api as xp

BINARY = (operator.add, operator.mul, operator.sub, operator.truediv, operator.lt, operator.floordiv)


@pytest.fixture
def standard():
    xp.use_standard_operators()
    yield
    xp.use_standard_operators(False)


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_tensors_without_dimensions_promote_like_others(op, standard):
    x, y = wg.ones(2), wg.tensor(3.0, dtype=wg.float64)
    for a, b in ((x, y), (y, x)):
        want = op(a.numpy(), b.numpy())
        assert np.dtype(op(a, b).dtype.numpy) == want.dtype
        assert op(a, b).tolist() == want.tolist()


@pytest.mark.parametrize(
    ("x", "y", "want"), [(np.inf, 2.0, np.inf), (-np.inf, 2.0, -np.inf), (-3.0, np.inf, -0.0), (7.0, 2.0, 3.0)]
)
def test_floor_division_by_the_standard(x, y, want, standard):
    a, b = wg.tensor([x]), wg.tensor([y])
    assert (a // b).item() == want
    c = a.clone()
    c //= b
    assert c.item() == (a // b).item()
    assert (x // b).item() == (a // b).item()


def test_pytorch_s_meaning_comes_back(standard):
    xp.use_standard_operators(False)
    assert (wg.ones(2) + wg.tensor(3.0, dtype=wg.float64)).dtype is wg.float32
    assert np.isnan((wg.tensor([np.inf]) // 2.0).item())
