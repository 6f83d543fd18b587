"""Tables from Arrow and Parquet, through pyarrow."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from wengert.data.schema import Schema
from wengert.data.table import Table
from wengert.extras import require

__all__ = ["from_arrow", "read_parquet"]

Missing = Literal["error", "drop"] | Mapping[str, Any]


def from_arrow(table: Any, *, schema: Schema | None = None, missing: Missing = "error") -> Table:
    """Return an Arrow table (or record batch) as a :class:`Table`: numbers and bools as they are, strings as words.

    Args:
        table: a pyarrow Table or RecordBatch, such as what ``pyarrow.csv.read_csv`` returns.
        schema: whose vocabularies are used, such as the ``schema`` of another table.
        missing: what to do with nulls: "error"; "drop" leaves their rows out; a dictionary gives a value for each column
            where some are missing.

    Raises:
        ValueError: for a null, naming column and row. TypeError: for a column of another type, and what is no Arrow table.
        MissingExtraError: if pyarrow is not installed.

    Example:
        >>> import wengert as wg
        >>> import pyarrow as pa  # doctest: +SKIP
        >>> wg.data.from_arrow(pa.table({"city": ["Rome", "Oslo"], "rooms": [3, 4]}))  # doctest: +SKIP
        Table(2 rows; city: 2 words: 'Oslo', 'Rome'; rooms: int64)
    """
    pa = require("pyarrow", "data")
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise TypeError(f"from_arrow() takes a pyarrow Table or RecordBatch, got {type(table).__name__}")
    if not (missing in ("error", "drop") if isinstance(missing, str) else isinstance(missing, Mapping)):
        raise ValueError(f"missing must be 'error', 'drop' or a dictionary of values, got {missing!r}")
    if missing == "drop":
        table = table.drop_null()
    given = missing if isinstance(missing, Mapping) else {}
    return Table({name: _values(name, table[name], given, pa) for name in table.column_names}, schema)


def read_parquet(
    source: str | os.PathLike[str], *, columns: Sequence[str] | None = None, schema: Schema | None = None,
    missing: Missing = "error",
) -> Table:  # fmt: skip
    """Read a Parquet file, or some of its columns; arguments and errors are those of :func:`from_arrow`.

    Example:
        >>> import wengert as wg
        >>> wg.data.read_parquet("homes.parquet", columns=["size", "price"])  # doctest: +SKIP
        Table(200 rows; size: int64; price: float64)
    """
    parquet = require("pyarrow.parquet", "data")
    names = parquet.read_schema(source).names
    if unknown := [name for name in columns or () if name not in names]:
        raise ValueError(f"{os.fspath(source)} has no column '{unknown[0]}'; its columns are: {', '.join(names)}")
    table = parquet.read_table(source, columns=None if columns is None else list(columns))
    return from_arrow(table, schema=schema, missing=missing)


def _values(name: str, column: Any, given: Mapping[str, Any], pa: Any) -> Any:
    """A column as numbers, or as a list of strings, with what is given in the place of nulls."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    words = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (words or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise TypeError(f"column '{name}' must hold numbers, bools or strings, got {kind}; cast it first")
    if column.null_count:
        if name not in given:
            row = int(np.argmax(column.is_null().to_numpy()))
            raise ValueError(
                f"row {row}, column '{name}': the value is null; give missing='drop' to leave such rows out, "
                f"or missing={{'{name}': value}}"
            )
        column = column.fill_null(pa.scalar(given[name], kind))
    return column.to_pylist() if words else column.to_numpy()
