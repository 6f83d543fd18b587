"""Reductions, scans, norms and statistics beside PyTorch: their own samples, dtypes, and every form of a call."""

import numpy as np
import pytest
import torch

import wengert as wg
from tests.peers.compare import compare
from tests.peers.differences import DIFFERENT, explained
from wengert.core.registry import operators

FILES = {"calculus", "extremes", "norms", "reduce", "scan", "softmax", "statistics"}
OPERATORS = [name for name, op in operators().items() if op.function.__module__.rpartition(".")[2] in FILES]


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_agree_with_pytorch(name):
    unexplained = [d for d in compare(name) if not explained(name, d)]
    assert not unexplained, "\n".join(unexplained)


@pytest.mark.parametrize("name", sorted(set(DIFFERENT) & set(OPERATORS)))
def test_every_explained_difference_still_exists(name):
    assert any(explained(name, d) for d in compare(name)), f"{name} now agrees with PyTorch: drop it from the table"


def plain(result):
    """Return a result of either package as a list of arrays with the names of their dtypes."""
    results = result if isinstance(result, tuple | list) else [result]
    return [(r.tolist(), str(r.dtype).rpartition(".")[2]) for r in results]


def both(call, *arrays, dtype="float64"):
    """Run a call on the tensors of both packages and require the same values and dtypes."""
    ours = call(wg, *(wg.tensor(a, dtype=getattr(wg, dtype)) for a in arrays))
    theirs = call(torch, *(torch.tensor(a, dtype=getattr(torch, dtype)) for a in arrays))
    for (got, got_dtype), (want, want_dtype) in zip(plain(ours), plain(theirs), strict=True):
        assert got_dtype == want_dtype
        np.testing.assert_allclose(got, want, rtol=1e-2 if "16" in dtype else 1e-5, equal_nan=True)


X = [[3.0, 1.0, 2.0, 5.0], [2.0, 4.0, 4.0, 0.0], [1.0, 1.0, 0.0, 2.0]]
DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "cumsum", "cumprod", "amax", "argmax", "all", "any", "count_nonzero", "sort"]
)
def test_dtypes_of_results(name, dtype):
    if name == "argmax" and dtype == "bool":
        pytest.skip("PyTorch takes no bools here")
    dims = (1,) if name.startswith("cum") else ()
    both(lambda module, x: getattr(module, name)(x, *dims), X, dtype=dtype)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: x.sum(0),
        lambda m, x: x.sum((0, 1)),
        lambda m, x: x.sum(axis=-1, keepdim=True),
        lambda m, x: x.mean([0, 1]),
        lambda m, x: x.max(1),
        lambda m, x: x.min(0, True),
        lambda m, x: x.max(x.flip(0)),
        lambda m, x: m.max(x, 1)[1],
        lambda m, x: x.argmin(keepdim=True),
        lambda m, x: x.aminmax(dim=1),
        lambda m, x: x.var(),
        lambda m, x: x.var(False),
        lambda m, x: x.var(0, False),
        lambda m, x: x.var((0, 1), correction=2),
        lambda m, x: x.std(1, keepdim=True),
        lambda m, x: m.std(x, dim=0, unbiased=False),
        lambda m, x: m.var_mean(x, 0),
        lambda m, x: m.std_mean(x, dim=1, correction=0, keepdim=True),
        lambda m, x: x.median(),
        lambda m, x: x.median(1)[0],
        lambda m, x: x.nanmedian(0)[0],
        lambda m, x: x.mode(1)[0],
        lambda m, x: x.quantile(0.3),
        lambda m, x: m.quantile(x, m.tensor([0.1, 0.9], dtype=x.dtype), dim=1, keepdim=True),
        lambda m, x: x.logsumexp(1),
        lambda m, x: x.norm(),
        lambda m, x: x.norm(1),
        lambda m, x: x.norm(float("inf"), 0),
        lambda m, x: m.norm(x, p=3, dim=(0, 1), keepdim=True),
        lambda m, x: m.linalg.vector_norm(x, 0.5, dim=1),
        lambda m, x: m.dist(x, x + 1, 3),
        lambda m, x: x.renorm(2, 0, 3.0),
        lambda m, x: x.cummax(1),
        lambda m, x: x.cummin(0),
        lambda m, x: x.logcumsumexp(1),
        lambda m, x: x.diff(n=2, dim=0),
        lambda m, x: m.trapezoid(x, dx=0.5),
        lambda m, x: m.trapz(x, x.cumsum(1)),
        lambda m, x: m.cumulative_trapezoid(x, dim=0),
        lambda m, x: m.gradient(x, spacing=(2.0, 0.5)),
        lambda m, x: m.gradient(x, spacing=(m.tensor([0.0, 1.0, 3.0, 4.0], dtype=x.dtype),), dim=1, edge_order=2),
        lambda m, x: x.softmax(-1),
        lambda m, x: m.log_softmax(x, 0, dtype=m.float64),
        lambda m, x: m.nn.functional.softmin(x, dim=1),
        lambda m, x: m.nn.functional.normalize(x, p=1, dim=0),
        lambda m, x: m.cosine_similarity(x, x.flip(1), dim=-1),
        lambda m, x: m.nn.functional.pairwise_distance(x, x.flip(0)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms_of_calls(call, dtype):
    both(call, X, dtype=dtype)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "max", "min", "median", "cummax", "cummin"])
@pytest.mark.parametrize(
    "row", [[1.0, float("nan"), 3.0, float("nan")], [2.0, 2.0, 1.0, 2.0], [float("inf"), -float("inf")]]
)
def test_nan_and_ties(name, row):
    if name == "median" and len(set(row)) < len(row) and row[0] == row[0] and 2.0 in row:
        both(lambda m, x: m.median(x), row)
        return
    both(lambda m, x: getattr(m, name)(x, 0), row)


def test_out_receives_the_results():
    x = wg.tensor(X)
    total = wg.zeros(4)
    assert wg.sum(x, 0, out=total) is total
    assert total.tolist() == torch.tensor(X).sum(0).tolist()
    values, indices = wg.zeros(3), wg.zeros(3, dtype=wg.int64)
    found = wg.max(x, 1, out=(values, indices))
    assert found.values is values
    assert indices.tolist() == torch.tensor(X).max(1).indices.tolist()
