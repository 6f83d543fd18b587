"""Tables: columns with names, and the dataset of their rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, DType, int64, to_dtype
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.data.dataset import TensorDataset
from wengert.data.schema import Column, Schema, column_of, encode
from wengert.settings import get_default_dtype

__all__ = ["Table", "TableDataset"]

Names = str | Sequence[str]


class Table(Mapping[str, Any]):
    """Columns of equal length with names: a mapping of NumPy arrays. Words are kept as codes, with their vocabulary.

    :func:`read_csv`, :func:`read_parquet` and :func:`from_arrow` make tables; so do arrays that are there already.

    Args:
        columns: one-dimensional arrays or lists of numbers or strings. Arrays of numbers are not copied.
        schema: what columns hold, such as the ``schema`` of another table, whose vocabularies are then used.

    Attributes:
        schema: the :class:`Column` of each name: its dtype, and its vocabulary if it holds words. rows: how many there are.

    Raises:
        ValueError: for columns of different lengths, of more or fewer dimensions than one, or none; for a word that the
            schema does not know. TypeError: for what is neither numbers nor strings.

    Example:
        >>> import wengert as wg
        >>> table = wg.data.Table({"city": ["Rome", "Oslo", "Rome"], "rooms": [3, 4, 2]})
        >>> table
        Table(3 rows; city: 2 words: 'Oslo', 'Rome'; rooms: int64)
        >>> table["city"], table.words("city")
        (array([1, 0, 1]), ['Rome', 'Oslo', 'Rome'])
    """

    def __init__(self, columns: Mapping[str, Any], schema: Schema | None = None) -> None:
        if not columns:
            raise ValueError("a Table needs at least one column")
        self._columns: dict[str, np.ndarray[Any, Any]] = {}
        self.schema: dict[str, Column] = {}
        for name, values in columns.items():
            self._columns[name], self.schema[name] = _held(name, values, None if schema is None else schema.get(name))
        lengths = {name: len(column) for name, column in self._columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the columns of a Table differ in length: {lengths}")
        self.rows: int = next(iter(lengths.values()))

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._columns:
            raise KeyError(f"there is no column '{name}'; the columns are: {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def words(self, name: str) -> list[str]:
        """Return the words of a column whose codes the table holds. ValueError for a column of numbers."""
        codes, vocabulary = self[name], self.schema[name].vocabulary
        if vocabulary is None:
            raise ValueError(f"column '{name}' holds numbers of dtype {self.schema[name].dtype.name}, not words")
        return [vocabulary[code] for code in codes]

    def __repr__(self) -> str:
        return f"Table({'; '.join([f'{self.rows} rows', *(f'{n}: {c!r}' for n, c in self.schema.items())])})"


def _held(name: str, values: Any, column: Column | None) -> tuple[np.ndarray[Any, Any], Column]:
    """The array that holds a column, and what it is."""
    array = values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"column '{name}' must have one dimension, got shape {array.shape}")
    if array.dtype.kind in "UT" or (array.dtype.kind == "O" and all(isinstance(v, str) for v in array)):
        texts = [str(text) for text in array]
        column = column or column_of("category", texts)
        if column.vocabulary is None:
            raise ValueError(f"column '{name}' holds words, but the schema says {column!r}")
        return encode(name, texts, column, lambda i: f"row {i}"), column
    if array.dtype.kind not in "biuf":
        raise TypeError(f"column '{name}' must hold numbers or strings, got an array of dtype {array.dtype}")
    column = column or Column(to_dtype(array.dtype))
    words = column.vocabulary
    if words is not None and not (array.dtype.kind in "iu" and np.all((array >= 0) & (array < len(words)))):
        raise ValueError(f"column '{name}' must hold words or codes below {len(words)}, got an array of {array.dtype}")
    return array.astype(column.dtype.numpy, copy=False), column


class TableDataset(TensorDataset):
    """The rows of a table as samples ``(numbers, codes, target)``; what a table does not have is left out.

    ``numbers`` holds the features that are numbers, ``codes`` (int64) the words of those that are words, for
    :class:`wengert.nn.Embedding`, ``target`` what is to be predicted.

    Args:
        table: a :class:`Table`.
        target: the column to predict: words become their codes, integers and bools int64, other numbers ``dtype``.
            Several columns of numbers become a row of ``dtype``.
        features: the columns to predict from (default: all others), in this order.
        dtype: of the numbers (default: the default dtype).

    Attributes:
        features: the names of the columns to predict from, in order: ``read_csv(path, columns=data.features,
            schema=table.schema)`` reads what a model that was trained on ``data`` takes.
        numeric, categorical: the names of the columns in ``numbers`` and in ``codes``.
        cardinalities: how many words each column in ``codes`` has.
        classes: the words of the target; None where it is no word.

    Raises:
        KeyError: for a column that is not there. ValueError: for a target that is a feature too, or no feature.

    Example:
        >>> import wengert as wg
        >>> table = wg.data.Table({"size": [50, 90], "city": ["Rome", "Oslo"], "price": [1.5, 2.5]})
        >>> data = wg.data.TableDataset(table, target="price")
        >>> data[0]
        (tensor([50.]), tensor([1]), tensor(1.5000))
        >>> data.numeric, data.categorical, data.cardinalities
        (['size'], ['city'], [2])
    """

    def __init__(
        self,
        table: Table,
        target: Names | None = None,
        features: Sequence[str] | None = None,
        dtype: DType | None = None,
    ) -> None:
        if not isinstance(table, Table):
            raise TypeError(f"TableDataset takes a Table, got {type(table).__name__}")
        if isinstance(features, str):
            raise TypeError(f"features must be a list of names, got {features!r}")
        targets = [] if target is None else [target] if isinstance(target, str) else list(target)
        features = [name for name in table if name not in targets] if features is None else list(features)
        if not features:
            raise ValueError("TableDataset needs at least one feature")
        if shared := [name for name in features if name in targets]:
            raise ValueError(f"a column cannot be feature and target at once: {', '.join(shared)}")
        for name in (*features, *targets):
            table[name]  # names what is missing
        self.schema = table.schema
        self.features = features
        self.numeric = [name for name in features if table.schema[name].vocabulary is None]
        self.categorical = [name for name in features if table.schema[name].vocabulary is not None]
        self.cardinalities = [len(table.schema[name].vocabulary or ()) for name in self.categorical]
        self.classes = table.schema[target].vocabulary if isinstance(target, str) else None
        dtype = dtype or get_default_dtype()
        parts = [_matrix(table, self.numeric, dtype), _matrix(table, self.categorical, int64)]
        if isinstance(target, str):
            is_real = table.schema[target].dtype.category == FLOAT
            parts.append(ops.tensor(table[target], dtype=dtype if is_real else int64))
        elif targets:
            if words := [name for name in targets if table.schema[name].vocabulary is not None]:
                raise ValueError(f"several targets must be numbers, but these hold words: {', '.join(words)}")
            parts.append(_matrix(table, targets, dtype))
        super().__init__(*[part for part in parts if part is not None])


def _matrix(table: Table, names: Sequence[str], dtype: DType) -> Any:
    """Some columns side by side; None for no column."""
    return ops.from_numpy(np.stack([table[n].astype(dtype.numpy) for n in names], axis=1)) if names else None
