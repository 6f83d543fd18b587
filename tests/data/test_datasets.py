"""Datasets and collation."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import wengert as wg
from wengert.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    random_split,
)  # fmt: skip


class Point(NamedTuple):
    x: Any
    y: Any


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter([1, 2])


def test_tensor_dataset() -> None:
    data = TensorDataset(wg.arange(6.0).reshape(3, 2), wg.tensor([7, 8, 9]))
    x, y = data[-1]
    assert (len(data), x.tolist(), y.item()) == (3, [4.0, 5.0], 9)
    assert data[1:][1].tolist() == [8, 9]
    for tensors in ((), (wg.ones(2), wg.ones(3))):
        with pytest.raises(ValueError, match="TensorDataset"):
            TensorDataset(*tensors)


def test_concat_and_chain() -> None:
    both = TensorDataset(wg.arange(2)) + TensorDataset(wg.arange(3))
    assert isinstance(both, ConcatDataset)
    assert [both[i][0].item() for i in range(5)] == [0, 1, 0, 1, 2]
    assert both[-5][0].item() == 0
    for i in (5, -6):
        with pytest.raises(IndexError):
            both[i]
    with pytest.raises(ValueError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(TypeError, match="ChainDataset"):
        ConcatDataset([Stream()])
    chained = Stream() + Stream()
    assert isinstance(chained, ChainDataset)
    assert list(chained) == [1, 2, 1, 2]


def test_stack() -> None:
    assert StackDataset([1, 2], "ab")[1] == (2, "b")
    assert StackDataset(n=[1, 2], c="ab")[0] == {"n": 1, "c": "a"}
    assert len(StackDataset([1, 2])) == 2
    for make in (lambda: StackDataset(), lambda: StackDataset([1], n=[1]), lambda: StackDataset([1], [1, 2])):
        with pytest.raises(ValueError, match="StackDataset"):
            make()


def test_subset() -> None:
    part = Subset("abcd", [3, 1])
    assert (len(part), part[0], part[1]) == (2, "d", "b")


def test_what_is_not_defined_is_named() -> None:
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(IterableDataset())


@pytest.mark.parametrize(
    ("total", "lengths", "sizes"),
    [
        (10, [7, 3], [7, 3]),
        (10, [0.5, 0.5], [5, 5]),
        (10, [0.34, 0.33, 0.33], [4, 3, 3]),
        (7, [0.9, 0.1], [7, 0]),
        (0, [0], [0]),
        (10, [0.1, 0.2, 0.7 + 1e-12], [1, 2, 7]),
    ],
)
@pytest.mark.filterwarnings("ignore:a part of the split is empty")
def test_random_split(total: int, lengths: list[float], sizes: list[int]) -> None:
    parts = random_split(range(total), lengths, wg.Generator().manual_seed(3))
    assert [len(p) for p in parts] == sizes
    assert sorted(v for p in parts for v in p) == list(range(total))
    again = random_split(range(total), lengths, wg.Generator().manual_seed(3))
    assert [list(p) for p in again] == [list(p) for p in parts]


@pytest.mark.parametrize("lengths", [[3, 3], [0.5, 0.6], [1.5, -0.5], [0.5, 0.5, 1e-3]])
def test_random_split_refuses(lengths: list[float]) -> None:
    with pytest.raises(ValueError):
        random_split(range(10), lengths)


def test_shares_that_are_not_the_whole_are_named() -> None:
    with pytest.raises(ValueError, match=r"shares that sum to 1; \[0\.5, 0\.6\] sum to 1\.1"):
        random_split(range(10), [0.5, 0.6])


@pytest.mark.parametrize(
    ("batch", "want", "dtype"),
    [
        ([wg.ones(2), wg.zeros(2)], [[1.0, 1.0], [0.0, 0.0]], wg.float32),
        ([np.ones(2), np.zeros(2)], [[1.0, 1.0], [0.0, 0.0]], wg.float64),
        ([np.float32(1), np.float32(2)], [1.0, 2.0], wg.float32),
        ([np.int16(1), np.int16(2)], [1, 2], wg.int16),
        ([1, 2], [1, 2], wg.int64),
        ([True, False], [True, False], wg.bool),
        ([1.5, 2.0], [1.5, 2.0], wg.float64),
        ([1j, 2.0 + 0j], [1j, 2.0], wg.complex64),
    ],
    ids=["tensors", "arrays", "numpy floats", "numpy ints", "ints", "bools", "floats", "complex"],
)
def test_collate_numbers(batch: list[Any], want: list[Any], dtype: Any) -> None:
    got = default_collate(batch)
    assert (got.tolist(), got.dtype) == (want, dtype)


def test_collate_containers() -> None:
    assert default_collate(["a", "b"]) == ["a", "b"]
    assert default_collate([b"a"]) == [b"a"]
    d = default_collate([OrderedDict(x=1, y="a"), OrderedDict(x=2, y="b")])
    assert isinstance(d, OrderedDict)
    assert (d["x"].tolist(), d["y"]) == ([1, 2], ["a", "b"])
    p = default_collate([Point(1, [2, 3]), Point(4, [5, 6])])
    assert isinstance(p, Point)
    assert (p.x.tolist(), [v.tolist() for v in p.y]) == ([1, 4], [[2, 5], [3, 6]])
    columns = default_collate([(1, {"k": 2.0}), (3, {"k": 4.0})])
    assert isinstance(columns, list)
    assert columns[1]["k"].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("batch", "error", "match"),
    [
        ([object()], TypeError, "object"),
        ([None], TypeError, "NoneType"),
        ([{1}], TypeError, "set"),
        ([np.array(["a"])], TypeError, "dtype"),
        ([(1, 2), (3,)], RuntimeError, r"\[2, 1\]"),
        ([wg.ones(2), wg.ones(3)], RuntimeError, "3"),
    ],
)
def test_collate_refuses(batch: list[Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        default_collate(batch)


def test_convert() -> None:
    assert default_convert(np.ones(2)).tolist() == [1.0, 1.0]
    assert default_convert({"a": np.int64(3), "b": "text"})["a"].item() == 3
    assert default_convert([1, "a"]) == [1, "a"]
    assert isinstance(default_convert(Point(np.ones(1), 2)), Point)
    assert default_convert(np.array(["a"])).tolist() == ["a"]
