"""Tables from CSV files: read whole, or as a stream where they are too large for that."""

import csv
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any, Literal, NamedTuple

from wengert.array.dtype import DType
from wengert.core.place import stacklevel
from wengert.data.dataset import IterableDataset
from wengert.data.schema import MISSING, Column, Kinds, Schema, column_of, parse
from wengert.data.table import Table, TableDataset
from wengert.data.workers import get_worker_info

__all__ = ["CSVStream", "read_csv", "scan_csv"]

Source = str | os.PathLike[str] | IO[str]
Given = Mapping[str, DType | Column | Literal["category"]]
Missing = Literal["error", "drop"] | Mapping[str, Any]

_DELIMITERS = (";", "\t", "|")  # that other files have
_ROWS = 1024  # that a scan or a stream holds at once


class _Row(NamedTuple):
    line: int
    cells: list[str]


class _Cells(NamedTuple):
    """Some rows, by columns, and the lines where they stand."""

    lines: list[int]
    columns: dict[str, list[str]]


def read_csv(
    source: Source, *, columns: Sequence[str] | None = None, dtypes: Given | None = None, schema: Schema | None = None,
    missing: Missing = "error", missing_words: Iterable[str] = MISSING, names: Sequence[str] | None = None,
    delimiter: str = ",", encoding: str = "utf-8-sig",
) -> Table:  # fmt: skip
    """Read a CSV file whole.

    A column whose cells are all true or false is bool, integers int64, other numbers float64; anything else, dates and
    digits that begin with a 0 included, is words, in order of the alphabet.

    Args:
        source: a path, or an open text file.
        columns: which ones to read (default: all).
        dtypes: what columns hold, where it is not to be found out: a dtype, or "category" for words.
        schema: what the columns hold: the ``schema`` of the table that a model was trained on gives the codes of that table.
        missing: what to do with a cell without a value: "error"; "drop" leaves its row out; a dictionary gives a value for
            each column where some are missing.
        missing_words: the texts that stand for no value.
        names: the names of the columns, for a file whose first line is none of names.
        delimiter: between cells. encoding: of the file.

    Raises:
        ValueError: for a missing value, a cell that is no value of its column, a row of another length, names that are
            missing or occur twice, a file without rows; each says where it stands in the file. FileNotFoundError.

    Example:
        >>> import io
        >>> import wengert as wg
        >>> table = wg.data.read_csv(io.StringIO("size,city\\n50,Rome\\n90.5,Oslo\\n"))
        >>> table
        Table(2 rows; size: float64; city: 2 words: 'Oslo', 'Rome')
        >>> wg.data.read_csv(io.StringIO("size,city\\n50,Rome\\n,Oslo\\n"))
        Traceback (most recent call last):
            ...
        ValueError: the given file, line 3, column 'size': the value is missing; give missing='drop' to leave such rows
            out, or missing={'size': value}
    """
    _check_apart(schema, dtypes)
    file = _File(source, columns, missing, missing_words, names, delimiter, encoding)
    cells = _Cells([], {name: [] for name in file.names})
    for piece in _pieces(file, file.rows()):
        cells.lines.extend(piece.lines)
        for name, column in piece.columns.items():
            cells.columns[name] += column
    if not cells.lines:
        raise ValueError(f"{file.name} has no rows")
    if schema is None:
        kinds = Kinds(file.names)
        for name in file.names:
            kinds.see(name, cells.columns[name])
        found = _given(kinds, file, dtypes)
        schema = {name: column_of(found[name], cells.columns[name]) for name in file.names}
    return _table(file, cells, _chosen(file, schema))


def scan_csv(
    source: str | os.PathLike[str], *, columns: Sequence[str] | None = None, dtypes: Given | None = None,
    missing: Missing = "error", missing_words: Iterable[str] = MISSING, names: Sequence[str] | None = None,
    delimiter: str = ",", encoding: str = "utf-8-sig",
) -> dict[str, Column]:  # fmt: skip
    """Return what the columns of a CSV file hold, without holding the file: one pass, and a second one for words.

    Arguments and errors are those of :func:`read_csv`; the file must be a path.

    Example:
        >>> import wengert as wg
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "homes.csv")
        >>> _ = path.write_text("size,city\\n50,Rome\\n90.5,Oslo\\n")
        >>> wg.data.scan_csv(path)
        {'size': float64, 'city': 2 words: 'Oslo', 'Rome'}
    """
    file = _File(_path("scan_csv", source), columns, missing, missing_words, names, delimiter, encoding)
    kinds, some = Kinds(file.names), False
    for piece in _pieces(file, file.rows()):
        some = True
        for name, cells in piece.columns.items():
            kinds.see(name, cells)
    if not some:
        raise ValueError(f"{file.name} has no rows")
    found = _given(kinds, file, dtypes)
    words: dict[str, set[str]] = {name: set() for name, given in found.items() if given == "category"}
    for piece in _pieces(file, file.rows()) if words else ():
        for name, seen in words.items():
            seen.update(piece.columns[name])
    return {name: column_of(given, words.get(name, ())) for name, given in found.items()}


