"""Softmax and its kin: outputs along one dimension that sum to one, or their logarithms."""

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module

__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class Softmax(Module):
    """exp(x) / Σ exp(x) along ``dim``, computed without overflow.

    Args:
        dim: the dimension that sums to one. None chooses 0 for inputs of 0, 1 or 3 dimensions and 1 otherwise, as
            PyTorch does; say it instead.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Softmax(dim=-1)(wg.tensor([1000.0, 1000.0]))
        tensor([0.5000, 0.5000])
    """

    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax of the input."""
        return ops.softmax(input, _dim(self.dim, input))


class Softmin(Module):
    """exp(-x) / Σ exp(-x) along ``dim``; see :class:`Softmax`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Softmin(dim=-1)(wg.tensor([0.0, 1000.0]))
        tensor([1., 0.])
    """

    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax of the negated input."""
        return ops.softmax(ops.neg(input), _dim(self.dim, input))


class LogSoftmax(Module):
    """log(softmax(x)) along ``dim``, computed without overflow or underflow; see :class:`Softmax`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.LogSoftmax(dim=-1)(wg.tensor([0.0, -1000.0]))
        tensor([    0., -1000.])
    """

    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the logarithm of the softmax."""
        return ops.log_softmax(input, _dim(self.dim, input))


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    Raises:
        ValueError: for an input of another number of dimensions.

    Example:
        >>> import wengert as wg
        >>> wg.nn.Softmax2d()(wg.zeros(1, 2, 1, 1)).flatten()
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax over channels."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d takes (N, C, H, W) or (C, H, W), got shape {tuple(input.shape)}")
        return ops.softmax(input, -3)


def _dim(dim: int | None, input: Tensor) -> int:
    if dim is not None:
        return dim
    return 0 if input.ndim in (0, 1, 3) else 1
