"""Convolution in one, two and three dimensions, and its transpose.

Convolution is one trilinear form ⟨g, x ⋆ w⟩ of a cotangent, an input and kernels. Fixing two of the three gives the
three maps here: ``conv`` is the form's derivative in g, ``conv_input`` in x, ``conv_weight`` in w. Each one's
derivatives are the other two, to any order. The transposed convolution is ``conv_input`` under another name.
"""

import math
from typing import Any

from wengert.core.arguments import Number
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import convolution as kernels
from wengert.operators.checks import batched, per_dim, same_dtype
from wengert.operators.convolve_batch import conv_batch, conv_input_batch, conv_weight_batch
from wengert.operators.convolve_shapes import Sizes, check_bias, conv_spec, flops, transposed_size

__all__ = [
    "conv", "conv1d", "conv2d", "conv3d", "conv_input", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "conv_weight", "convolution",
]  # fmt: skip


# ---- the three maps


def _fitted(out: Any, shape: Sizes) -> Any:
    """Drop the last windows where more fit than there are: a transposed convolution with a large output padding."""
    for dim in range(2, len(shape)):
        if out.shape[dim] != shape[dim]:
            out = ops.narrow(out, dim, 0, shape[dim])
    return out


def _over_bias(g: Any) -> Any:
    return ops.sum(g, (0, *range(2, g.ndim)))


def _spread_bias(t: Any, out_shape: Sizes) -> Any:
    return ops.expand(ops.reshape(t, (-1, *(1,) * (len(out_shape) - 2))), tuple(out_shape))


def _conv_samples(s: Any) -> list[Any]:
    one = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
    two = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    return [
        s((1, 2, 4), (2, 2, 3), (2,), **one),
        s((2, 1, 5), (2, 1, 2), bias=None, **{**one, "stride": (2,), "padding": (1,)}),
        s((1, 2, 3, 3), (2, 2, 2, 2), (2,), **two), s((1, 2, 3, 4), (2, 1, 2, 2), bias=None, **{**two, "groups": 2}),
        s((2, 1, 4, 3), (2, 1, 2, 1), (2,), stride=(2, 1), padding=(1, 0), dilation=(2, 1), groups=1),
        s((0, 1, 3, 3), (2, 1, 2, 2), (2,), **two), s((1, 2, 3), (1, 2, 2), (1,), kind="complex", **one),
        s((1, 1, 2, 2, 2), (1, 1, 1, 2, 2), (1,), stride=(1, 1, 1), padding=(0, 1, 0), dilation=(1, 1, 1), groups=1),
        s((1, 1, 3), (1, 1, 2), bias=None, kind="integer", **one),
        s.error(RuntimeError, "needs an input of 2 channels, got 1", (1, 1, 4), (1, 2, 3), bias=None, **one),
        s.error(RuntimeError, "kernel is larger", (1, 1, 2), (1, 1, 3), bias=None, **one),
        s.error(RuntimeError, r"bias must have shape \(2,\)", (1, 1, 4), (2, 1, 3), (3,), **one),
        s.error(RuntimeError, "groups=2 must divide", (1, 2, 4), (3, 1, 3), bias=None, **{**one, "groups": 2}),
        s.error(RuntimeError, "at least 1 element", (1, 2, 4), (3, 2, 0), bias=None, **one),
    ]  # fmt: skip


@operator(
    vjp={
        "input": lambda g, weight, input_shape, stride, padding, dilation, groups: ops.conv_input(
            g, weight, input_shape[2:], stride, padding, dilation, groups
        ),
        "weight": lambda g, input, weight_shape, stride, padding, dilation, groups: ops.conv_weight(
            g, input, weight_shape[2:], stride, padding, dilation, groups
        ),
        "bias": lambda g: _over_bias(g),
    },
    jvp={
        "input": lambda t, weight, stride, padding, dilation, groups: ops.conv(
            t, weight, None, stride, padding, dilation, groups
        ),
        "weight": lambda t, input, stride, padding, dilation, groups: ops.conv(
            input, t, None, stride, padding, dilation, groups
        ),
        "bias": lambda t, out: _spread_bias(t, out.shape),
    },
    holomorphic=True,
    batch=conv_batch,
    spec=conv_spec,
    cost=flops,
    home=(),
    samples=_conv_samples,
)
def conv(
    input: Number, weight: Number, bias: Number = None, stride: Any = (), padding: Any = (), dilation: Any = (),
    groups: int = 1,
) -> Any:  # fmt: skip
    """Correlate ``input`` (N, C, *spatial) with ``weight`` (O, C / groups, *kernel) and add a bias per channel."""
    conv_spec(input, weight, bias, stride, padding, dilation, groups)
    out = kernels.convolution(input, weight, stride, padding, dilation, groups)
    if bias is not None:
        out += bias.reshape(-1, *(1,) * len(stride))
    return out


