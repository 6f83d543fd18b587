"""Tables: CSV files read whole and as streams, arrays, Arrow; and the samples made of them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.data import (
    Column,
    CSVStream,
    DataLoader,
    Table,
    TableDataset,
    from_arrow,
    read_csv,
    read_parquet,
    scan_csv,
)  # fmt: skip

HOMES = "size,city,price\n50,Rome,1.5\n90.5,Oslo,2\n70,Rome,3e1\n"


def text(*lines: str) -> io.StringIO:
    return io.StringIO("\n".join(lines) + "\n")


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    path = tmp_path / "homes.csv"
    path.write_text(HOMES, encoding="utf-8")
    return path


# ---- what columns hold


@pytest.mark.parametrize(
    ("cells", "dtype", "want"),
    [
        (["true", "False", "TRUE"], wg.bool, [True, False, True]),
        (["1", "-2", "+3"], wg.int64, [1, -2, 3]),
        (["1", "2.5", ".5"], wg.float64, [1.0, 2.5, 0.5]),
        (["1e3", "7", "-inf"], wg.float64, [1000.0, 7.0, -np.inf]),
        (["true", "1"], None, ["true", "1"]),
        (["true", "1.5"], None, ["true", "1.5"]),
        (["1", "true"], None, ["1", "true"]),
        (["1", "x", "2"], None, ["1", "x", "2"]),
        (["02139", "10001"], None, ["02139", "10001"]),
        (["1_000", "2"], None, ["1_000", "2"]),
        (["٣", "4"], None, ["٣", "4"]),
        (["999999999999999999"], wg.int64, [10**18 - 1]),
        (["1000000000000000000"], None, ["1000000000000000000"]),
        (["2024-01-05", "2024-01-04"], None, ["2024-01-05", "2024-01-04"]),
    ],
    ids=lambda v: ",".join(v) if isinstance(v, list) and isinstance(v[0], str) else "",
)
def test_kinds_are_found(cells: list[str], dtype: Any, want: list[Any]) -> None:
    table = read_csv(text("a", *cells))
    column = table.schema["a"]
    if dtype is None:
        assert column == Column(wg.int64, tuple(sorted(set(want))))
        assert table.words("a") == want
    else:
        assert column == Column(dtype)
        assert (table["a"].tolist(), table["a"].dtype) == (want, dtype.numpy)


@pytest.mark.parametrize(
    ("given", "cells", "want"),
    [
        (wg.float32, ["007", "1.50"], np.array([7, 1.5], np.float32)),
        (wg.int16, ["007", "-3"], np.array([7, -3], np.int16)),
        (wg.uint64, ["18446744073709551615"], np.array([2**64 - 1], np.uint64)),
        ("category", ["2", "10", "2"], np.array([1, 0, 1])),
    ],
)
def test_dtypes_are_given(given: Any, cells: list[str], want: Any) -> None:
    column = read_csv(text("a", *cells), dtypes={"a": given})["a"]
    np.testing.assert_array_equal(column, want, strict=True)


def test_quotes_blank_lines_and_dialects() -> None:
    table = read_csv(text('a, "b,c"', '1, "x ""y"""', "", "2, z"))
    assert (list(table), table["a"].tolist(), table.words("b,c")) == (["a", "b,c"], [1, 2], ['x "y"', "z"])
    with pytest.warns(UserWarning, match=r"one column, 'a;b'; if ';' stands between its columns, give delimiter=';'"):
        assert list(read_csv(text("a;b", "1;2"))) == ["a;b"]
    table = read_csv(text("1;2", "3;4"), names=["a", "b"], delimiter=";", columns=["b"])
    assert {name: column.tolist() for name, column in table.items()} == {"b": [2, 4]}


def test_a_byte_order_mark_and_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("a\nß\n".encode("utf-8-sig"))
    assert read_csv(path).words("a") == ["ß"]
    path.write_bytes("a\nß\n".encode("latin-1"))
    assert read_csv(path, encoding="latin-1").words("a") == ["ß"]
    with pytest.raises(UnicodeDecodeError) as error:
        read_csv(path)
    assert "a.csv" in error.value.__notes__[0]


# ---- what is wrong is named


