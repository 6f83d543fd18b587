"""Special functions beside PyTorch where it has values but no derivatives, and how arguments and dtypes combine."""

import numpy as np
import pytest
import torch

import wengert as wg

RNG = np.random.default_rng(2)
ONE = ["airy_ai", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"]
TWO = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip


def both(name, *arrays):
    given = [[package.tensor(a) if isinstance(a, np.ndarray) else a for a in arrays] for package in (wg, torch)]
    return getattr(wg.special, name)(*given[0]).numpy(), getattr(torch.special, name)(*given[1]).numpy()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_argument(name, dtype):
    x = np.abs(RNG.standard_normal(40)) * 3
    ours, theirs = both(name, x.astype(dtype))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-10 if dtype is np.float64 else 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("order", [np.int64, np.float32, np.float64])
@pytest.mark.parametrize("name", TWO)
def test_polynomials(name, order, dtype):
    x, n = (RNG.uniform(-2, 2, (6, 7)) * 1.5).astype(dtype), np.arange(-1, 6).astype(order)
    for arguments in ((x, n), (x, 3), (1.5, n)):
        ours, theirs = both(name, *arguments)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-9 if ours.dtype == np.float64 else 1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TWO)
def test_polynomials_as_positional_and_named_arguments(name):
    x, n = RNG.uniform(-1, 1, 5), np.arange(5)
    function, want = getattr(wg.special, name), getattr(torch.special, name)(torch.tensor(x), torch.tensor(n)).numpy()
    for found in (function(wg.tensor(x), wg.tensor(n)), function(input=wg.tensor(x), n=wg.tensor(n)),
                  function(n=wg.tensor(n), x=wg.tensor(x))):  # fmt: skip
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-12, atol=1e-14)
    with pytest.raises((RuntimeError, TypeError)):
        function(wg.tensor(x) * 1j, 2)


def test_orders_of_softmax_and_polygamma():
    x = RNG.standard_normal((3, 4))
    ours, theirs = wg.tensor(x), torch.tensor(x)
    for call in (
        lambda p, x: p.special.softmax(x, 1),
        lambda p, x: p.special.softmax(x, dim=0, dtype=p.float32),
        lambda p, x: p.special.log_softmax(x, -1),
        lambda p, x: p.special.logsumexp(x, (0, 1)),
        lambda p, x: x.abs().polygamma_(2),
        lambda p, x: p.special.multigammaln(x.abs() + 2, 3),
    ):
        a, b = call(wg, ours).numpy(), call(torch, theirs).numpy()
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)
