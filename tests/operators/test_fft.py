"""Fourier transforms against NumPy and their definition."""

import numpy as np
import pytest

import wengert as wg

RNG = np.random.default_rng(2)
NORMS = [None, "backward", "ortho", "forward"]


def drawn(*shape, kind="real"):
    array = RNG.standard_normal(shape)
    return array + 1j * RNG.standard_normal(shape) if kind == "complex" else array


def close(got, want, rtol=1e-10, atol=1e-11):
    np.testing.assert_allclose(got.detach().numpy() if isinstance(got, wg.Tensor) else got, want, rtol=rtol, atol=atol)


KINDS = {"fft": "complex", "ifft": "complex", "rfft": "real", "irfft": "complex", "hfft": "complex", "ihfft": "real"}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (4, -1), (9, -1), (5, 0), (None, 1)])
def test_one_dimension_is_numpys(name, n, dim, norm):
    x = drawn(3, 6, 5, kind=KINDS[name])
    close(getattr(wg.fft, name)(wg.tensor(x), n, dim, norm), getattr(np.fft, name)(x, n, dim, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(
    ("s", "dim"), [(None, None), ((4, 6), (0, 2)), (None, (1, 0)), ((3,), (1,)), ((2, 7, 4), (0, 1, 2))]
)
def test_several_dimensions_are_numpys(name, s, dim, norm):
    x = drawn(3, 5, 4, kind=KINDS[name])
    close(getattr(wg.fft, name + "n")(wg.tensor(x), s, dim, norm), getattr(np.fft, name + "n")(x, s, dim, norm))
    plane = getattr(wg.fft, name + "2")(wg.tensor(x), norm=norm)
    close(plane, getattr(np.fft, name + "2")(x, norm=norm))


@pytest.mark.parametrize("norm", NORMS)
def test_hermitian_transforms_of_several_dimensions_are_real_forward_transforms(norm):
    x = drawn(4, 6)
    half = wg.fft.ihfftn(wg.tensor(x), norm=norm)
    close(half, np.fft.ifftn(x, norm=norm)[:, :4])
    close(wg.fft.hfftn(half, s=(4, 6), norm=norm), x)
    close(wg.fft.hfft2(wg.fft.ihfft2(wg.tensor(x), norm=norm), s=(4, 6), norm=norm), x)


def test_the_transform_is_its_definition():
    x, n = drawn(7, kind="complex"), np.arange(7)
    close(wg.fft.fft(wg.tensor(x)), np.exp(-2j * np.pi * np.outer(n, n) / 7) @ x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [None, 4, 9])
def test_gradients_are_the_adjoint(name, n, norm):
    """⟨u, F x⟩ = ⟨F* u, x⟩ over the real numbers."""
    x = wg.tensor(drawn(2, 6, kind=KINDS[name])).requires_grad_()
    y = getattr(wg.fft, name)(x, n, norm=norm)
    u = drawn(*y.shape, kind="complex" if y.is_complex() else "real")
    (adjoint,) = wg.autograd.grad(y, x, wg.tensor(u))
    assert np.vdot(u, y.detach().numpy()).real == pytest.approx(np.vdot(adjoint.numpy(), x.detach().numpy()).real)


def test_energy_is_kept_by_the_orthonormal_transform():
    x = wg.tensor(drawn(5, 8)).requires_grad_()
    energy = wg.fft.fft2(x, norm="ortho").abs().square().sum()
    assert energy.item() == pytest.approx((x.detach() ** 2).sum().item())
    energy.backward()
    close(x.grad, 2 * x.detach().numpy())


@pytest.mark.parametrize(
    ("given", "complex_result", "real_result"),
    [("float32", "complex64", "float32"), ("float64", "complex128", "float64"), ("complex64", "complex64", "float32"),
     ("int32", "complex64", "float32"), ("bool", "complex64", "float32")],
)  # fmt: skip
def test_precision_is_kept(given, complex_result, real_result):
    x = wg.ones(4, dtype=getattr(wg, given))
    assert str(wg.fft.fft(x).dtype) == f"wengert.{complex_result}"
    assert str(wg.fft.irfft(x).dtype) == f"wengert.{real_result}"


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n):
    close(wg.fft.fftfreq(n, 0.5, dtype=wg.float64), np.fft.fftfreq(n, 0.5))
    close(wg.fft.rfftfreq(n, 0.5, dtype=wg.float64), np.fft.rfftfreq(n, 0.5))
    x = drawn(n, 3)
    for dim in (None, 0, (1,)):
        shifted = wg.fft.fftshift(wg.tensor(x), dim)
        close(shifted, np.fft.fftshift(x, dim))
        close(wg.fft.ifftshift(shifted, dim), x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: wg.fft.rfft(wg.ones(3).to(wg.complex64)), TypeError, r"fft_rfft\(\): expected a real tensor"),
        (lambda: wg.fft.irfft(wg.ones(1)), RuntimeError, "must have at least 1 point, got 0; say how many"),
        (lambda: wg.fft.fft(wg.ones(3, 0)), RuntimeError, "must have at least 1 point"),
        (lambda: wg.fft.fft(wg.ones(3), dim=2), IndexError, "out of range"),
        (lambda: wg.fft.fft(wg.ones(3), norm="unit"), ValueError, "'backward', 'ortho' or 'forward'"),
        (lambda: wg.fft.fftn(wg.ones(3, 3), dim=(0, -2)), RuntimeError, "same dimension twice"),
    ],
)
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- short-time transforms


def test_short_time_transforms_are_transforms_of_weighted_pieces():
    x, window = drawn(20), RNG.uniform(0.5, 1, 6)
    got = wg.stft(wg.tensor(x), 6, 3, window=wg.tensor(window), center=False, return_complex=True)
    want = np.stack([np.fft.rfft(x[i : i + 6] * window) for i in range(0, 15, 3)], 1)
    close(got, want)
    centred = wg.stft(wg.tensor(x), 6, 3, window=wg.tensor(window), return_complex=True)
    close(
        centred,
        wg.stft(wg.tensor(np.pad(x, 3, "reflect")), 6, 3, window=wg.tensor(window), center=False, return_complex=True),
    )


@pytest.mark.parametrize(
    "options", [{}, {"normalized": True}, {"onesided": False}, {"win_length": 6}, {"hop_length": 2}]
)
def test_the_inverse_gives_the_signal_back(options):
    x, n = drawn(2, 40), options.get("win_length", 8)
    window = wg.tensor(RNG.uniform(0.5, 1, n))
    spectra = wg.stft(wg.tensor(x), 8, window=window, return_complex=True, **options)
    close(wg.istft(spectra, 8, window=window, length=40, **options), x)


def test_a_signal_without_weight_is_refused():
    with pytest.raises(RuntimeError, match="is 0 somewhere"):
        wg.istft(wg.ones(3, 5).to(wg.complex64), 4, window=wg.hann_window(4), center=False)
