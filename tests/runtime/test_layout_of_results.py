"""Results lie in memory as those of NumPy's kernels do, whatever the layout of the arguments."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.array.order import empty_in_order, memory_order
from wengert.core.native import OFF
from wengert.core.registry import operators
from wengert.core.tensor import Tensor, from_array
from wengert.testing.case import Case, results_of
from wengert.testing.opcheck_native import natively
from wengert.testing.samples import ErrorSample, samples_of

DIFFERENT = {
    "lerp": "of operands that lie differently NumPy's order depends on the order of the steps",
    "einsum": "NumPy's order is that of the plan, native products are in C's order",
}


def steps(array: Any) -> tuple[int, ...]:
    """Return what of an array's strides can be seen: those of dimensions with more than one element."""
    if not array.size:
        return ()
    return tuple(s // array.itemsize if n > 1 else 0 for s, n in zip(array.strides, array.shape, strict=True))


def laid(array: Any, order: tuple[int, ...]) -> Any:
    """Return a copy of an array whose dimensions lie in an order."""
    out = empty_in_order(array.shape, array.dtype, order)
    out[...] = array
    return out


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "transposed": lambda x: laid(x, tuple(reversed(range(x.ndim)))),
    "rolled": lambda x: laid(x, (*range(1, x.ndim), 0) if x.ndim else ()),
}


def both(call: Callable[..., Any], *arrays: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the steps of the results of native code and of NumPy."""
    with natively():
        got = call(*arrays)
    with natively(OFF):
        want = call(*arrays)
    return [(steps(g._payload), steps(w._payload)) for g, w in zip(results_of(got), results_of(want), strict=True)]


def called(case: Case, layout: Callable[[Any], Any]) -> Any:
    """Return the results of a sample whose arrays are laid out anew."""
    return case.call(lambda array: from_array(layout(array)))[1]


@pytest.mark.parametrize("name", sorted(operators().keys() - DIFFERENT))
def test_every_operator_on_every_sample(name: str) -> None:
    op = operators()[name]
    for sample in (s for s in samples_of(op) if not isinstance(s, ErrorSample)):
        case = Case(op, sample)
        rank = max((a.ndim for a in case.arrays), default=0) if sample.layouts else 0
        for layout in list(LAYOUTS)[: max(rank, 1)]:
            for got, want in both(called, case, LAYOUTS[layout]):
                assert got == want, f"{name}, {layout}, of {[a.shape for a in case.arrays]}"


REDUCTIONS: dict[str, Callable[[Tensor, Any], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "sum, kept": lambda x, d: x.sum(d, keepdim=True),
    "sum of two": lambda x, d: x.sum((d, (d + 1) % x.ndim)),
    "mean": lambda x, d: x.mean(d),
    "amax": lambda x, d: x.amax(d),
    "any": lambda x, d: (x > 0).any(d),
    "argmax": lambda x, d: x.argmax(d),
    "max": lambda x, d: x.max(d),
    "var": lambda x, d: x.var(d),
    "prod": lambda x, d: x.prod(d),
    "norm": lambda x, d: wg.linalg.vector_norm(x, dim=d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "cummax": lambda x, d: x.cummax(d),
    "softmax": lambda x, d: x.softmax(d),
    "sort": lambda x, d: x.sort(d),
    "topk": lambda x, d: x.topk(2, d),
    "kthvalue": lambda x, d: x.kthvalue(2, d),
    "flip": lambda x, d: x.flip(d),
    "cat": lambda x, d: wg.cat([x, x], d),
    "rows": lambda x, d: x.index_select(d, wg.tensor([1, 0])),
    "gelu": lambda x, d: wg.nn.functional.gelu(x),
}


@pytest.mark.parametrize("shape", [(20, 24, 18), (17, 18, 5, 19)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_permuted_arrays(name: str, shape: tuple[int, ...]) -> None:
    """Every order of the dimensions, along every dimension; a repeated dimension too."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    arrays = [laid(x, order) for order in itertools.permutations(range(len(shape)))]
    for array, dim in itertools.product([*arrays, np.broadcast_to(x[:, :1], shape)], range(len(shape))):
        for got, want in both(REDUCTIONS[name], from_array(array), dim):
            assert got == want, f"along {dim} of strides {array.strides}"


def test_few_results_that_are_cut_lie_in_order_too() -> None:
    x = np.random.default_rng(0).standard_normal((2, 90_000, 3)).astype(np.float32)
    for order in itertools.permutations(range(3)):
        ((got, want),) = both(lambda x: x.sum(1), from_array(laid(x, order)))
        assert got == want
        with natively():
            found = from_array(laid(x, order)).sum(1).numpy()
        np.testing.assert_allclose(found, x.sum(1, dtype=np.float64), rtol=1e-4, atol=0.02)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 4), (3, 4, 5)], ids=str)
def test_the_order_is_that_of_numpys_loops(shape: tuple[int, ...]) -> None:
    """What a ufunc makes of one array or of two says how NumPy orders its dimensions."""
    x = np.zeros(shape)
    arrays = [laid(x, order) for order in itertools.permutations(range(len(shape)))]
    for a, b in itertools.product(arrays, repeat=2):
        for given, made in (((a,), np.negative(a)), ((a, b), np.add(a, b))):
            assert steps(empty_in_order(shape, x.dtype, memory_order(*given))) == steps(np.asarray(made))
