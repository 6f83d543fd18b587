"""Square brackets and in-place scatters beside PyTorch's, on random keys: values, views, gradients of both sides."""

import random
from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg

pytestmark = pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning")


def random_key(rng: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a random key for a tensor of ``shape``: ints, slices, None, bools, arrays, masks, one Ellipsis."""
    key: list[Any] = []
    dim, dots = 0, False
    while dim < len(shape):
        n, draw = shape[dim], rng.random()
        if draw < 0.2 and n:
            key.append(rng.randrange(-n, n))
            dim += 1
        elif draw < 0.45:
            ends = [None, *range(-n - 1, n + 2)]
            key.append(slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2])))
            dim += 1
        elif draw < 0.6:
            key.append(rng.choice([None, None, None, True, False]))
        elif draw < 0.8 and n:
            size = rng.choice([(2,), (1,), (2, 1)])
            key.append(np.array([rng.randrange(-n, n) for _ in range(int(np.prod(size)))]).reshape(size))
            dim += 1
        elif draw < 0.87:
            rank = rng.randint(1, len(shape) - dim)
            part = shape[dim : dim + rank]
            key.append(np.array([rng.random() < 0.5 for _ in range(int(np.prod(part)))], bool).reshape(part))
            dim += rank
        elif draw < 0.93 and not dots:
            key.append(Ellipsis)
            dots, dim = True, dim + rng.randint(0, len(shape) - dim)
        else:
            break
    return tuple(key)


def of(library: Any, key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(library.tensor(k) if isinstance(k, np.ndarray) else k for k in key)


def outcome(call: Any) -> Any:
    try:
        return call()
    except (IndexError, RuntimeError, ValueError, TypeError) as error:
        return error


def cases(seed: int) -> Any:
    rng = random.Random(seed)
    for number in range(150):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4)))
        if rng.random() < 0.05:
            shape = (*shape, 0)
        values = np.random.default_rng(1000 * seed + number)
        yield rng, values, values.standard_normal(shape), random_key(rng, shape)


def pair(array: Any) -> tuple[Any, Any]:
    return wg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)


@pytest.mark.parametrize("seed", range(4))
def test_reading(seed: int) -> None:
    for _, values, array, key in cases(seed):
        x, y = pair(array)
        got, want = outcome(lambda: x[of(wg, key)]), outcome(lambda: y[of(torch, key)])  # noqa: B023
        where = f"{array.shape} {key}"
        assert isinstance(got, Exception) == isinstance(want, Exception), f"{where}: {got} {want}"
        if isinstance(got, Exception):
            continue
        np.testing.assert_array_equal(got.numpy(force=True), want.detach().numpy(), err_msg=where)
        assert (got._base is None) == (want._base is None), where
        weights = values.standard_normal(tuple(want.shape))
        got.backward(wg.tensor(weights))
        want.backward(torch.tensor(weights))
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-12, err_msg=where)


@pytest.mark.parametrize("seed", range(4, 8))
def test_writing(seed: int) -> None:
    for rng, values, array, key in cases(seed):
        x, y = pair(array)
        read = outcome(lambda: array[key] if key else array)  # noqa: B023
        shape = getattr(outcome(lambda: y[of(torch, key)]), "shape", getattr(read, "shape", ()))  # noqa: B023
        v, w = pair(values.standard_normal(rng.choice([tuple(shape), (), tuple(shape)[1:], (1, *shape)])))
        ours, theirs = x * 1, y * 1
        got = outcome(lambda: ours.__setitem__(of(wg, key), v))  # noqa: B023
        want = outcome(lambda: theirs.__setitem__(of(torch, key), w))  # noqa: B023
        where = f"{array.shape} {key} = {tuple(v.shape)}"
        if isinstance(got, IndexError) and 0 in shape:
            continue  # an index out of bounds of which nothing is written: PyTorch does not look at it
        assert isinstance(got, Exception) == isinstance(want, Exception), f"{where}: {got} {want}"
        if isinstance(got, Exception):
            continue
        np.testing.assert_array_equal(ours.numpy(force=True), theirs.detach().numpy(), err_msg=where)
        weights = values.standard_normal(array.shape)
        ours.backward(wg.tensor(weights))
        theirs.backward(torch.tensor(weights))
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-12, err_msg=where)
        np.testing.assert_allclose(v.grad.numpy(), w.grad.numpy(), rtol=1e-12, atol=1e-15, err_msg=where)


# In-place operators on a view of a larger tensor: T is either library, x the view, v a vector that requires grad.
WRITES = """
x.index_add_(0, T.tensor([0, 2, 0]), v.expand(3, 3), alpha=2) | x.index_copy_(1, T.tensor([2, 0]), v[:2].expand(3, 2))
x.index_fill_(0, T.tensor([1]), v[0].detach()) | x.index_put_((T.tensor([0, 2]), T.tensor([1, 1])), v[1:])
x.index_put_((T.tensor([0, 0]), T.tensor([1, 1])), v[1:], accumulate=True) | x.put_(T.tensor([0, -1, 4]), v)
x.index_put_((T.tensor([True, False, True]),), v) | x.masked_fill_(T.tensor([True, False, True]), 0.5)
x.masked_scatter_(T.tensor([[True], [False], [False]]), v) | x.scatter_(0, T.tensor([[0, 2, 1]]), v[None])
x.scatter_(0, T.tensor([[0, 2, 1]]), 2.5) | x.scatter_add_(1, T.tensor([[0, 0, 1]]), v[None]) | x.zero_()
x.fill_(v.sum()) | x.scatter_reduce_(1, T.tensor([[0, 0, 1]]), v[None], 'prod')
x.scatter_reduce_(1, T.tensor([[0, 0, 1]]), v[None], 'mean')
x.scatter_reduce_(1, T.tensor([[0, 0, 1]]), v[None], 'amax', include_self=False) | x.copy_(v) | x.tril_() | x.triu_(1)
x.scatter_reduce_(1, T.tensor([[0, 0, 1]]), v[None], 'amin')
x.index_reduce_(0, T.tensor([0, 2, 0]), v.expand(3, 3), 'amax') | x.t().copy_(v) | x.diagonal().mul_(v)
x[0].mul_(v).sub_(1) | x.t()[1:].fill_(2) | x.unfold(1, 1, 1).squeeze(-1).mul_(3)
"""


@pytest.mark.parametrize("expression", [e.strip() for line in WRITES.strip().splitlines() for e in line.split("|")])
def test_writing_through_a_view(expression: str) -> None:
    results = []
    for library in (wg, torch):
        base = library.tensor(np.arange(21.0).reshape(7, 3) / 7 + 0.1, requires_grad=True)
        v = library.tensor([1.5, -2.0, 3.0], dtype=library.float64, requires_grad=True)
        y = base * 2
        kept = y[3:]
        eval(expression, {"T": library, "x": y[1:7:2], "v": v})
        ((kept * kept).sum() + y.sin().sum()).backward()
        results.append([y.detach().numpy(), base.grad.numpy(), None if v.grad is None else v.grad.numpy()])
    for got, want in zip(*results, strict=True):
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
