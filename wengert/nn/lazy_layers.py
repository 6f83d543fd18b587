"""Linear layers, convolutions and norms that find the number of their input channels from the first input."""

from typing import Any

from wengert.array.dtype import int64
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from wengert.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Size
from wengert.nn.lazy import LazyModuleMixin
from wengert.nn.linear import Linear
from wengert.nn.uninitialized import UninitializedBuffer, UninitializedParameter

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d", "LazyLinear",
]  # fmt: skip


class LazyLinear(LazyModuleMixin, Linear):
    """A :class:`Linear` that finds ``in_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyLinear(2)(wg.ones(5, 3)).shape
        wengert.Size([5, 2])
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False, device, dtype)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.bias = UninitializedParameter(device=device, dtype=dtype) if bias else None

    def reset_parameters(self) -> None:
        """Draw new starting values, as soon as there are shapes."""
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Give the weight as many columns as the input has features."""
        waiting, self.in_features = self.has_uninitialized_params(), input.shape[-1]
        _materialize(self.weight, (self.out_features, self.in_features))
        _materialize(self.bias, (self.out_features,))
        if waiting:
            self.reset_parameters()


def _materialize(parameter: Any, shape: tuple[int, ...]) -> None:
    if isinstance(parameter, UninitializedParameter | UninitializedBuffer):
        parameter.materialize(shape)


# ---- convolutions


class _LazyConv(LazyModuleMixin):
    """What lazy convolutions share; the other base is the convolution."""

    _dims: int
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    groups: int
    transposed: bool
    weight: Any
    bias: Any

    def _leave_open(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        if out_channels % self.groups:
            raise ValueError(f"out_channels ({out_channels}) must be divisible by groups ({self.groups})")
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new starting values, as soon as there are shapes."""
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Give the weight as many channels as the input has."""
        if input.ndim not in (self._dims + 1, self._dims + 2):
            raise RuntimeError(
                f"{type(self).__name__} takes inputs of {self._dims + 1} or {self._dims + 2} dimensions, got shape "
                f"{tuple(input.shape)}"
            )
        waiting, channels = self.has_uninitialized_params(), input.shape[-self._dims - 1]
        if channels % self.groups:
            raise ValueError(f"the input's {channels} channels must be divisible by groups ({self.groups})")
        self.in_channels = channels
        outer, inner = (channels, self.out_channels) if self.transposed else (self.out_channels, channels)
        _materialize(self.weight, (outer, inner // self.groups, *self.kernel_size))
        _materialize(self.bias, (self.out_channels,))
        if waiting:
            self.reset_parameters()


class _LazyForward(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Any = 0, dilation: Size = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        make: Any = super().__init__
        make(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._leave_open(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Any = 0, output_padding: Size = 0,
        groups: int = 1, bias: bool = True, dilation: Size = 1, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        make: Any = super().__init__
        make(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype)
        self._leave_open(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """A :class:`Conv1d` that finds ``in_channels`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyConv1d(4, 3)(wg.zeros(1, 2, 10)).shape
        wengert.Size([1, 4, 8])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A :class:`Conv2d` that finds ``in_channels`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyConv2d(4, 3)(wg.zeros(1, 2, 8, 8)).shape
        wengert.Size([1, 4, 6, 6])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A :class:`Conv3d` that finds ``in_channels`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyConv3d(4, 3)(wg.zeros(1, 2, 8, 8, 8)).shape
        wengert.Size([1, 4, 6, 6, 6])
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """A :class:`ConvTranspose1d` that finds ``in_channels`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyConvTranspose1d(4, 3)(wg.zeros(1, 2, 10)).shape
        wengert.Size([1, 4, 12])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """A :class:`ConvTranspose2d` that finds ``in_channels`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyConvTranspose2d(4, 3)(wg.zeros(1, 2, 8, 8)).shape
        wengert.Size([1, 4, 10, 10])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """A :class:`ConvTranspose3d` that finds ``in_channels`` from the first input.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LazyConvTranspose3d(4, 3)(wg.zeros(1, 2, 8, 8, 8)).shape
        wengert.Size([1, 4, 10, 10, 10])
    """

    cls_to_become = ConvTranspose3d


# ---- norms


class _LazyNorm(LazyModuleMixin):
    """What lazy norms share; the other base is the norm."""

    num_features: int
    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        make: Any = super().__init__
        make(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**place)
            self.bias = UninitializedParameter(**place) if bias else None
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**place)
            self.running_var = UninitializedBuffer(**place)
            self.num_batches_tracked = ops.tensor(0, dtype=int64, device=device)

    def reset_parameters(self) -> None:
        """Set new starting values, as soon as there are shapes."""
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()  # type: ignore[misc]

    def _channels(self, input: Tensor) -> int:
        """Return the dimension of the channels."""
        return 1

    def initialize_parameters(self, input: Tensor) -> None:
        """Give every parameter and statistic as many elements as the input has channels."""
        waiting, self.num_features = self.has_uninitialized_params(), input.shape[self._channels(input)]
        for part in (self.weight, self.bias, self.running_mean, self.running_var):
            _materialize(part, (self.num_features,))
        if waiting:
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A :class:`BatchNorm1d` that finds ``num_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyBatchNorm1d()
        >>> layer(wg.zeros(4, 3)).shape, layer
        (wengert.Size([4, 3]), BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True))
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A :class:`BatchNorm2d` that finds ``num_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyBatchNorm2d()
        >>> layer(wg.zeros(4, 3, 8, 8)).shape, layer.num_features
        (wengert.Size([4, 3, 8, 8]), 3)
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A :class:`BatchNorm3d` that finds ``num_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyBatchNorm3d()
        >>> layer(wg.zeros(4, 3, 8, 8, 8)).shape, layer.num_features
        (wengert.Size([4, 3, 8, 8, 8]), 3)
    """

    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm):
    """A norm whose input may come without a batch."""

    _dims: int

    def _channels(self, input: Tensor) -> int:
        return 0 if input.ndim == self._dims + 1 else 1


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An :class:`InstanceNorm1d`, with weights and statistics, that finds ``num_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyInstanceNorm1d()
        >>> layer(wg.zeros(4, 3, 8)).shape, layer.num_features
        (wengert.Size([4, 3, 8]), 3)
    """

    _dims = 1
    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An :class:`InstanceNorm2d`, with weights and statistics, that finds ``num_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyInstanceNorm2d()
        >>> layer(wg.zeros(4, 3, 8, 8)).shape, layer.num_features
        (wengert.Size([4, 3, 8, 8]), 3)
    """

    _dims = 2
    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An :class:`InstanceNorm3d`, with weights and statistics, that finds ``num_features`` from the first input.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyInstanceNorm3d()
        >>> layer(wg.zeros(4, 3, 8, 8, 8)).shape, layer.num_features
        (wengert.Size([4, 3, 8, 8, 8]), 3)
    """

    _dims = 3
    cls_to_become = InstanceNorm3d
