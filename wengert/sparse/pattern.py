"""Where the entries of a sparse tensor are: as coordinates (COO), or row by row in compressed form (CSR).

A pattern is never changed. Tensors computed from one another share it, so that "the same entries" is asked by identity.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wengert.array.layout import layout, sparse_coo, sparse_csr
from wengert.core.printing import elements, line_width

__all__ = ["Coo", "Csr", "Pattern", "grouped"]

Positions = NDArray[np.int64]


def grouped(keys: Positions, places: int) -> tuple[Positions, Positions]:
    """Return the distinct ones of some keys below ``places``, rising, and which of them each key is.

    Keys and where they stand are sorted together, as one number each, which takes half the time of sorting where they stand.

    Example:
        >>> grouped(np.array([5, 2, 5]), 6)
        (array([2, 5]), array([1, 0, 1]))
    """
    bits = keys.size.bit_length()
    if places.bit_length() + bits > 62:
        distinct, groups = np.unique(keys, return_inverse=True)
        return distinct, groups.reshape(-1)
    packed = keys << bits | np.arange(keys.size)
    packed.sort()
    order = packed & ((1 << bits) - 1)
    packed >>= bits
    first = np.ones(keys.size, np.bool_)
    np.not_equal(packed[1:], packed[:-1], out=first[1:])
    groups = np.empty(keys.size, np.int64)
    groups[order] = np.cumsum(first) - 1
    return packed[first], groups


class Pattern:
    """Where entries are.

    Attributes:
        shape: of the tensor. sparse_dim: how many of its dimensions, the first ones, are indexed; the rest of each entry is
            dense. count: how many entries there are. layout: what it is called. coalesced: whether positions are known to rise,
            each occurring once. captured: whether they are known only when a program runs, which is being captured.
    """

    captured = False
    layout: layout
    before_size = ",\n       "  # what stands before the size when a tensor is printed
    shape: tuple[int, ...]
    sparse_dim: int
    count: int
    coalesced: bool

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The shape of one entry."""
        return self.shape[self.sparse_dim :]

    @property
    def places(self) -> int:
        """How many positions there are, with and without entries."""
        return math.prod(self.shape[: self.sparse_dim])

    @property
    def coo(self) -> "Coo":
        """The same positions as coordinates."""
        raise NotImplementedError

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that say where entries are, by their names in PyTorch."""
        raise NotImplementedError

    def without_entries(self) -> "Pattern":
        """The pattern of the same shape and layout that has no entries."""
        return Coo(np.zeros((self.sparse_dim, 0), np.int64), self.shape, True)

    def is_same(self, other: "Pattern") -> bool:
        """Return whether another pattern has its entries at the same positions, in the same order."""
        if self is other:
            return True
        pairs = zip(self.arrays().values(), other.arrays().values(), strict=False)
        return self.layout is other.layout and all(np.array_equal(a, b) for a, b in pairs)

    def shown(self, entries: Any, dtype: str) -> str:
        """Return the parts of a tensor with ``entries`` as text, with that of its dtype before the layout."""
        parts = [
            f"{name}=tensor({elements(array)}{'' if array.shape != (0,) else ', size=(0,)'})"
            for name, array in {**self.arrays(), "values": entries}.items()
        ]
        lines = [part.replace("\n", "\n" + " " * (part.index("=") + 8)) for part in parts]
        text = ",\n       ".join(lines) + f"{self.before_size}size={self.shape}, nnz={self.count}"
        for suffix in (*dtype.split(", ")[1:], f"layout={self.layout}"):
            fits = len(text) - text.rfind("\n") + len(suffix) + 2 <= line_width()
            text += ("," + (" " if fits else "\n       ")) + suffix
        return text


class Coo(Pattern):
    """Coordinates, (sparse_dim, count). Positions that occur several times stand for the sum of their entries.

    Attributes:
        positions: the coordinates.
    """

    layout = sparse_coo

    def __init__(self, positions: Positions, shape: tuple[int, ...], coalesced: bool = False) -> None:
        self.positions, self.shape, self.coalesced = positions, shape, coalesced
        self.sparse_dim, self.count = positions.shape

    def __reduce__(self) -> Any:
        return Coo, (self.positions, self.shape, self.coalesced)

    @property
    def coo(self) -> "Coo":
        """Itself."""
        return self

    @cached_property
    def keys(self) -> Positions:
        """The positions counted in row-major order."""
        if self.sparse_dim == 1:
            return self.positions[0]
        found = np.zeros(self.count, np.int64)
        for size, line in zip(self.shape, self.positions, strict=False):
            found = found * size + line
        return found

    @cached_property
    def merged(self) -> tuple["Coo", Any]:
        """The pattern in which each position occurs once, and which entry of it each entry goes to."""
        keys, groups = grouped(self.keys, self.places)
        lines = np.unravel_index(keys, self.shape[: self.sparse_dim]) if self.sparse_dim else ()
        positions = np.array(lines, np.int64).reshape(self.sparse_dim, keys.size)
        found = Coo(positions, self.shape, True)
        found.__dict__["keys"] = keys
        return found, groups

    @cached_property
    def csr(self) -> "Csr":
        """The same positions, which must be a coalesced matrix's, in compressed rows."""
        rows, columns = self.positions
        starts = np.zeros(self.shape[0] + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=self.shape[0]), out=starts[1:])
        found = Csr(starts, columns, self.shape)
        found.__dict__["coo"] = self
        return found

    def arrays(self) -> dict[str, Any]:
        """Return the coordinates."""
        return {"indices": self.positions}

    def moved(self, dims: tuple[int, ...]) -> "Coo":
        """The positions of the tensor with its sparse dimensions in another order."""
        shape = (*(self.shape[d] for d in dims), *self.dense_shape)
        return Coo(self.positions[list(dims)], shape, self.coalesced and dims == tuple(range(self.sparse_dim)))


class Csr(Pattern):
    """Compressed rows of a matrix: the entries of row i are those from ``starts[i]`` to ``starts[i + 1]``.

    Attributes:
        starts: where rows start, and where the last one ends. columns: the column of each entry.
    """

    layout = sparse_csr
    before_size = ", "
    coalesced = True
    sparse_dim = 2

    def __init__(self, starts: Positions, columns: Positions, shape: tuple[int, ...]) -> None:
        self.starts, self.columns, self.shape, self.count = starts, columns, shape, columns.size

    def __reduce__(self) -> Any:
        return Csr, (self.starts, self.columns, self.shape)

    def without_entries(self) -> "Csr":
        """The pattern of the same shape that has no entries."""
        return Csr(np.zeros(self.shape[0] + 1, np.int64), np.zeros(0, np.int64), self.shape)

    def arrays(self) -> dict[str, Any]:
        """Return where rows start, and the columns."""
        return {"crow_indices": self.starts, "col_indices": self.columns}

    @cached_property
    def coo(self) -> Coo:
        """The same positions as coordinates."""
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.starts))
        rising = np.diff(rows * self.shape[1] + self.columns) > 0
        return Coo(np.stack([rows, self.columns]), self.shape, bool(rising.all()))
