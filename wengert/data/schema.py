"""What the columns of a table hold, found from text or given, and text turned into it.

A cell is one of four kinds of text, in rising order: true or false, an integer, a number, a word. A column is of the
highest kind among its cells, of words if it mixes true or false with numbers. Digits that begin with a 0, such as
postal codes, and integers of more than 18 digits are words unless a dtype is given.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from wengert.array.dtype import BOOL, FLOAT, INTEGER, DType, bool_, float64, int64, to_dtype

__all__ = [
    "MISSING", "Column", "Kinds", "Schema", "column_of", "encode", "parse", "schema_from_dict", "schema_to_dict",
]  # fmt: skip

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})  # the texts that stand for no value

_BOOL, _INTEGER, _NUMBER, _WORD = range(4)
_FOUND = (  # what text is taken for where nothing is said
    re.compile(r"true|false", re.IGNORECASE),
    re.compile(r"[+-]?(?:0|[1-9]\d{0,17})", re.ASCII),
    re.compile(
        r"(?![+-]?\d{19,}$)[+-]?(?:(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)",
        re.IGNORECASE | re.ASCII,
    ),
)
_GIVEN = (  # what can be read as a dtype that is given
    _FOUND[_BOOL],
    re.compile(r"[+-]?\d+", re.ASCII),
    re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII),
)


@dataclass(frozen=True)
class Column:
    """What a column holds: numbers of a dtype, or words, which are kept as their positions in a vocabulary.

    Attributes:
        dtype: of the numbers, or of the positions. vocabulary: the words in order; None for numbers.

    Example:
        >>> import wengert as wg
        >>> table = wg.data.Table({"city": ["Rome", "Oslo"], "rooms": [3, 4]})
        >>> table.schema["city"], table.schema["rooms"]
        (2 words: 'Oslo', 'Rome', int64)
        >>> wg.data.Column(wg.int64, ("no", "yes")).vocabulary
        ('no', 'yes')
    """

    dtype: DType
    vocabulary: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        if self.vocabulary is None:
            return self.dtype.name
        shown = ", ".join(map(repr, self.vocabulary[:4]))
        return f"{len(self.vocabulary)} words: {shown}{', …' if len(self.vocabulary) > 4 else ''}"


Schema = Mapping[str, Column]
Where = Callable[[int], str]  # says where the i-th cell of a column stands


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return a schema as plain values, for :func:`wengert.save` or JSON beside the model that was trained on it.

    Example:
        >>> import wengert as wg
        >>> table = wg.data.Table({"city": ["Rome", "Oslo"], "rooms": [3, 4]})
        >>> saved = wg.data.schema_to_dict(table.schema)
        >>> saved
        {'city': {'dtype': 'int64', 'vocabulary': ['Oslo', 'Rome']}, 'rooms': {'dtype': 'int64', 'vocabulary': None}}
        >>> wg.data.schema_from_dict(saved) == table.schema
        True
    """
    return {
        name: {"dtype": column.dtype.name, "vocabulary": None if column.vocabulary is None else list(column.vocabulary)}
        for name, column in schema.items()
    }


def schema_from_dict(saved: Mapping[str, Any]) -> dict[str, Column]:
    """Return the schema that :func:`schema_to_dict` wrote down.

    Raises:
        KeyError: if an entry is missing. TypeError: for a dtype that does not exist.

    Example:
        >>> import wengert as wg
        >>> wg.data.schema_from_dict({"size": {"dtype": "float32", "vocabulary": None}})
        {'size': float32}
    """
    columns = {name: (to_dtype(entry["dtype"]), entry["vocabulary"]) for name, entry in saved.items()}
    return {name: Column(dtype, None if words is None else tuple(words)) for name, (dtype, words) in columns.items()}


class Kinds:
    """Finds the kind of each column of texts that come in pieces."""

    def __init__(self, names: Iterable[str]) -> None:
        self._kinds = dict.fromkeys(names, -1)

    def see(self, name: str, texts: Sequence[str]) -> None:
        """Take note of cells of a column."""
        kind = self._kinds[name]
        if kind < 0 and texts:
            kind = _kind(texts[0])
        if texts and kind < _WORD and None in map(_FOUND[kind].fullmatch, texts):
            kinds = {kind, *map(_kind, texts)}
            kind = _WORD if _BOOL in kinds else max(kinds)
        self._kinds[name] = kind

    def dtype(self, name: str) -> DType | None:
        """Return the dtype of the column; None for words. A column without cells holds numbers."""
        return {_BOOL: bool_, _INTEGER: int64, _WORD: None}.get(self._kinds[name], float64)


def _kind(text: str) -> int:
    return next((k for k, pattern in enumerate(_FOUND) if pattern.fullmatch(text) is not None), _WORD)


def column_of(given: DType | Column | Literal["category"], words: Iterable[str]) -> Column:
    """Return the column that a user's dtype, or a column, stands for; ``words`` are those that it holds.

    Raises:
        TypeError: for anything but a real dtype, a Column or "category".
    """
    if isinstance(given, Column):
        return given
    if isinstance(given, str) and given == "category":
        return Column(int64, tuple(sorted(set(words))))
    if isinstance(given, DType) and given.category in (BOOL, INTEGER, FLOAT):
        return Column(given)
    raise TypeError(f"a column has a real dtype such as wengert.float32, or is 'category'; got {given!r}")


def encode(name: str, words: Sequence[str], column: Column, where: Where) -> np.ndarray[Any, Any]:
    """Return the position of each word in the column's vocabulary.

    Raises:
        ValueError: for a word that is not there, saying where it stands.
    """
    assert column.vocabulary is not None
    codes = {word: i for i, word in enumerate(column.vocabulary)}
    try:
        return np.array(list(map(codes.__getitem__, words)), dtype=column.dtype.numpy)
    except KeyError:
        i = next(i for i, word in enumerate(words) if word not in codes)
        raise ValueError(
            f"{where(i)}, column '{name}': {words[i]!r} is none of the {len(codes)} words of the vocabulary, {column!r}; "
            "read the table with a schema that knows it"
        ) from None


def parse(name: str, texts: Sequence[str], column: Column, where: Where) -> np.ndarray[Any, Any]:
    """Return the cells of a column as an array.

    Raises:
        ValueError: for a cell that is no value of the column, saying where it stands.
    """
    if column.vocabulary is not None:
        return encode(name, texts, column, where)
    dtype, category = column.dtype.numpy, column.dtype.category
    kind = {BOOL: _BOOL, INTEGER: _INTEGER}.get(category, _NUMBER)
    matches = _GIVEN[kind].fullmatch
    if None not in map(matches, texts):
        if category == BOOL:
            return np.array([text.lower() == "true" for text in texts], dtype=dtype)
        if category != INTEGER:
            return np.array(list(map(float, texts)), dtype=dtype)
        values, limits = list(map(int, texts)), np.iinfo(dtype)
        if not values or (limits.min <= min(values) and max(values) <= limits.max):
            return np.array(values, dtype=dtype)
        wrong = next(i for i, value in enumerate(values) if not limits.min <= value <= limits.max)
    else:
        wrong = next(i for i, text in enumerate(texts) if matches(text) is None)
    raise ValueError(f"{where(wrong)}, column '{name}': {texts[wrong]!r} is no {column.dtype.name}")
