"""``wengert.signal.windows`` against SciPy's functions of the same names."""

import numpy as np
import pytest
from scipy.signal import windows as scipy_windows

import wengert as wg
from wengert.signal import windows

OPTIONS = {
    "bartlett": {}, "blackman": {}, "cosine": {}, "hamming": {}, "hann": {}, "nuttall": {}, "exponential": {"tau": 2.5},
    "gaussian": {"std": 1.5}, "kaiser": {"beta": 5.0}, "general_hamming": {"alpha": 0.7},
    "general_cosine": {"a": [0.4, 0.5, 0.1]},
}  # fmt: skip


def test_every_window_is_here():
    assert sorted(OPTIONS) == sorted(windows.__all__)


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("name", OPTIONS)
def test_windows_are_those_of_scipy(name, count, sym):
    want = getattr(scipy_windows, name)(count, sym=sym, **OPTIONS[name])
    got = getattr(windows, name)(count, sym=sym, dtype=wg.float64, **OPTIONS[name])
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_an_exponential_window_may_have_its_peak_elsewhere():
    want = scipy_windows.exponential(6, center=1.5, sym=False)
    np.testing.assert_allclose(windows.exponential(6, center=1.5, sym=False, dtype=wg.float64).numpy(), want)


def test_options():
    assert windows.hann(4).dtype is wg.get_default_dtype()
    assert windows.hann(4, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: windows.hann(-1), ValueError, "must not be negative"),
        (lambda: windows.hann(3, dtype=wg.int64), TypeError, "floating-point dtype"),
        (lambda: windows.gaussian(3, std=0), ValueError, "std must be positive"),
        (lambda: windows.kaiser(3, beta=-1), ValueError, "beta must not be negative"),
        (lambda: windows.exponential(3, tau=0), ValueError, "tau must be positive"),
        (lambda: windows.exponential(3, center=1), ValueError, "sym=False"),
        (lambda: windows.general_cosine(3, a=[]), ValueError, "at least one weight"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