@pytest.mark.parametrize(
    ("lines", "options", "match"),
    [
        (["a,b", "1,2", "3,"], {}, r"the given file, line 3, column 'b': the value is missing"),
        (["a,b", "1,2", "", "NA,4"], {}, r"line 4, column 'a'"),
        (["a", '"x', 'y"', "NA"], {}, r"line 4, column 'a'"),
        (["a,b", "1,2", "3"], {}, r"line 3: 1 cells where 2 are expected"),
        (["a,a", "1,2"], {}, r"\['a'\] are empty or occur twice"),
        (["a,", "1,2"], {}, r"\[''\] are empty or occur twice"),
        (["a"], {}, "no rows"),
        ([""], {}, "is empty"),
        (["a", "NA"], {"missing": "drop"}, "no rows"),
        (["a", '"x'], {}, "line 2: unexpected end of data"),
        (["a", "1", "x"], {"dtypes": {"a": wg.int64}}, r"line 3, column 'a': 'x' is no int64"),
        (["a", "1", "300"], {"dtypes": {"a": wg.uint8}}, r"line 3, column 'a': '300' is no uint8"),
        (["a", "1_0"], {"dtypes": {"a": wg.float32}}, "'1_0' is no float32"),
        (["a", "yes"], {"dtypes": {"a": wg.bool}}, "'yes' is no bool"),
        (["a", "1"], {"dtypes": {"b": wg.bool}}, "no column 'b'; its columns are: a"),
        (["a", "1"], {"columns": ["b"]}, "no column 'b'"),
        (["a", "1"], {"missing": {"b": 0}}, "no column 'b'"),
        (["a", "1"], {"missing": "ignore"}, "missing must be"),
        (["a", "1"], {"schema": {"b": Column(wg.int64)}}, "a column 'a' that the schema does not know"),
        (["a", "1"], {"schema": {"a": Column(wg.int64)}, "dtypes": {"a": wg.int8}}, "exclude each other"),
        (
            ["a", "x", "y"],
            {"schema": {"a": Column(wg.int64, ("x",))}},
            r"line 3, column 'a': 'y' is none of the 1 words",
        ),
    ],
    ids=lambda v: "|".join(v) if isinstance(v, list) else "",
)
def test_read_csv_refuses(lines: list[str], options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        read_csv(text(*lines), **options)


def test_missing_values() -> None:
    lines = ("a,b", "1,x", "NA,y", "3,?")
    assert read_csv(text(*lines), missing="drop")["a"].tolist() == [1, 3]
    filled = read_csv(text(*lines), missing={"a": 2.5, "b": "none"}, missing_words=["NA", "?"])
    assert (filled["a"].tolist(), filled.words("b")) == ([1, 2.5, 3], ["x", "y", "none"])
    unknown = read_csv(text(*lines), missing={"a": float("nan")})["a"]
    np.testing.assert_array_equal(unknown, [1, np.nan, 3])


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        read_csv("no.csv")


# ---- samples


def test_samples(homes: Path) -> None:
    data = TableDataset(read_csv(homes), target="price")
    assert [part.tolist() for part in data.tensors] == [[[50], [90.5], [70]], [[1], [0], [1]], [1.5, 2, 30]]
    assert [part.dtype for part in data.tensors] == [wg.float32, wg.int64, wg.float32]
    assert (data.numeric, data.categorical, data.cardinalities, data.classes) == (["size"], ["city"], [2], None)
    numbers, codes, price = next(iter(DataLoader(data, batch_size=2)))
    assert (numbers.shape, codes.shape, price.shape) == ((2, 1), (2, 1), (2,))


@pytest.mark.parametrize(
    ("options", "want", "dtypes"),
    [
        ({"target": "c"}, [[[1.0, 0.5]], [1]], [wg.float32, wg.int64]),
        ({"target": "a", "features": ["b"]}, [[[0.5]], [1]], [wg.float32, wg.int64]),
        ({"target": "flag", "features": ["c", "a"]}, [[[1.0]], [[1]], [1]], [wg.float32, wg.int64, wg.int64]),
        ({"target": ["a", "b"], "features": ["c"]}, [[[1]], [[1.0, 0.5]]], [wg.int64, wg.float32]),
        ({"features": ["b", "a"], "dtype": wg.float64}, [[[0.5, 1.0]]], [wg.float64]),
    ],
)
def test_parts_of_samples(options: dict[str, Any], want: list[Any], dtypes: list[Any]) -> None:
    columns = {"a": [1, 4], "b": [0.5, 2], "c": ["y", "x"], "flag": [True, False]}
    if options["target" if "target" in options else "features"] == "c":
        del columns["flag"]
    data = TableDataset(Table(columns), **options)
    assert [part[:1].tolist() for part in data.tensors] == want
    assert [part.dtype for part in data.tensors] == dtypes
    assert data.classes == (("x", "y") if options.get("target") == "c" else None)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda t: TableDataset(t, target="z"), KeyError, "no column 'z'; the columns are: a, b"),
        (lambda t: TableDataset(t, target="a", features=["a"]), ValueError, "feature and target"),
        (lambda t: TableDataset(t, target=["a", "b"]), ValueError, "at least one feature"),
        (lambda t: TableDataset(t, target=["b"], features=["a"]), ValueError, "these hold words: b"),
        (lambda t: TableDataset(t, features="a"), TypeError, "list of names"),
        (lambda t: TableDataset({"a": [1]}), TypeError, "takes a Table"),
        (lambda t: t.words("a"), ValueError, "holds numbers"),
        (lambda t: Table({}), ValueError, "at least one column"),
        (lambda t: Table({"a": [1], "b": [1, 2]}), ValueError, r"differ in length: \{'a': 1, 'b': 2\}"),
        (lambda t: Table({"a": [[1]]}), ValueError, "one dimension"),
        (lambda t: Table({"a": [1j]}), TypeError, "complex128"),
        (lambda t: Table({"a": ["x", None]}), TypeError, "object"),
        (lambda t: Table({"b": ["z"]}, t.schema), ValueError, "row 0, column 'b': 'z'"),
        (lambda t: Table({"b": [2]}, t.schema), ValueError, "codes below 1"),
        (lambda t: Table({"a": ["x"]}, t.schema), ValueError, "holds words, but the schema says int64"),
    ],
)  # fmt: skip
def test_tables_refuse(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make(Table({"a": [1], "b": ["x"]}))


def test_a_schema_keeps_the_codes() -> None:
    train = Table({"city": ["Rome", "Oslo"]})
    assert Table({"city": ["Rome"]}, train.schema)["city"].tolist() == [1]
    assert read_csv(text("city", "Rome"), schema=train.schema)["city"].tolist() == [1]


def test_new_rows_in_another_file(homes: Path, tmp_path: Path) -> None:
    data = TableDataset(read_csv(homes), target="price")
    schema = wg.data.schema_from_dict(json.loads(json.dumps(wg.data.schema_to_dict(data.schema))))
    assert schema == data.schema
    new = read_csv(text("note,city,price,size", "a,Oslo,1,60"), columns=data.features, schema=schema)
    assert [part.tolist() for part in TableDataset(new).tensors] == [[[60]], [[0]]]
    assert CSVStream(homes, target="price").features == data.features == ["size", "city"]


# ---- streams


def test_a_stream_gives_the_samples_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wengert.data.csv_table._ROWS", 4)
    path = tmp_path / "a.csv"
    path.write_text("n,word,y\n" + "".join(f"{i},{'ab'[i % 2] if i != 9 else '7'},{i / 2}\n" for i in range(10)))
    table = read_csv(path)
    assert scan_csv(path) == table.schema
    stream, data = CSVStream(path, target="y"), TableDataset(table, target="y")
    assert (stream.numeric, stream.categorical, stream.cardinalities) == (["n"], ["word"], [3])
    for _ in range(2):
        samples = list(stream)
        assert [[p.tolist() for p in s] for s in samples] == [[p.tolist() for p in data[i]] for i in range(10)]
    shared = [batch[2].tolist() for batch in DataLoader(stream, batch_size=3, num_workers=2)]
    assert shared == [[0, 1, 2], [0.5, 1.5, 2.5], [3, 4], [3.5, 4.5]]


def test_a_stream_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\nb,3\n")
    stream = CSVStream(path, target="y", schema={"x": Column(wg.float32), "y": Column(wg.float32)})
    with pytest.raises(ValueError, match=r"a\.csv, line 3, column 'x': 'b' is no float32"):
        list(stream)
    with pytest.raises(KeyError, match="no column 'z'"):
        CSVStream(path, target="z")
    with pytest.raises(TypeError, match="path"):
        CSVStream(text("a", "1"))


# ---- Arrow


def test_arrow_and_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pa.table({
        "n": pa.array([1, None, 3], pa.int32()),
        "flag": [True, False, True],
        "word": pa.array(["b", "a", "b"]).dictionary_encode(),
        "x": pa.array([0.5, 1.5, 2.5], pa.float32()),
    })  # fmt: skip
    with pytest.raises(ValueError, match="row 1, column 'n': the value is null"):
        from_arrow(arrow)
    table = from_arrow(arrow, missing={"n": 2})
    assert (table["n"].tolist(), table["n"].dtype, table["x"].dtype) == ([1, 2, 3], np.int32, np.float32)
    assert (table["flag"].tolist(), table.words("word")) == ([True, False, True], ["b", "a", "b"])
    assert from_arrow(arrow, missing="drop")["n"].tolist() == [1, 3]
    assert from_arrow(arrow.slice(0, 1).to_batches()[0], schema=table.schema)["word"].tolist() == [1]
    parquet.write_table(arrow, tmp_path / "a.parquet")
    assert list(read_parquet(tmp_path / "a.parquet", columns=["x", "word"])) == ["x", "word"]
    with pytest.raises(ValueError, match="no column 'z'"):
        read_parquet(tmp_path / "a.parquet", columns=["z"])
    for wrong in (pa.table({"t": pa.array([0], pa.timestamp("s"))}), {"a": [1]}):
        with pytest.raises(TypeError, match=r"timestamp|dict"):
            from_arrow(wrong)