class CSVStream(IterableDataset[Any]):
    """The rows of a CSV file as a stream of samples, those of :class:`TableDataset`; a few of them are held at a time.

    The workers of a loader share the rows: worker i of n takes every n-th row from the i-th one on.

    Args:
        source: a path.
        target, features, dtype: as of :class:`TableDataset`.
        schema: what the columns hold (default: what :func:`scan_csv` finds).
        columns, dtypes, missing, missing_words, names, delimiter, encoding: as of :func:`read_csv`.

    Raises:
        ValueError: as :func:`read_csv`, when the row comes. KeyError, ValueError: as :class:`TableDataset`.

    Example:
        >>> import pathlib, tempfile
        >>> import wengert as wg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "homes.csv")
        ...     _ = path.write_text("size,price\\n50,1.5\\n90,2.5\\n")
        ...     list(wg.data.CSVStream(path, target="price"))
        [(tensor([50.]), tensor(1.5000)), (tensor([90.]), tensor(2.5000))]
    """

    def __init__(
        self, source: str | os.PathLike[str], target: str | Sequence[str] | None = None,
        features: Sequence[str] | None = None, dtype: DType | None = None, *, schema: Schema | None = None,
        columns: Sequence[str] | None = None, dtypes: Given | None = None, missing: Missing = "error",
        missing_words: Iterable[str] = MISSING, names: Sequence[str] | None = None, delimiter: str = ",",
        encoding: str = "utf-8-sig",
    ) -> None:  # fmt: skip
        _check_apart(schema, dtypes)
        self._file = _File(_path("CSVStream", source), columns, missing, missing_words, names, delimiter, encoding)
        if schema is None:
            schema = scan_csv(
                source, columns=columns, dtypes=dtypes, missing=missing, missing_words=missing_words, names=names,
                delimiter=delimiter, encoding=encoding,
            )  # fmt: skip
        self.schema = _chosen(self._file, schema)
        self._arguments = (target, features, dtype)
        empty = self._dataset(_Cells([], {name: [] for name in self._file.names}))  # wrong names are named here
        self.features, self.numeric, self.categorical = empty.features, empty.numeric, empty.categorical
        self.cardinalities, self.classes = empty.cardinalities, empty.classes

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        mine = self._file.rows() if worker is None else islice(self._file.rows(), worker.id, None, worker.num_workers)
        for piece in _pieces(self._file, mine):
            yield from zip(*[part.unbind() for part in self._dataset(piece).tensors], strict=True)

    def _dataset(self, cells: _Cells) -> TableDataset:
        return TableDataset(_table(self._file, cells, self.schema), *self._arguments)


# ---- rows ----------------------------------------------------------------------------


