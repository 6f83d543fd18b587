"""Convolution in one, two and three dimensions, and its transpose.

Convolution is one trilinear form ⟨g, x ⋆ w⟩ of a cotangent, an input and kernels. Fixing two of the three gives the three
maps here: ``conv`` is the form's derivative in g, ``conv_input`` in x, ``conv_weight`` in w. Each one's derivatives are the
other two, to any order. The transposed convolution is ``conv_input`` under another name.
"""

import math
from collections.abc import Sequence
from typing import Any

from wengert.core.arguments import Number
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.kernels import convolution as kernels
from wengert.operators.checks import batched, per_dim, same_dtype

__all__ = [
    "conv", "conv1d", "conv2d", "conv3d", "conv_input", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "conv_weight", "convolution",
]  # fmt: skip

Sizes = Sequence[int]


# ---- shapes


def _check(name: str, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> None:
    """Refuse parameters that no input fits."""
    for what, values, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if any(v < least for v in values):
            raise ShapeError(f"{name}(): {what} must be at least {least}, got {tuple(values)}")
    if groups < 1:
        raise ShapeError(f"{name}(): groups must be at least 1, got {groups}")
    if not weight[0] or weight[0] % groups:
        raise ShapeError(
            f"{name}(): groups={groups} must divide the first size of the weight, got shape {tuple(weight)}"
        )


def _conv_shape(
    input: Sizes, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> tuple[int, ...]:
    """Return the shape of a convolution.

    Raises:
        ShapeError: if channels or groups do not fit, or the kernel is larger than the padded input.
    """
    name = f"conv{len(stride)}d"
    if len(weight) != len(input):
        raise ShapeError(
            f"{name}(): weight must have {len(input)} dimensions, (out, in / groups, *kernel), got shape {tuple(weight)}"
        )
    _check(name, weight, stride, padding, dilation, groups)
    if input[1] != weight[1] * groups:
        raise ShapeError(
            f"{name}(): weight of shape {tuple(weight)} with groups={groups} needs an input of {weight[1] * groups} "
            f"channels, got {input[1]} in shape {tuple(input)}"
        )
    reach = [d * (k - 1) + 1 for k, d in zip(weight[2:], dilation, strict=True)]
    padded = [s + 2 * p for s, p in zip(input[2:], padding, strict=True)]
    if any(r > s for r, s in zip(reach, padded, strict=True)):
        raise ShapeError(
            f"{name}(): the kernel is larger than the input: it reaches over {tuple(reach)} elements, the input with its "
            f"padding has {tuple(padded)} (input {tuple(input)}, weight {tuple(weight)}, dilation {tuple(dilation)})"
        )
    return (input[0], weight[0], *[(s - r) // t + 1 for s, r, t in zip(padded, reach, stride, strict=True)])


def _check_bias(name: str, bias: Sizes, channels: int) -> None:
    if tuple(bias) != (channels,):
        raise ShapeError(f"{name}(): bias must have shape ({channels},), one number per output channel, got {tuple(bias)}")


def _conv_spec(
    input: Spec, weight: Spec, bias: Spec | None, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int
) -> Spec:
    name = f"conv{len(stride)}d"
    same_dtype(name, input=input, weight=weight, bias=bias)
    shape = _conv_shape(input.shape, weight.shape, stride, padding, dilation, groups)
    if bias is not None:
        _check_bias(name, bias.shape, shape[1])
    return Spec(shape, input.dtype)


def _flops(input: Spec, weight: Spec, bias: Any, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> int:
    shape = _conv_shape(input.shape, weight.shape, stride, padding, dilation, groups)
    return 2 * math.prod(shape) * math.prod(weight.shape[1:])


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
        s((1, 2, 4), (2, 2, 3), (2,), **one), s((2, 1, 5), (2, 1, 2), bias=None, **{**one, "stride": (2,), "padding": (1,)}),
        s((1, 2, 3, 3), (2, 2, 2, 2), (2,), **two), s((1, 2, 3, 4), (2, 1, 2, 2), bias=None, **{**two, "groups": 2}),
        s((2, 1, 4, 3), (2, 1, 2, 1), (2,), stride=(2, 1), padding=(1, 0), dilation=(2, 1), groups=1),
        s((0, 1, 3, 3), (2, 1, 2, 2), (2,), **two), s((1, 2, 3), (1, 2, 2), (1,), kind="complex", **one),
        s((1, 1, 2, 2, 2), (1, 1, 1, 2, 2), (1,), stride=(1, 1, 1), padding=(0, 1, 0), dilation=(1, 1, 1), groups=1),
        s((1, 1, 3), (1, 1, 2), bias=None, kind="integer", **one),
        s.error(RuntimeError, "needs an input of 2 channels, got 1", (1, 1, 4), (1, 2, 3), bias=None, **one),
        s.error(RuntimeError, "kernel is larger", (1, 1, 2), (1, 1, 3), bias=None, **one),
        s.error(RuntimeError, r"bias must have shape \(2,\)", (1, 1, 4), (2, 1, 3), (3,), **one),
        s.error(RuntimeError, "groups=2 must divide", (1, 2, 4), (3, 1, 3), bias=None, **{**one, "groups": 2}),
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
    spec=_conv_spec,
    cost=_flops,
    home=(),
    samples=_conv_samples,
)
def conv(
    input: Number, weight: Number, bias: Number = None, stride: Any = (), padding: Any = (), dilation: Any = (), groups: Any = 1
) -> Any:
    """Correlate ``input`` (N, C, *spatial) with kernels ``weight`` (O, C / groups, *kernel) and add a bias per channel."""
    _conv_spec(input, weight, bias, stride, padding, dilation, groups)
    out = kernels.convolution(input, weight, stride, padding, dilation, groups)
    if bias is not None:
        out += bias.reshape(-1, *(1,) * len(stride))
    return out


def _grad_samples(s: Any, third: Any) -> list[Any]:
    """Return calls with (shape of g, shape of x or w) and the spatial sizes of the map's result."""
    one = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}
    two = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    return [
        s(*third((1, 2, 2), (1, 1, 4), (2, 1, 3)), **one),
        s(*third((2, 1, 3), (2, 2, 5), (1, 2, 2)), **{**one, "stride": (2,), "padding": (1,)}),
        s(*third((1, 2, 2, 1), (1, 2, 3, 3), (2, 1, 2, 2)), **two),
        s(*third((0, 1, 2), (0, 1, 3), (1, 1, 2)), **one),
        s(*third((1, 1, 2), (1, 1, 4), (1, 1, 2)), **one),  # one window more would fit
        s(*third((1, 1, 2), (1, 1, 3), (1, 1, 2)), kind="complex", **one),
    ]  # fmt: skip


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
    spec=lambda g, weight, size, stride, padding, dilation, groups: Spec(
        (g.shape[0], weight.shape[1] * groups, *size), g.dtype
    ),
    home=(),
    samples=lambda s: _grad_samples(s, lambda g, x, w: (g, w, s.sizes(*x[2:]))),
)
def conv_input(
    g: Number, weight: Number, size: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:  # fmt: skip
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
    spec=lambda g, input, size, stride, padding, dilation, groups: Spec(
        (g.shape[1], input.shape[1] // groups, *size), g.dtype
    ),
    home=(),
    samples=lambda s: _grad_samples(s, lambda g, x, w: (g, x, s.sizes(*w[2:]))),
)
def conv_weight(g: Number, input: Number, size: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Any:
    """Transpose of ``conv`` in its kernels, of spatial shape ``size``."""
    return kernels.convolution_weight_grad(g, input, size, stride, padding, dilation, groups)
