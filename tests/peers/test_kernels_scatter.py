"""Gather and scatter beside PyTorch's."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.support import normal
from wengert.kernels.scatter import (
    gather,
    index_add,
    index_put,
    index_select,
    scatter,
    scatter_add,
    scatter_reduce,
    segment_reduce,
)

CASES: list[Any] = [
    ((5,), 0, (9,)),
    ((4, 3), 0, (6, 2)),
    ((4, 3), 1, (3, 7)),
    ((3, 4, 5), 1, (2, 9, 4)),
    ((3, 4, 5), 2, (3, 0, 1)),
    ((), 0, (4,)),
    ((6,), 0, ()),
]


def positions(shape: Any, dim: int, index_shape: Any) -> np.ndarray:
    return np.random.default_rng(3).integers(0, (shape or (1,))[dim], index_shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int64, np.uint8])
@pytest.mark.parametrize(("shape", "dim", "index_shape"), CASES)
def test_gather_and_scatter(shape: Any, dim: int, index_shape: Any, dtype: Any) -> None:
    x, src, index = normal(shape, dtype), normal(index_shape, dtype, seed=1), positions(shape, dim, index_shape)
    tx, tsrc, tindex = torch.from_numpy(x), torch.from_numpy(src), torch.from_numpy(np.asarray(index))
    np.testing.assert_array_equal(gather(x, dim, index), tx.gather(dim, tindex).numpy())
    np.testing.assert_allclose(
        scatter_add(x, dim, index, src), tx.scatter_add(dim, tindex, tsrc).numpy(), rtol=1e-5, atol=1e-6
    )
    if len(np.unique(index)) == index.size:
        np.testing.assert_array_equal(scatter(x, dim, index, src), tx.scatter(dim, tindex, tsrc).numpy())


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int8])
@pytest.mark.parametrize(("shape", "dim", "index_shape"), CASES)
def test_scatter_reduce(shape: Any, dim: int, index_shape: Any, dtype: Any, reduce: Any, include_self: bool) -> None:
    x, src, index = normal(shape, dtype), normal(index_shape, dtype, seed=1), positions(shape, dim, index_shape)
    tx, tsrc, tindex = torch.from_numpy(x), torch.from_numpy(src), torch.from_numpy(np.asarray(index))
    peer = tx.scatter_reduce(dim, tindex, tsrc, reduce, include_self=include_self)
    result = scatter_reduce(x, dim, index, src, reduce, include_self)
    np.testing.assert_allclose(result, peer.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("shape", "dim", "n"), [((5,), 0, 9), ((4, 3), 1, 6), ((2, 3, 4), 1, 7)])
def test_index_select_and_index_add(shape: Any, dim: int, n: int) -> None:
    x, index = normal(shape), positions(shape, dim, (n,))
    selected = index_select(x, dim, index)
    tx, tindex = torch.from_numpy(x), torch.from_numpy(index)
    np.testing.assert_array_equal(selected, tx.index_select(dim, tindex).numpy())
    src = normal(selected.shape, seed=1)
    peer = tx.index_add(dim, tindex, torch.from_numpy(src))
    np.testing.assert_allclose(index_add(x, dim, index, src), peer.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "indices",
    [
        (np.array([0, 2, -1, 0]),),
        (np.array([0, 2, -1, 0]), np.array([1, -2, 1, 1])),
        (np.array([[0], [2]]), np.array([1, -2, 1, 1])),
        (np.array([True, False, True]),),
    ],
)
@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put(indices: Any, accumulate: bool) -> None:
    x = normal((3, 4, 2))
    values = normal(x[indices].shape, seed=1) if accumulate else np.array(2.0)
    tindices = tuple(torch.from_numpy(i) for i in indices)
    peer = torch.from_numpy(x).index_put(tindices, torch.from_numpy(np.asarray(values)), accumulate)
    np.testing.assert_allclose(index_put(x, indices, values, accumulate), peer.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), [("sum", "sum"), ("mean", "mean"), ("amax", "max"), ("amin", "min")])
def test_segment_reduce(ours: Any, theirs: str) -> None:
    x, lengths = normal((7, 2)), np.array([2, 0, 4, 1])
    peer = torch.segment_reduce(torch.from_numpy(x), theirs, lengths=torch.from_numpy(lengths))
    segments = np.repeat(np.arange(4), lengths)
    np.testing.assert_allclose(segment_reduce(x, segments, 4, ours), peer.numpy(), rtol=1e-12)
