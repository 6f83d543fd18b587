"""associative_scan: exact prefixes for every length, its gradients, and the number of calls it takes."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import DTypeError, InplaceError, ShapeError
from wengert.transforms.control_associative import associative_scan


def one(*shape: int, dtype: Any = wg.float32) -> Any:
    return wg.ones(*shape, dtype=dtype)


def integers(*shape: int, seed: int = 0) -> Any:
    return wg.from_numpy(np.random.default_rng(seed).integers(-9, 9, shape))


def leaf(*shape: int, seed: int = 0) -> Any:
    """A float64 tensor of random numbers in [0.5, 1.5) that requires grad."""
    return wg.from_numpy(np.random.default_rng(seed).uniform(0.5, 1.5, shape)).requires_grad_()


def affine(left: Any, right: Any) -> Any:
    """Compose x -> a x + b: associative, not commutative."""
    return {"a": left["a"] * right["a"], "b": left["b"] * right["a"] + right["b"]}


def one_by_one(combine: Callable[[Any, Any], Any], slices: list[Any], reverse: bool) -> list[Any]:
    """The prefixes, by a loop."""
    order = slices[::-1] if reverse else slices
    found = list(itertools.accumulate(order, combine))
    return found[::-1] if reverse else found


LENGTHS = (*range(18), 31, 32, 33, 100)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", LENGTHS)
def test_prefixes_of_a_tree_are_exact(n: int, reverse: bool) -> None:
    """Integers wrap around and stay associative, so that any grouping gives the same."""
    xs = {"a": integers(2, n), "b": integers(2, n, 3, seed=1)[..., 0]}
    found = associative_scan(affine, xs, 1, reverse)
    slices = [{k: v.numpy()[:, i] for k, v in xs.items()} for i in range(n)]
    expected = one_by_one(affine, slices, reverse)
    for key, value in found.items():
        assert tuple(value.shape) == (2, n)
        assert value.dtype == wg.int64
        for i in range(n):
            np.testing.assert_array_equal(value[:, i], expected[i][key])


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_sums_and_maxima_along_any_dimension(dim: int) -> None:
    x = integers(3, 4, 5)
    np.testing.assert_array_equal(associative_scan(wg.add, x, dim), np.cumsum(x.numpy(), dim))
    np.testing.assert_array_equal(associative_scan(wg.maximum, x, dim), np.maximum.accumulate(x.numpy(), dim))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_products_of_matrices(n: int, reverse: bool) -> None:
    """matmul treats leading dimensions as independent: many pairs at once."""
    x = integers(n, 3, 3)
    found = associative_scan(wg.matmul, x, 0, reverse)
    for value, right in zip(found, one_by_one(np.matmul, list(x.numpy()), reverse), strict=True):
        np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize("n", [2, 3, 10, 64, 100, 1000])
def test_few_calls_and_little_work(n: int) -> None:
    sizes: list[int] = []

    def add(a: Any, b: Any) -> Any:
        sizes.append(a.shape[0])
        return a + b

    associative_scan(add, wg.arange(n), 0)
    assert len(sizes) <= 2 * np.log2(n)
    assert sum(sizes) < 2 * n


@pytest.mark.parametrize("n", [1, 2, 5, 6])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients(n: int, reverse: bool) -> None:
    def run(a: Any, b: Any) -> Any:
        return tuple(associative_scan(affine, {"a": a, "b": b}, 0, reverse).values())

    inputs = (leaf(n), leaf(n, seed=1))
    assert wg.autograd.gradcheck(run, inputs)
    assert wg.autograd.gradgradcheck(run, inputs)


def test_the_result_shares_no_memory_with_its_input() -> None:
    for n in (0, 1, 2):
        x = wg.zeros(n)
        associative_scan(wg.add, x, 0).add_(1)
        assert x.tolist() == [0.0] * n


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no function": (lambda: associative_scan(1, one(2), 0), TypeError, "combine_fn must be a function, got int"),
    "no leaves": (lambda: associative_scan(wg.add, {}, 0), ValueError, "xs has no leaves"),
    "no tensor": (lambda: associative_scan(wg.add, {"x": 2}, 0), TypeError, r"must be tensors, xs\['x'\] is int"),
    "no such dimension": (lambda: associative_scan(wg.add, one(2), 1), IndexError, "dim=1 is out of range"),
    "no dimension": (
        lambda: associative_scan(wg.add, [one(2, 2), one(2)], 1), ShapeError, r"xs\[1\] has shape \(2,\), there is no dim",
    ),
    "sizes": (
        lambda: associative_scan(wg.add, (one(2), one(3)), 0), ShapeError, r"xs\[1\] has size 3 .* xs\[0\] has 2",
    ),
    "mode": (
        lambda: associative_scan(wg.add, one(2), 0, combine_mode="loop"), ValueError, "'pointwise' or 'generic', got 'loop'",
    ),
    "structure": (lambda: associative_scan(lambda a, b: (a, b), one(2), 0), TypeError, "not of the structure of what it was"),
    "shape": (lambda: associative_scan(lambda a, b: (a + b).sum(), one(2), 0), ShapeError, r"is a tensor of shape \(\)"),
    "dtype": (lambda: associative_scan(lambda a, b: (a + b).double(), one(2), 0), DTypeError, "wengert.float64, in"),
    "in place": (
        lambda: associative_scan(lambda a, b: {"x": a["x"].add_(b["x"])}, {"x": one(4)}, 0),
        InplaceError, r"combine_fn changed xs\['x'\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()
