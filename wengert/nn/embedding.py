"""Tables of vectors looked up by integer indices."""

from typing import Any

from wengert.array.shape import as_int
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tape.modes import no_grad

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """The weight and the settings both layers share."""

    weight: Parameter

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None,
        norm_type: float, scale_grad_by_freq: bool, sparse: bool, weight: Tensor | None, freeze: bool,
        device: Any, dtype: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= as_int(padding_idx, "padding_idx") < num_embeddings:
            raise ValueError(f"padding_idx {padding_idx} is outside a table of {num_embeddings} rows")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx + num_embeddings if padding_idx is not None and padding_idx < 0 else padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if weight is None:
            table = ops.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not freeze)
            self.reset_parameters()
        elif not isinstance(weight, Tensor):
            raise TypeError(f"the given weight must be a tensor, got {weight!r}")
        elif tuple(weight.shape) != (num_embeddings, embedding_dim):
            raise ValueError(
                f"the given weight has shape {tuple(weight.shape)}, expected {(num_embeddings, embedding_dim)}"
            )
        else:
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw the table from the standard normal distribution; the padding row is zero."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                ops.select(self.weight, 0, self.padding_idx).fill_(0)

    def _settings(self) -> list[str]:
        """Every setting of the lookup that differs from its default."""
        parts = [f"max_norm={self.max_norm}"] * (self.max_norm is not None)
        parts += [f"norm_type={self.norm_type}"] * (self.norm_type != 2)
        parts += [f"scale_grad_by_freq={self.scale_grad_by_freq}"] * self.scale_grad_by_freq
        return parts

    def _padding(self) -> list[str]:
        return [f"padding_idx={self.padding_idx}"] * (self.padding_idx is not None)


class Embedding(_Table):
    """Looks up rows of a learned table.

    Args:
        num_embeddings, embedding_dim: rows and columns of the table.
        padding_idx: a row that gets no gradient; it starts at zero.
        max_norm: rows that are looked up are first scaled down, in place, to at most this ``norm_type`` norm.
        scale_grad_by_freq: divide a row's gradient by how often it was looked up.
        sparse: let the gradient of the table be a COO tensor of the rows that were looked up.

    Shape:
        indices (*) → (*, embedding_dim).

    Raises:
        ValueError: for a padding index or a weight that does not fit.

    Example:
        >>> import wengert as wg
        >>> table = wg.nn.Embedding.from_pretrained(wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> table(wg.tensor([1, 0]))
        tensor([[3., 4.],
                [1., 2.]])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            _freeze, device, dtype,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> "Embedding":  # fmt: skip
        """Make a layer on a given table (rows, columns); with ``freeze`` it is not trained."""
        rows, columns = _table_shape(embeddings)
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows at the indices ``input``."""
        return ops.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """Sizes, and every setting that differs from its default."""
        sizes, sparse = f"{self.num_embeddings}, {self.embedding_dim}", ["sparse=True"] * self.sparse
        return ", ".join([sizes, *self._padding(), *self._settings(), *sparse])


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a learned table, one per bag of indices.

    Args:
        mode: ``"sum"``, ``"mean"`` or ``"max"``. include_last_offset: ``offsets`` ends with the number of indices.
        padding_idx: a row left out of every bag. The others are those of :class:`Embedding`.

    Shape:
        indices (B, N) → (B, embedding_dim), or indices (N,) with ``offsets`` (B,), where each bag starts.

    Example:
        >>> import wengert as wg
        >>> bags = wg.nn.EmbeddingBag.from_pretrained(wg.tensor([[1.0], [3.0]]), mode="sum")
        >>> bags(wg.tensor([0, 1, 1]), wg.tensor([0, 2]))
        tensor([[4.],
                [3.]])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
        *, _freeze: bool = False,
    ) -> None:  # fmt: skip
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"mode must be 'sum', 'mean' or 'max', got '{mode}'")
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            _freeze, device, dtype,
        )  # fmt: skip
        self.mode = mode
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> "EmbeddingBag":  # fmt: skip
        """Make a layer on a given table (rows, columns); with ``freeze`` it is not trained."""
        rows, columns = _table_shape(embeddings)
        return cls(
            rows, columns, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset,
            padding_idx, _freeze=freeze,
        )  # fmt: skip

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return one row per bag; ``per_sample_weights`` (mode ``"sum"``) weighs each index."""
        return ops.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Sizes, the mode, and every other setting that differs from its default."""
        sizes, mode = f"{self.num_embeddings}, {self.embedding_dim}", f"mode={self.mode!r}"
        return ", ".join([sizes, *self._settings(), mode, *self._padding()])


def _table_shape(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.ndim != 2:
        raise ValueError(f"a table of embeddings has 2 dimensions, got shape {tuple(embeddings.shape)}")
    return embeddings.shape[0], embeddings.shape[1]