def _grad_samples(s: Any, *, weight: bool) -> list[Any]:
    """Return calls of conv_weight or of conv_input; the sizes are those of (g, x, w)."""
    one = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
    two = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}

    def sample(g: Any, x: Any, w: Any, **options: Any) -> Any:
        return s(g, x if weight else w, size=(w if weight else x)[2:], **options)

    return [
        sample((1, 2, 2), (1, 1, 4), (2, 1, 3), **one),
        sample((2, 1, 3), (2, 2, 5), (1, 2, 2), **{**one, "stride": (2,), "padding": (1,)}),
        sample((1, 2, 2, 1), (1, 2, 3, 3), (2, 1, 2, 2), **two),
        sample((0, 1, 2), (0, 1, 3), (1, 1, 2), **one),
        sample((1, 1, 2), (1, 1, 4), (1, 1, 2), **one),  # one window more would fit
        sample((1, 1, 2), (1, 1, 3), (1, 1, 2), kind="complex", **one),
    ]


@operator(
    vjp={
        "g": lambda h, weight, g_shape, stride, padding, dilation, groups: _fitted(
            ops.conv(h, weight, None, stride, padding, dilation, groups), g_shape
        ),
        "weight": lambda h, g, weight_shape, stride, padding, dilation, groups: ops.conv_weight(
            g, h, weight_shape[2:], stride, padding, dilation, groups
        ),
    },
    jvp="bilinear",
    holomorphic=True,
    batch=conv_input_batch,
    spec=lambda g, weight, size, stride, padding, dilation, groups: Spec(
        (g.shape[0], weight.shape[1] * groups, *size), g.dtype
    ),
    cost=lambda g, weight, *_: 2 * math.prod(g.shape) * math.prod(weight.shape[1:]),
    home=(),
    samples=lambda s: _grad_samples(s, weight=False),
)
def conv_input(g: Number, weight: Number, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Transpose of ``conv`` in its input, of spatial shape ``size``."""
    return kernels.convolution_input_grad(g, weight, size, stride, padding, dilation, groups)


@operator(
    vjp={
        "g": lambda h, input, g_shape, stride, padding, dilation, groups: _fitted(
            ops.conv(input, h, None, stride, padding, dilation, groups), g_shape
        ),
        "input": lambda h, g, input_shape, stride, padding, dilation, groups: ops.conv_input(
            g, h, input_shape[2:], stride, padding, dilation, groups
        ),
    },
    jvp="bilinear",
    holomorphic=True,
    batch=conv_weight_batch,
    spec=lambda g, input, size, stride, padding, dilation, groups: Spec(
        (g.shape[1], input.shape[1] // groups, *size), g.dtype
    ),
    cost=lambda g, input, size, stride, padding, dilation, groups: (
        2 * math.prod(g.shape) * (input.shape[1] // groups) * math.prod(size)
    ),
    home=(),
    samples=lambda s: _grad_samples(s, weight=True),
)
def conv_weight(g: Number, input: Number, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Transpose of ``conv`` in its kernels, of spatial shape ``size``."""
    return kernels.convolution_weight_grad(g, input, size, stride, padding, dilation, groups)


# ---- convolution


def _padded_same(name: str, input: Any, weight: Any, stride: Sizes, dilation: Sizes) -> tuple[Any, tuple[int, ...]]:
    """Return the input and the padding on both sides that keep the spatial shape; an odd element goes to the end."""
    if any(v != 1 for v in stride):
        raise ShapeError(f"{name}(): padding='same' needs stride 1, got {tuple(stride)}")
    totals = [d * (k - 1) for k, d in zip(weight.shape[2:], dilation, strict=True)]
    if any(total % 2 for total in totals):
        input = ops.pad(input, [side for total in reversed(totals) for side in (0, total % 2)])
    return input, tuple(total // 2 for total in totals)


def _convolve(
    dims: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    name = f"conv{dims}d"
    if weight.ndim != dims + 2:
        raise ShapeError(
            f"{name}(): weight must have {dims + 2} dimensions, (out, in / groups, *kernel), got {tuple(weight.shape)}"
        )
    stride, dilation = per_dim(name, "stride", stride, dims), per_dim(name, "dilation", dilation, dims)

    def run(x: Any) -> Any:
        if padding == "same":
            x, pads = _padded_same(name, x, weight, stride, dilation)
        elif isinstance(padding, str):
            pads = (0,) * dims
        else:
            pads = per_dim(name, "padding", padding, dims)
        return ops.conv(x, weight, bias, stride, pads, dilation, groups)

    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ValueError(f"{name}(): padding must be ints, 'same' or 'valid', got {padding!r}")
    return batched(name, dims, input, run)


_HOME = ("", "nn.functional")


@composite(
    home=_HOME,
    samples=lambda s: [
        s((2, 2, 5), (4, 1, 2), (4,), stride=2, padding=1, dilation=2, groups=2), s((2, 4), (1, 2, 3), padding="same"),
        s((1, 1, 4), (1, 1, 2), padding="same", dilation=3), s((1, 1, 4), (1, 1, 2), padding="valid"),
        s((1, 1, 4), (2, 1, 1), stride=(2,)), s((2, 1, 1), (1, 1, 3), padding=1),
        s.error(RuntimeError, r"must be \(N, C, L\) or \(C, L\)", (4,), (1, 1, 2)),
        s.error(RuntimeError, "needs stride 1", (1, 1, 4), (1, 1, 2), stride=2, padding="same"),
        s.error(ValueError, "'same' or 'valid'", (1, 1, 4), (1, 1, 2), padding="full"),
        s.error(RuntimeError, "padding must be at least 0", (1, 1, 4), (1, 1, 2), padding=-1),
    ],
)  # fmt: skip
def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Correlate signals (N, C, L) with kernels (O, C / groups, K); see :func:`wengert.conv2d`."""
    return _convolve(1, input, weight, bias, stride, padding, dilation, groups)


@composite(
    home=_HOME,
    samples=lambda s: [
        s((1, 2, 3, 4), (2, 2, 2, 2), (2,)), s((1, 2, 4, 3), (2, 1, 2, 2), stride=(2, 1), padding=(1, 0), groups=2),
        s((1, 3, 3), (2, 1, 2, 2), (2,), padding="same"),
        s((1, 1, 4, 4), (1, 1, 2, 3), padding="same", dilation=(1, 2)), s((0, 1, 3, 3), (2, 1, 2, 2), (2,)),
        s((1, 1, 3, 3), (1, 1, 3, 3), padding="valid"),
        s.error(RuntimeError, "kernel is larger", (1, 1, 2, 2), (1, 1, 3, 3)),
        s.error(RuntimeError, "stride takes an int or 2 ints", (1, 1, 2, 2), (1, 1, 2, 2), stride=(1, 2, 3)),
        s.error(RuntimeError, "weight must have 4 dimensions", (1, 1, 2, 2), (1, 1, 2)),
    ],
)  # fmt: skip
def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Correlate images with kernels.

    out[n, o, i, j] = bias[o] + Σ input[n, c, i s + a d - p, j s + b d - p] weight[o, c, a, b], summed over c, a and b,
    with stride s, dilation d and padding p.

    Args:
        input: (N, C, H, W), or (C, H, W). weight: (O, C / groups, KH, KW). bias: (O,), or None.
        stride, dilation: an int or two. padding: zeros on both sides, an int or two; ``"valid"`` for none;
            ``"same"`` for as many as keep the shape (stride 1).
        groups: into how many independent convolutions the channels are divided.

    Raises:
        RuntimeError: if the shapes do not fit each other. TypeError: for different dtypes.

    Example:
        >>> import wengert as wg
        >>> wg.conv2d(wg.ones(1, 1, 3, 3), wg.ones(1, 1, 2, 2))
        tensor([[[[4., 4.],
                  [4., 4.]]]])
    """
    return _convolve(2, input, weight, bias, stride, padding, dilation, groups)


@composite(
    home=_HOME,
    samples=lambda s: [
        s((1, 1, 2, 3, 2), (2, 1, 2, 2, 1), (2,)), s((1, 2, 2, 2), (1, 1, 2, 1, 2), padding="same"),
        s((1, 2, 2, 2, 3), (2, 1, 2, 1, 2), stride=(1, 2, 1), groups=2),
    ],
)  # fmt: skip
def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Correlate volumes (N, C, D, H, W) with kernels (O, C / groups, KD, KH, KW); see :func:`wengert.conv2d`."""
    return _convolve(3, input, weight, bias, stride, padding, dilation, groups)


@composite(home=_HOME, samples=lambda s: [s((4, 2, 2), (3, 2, 1), (1,)), s((3, 1, 1), (3, 1, 2), (2,), pad=1)])
def conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """Correlate sequences (time, batch, channels) with kernels (time, in channels, out channels)."""
    out = conv1d(ops.permute(input, (1, 2, 0)), ops.permute(weight, (2, 1, 0)), bias, padding=pad)
    return ops.permute(out, (2, 0, 1))


# ---- transposed convolution


def _transpose(
    dims: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any,
) -> Any:  # fmt: skip
    name = f"conv_transpose{dims}d"
    if weight.ndim != dims + 2:
        raise ShapeError(
            f"{name}(): weight must have {dims + 2} dimensions, (in, out / groups, *kernel), got {tuple(weight.shape)}"
        )
    same_dtype(name, input=input, weight=weight, bias=bias)
    stride, padding = per_dim(name, "stride", stride, dims), per_dim(name, "padding", padding, dims)
    dilation = per_dim(name, "dilation", dilation, dims)
    output_padding = per_dim(name, "output_padding", output_padding, dims)

    def run(x: Any) -> Any:
        size = transposed_size(name, x.shape, weight.shape, stride, padding, output_padding, dilation, groups)
        out = ops.conv_input(x, weight, size, stride, padding, dilation, groups)
        if bias is None:
            return out
        check_bias(name, bias.shape, out.shape[1])
        return out + ops.reshape(bias, (-1, *(1,) * dims))

    return batched(name, dims, input, run)


@composite(
    home=_HOME,
    samples=lambda s: [
        s((1, 2, 3), (2, 1, 2), (2,), stride=2, output_padding=1, groups=2), s((2, 2), (2, 1, 3), padding=1),
        s((1, 1, 2), (1, 1, 2), dilation=3, output_padding=2), s((0, 1, 2), (1, 2, 2), (2,)),
        s.error(RuntimeError, "output_padding must be smaller", (1, 1, 2), (1, 1, 2), output_padding=1),
        s.error(RuntimeError, "use less padding", (1, 1, 1), (1, 1, 1), padding=1),
        s.error(RuntimeError, r"bias must have shape \(1,\)", (1, 2, 3), (2, 1, 2), (2,)),
    ],
)  # fmt: skip
def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """Transposed convolution of signals (N, C, L); see :func:`wengert.conv_transpose2d`."""
    return _transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(
    home=_HOME,
    samples=lambda s: [
        s((1, 2, 2, 2), (2, 2, 2, 2), (2,)),
        s((1, 2, 2, 2), (2, 1, 2, 1), stride=(2, 1), groups=2, output_padding=(1, 0)),
        s((1, 2, 3), (1, 2, 2, 2), (2,), padding=1, dilation=(1, 2)),
    ],
)  # fmt: skip
def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """Spread each element of an image over a kernel: the transpose of :func:`wengert.conv2d` in its input.

    Args:
        input: (N, C, H, W), or (C, H, W). weight: (C, O / groups, KH, KW). bias: (O,), or None.
        stride, padding, dilation, groups: those of the convolution whose transpose it is.
        output_padding: how many rows and columns are added to the end of the result, to tell shapes apart that the
            convolution maps to one; smaller than stride or dilation.

    Raises:
        RuntimeError: if the shapes do not fit each other. TypeError: for different dtypes.

    Example:
        >>> import wengert as wg
        >>> wg.conv_transpose2d(wg.ones(1, 1, 1, 2), wg.ones(1, 1, 1, 2), stride=2)
        tensor([[[[1., 1., 1., 1.]]]])
    """
    return _transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite(
    home=_HOME,
    samples=lambda s: [
        s((1, 2, 2, 1, 2), (2, 1, 2, 2, 1), (2,), groups=2),
        s((1, 1, 2, 2), (1, 2, 1, 2, 2), stride=(1, 2, 1)),
    ],
)
def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """Transposed convolution of volumes (N, C, D, H, W); see :func:`wengert.conv_transpose2d`."""
    return _transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


_PLAIN = {"stride": [1], "padding": [0], "dilation": [1], "transposed": False, "output_padding": [0], "groups": 1}
_TURNED = {
    "stride": [2, 1],
    "padding": [0, 0],
    "dilation": [1, 1],
    "transposed": True,
    "output_padding": [1, 0],
    "groups": 2,
}


@composite(
    samples=lambda s: [s((1, 2, 3), (2, 2, 2), (2,), **_PLAIN), s((1, 2, 2, 2), (2, 1, 2, 2), bias=None, **_TURNED)]
)
def convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Any:  # fmt: skip
    """Convolution, or transposed convolution, over as many spatial dimensions as ``weight`` has."""
    dims = weight.ndim - 2
    if dims < 1:
        raise ShapeError(f"convolution(): weight must be (out, in / groups, *kernel), got shape {tuple(weight.shape)}")
    if transposed:
        return _transpose(dims, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolve(dims, input, weight, bias, stride, padding, dilation, groups)
