"""Distances and similarities between pairs of vectors."""

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """x1·x2 / (max(‖x1‖, eps) · max(‖x2‖, eps)) along ``dim``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.CosineSimilarity(dim=0)(wg.tensor([3.0, 4.0]), wg.tensor([4.0, 3.0])).item()
        0.9600000381469727
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the similarities."""
        return ops.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """‖x1 - x2 + eps‖ₚ along the last dimension.

    Example:
        >>> import wengert as wg
        >>> wg.nn.PairwiseDistance(eps=0.0)(wg.tensor([[3.0, 4.0]]), wg.zeros(1, 2))
        tensor([5.])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return the distances."""
        return ops.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
