"""SciPy and scikit-learn run on tensors: values as on NumPy's arrays, gradients as central differences."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.special

import wengert as wg
from tests.array_api import libraries

ROOT = Path(__file__).parents[2]
DIFFERENTIABLE, VALUES = libraries.learning()


def run(*args):
    """Return the report of ``libraries`` run as a script, where SciPy takes arrays of any library."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.array_api.libraries", *args]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def scipy_report():
    return run()


@pytest.fixture(scope="module")
def sklearn_report():
    return run("sklearn")


def check(outcome, differentiable):
    assert "error" not in outcome, outcome["error"]
    assert outcome["value"] < 1e-6  # where the library makes constants, they have the default dtype: float32
    if differentiable:
        assert outcome["gradient"] is not None, "the gradient is lost"
        assert outcome["gradient"] < 1e-5


@pytest.mark.parametrize("name", libraries.DIFFERENTIABLE)
def test_scipy_with_gradients(scipy_report, name):
    check(scipy_report[name], differentiable=True)


@pytest.mark.parametrize("name", libraries.VALUES)
def test_scipy(scipy_report, name):
    check(scipy_report[name], differentiable=False)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_sklearn_with_gradients(sklearn_report, name):
    check(sklearn_report[name], differentiable=True)


@pytest.mark.parametrize("name", VALUES)
def test_sklearn(sklearn_report, name):
    check(sklearn_report[name], differentiable=False)


@pytest.mark.parametrize("name", ["gammaln", "entr", "ndtri", "psi", "expit", "erf", "log_ndtr", "i0e"])
def test_ufuncs_of_scipy_record_without_any_setting(name):
    x = wg.tensor([0.3, 0.7], dtype=wg.float64, requires_grad=True)
    y = getattr(scipy.special, name)(x)
    np.testing.assert_allclose(y.detach().numpy(), getattr(scipy.special, name)(x.detach().numpy()))
    (slope,) = wg.autograd.grad(y.sum(), x)
    ends = [getattr(scipy.special, name)(x.detach().numpy() + h) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope.numpy(), (ends[0] - ends[1]) / 2e-6, rtol=1e-7)


@pytest.mark.parametrize("name", ["kl_div", "huber", "beta"])
def test_an_operator_that_only_shares_the_name_of_a_ufunc_is_not_called(name):
    x = wg.tensor([0.3, 0.7])
    with pytest.raises(TypeError, match=rf"scipy\.special\.{name} has no operator"):
        getattr(scipy.special, name)(x, x)
