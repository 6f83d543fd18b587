"""Fourier transforms beside PyTorch: values, dtypes, first and second derivatives, refusals."""

import numpy as np
import pytest
import torch

import wengert as wg

pytestmark = pytest.mark.filterwarnings("ignore:A window was not provided:UserWarning")
RNG = np.random.default_rng(5)


def drawn(*shape, kind="real", dtype=np.float64):
    array = RNG.standard_normal(shape)
    if kind == "complex":
        return (array + 1j * RNG.standard_normal(shape)).astype(np.result_type(dtype, np.complex64))
    return array.astype(dtype)


def run(package, call, array):
    x = package.tensor(array).requires_grad_()
    out = call(package, x)
    loss = (out.real**3).sum() + (out.imag**2 * out.real).sum() if out.is_complex() else (out**3).sum()
    (first,) = package.autograd.grad(loss, x, create_graph=True)
    (second,) = package.autograd.grad((first.abs() ** 2).sum(), x)
    return [t.detach().resolve_conj().numpy() for t in (out, first, second)]


def agree(call, array, rtol=1e-8):
    for ours, theirs in zip(run(wg, call, array), run(torch, call, array), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max(initial=1))


KINDS = {"fft": "complex", "ifft": "real", "rfft": "real", "irfft": "complex", "hfft": "complex", "ihfft": "real"}


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("n", "dim"), [(None, -1), (3, -1), (8, 1), (None, 0)])
def test_one_dimension(name, n, dim, norm):
    agree(lambda p, x: getattr(p.fft, name)(x, n, dim, norm), drawn(3, 4, 5, kind=KINDS[name]))


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("s", "dim"), [(None, None), ((4, 3), None), ((-1, 6), (0, 2)), (None, (2, 0, 1))])
def test_several_dimensions(name, s, dim, norm):
    agree(lambda p, x: getattr(p.fft, name + "n")(x, s, dim, norm), drawn(3, 4, 5, kind=KINDS[name]))
    agree(lambda p, x: getattr(p.fft, name + "2")(x, norm=norm), drawn(3, 4, 5, kind=KINDS[name]))


@pytest.mark.parametrize("name", KINDS)
def test_single_precision_stays_single(name):
    agree(lambda p, x: getattr(p.fft, name)(x), drawn(3, 6, kind=KINDS[name], dtype=np.float32), rtol=2e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hop_length": 3},
        {"win_length": 6},
        {"center": False},
        {"normalized": True},
        {"onesided": False},
        {"pad_mode": "constant"},
    ],
    ids=str,
)
def test_short_time_transforms(options):
    window = RNG.uniform(0.5, 1, options.get("win_length", 8))
    agree(lambda p, x: p.stft(x, 8, window=p.tensor(window), return_complex=True, **options), drawn(2, 30))
    options.pop("pad_mode", None)
    spectra = torch.stft(
        torch.tensor(drawn(2, 30)), 8, window=torch.tensor(window), return_complex=True, **options
    ).numpy()
    agree(lambda p, x: p.istft(x, 8, window=p.tensor(window), length=24, **options), spectra)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_frequencies_and_shifts(n):
    for name in ("fftfreq", "rfftfreq"):
        ours, theirs = getattr(wg.fft, name)(n, 0.3), getattr(torch.fft, name)(n, 0.3)
        assert ours.dtype is wg.float32
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    x = drawn(n, 3)
    for name in ("fftshift", "ifftshift"):
        np.testing.assert_array_equal(
            getattr(wg.fft, name)(wg.tensor(x)).numpy(), getattr(torch.fft, name)(torch.tensor(x)).numpy()
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.fft.rfft(p.ones(3).to(p.complex64)),
        lambda p: p.fft.irfft(p.ones(1)),
        lambda p: p.fft.fft(p.ones(3), 0),
        lambda p: p.fft.fft(p.ones(3), dim=1),
        lambda p: p.fft.fft(p.tensor(1.0)),
        lambda p: p.fft.fftn(p.ones(2, 2), dim=(0, 0)),
        lambda p: p.fft.fftn(p.ones(2, 2), s=(2, 2), dim=(0,)),
        lambda p: p.fft.irfftn(p.ones(2, 2), dim=()),
        lambda p: p.stft(p.ones(8), 4),
        lambda p: p.stft(p.ones(8), 20, center=False, return_complex=True),
        lambda p: p.istft(p.ones(3, 4), 4),
    ],
)
def test_both_refuse_with_the_same_kind_of_error(call):
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        call(torch)
    with pytest.raises(type(theirs.value)):
        call(wg)
