"""What the standard says of zeros, infinities and NaN, where operators alone would give something else or NumPy does."""

import math

import numpy as np
import pytest

import wengert as wg
import wengert.array_api as xp

INF, NAN = math.inf, math.nan
DIVISIONS = [
    (INF, 2.0, INF), (INF, -2.0, -INF), (-INF, 2.0, -INF), (-INF, -2.0, INF), (1.0, -INF, -0.0), (-1.0, INF, -0.0),
    (1.0, INF, 0.0), (-1.0, -INF, 0.0), (INF, INF, NAN), (1.0, 0.0, INF), (-1.0, 0.0, -INF), (0.0, 0.0, NAN), (NAN, 1.0, NAN),
    (7.0, 2.0, 3.0), (-7.0, 2.0, -4.0), (7.0, -2.0, -4.0), (-0.0, 3.0, -0.0), (0.0, -3.0, -0.0),
]  # fmt: skip
EXPM1 = [
    (0j, 0j), (complex(-0.0, 0.0), 0j), (complex(INF, 0), complex(INF, 0)), (complex(-INF, INF), complex(-1, 0)),
    (complex(INF, INF), complex(INF, NAN)), (complex(-INF, NAN), complex(-1, 0)), (complex(INF, NAN), complex(INF, NAN)),
    (complex(NAN, 0), complex(NAN, 0)), (complex(-INF, 1.0), complex(-1, 0)), (1e-9 + 1e-9j, 1e-9 + 1e-9j),
]  # fmt: skip
TANH = [
    (complex(INF, 2.0), complex(1, 0)), (complex(INF, -2.0), complex(1, -0.0)), (complex(-INF, 2.0), complex(-1, 0)),
    (complex(INF, INF), complex(1, 0)), (complex(-INF, NAN), complex(-1, 0)), (complex(NAN, 0), complex(NAN, 0)), (0j, 0j),
]  # fmt: skip


def identical(got, wanted):
    """Compare with the sign of zero; of a zero beside something not finite the standard leaves the sign open."""
    for a, b in ((got.real, wanted.real), (got.imag, wanted.imag)):
        assert (math.isnan(a) and math.isnan(b)) or a == b
        if b == 0:
            assert math.copysign(1, a) == math.copysign(1, b)


@pytest.mark.parametrize(("x", "y", "wanted"), DIVISIONS)
@pytest.mark.parametrize("dtype", [xp.float32, xp.float64])
def test_floor_divide(x, y, wanted, dtype):
    a, b = xp.asarray(x, dtype=dtype), xp.asarray(y, dtype=dtype)
    identical(complex(xp.floor_divide(a, b).item()), complex(wanted))
    identical(complex(xp.floor_divide(a, y).item()), complex(wanted))


@pytest.mark.parametrize(("z", "wanted"), EXPM1)
def test_complex_expm1(z, wanted):
    got = xp.expm1(xp.asarray(z, dtype=xp.complex128)).item()
    if wanted.real == -1:
        assert (got.real, abs(got.imag)) == (-1, 0)
    elif z == 1e-9 + 1e-9j:
        assert abs(got - wanted) < 1e-17
    else:
        identical(got, wanted)


@pytest.mark.parametrize(("z", "wanted"), TANH)
def test_complex_tanh(z, wanted):
    got = xp.tanh(xp.asarray(z, dtype=xp.complex128)).item()
    if math.isfinite(z.imag):
        identical(got, wanted)
    else:
        assert (got.real, abs(got.imag)) == (wanted.real, 0)


@pytest.mark.parametrize("function", [xp.expm1, xp.tanh])
def test_their_gradients_are_finite_wherever_they_should_be(function):
    z = wg.tensor([0j, 1 + 1j, 300 + 1j, -300 + 1j], dtype=wg.complex128, requires_grad=True)
    function(z).real.sum().backward()
    assert bool(wg.isfinite(z.grad).all())
    x = z.detach().numpy()
    slope = np.exp(x) if function is xp.expm1 else 1 - np.tanh(x) ** 2
    np.testing.assert_allclose(z.grad.numpy(), slope.conj(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("x", "wanted"), [(-2.0, -1.0), (-0.0, 0.0), (3.0, 1.0), (NAN, NAN), (INF, 1.0), (3 + 4j, 0.6 + 0.8j), (0j, 0j)]
)
def test_sign(x, wanted):
    got = xp.sign(xp.asarray(x, dtype=xp.complex128 if isinstance(x, complex) else xp.float64)).item()
    np.testing.assert_allclose(got, wanted)


def test_rounding_is_to_even_and_of_complex_numbers_by_parts():
    assert xp.round(xp.asarray([0.5, 1.5, -2.5])).tolist() == [0, 2, -2]
    assert xp.round(xp.asarray([0.5 + 1.5j, 2.4 - 2.5j])).tolist() == [2j, 2 - 2j]
    assert xp.round(xp.asarray([1, 2], dtype=xp.uint8)).dtype is xp.uint8


def test_the_imaginary_part_of_real_numbers_is_zero():
    assert xp.imag(xp.asarray([1.0, 2.0])).tolist() == [0, 0]
    assert xp.imag(xp.asarray([1 + 2j])).tolist() == [2]


@pytest.mark.parametrize("function", [xp.max, xp.min])
def test_extremes_of_nan_are_nan(function):
    assert math.isnan(function(xp.asarray([1.0, NAN, 2.0])).item())


@pytest.mark.parametrize(("shape", "wanted"), [((0,), (0, 1)), ((0, 2), ([0, 0], [1, 1]))])
def test_sums_and_products_of_nothing(shape, wanted):
    x = xp.ones(shape)
    assert (xp.sum(x, axis=0).tolist(), xp.prod(x, axis=0).tolist()) == wanted
    assert bool(xp.all(x))
    assert not bool(xp.any(x))
    assert math.isnan(xp.mean(xp.ones(0)).item())


def test_the_variance_of_fewer_elements_than_the_correction_is_not_finite():
    assert not math.isfinite(xp.var(xp.asarray([1.0]), correction=1).item())
    assert xp.std(xp.asarray([2.0])).item() == 0


def test_operators_of_tensors_keep_the_meaning_of_pytorch():
    """Where the two conflict: 0-d tensors yield to others, and a whole quotient of infinity is NaN."""
    one, zero_d = xp.ones(2, dtype=xp.float32), xp.asarray(1.0, dtype=xp.float64)
    assert (one + zero_d).dtype is xp.float32
    assert xp.add(one, zero_d).dtype is xp.float64
    assert math.isnan((xp.asarray(INF) // 2.0).item())
