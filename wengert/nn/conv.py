"""Convolutions and transposed convolutions over one, two and three dimensions."""

import math
from typing import Any

from wengert.array.shape import as_int
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter, unset
from wengert.nn.sizes import per_dim, reversed_twice

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")

Size = int | tuple[int, ...]


class _Conv(Module):
    """What all convolutions share: checked settings, parameters and their starting values."""

    _dims: int
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size, padding: Size | str, dilation: Size,
        output_padding: Size, groups: int, bias: bool, padding_mode: str, device: Any, dtype: Any, transposed: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        in_channels, out_channels = as_int(in_channels, "in_channels"), as_int(out_channels, "out_channels")
        if as_int(groups, "groups") <= 0:
            raise ValueError(f"groups must be positive, got {groups}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} ({channels}) must be divisible by groups ({groups})")
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {', '.join(PADDING_MODES)}, got '{padding_mode}'")
        dims = self._dims
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = per_dim(kernel_size, dims, "kernel_size")
        self.stride = per_dim(stride, dims, "stride")
        self.padding: tuple[int, ...] | str = padding if isinstance(padding, str) else per_dim(padding, dims, "padding")
        self.dilation = per_dim(dilation, dims, "dilation")
        self.transposed = transposed
        self.output_padding = per_dim(output_padding, dims, "output_padding")
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            self._check_named_padding(padding)
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.register_parameter("weight", unset((outer, inner // groups, *self.kernel_size), device, dtype))
        self.register_parameter("bias", unset(out_channels, device, dtype, bias))
        self.reset_parameters()

    def _check_named_padding(self, padding: str) -> None:
        if padding not in ("same", "valid"):
            raise ValueError(f"padding must be sizes, 'same' or 'valid', got '{padding}'")
        if padding == "same" and any(stride != 1 for stride in self.stride):
            raise ValueError(f"padding='same' needs stride 1, got {self.stride}")

    def reset_parameters(self) -> None:
        """Draw new starting values, uniform on [-b, b] with b = 1 / √(input channels per group · kernel size)."""
        if self.weight.numel() == 0:
            return
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Channels, kernel, and every setting that differs from its default."""
        zeros = (0,) * self._dims
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        parts += [f"padding={self.padding}"] * (self.padding != zeros)
        parts += [f"dilation={self.dilation}"] * (self.dilation != (1,) * self._dims)
        parts += [f"output_padding={self.output_padding}"] * (self.output_padding != zeros)
        parts += [f"groups={self.groups}"] * (self.groups != 1)
        parts += ["bias=False"] * (self.bias is None)
        parts += [f"padding_mode={self.padding_mode}"] * (self.padding_mode != "zeros")
        return ", ".join(parts)


class _Forward(_Conv):
    """An ordinary convolution; its operator is chosen by the number of dimensions."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size | str = 0,
        dilation: Size = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode,
            device, dtype, transposed=False,
        )  # fmt: skip

    def _edges(self) -> tuple[int, ...]:
        """How much ``pad`` must add on each side, last dimension first."""
        if self.padding == "valid":
            return (0,) * (2 * self._dims)
        if self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return tuple(side for total in reversed(totals) for side in (total // 2, total - total // 2))
        assert isinstance(self.padding, tuple)
        return reversed_twice(self.padding)

    def _convolve(self, operator: Any, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return operator(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        padded = ops.pad(input, self._edges(), mode=self.padding_mode)
        return operator(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Conv1d(_Forward):
    """Cross-correlates a signal with learned kernels.

    Args:
        in_channels, out_channels: numbers of channels. kernel_size, stride, dilation: ints.
        padding: how much to add on both sides, ``"valid"`` (none) or ``"same"`` (keeps the length; stride 1).
        groups: how many groups of channels are convolved apart. bias: whether to add a number per channel.
        padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.

    Shape:
        (N, C, L) or (C, L) → (N, C', L'), L' = ⌊(L + 2·padding - dilation·(kernel_size - 1) - 1) / stride⌋ + 1.

    Raises:
        ValueError: for channels that ``groups`` does not divide, or an unknown padding or padding mode.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Conv1d(2, 4, 3, padding="same")(wg.zeros(1, 2, 10)).shape
        wengert.Size([1, 4, 10])
    """

    _dims = 1

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution of ``input``."""
        return self._convolve(ops.conv1d, input)


class Conv2d(_Forward):
    """Cross-correlates images with learned kernels; arguments as :class:`Conv1d`, ints or pairs.

    Shape:
        (N, C, H, W) or (C, H, W) → (N, C', H', W').

    Example:
        >>> import wengert as wg
        >>> wg.nn.Conv2d(3, 8, (3, 5), stride=2, padding=(1, 2))(wg.zeros(1, 3, 8, 8)).shape
        wengert.Size([1, 8, 4, 4])
    """

    _dims = 2

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution of ``input``."""
        return self._convolve(ops.conv2d, input)


class Conv3d(_Forward):
    """Cross-correlates volumes with learned kernels; arguments as :class:`Conv1d`, ints or triples.

    Shape:
        (N, C, D, H, W) or (C, D, H, W) → (N, C', D', H', W').

    Example:
        >>> import wengert as wg
        >>> wg.nn.Conv3d(1, 2, 3)(wg.zeros(1, 1, 5, 5, 5)).shape
        wengert.Size([1, 2, 3, 3, 3])
    """

    _dims = 3

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution of ``input``."""
        return self._convolve(ops.conv3d, input)


class _Transposed(_Conv):
    """A transposed convolution: the gradient of a convolution with respect to its input."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Any = 0,
        output_padding: Size = 0, groups: int = 1, bias: bool = True, dilation: Size = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__} supports only padding_mode='zeros', got '{padding_mode}'")
        if isinstance(padding, str):
            raise TypeError(f"{type(self).__name__} takes padding sizes, got '{padding}'")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
            padding_mode, device, dtype, transposed=True,
        )  # fmt: skip

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """The output padding that gives ``output_size``, or the layer's own."""
        if output_size is None:
            return self.output_padding
        dims = self._dims
        wanted = tuple(output_size)[-dims:]
        assert isinstance(self.padding, tuple)
        least = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(
                input.shape[-dims:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        extra = tuple(w - low for w, low in zip(wanted, least, strict=True))
        if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, self.stride, self.dilation, strict=True)):
            most = [low + max(s, d) - 1 for low, s, d in zip(least, self.stride, self.dilation, strict=True)]
            raise ValueError(f"output_size {wanted} is out of reach: each size must lie between {least} and {most}")
        return extra

    def _transpose(self, operator: Any, input: Tensor, output_size: Any) -> Tensor:
        extra = self._output_padding(input, output_size)
        return operator(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_Transposed):
    """Spreads a signal with learned kernels: the transpose of :class:`Conv1d`.

    Args:
        output_padding: added to one side of the output, to choose among the sizes that a strided convolution maps
            to the same size. The others are those of :class:`Conv1d`.

    Shape:
        (N, C, L) or (C, L) → (N, C', L'), L' = (L - 1)·stride - 2·padding + dilation·(kernel_size - 1)
        + output_padding + 1. ``weight`` is (C, C' / groups, kernel_size).

    Example:
        >>> import wengert as wg
        >>> wg.nn.ConvTranspose1d(2, 4, 3, stride=2)(wg.zeros(1, 2, 5), output_size=(12,)).shape
        wengert.Size([1, 4, 12])
    """

    _dims = 1

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Return the transposed convolution; ``output_size`` chooses the output padding."""
        return self._transpose(ops.conv_transpose1d, input, output_size)


class ConvTranspose2d(_Transposed):
    """Spreads images with learned kernels; arguments as :class:`ConvTranspose1d`, ints or pairs.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ConvTranspose2d(2, 4, 3, stride=2)(wg.zeros(1, 2, 5, 5)).shape
        wengert.Size([1, 4, 11, 11])
    """

    _dims = 2

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Return the transposed convolution; ``output_size`` chooses the output padding."""
        return self._transpose(ops.conv_transpose2d, input, output_size)


class ConvTranspose3d(_Transposed):
    """Spreads volumes with learned kernels; arguments as :class:`ConvTranspose1d`, ints or triples.

    Example:
        >>> import wengert as wg
        >>> wg.nn.ConvTranspose3d(1, 2, 2, stride=2)(wg.zeros(1, 1, 2, 2, 2)).shape
        wengert.Size([1, 2, 4, 4, 4])
    """

    _dims = 3

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Return the transposed convolution; ``output_size`` chooses the output padding."""
        return self._transpose(ops.conv_transpose3d, input, output_size)
