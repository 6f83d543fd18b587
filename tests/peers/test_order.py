"""Sorting, searching and counting beside PyTorch: their own samples, and every form of a call."""

import numpy as np
import pytest
import torch

import wengert as wg
from tests.peers.compare import compare
from tests.peers.differences import DIFFERENT, explained
from wengert.core.registry import operators

FILES = {"histogram", "order"}
OPERATORS = [name for name, op in operators().items() if op.function.__module__.rpartition(".")[2] in FILES]
NAN, INF = float("nan"), float("inf")
ROWS = [[3.0, 1.0, NAN, 2.0, -INF, INF, 1.0], [1.0, 1.0, 1.0, 0.0, 0.0, 2.0, 2.0]]


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_agree_with_pytorch(name):
    unexplained = [d for d in compare(name) if not explained(name, d)]
    assert not unexplained, "\n".join(unexplained)


@pytest.mark.parametrize("name", sorted(set(DIFFERENT) & set(OPERATORS)))
def test_every_explained_difference_still_exists(name):
    assert any(explained(name, d) for d in compare(name)), f"{name} now agrees with PyTorch: drop it from the table"


def results(result):
    """Return the results of either package as (values, name of dtype)."""
    found = result if isinstance(result, tuple | list) else [result]
    return [(r.tolist(), str(r.dtype).rpartition(".")[2]) for r in found]


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: x.sort(stable=True),
        lambda m, x: x.sort(dim=1, descending=True, stable=True),
        lambda m, x: x.sort(dim=0, descending=True, stable=True),
        lambda m, x: m.argsort(x, stable=True),
        lambda m, x: x.msort(),
        lambda m, x: x.topk(3)[0],
        lambda m, x: x.topk(2, 0, False)[0],
        lambda m, x: x.topk(7, largest=False)[0],
        lambda m, x: x.kthvalue(3, 1)[0],
        lambda m, x: x.nan_to_num().unique(),
        lambda m, x: m.unique(x.nan_to_num(), return_inverse=True, return_counts=True),
        lambda m, x: m.unique(x.nan_to_num(), dim=1, return_inverse=True, return_counts=True),
        lambda m, x: x.nan_to_num().unique_consecutive(return_inverse=True, return_counts=True),
        lambda m, x: m.unique_consecutive(x.nan_to_num(), dim=1, return_counts=True),
        lambda m, x: m.searchsorted(x.nan_to_num().sort().values, x.nan_to_num(), right=True),
        lambda m, x: m.searchsorted(x.nan_to_num().sort().values, x.nan_to_num(), side="left", out_int32=True),
        lambda m, x: m.searchsorted(m.tensor([0.0, 1.0, 2.0], dtype=x.dtype), 1.0),
        lambda m, x: m.bucketize(x.nan_to_num(), m.tensor([0.0, 1.0, 2.0], dtype=x.dtype)),
        lambda m, x: m.bucketize(x.nan_to_num(), m.tensor([0.0, 1.0, 2.0], dtype=x.dtype), right=True),
        lambda m, x: m.histc(x[1], 3),
        lambda m, x: m.histc(x[1], 4, -1, 1),
        lambda m, x: m.histogram(x[1], 4, range=(0.0, 2.0)),
        lambda m, x: m.histogram(x[1], m.tensor([0.0, 0.5, 2.0], dtype=x.dtype), density=True),
        lambda m, x: m.bincount(x[1].long()),
        lambda m, x: m.bincount(x[1].long(), weights=x[1], minlength=5),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms_of_calls(call, dtype):
    ours = results(call(wg, wg.tensor(ROWS, dtype=getattr(wg, dtype))))
    theirs = results(call(torch, torch.tensor(ROWS, dtype=getattr(torch, dtype))))
    for (got, got_dtype), (want, want_dtype) in zip(ours, theirs, strict=True):
        assert got_dtype == want_dtype
        np.testing.assert_allclose(got, want, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "bfloat16", "bool"])
def test_sorting_of_many(size, dtype):
    draws = np.random.default_rng(size).integers(0, 50, (3, size))
    x, y = wg.tensor(draws).to(getattr(wg, dtype)), torch.from_numpy(draws).to(getattr(torch, dtype))
    for descending in (False, True):
        got, want = x.sort(descending=descending, stable=True), y.sort(descending=descending, stable=True)
        assert got.values.tolist() == want.values.tolist()
        assert got.indices.tolist() == want.indices.tolist()
    k = (size + 1) // 2
    assert x.topk(k).values.tolist() == y.to(torch.float32).topk(k).values.to(y.dtype).tolist()
