"""Batch and instance normalisation, with running statistics (Ioffe & Szegedy, ICML 2015; Ulyanov et al., 2016)."""

from typing import Any

from wengert.array.dtype import int64
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter, unset

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _Norm(Module):
    """The settings, parameters and running statistics of batch and instance normalisation."""

    _version = 2  # layout 2 has num_batches_tracked
    _allowed: tuple[int, ...]
    _layout: str
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
        device: Any, dtype: Any, bias: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.register_parameter("weight", unset(num_features, device, dtype, affine))
        self.register_parameter("bias", unset(num_features, device, dtype, affine and bias))
        tracked = track_running_stats
        self.register_buffer("running_mean", ops.zeros(num_features, **place) if tracked else None)
        self.register_buffer("running_var", ops.ones(num_features, **place) if tracked else None)
        self.register_buffer("num_batches_tracked", ops.tensor(0, dtype=int64, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Start the running statistics again: mean 0, variance 1, no batches."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Start the statistics again, the weight at 1 and the bias at 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def extra_repr(self) -> str:
        """Features and settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _wrong_input(self, input: Tensor) -> ValueError:
        return ValueError(f"{type(self).__name__} takes {self._layout}, got shape {tuple(input.shape)}")

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """A state without layout version, or of layout 1, may lack the number of batches: the own one is kept."""
        if local_metadata.get("version", 1) < 2 and self.num_batches_tracked is not None:
            state_dict.setdefault(f"{prefix}num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_Norm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, normalised over all dimensions but the second."""
        if input.ndim not in self._allowed:
            raise self._wrong_input(input)
        own_statistics = self.training or self.running_mean is None
        average = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                average = 1.0 / float(self.num_batches_tracked.item())
        tracked = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if tracked else (None, None)
        return ops.batch_norm(input, mean, var, self.weight, self.bias, own_statistics, average, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalises each channel of (N, C) or (N, C, L) to mean 0 and variance 1, then scales and shifts it.

    In training the statistics are the batch's (biased variance) and the running ones move towards them by
    ``momentum`` (unbiased variance; None: their plain average over all batches). In evaluation the running
    statistics are used.

    Args:
        num_features: C. eps: added to the variance. affine: learn a weight and (``bias``) a bias per channel.
        track_running_stats: keep running statistics; without them the batch's are used in evaluation too.

    Raises:
        ValueError: for an input of another number of dimensions, or one value per channel in training.

    Example:
        >>> import wengert as wg
        >>> wg.nn.BatchNorm1d(1)(wg.tensor([[1.0], [3.0]])).tolist()
        [[-0.9999949932098389], [0.9999949932098389]]
    """

    _allowed, _layout = (2, 3), "(N, C) or (N, C, L)"


class BatchNorm2d(_BatchNorm):
    """Normalises each channel of (N, C, H, W); see :class:`BatchNorm1d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.BatchNorm2d(3)(wg.zeros(2, 3, 4, 4)).shape
        wengert.Size([2, 3, 4, 4])
    """

    _allowed, _layout = (4,), "(N, C, H, W)"


class BatchNorm3d(_BatchNorm):
    """Normalises each channel of (N, C, D, H, W); see :class:`BatchNorm1d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.BatchNorm3d(3)(wg.zeros(2, 3, 2, 2, 2)).shape
        wengert.Size([2, 3, 2, 2, 2])
    """

    _allowed, _layout = (5,), "(N, C, D, H, W)"


class _InstanceNorm(_Norm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, each channel of each sample normalised over its positions."""
        if input.ndim not in self._allowed:
            raise self._wrong_input(input)
        unbatched = input.ndim == min(self._allowed)
        channels = input.shape[0 if unbatched else 1]
        if channels != self.num_features and self.affine:
            raise ValueError(
                f"{type(self).__name__} was made for {self.num_features} channels, got {channels} in an input of shape "
                f"{tuple(input.shape)}"
            )
        out = ops.instance_norm(
            input.unsqueeze(0) if unbatched else input, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip
        return out.squeeze(0) if unbatched else out


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, L) or (C, L) over L; arguments as :class:`BatchNorm1d`.

    By default it has neither weights nor running statistics.

    Example:
        >>> import wengert as wg
        >>> wg.nn.InstanceNorm1d(1)(wg.tensor([[[1.0, 3.0]]])).tolist()
        [[[-0.9999949932098389, 0.9999949932098389]]]
    """

    _allowed, _layout = (2, 3), "(N, C, L) or (C, L)"


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, H, W) or (C, H, W); see :class:`InstanceNorm1d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.InstanceNorm2d(3)(wg.zeros(2, 3, 4, 4)).shape
        wengert.Size([2, 3, 4, 4])
    """

    _allowed, _layout = (3, 4), "(N, C, H, W) or (C, H, W)"


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, D, H, W) or (C, D, H, W); see :class:`InstanceNorm1d`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.InstanceNorm3d(3)(wg.zeros(2, 3, 2, 2, 2)).shape
        wengert.Size([2, 3, 2, 2, 2])
    """

    _allowed, _layout = (4, 5), "(N, C, D, H, W) or (C, D, H, W)"