class _File:
    """The rows of a file, each of the right length and without missing values."""

    def __init__(
        self, source: Source, columns: Sequence[str] | None, missing: Missing, missing_words: Iterable[str],
        names: Sequence[str] | None, delimiter: str, encoding: str,
    ) -> None:  # fmt: skip
        if not (missing in ("error", "drop") if isinstance(missing, str) else isinstance(missing, Mapping)):
            raise ValueError(f"missing must be 'error', 'drop' or a dictionary of values, got {missing!r}")
        self.source, self.delimiter, self.encoding = source, delimiter, encoding
        self.name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the given file"
        self.missing, self.missing_words = missing, frozenset(missing_words)
        self.headed = names is None
        lines = self._lines()
        self.all_names = self._header(lines) if names is None else list(names)
        self._rest = None if isinstance(source, str | os.PathLike) else lines
        self._check_names()
        self.names = self.all_names if columns is None else list(columns)
        for name in (*self.names, *(missing if isinstance(missing, Mapping) else ())):
            self.check_name(name)
        self._positions = None if columns is None else [self.all_names.index(name) for name in self.names]

    def rows(self) -> Iterator[_Row]:
        """Yield the rows; of a path, again each time."""
        lines = self._rest
        if lines is None:
            lines = self._lines()
            if self.headed:
                next(lines)
        width, positions = len(self.all_names), self._positions
        for line, cells in lines:
            if len(cells) != width:
                raise ValueError(f"{self.name}, line {line}: {len(cells)} cells where {width} are expected: {cells}")
            row = [*map(str.strip, cells)] if positions is None else [cells[i].strip() for i in positions]
            if self.missing_words.isdisjoint(row):
                yield _Row(line, row)
            elif self.missing != "drop":
                yield _Row(line, [self._filled(line, name, text) for name, text in zip(self.names, row, strict=True)])

    def check_name(self, name: str) -> None:
        """Raise ValueError if the file has no such column."""
        if name not in self.all_names:
            raise ValueError(f"{self.name} has no column '{name}'; its columns are: {', '.join(self.all_names)}")

    def _filled(self, line: int, name: str, text: str) -> str:
        """The text of a cell, or what the user gave for it."""
        if text not in self.missing_words:
            return text
        if isinstance(self.missing, Mapping) and name in self.missing:
            return str(self.missing[name])
        raise ValueError(
            f"{self.name}, line {line}, column '{name}': the value is missing; give missing='drop' to leave such rows "
            f"out, or missing={{'{name}': value}}"
        )

    def _lines(self) -> Iterator[_Row]:
        if isinstance(self.source, str | os.PathLike):
            with open(self.source, encoding=self.encoding, newline="") as file:
                yield from self._split(file)
        else:
            yield from self._split(self.source)

    def _split(self, file: Iterable[str]) -> Iterator[_Row]:
        reader = csv.reader(file, delimiter=self.delimiter, strict=True, skipinitialspace=True)
        try:
            for cells in reader:
                if cells:
                    yield _Row(reader.line_num, cells)
        except csv.Error as error:
            raise ValueError(f"{self.name}, line {reader.line_num}: {error}") from error
        except UnicodeDecodeError as error:
            error.add_note(f"{self.name}, after line {reader.line_num}: give read_csv() the encoding of the file")
            raise

    def _header(self, lines: Iterator[_Row]) -> list[str]:
        first = next(lines, None)
        if first is None:
            raise ValueError(f"{self.name} is empty")
        other = [mark for mark in _DELIMITERS if mark in first.cells[0] and mark != self.delimiter]
        if len(first.cells) == 1 and other:
            warnings.warn(
                f"{self.name} has one column, {first.cells[0]!r}; if {other[0]!r} stands between its columns, give "
                f"delimiter={other[0]!r}",
                stacklevel=stacklevel(),
            )
        return [cell.strip() for cell in first.cells]

    def _check_names(self) -> None:
        names = self.all_names
        if wrong := sorted({name for name in names if names.count(name) > 1 or not name}):
            raise ValueError(
                f"{self.name}: every column needs a name of its own, but {wrong} are empty or occur twice; give names=[…] "
                "for a file whose first line is none of names"
            )


def _pieces(file: _File, rows: Iterator[_Row]) -> Iterator[_Cells]:
    while piece := list(islice(rows, _ROWS)):
        columns = map(list, zip(*[row.cells for row in piece], strict=True))
        yield _Cells([row.line for row in piece], dict(zip(file.names, columns, strict=True)))


# ---- schemas -------------------------------------------------------------------------


def _check_apart(schema: Schema | None, dtypes: Given | None) -> None:
    if schema is not None and dtypes:
        raise ValueError("schema and dtypes exclude each other: a schema says what every column holds")


def _given(kinds: Kinds, file: _File, dtypes: Given | None) -> dict[str, Any]:
    """What each column holds: as the user says, or as found; words are "category"."""
    dtypes = dtypes or {}
    for name in dtypes:
        file.check_name(name)
    return {name: dtypes[name] if name in dtypes else kinds.dtype(name) or "category" for name in file.names}


def _chosen(file: _File, schema: Schema) -> dict[str, Column]:
    """The columns of the file out of a schema."""
    for name in file.names:
        if name not in schema:
            raise ValueError(
                f"{file.name} has a column '{name}' that the schema does not know; leave it out with columns=[…]"
            )
    return {name: schema[name] for name in file.names}


def _table(file: _File, cells: _Cells, schema: Schema) -> Table:
    def where(row: int) -> str:
        return f"{file.name}, line {cells.lines[row]}"

    return Table({name: parse(name, column, schema[name], where) for name, column in cells.columns.items()}, schema)


def _path(what: str, source: Any) -> str | os.PathLike[str]:
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"{what}() takes the path of a file, which it reads more than once; got {type(source).__name__}"
        )
    return source
