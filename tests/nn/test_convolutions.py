"""Convolution layers against SciPy: padding, strides, groups, and the transposed ones against their transposes."""

from typing import Any

import numpy as np
import pytest
from scipy.signal import correlate

import wengert as wg
from wengert import nn

RNG = np.random.default_rng(0)


def tensor(a: Any) -> Any:
    return wg.tensor(a, dtype=wg.float64)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-12)


PADS = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def convolve(x: Any, w: Any, b: Any, stride: int, pad: Any, mode: str, dilation: int, groups: int) -> Any:
    """Cross-correlation of (N, C, *) with (O, C / groups, *), by scipy."""
    dims = x.ndim - 2
    x = np.pad(x, ((0, 0), (0, 0), *pad), mode=PADS[mode])
    spread = np.zeros((*w.shape[:2], *(dilation * (k - 1) + 1 for k in w.shape[2:])))
    spread[(slice(None), slice(None), *(slice(None, None, dilation),) * dims)] = w
    per = w.shape[0] // groups
    out = []
    for n in range(x.shape[0]):
        maps = []
        for o in range(w.shape[0]):
            g = o // per * w.shape[1]
            full = sum(correlate(x[n, g + c], spread[o, c], "valid") for c in range(w.shape[1]))
            maps.append(full[(slice(None, None, stride),) * dims] + (0 if b is None else b[o]))
        out.append(maps)
    return np.array(out)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", list(PADS))
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1}, {"padding": "same", "dilation": 2}, {"padding": "valid"},
        {"padding": 2, "stride": 2, "groups": 2}, {"padding": 1, "bias": False},
    ],
    ids=str,
)  # fmt: skip
def test_convolutions(dims: int, mode: str, options: dict[str, Any]) -> None:
    m = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](
        2, 4, 4 if options["padding"] == "same" else 3, padding_mode=mode, **options
    )
    m = m.double()
    x = RNG.normal(size=(2, 2, *(7, 6, 8)[:dims]))
    padding, dilation = options["padding"], options.get("dilation", 1)
    total = dilation * (m.kernel_size[0] - 1)
    pad = {"same": (total // 2, total - total // 2), "valid": (0, 0)}.get(padding, (padding, padding))
    bias = None if m.bias is None else m.bias.detach().numpy()
    want = convolve(
        x,
        m.weight.detach().numpy(),
        bias,
        options.get("stride", 1),
        (pad,) * dims,
        mode,
        dilation,
        options.get("groups", 1),
    )
    close(m(tensor(x)), want)
    close(m(tensor(x[0])), want[0])


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}, {"bias": False}],
    ids=str,
)
def test_transposed_convolution_is_the_transpose(dims: int, options: dict[str, Any]) -> None:
    up = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1](4, 2, 3, **options).double()
    down = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](
        2, 4, 3, bias=False, **{k: v for k, v in options.items() if k in ("stride", "padding", "groups", "dilation")}
    ).double()
    down.weight = nn.Parameter(up.weight.detach())
    x = tensor(RNG.normal(size=(1, 4, *(4, 3, 5)[:dims])))
    y = up(x)
    z = tensor(RNG.normal(size=tuple(y.shape)))
    offset = (
        0.0 if up.bias is None else float((up.bias.detach().numpy() * z.numpy().sum((0, *range(2, 2 + dims)))).sum())
    )
    np.testing.assert_allclose((y * z).sum().item() - offset, (x * down(z)).sum().item(), rtol=1e-9)


def test_output_size_chooses_the_output_padding() -> None:
    m = nn.ConvTranspose2d(1, 1, 3, stride=2)
    x = wg.zeros(1, 1, 4, 4)
    for size in ((9, 9), (9, 10), (1, 1, 10, 10)):
        assert tuple(m(x, output_size=size).shape[2:]) == size[-2:]
    with pytest.raises(ValueError, match=r"between \[9, 9\] and \[10, 10\]"):
        m(x, output_size=(11, 9))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, r"in_channels \(3\) must be divisible"),
        (lambda: nn.Conv2d(4, 3, 3, groups=2), ValueError, "out_channels"),
        (lambda: nn.Conv2d(4, 4, 3, groups=0), ValueError, "groups"),
        (lambda: nn.Conv2d(1, 1, 3, padding="full"), ValueError, "full"),
        (lambda: nn.Conv2d(1, 1, 3, padding="same", stride=2), ValueError, "stride 1"),
        (lambda: nn.Conv2d(1, 1, 3, padding_mode="mirror"), ValueError, "mirror"),
        (lambda: nn.Conv2d(1, 1, (3, 3, 3)), ValueError, "kernel_size takes an int or 2 ints"),
        (lambda: nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect"), ValueError, "zeros"),
        (lambda: nn.ConvTranspose2d(1, 1, 3, padding="same"), TypeError, "same"),
    ],
)
def test_bad_convolutions(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()
