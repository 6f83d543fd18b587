"""scan and map against Python loops: values, gradients, checkpointed reverse, and the work and memory they take."""

import itertools
import math
import tracemalloc
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import OFF
from wengert.errors import DTypeError, InplaceError, ShapeError
from wengert.testing.opcheck_native import natively
from wengert.transforms.control_scan import map as slice_map
from wengert.transforms.control_scan import scan


def leaf(*shape: int, seed: int = 0) -> Any:
    """A float64 tensor of random numbers in [-1, 1) that requires grad."""
    return wg.from_numpy(np.random.default_rng(seed).uniform(-1, 1, shape)).requires_grad_()


def one(*shape: int, dtype: Any = wg.float32) -> Any:
    return wg.ones(*shape, dtype=dtype)


def recurrence(w: Any) -> Callable[[Any, Any], Any]:
    """A body that depends on the carry, the slice and a captured tensor, and returns a tree."""
    return lambda h, x: ((h["h"] * w).tanh() + x, {"y": h["h"].sin(), "z": (h["h"] * x).sum()})


def body(w: Any) -> Callable[[Any, Any], Any]:
    step = recurrence(w)

    def wrapped(carry: Any, x: Any) -> Any:
        h, ys = step(carry, x)
        return {"h": h}, ys

    return wrapped


def looped(w: Any, h: Any, xs: Any, dim: int, reverse: bool) -> tuple[Any, Any]:
    """What scan must return, by a loop."""
    step, found, n = recurrence(w), {}, xs.shape[dim]
    for i in reversed(range(n)) if reverse else range(n):
        h, found[i] = step({"h": h}, xs.select(dim, i))
    ys = [found[i] for i in range(n)]
    return h, {"y": wg.stack([y["y"] for y in ys], dim), "z": wg.stack([y["z"] for y in ys])}


CASES = list(itertools.product((1, 2, 5, 9), (0, 1), (False, True), (False, True, 1, 2, 100)))


@pytest.mark.parametrize(("n", "dim", "reverse", "checkpoint"), CASES)
def test_scan_is_a_loop(n: int, dim: int, reverse: bool, checkpoint: bool | int) -> None:
    w, h = leaf(3), leaf(3, seed=1)
    xs = leaf(n, 3, seed=2) if dim == 0 else leaf(3, n, seed=2)
    weights = wg.from_numpy(np.random.default_rng(3).uniform(-1, 1, xs.shape))

    def loss(carry: Any, ys: Any) -> Any:
        return carry.sum() + (ys["y"] * weights).sum() + ys["z"].exp().sum()

    carry, ys = scan(body(w), {"h": h}, xs, dim=dim - 2, reverse=reverse, checkpoint=checkpoint)
    expected, expected_ys = looped(w, h, xs, dim, reverse)
    assert list(ys) == ["y", "z"]
    for found, right in ((carry["h"], expected), (ys["y"], expected_ys["y"]), (ys["z"], expected_ys["z"])):
        np.testing.assert_array_equal(found.detach(), right.detach())
    gradients = wg.autograd.grad(loss(carry["h"], ys), [w, h, xs])
    for found, right in zip(gradients, wg.autograd.grad(loss(expected, expected_ys), [w, h, xs]), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
def test_checkpointed_gradients_are_the_same_bit_for_bit(reverse: bool) -> None:
    w, xs = leaf(3), leaf(23, 3, seed=1)
    found = []
    for checkpoint in (False, True, 1, 7, 23):
        carry, ys = scan(body(w), {"h": one(3, dtype=wg.float64)}, xs, reverse=reverse, checkpoint=checkpoint)
        found.append([g.numpy().tobytes() for g in wg.autograd.grad(carry["h"].sum() + ys["z"].sum(), [w, xs])])
    assert all(gradients == found[0] for gradients in found)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_gradients_of_second_order(checkpoint: bool) -> None:
    def run(w: Any, h: Any, xs: Any) -> Any:
        carry, ys = scan(body(w), {"h": h}, xs, checkpoint=checkpoint)
        return carry["h"], ys["z"]

    inputs = (leaf(2), leaf(2, seed=1), leaf(3, 2, seed=2))
    assert wg.autograd.gradcheck(run, inputs)
    assert wg.autograd.gradgradcheck(run, inputs)


def test_numbers_none_and_no_input() -> None:
    total, powers = scan(lambda s, _: (s * 2, s), 1, None, 5)
    assert (total.item(), powers.tolist(), powers.dtype) == (32, [1, 2, 4, 8, 16], wg.int64)
    carry, ys = scan(lambda s, x: ((s[0] + x, None), {"kept": None, "number": 3}), (0.0, None), one(2))
    assert carry[1] is None
    assert carry[0].item() == 2.0
    assert ys["kept"] is None
    assert ys["number"].tolist() == [3, 3]


def test_outputs_with_fewer_dimensions_are_stacked_in_front() -> None:
    _, (rows, sums) = scan(lambda s, x: (s, (x, x.sum())), 0.0, one(2, 3, 4), dim=2)
    assert (tuple(rows.shape), tuple(sums.shape)) == ((2, 3, 4), (4,))
    rows, vectors = slice_map(lambda x: (x, x[0]), one(2, 3, 4), dim=2)
    assert (tuple(rows.shape), tuple(vectors.shape)) == ((2, 3, 4), (4, 3))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_no_step_gives_the_carry_and_empty_outputs(dim: int) -> None:
    xs = wg.zeros(*((0, 3) if dim == 0 else (3, 0)), dtype=wg.float64, requires_grad=True)
    init = leaf(3)
    carry, ys = scan(lambda s, x: (s + x, (s.sum(), x, None)), init, xs, dim=dim, checkpoint=True)
    assert carry.tolist() == init.tolist()
    assert [tuple(y.shape) for y in ys[:2]] == [(0,), tuple(xs.shape)]
    assert ys[0].dtype == wg.float64
    assert ys[2] is None
    assert tuple(slice_map(lambda x: x.sum(), xs, dim=dim).shape) == (0,)


# ---- map


@pytest.mark.parametrize("checkpoint", [False, True, 2])
def test_map_is_a_loop(checkpoint: bool | int) -> None:
    xs = {"a": leaf(5, 2), "b": leaf(5, seed=1)}
    w = leaf(2, seed=2)
    found = slice_map(lambda x, w, k: (x["a"] * w) ** k + x["b"], xs, w, 2, checkpoint=checkpoint)
    expected = wg.stack([(xs["a"][i] * w) ** 2 + xs["b"][i] for i in range(5)])
    np.testing.assert_array_equal(found.detach(), expected.detach())
    inputs = [w, *xs.values()]
    for g, right in zip(wg.autograd.grad(found.exp().sum(), inputs),
                        wg.autograd.grad(expected.exp().sum(), inputs), strict=True):  # fmt: skip
        np.testing.assert_allclose(g, right, rtol=1e-14)


# ---- work and memory


def records(tensor: Any) -> Counter[str]:
    """How many records of each operator the graph of a tensor holds."""
    names: Counter[str] = Counter()
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names[node.name()] += 1
            waiting += [parent for parent, _ in node.next_functions]
    return names


def test_slices_are_taken_once_and_outputs_stacked_once() -> None:
    """A slice per step would fill zeros of the whole input in every step of backward: quadratic work."""
    _, ys = scan(lambda s, x: (s + x, s * x), leaf(2), leaf(50, 2, seed=1))
    found = records(ys.sum())
    assert found["UnbindBackward0"] == 1
    assert found["StackBackward0"] == 1
    assert sum(found.values()) < 50 * 2 + 10


def peak(n: int, checkpoint: bool | int) -> int:
    """The most bytes that a scan of ``n`` steps and its backward need at once, in carries of 64 KiB.

    A thread of its own takes its memory from NumPy, where tracemalloc sees it, and not from the pool.
    """
    with natively(OFF), ThreadPoolExecutor(1) as thread:
        return thread.submit(_peak, n, checkpoint).result()


def _peak(n: int, checkpoint: bool | int) -> int:
    w, xs = leaf(8192), leaf(n, seed=1)
    tracemalloc.start()
    try:
        scan(lambda h, x: ((h * w).sin() + x, None), w, xs, checkpoint=checkpoint)[0].sum().backward()
        return tracemalloc.get_traced_memory()[1] // 65536
    finally:
        tracemalloc.stop()


def test_checkpointed_scan_keeps_the_square_root() -> None:
    plain, kept = [peak(n, False) for n in (64, 256)], [peak(n, True) for n in (64, 256)]
    assert plain[0] >= 2 * 64
    assert plain[1] >= 3.5 * plain[0]
    assert kept[1] <= 2.5 * kept[0]
    assert kept[1] <= 6 * math.isqrt(256)


def test_steps_run_once_and_once_more_in_a_checkpointed_backward() -> None:
    calls: list[float] = []

    def step(s: Any, x: Any) -> Any:
        calls.append(x.item())
        return s * x, None

    carry, _ = scan(step, 1.0, wg.arange(1.0, 7.0).requires_grad_(), checkpoint=2)
    assert calls == [1, 2, 3, 4, 5, 6]
    carry.backward()
    assert calls[6:] == [5, 6, 3, 4, 1, 2]


def test_random_numbers_are_the_same_when_steps_run_again() -> None:
    xs = wg.ones(9, 4, dtype=wg.float64, requires_grad=True)
    _, kept = scan(lambda s, x: (s, wg.nn.functional.dropout(x, 0.5)), 0, xs, checkpoint=True)
    kept.sum().backward()
    np.testing.assert_array_equal(xs.grad, kept.detach())


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("outer", [False, True])
def test_scans_nest(outer: bool, inner: bool) -> None:
    w, xs = leaf(2), leaf(4, 5, 2, seed=1)

    def row(h: Any, xs: Any) -> Any:
        return scan(lambda h, x: ((h * w).tanh() + x, h), h, xs, checkpoint=inner)

    carry, ys = scan(row, wg.zeros(2).double(), xs, checkpoint=outer)
    flat, flat_ys = scan(lambda h, x: ((h * w).tanh() + x, h), wg.zeros(2).double(), xs.reshape(20, 2))
    np.testing.assert_array_equal(carry.detach(), flat.detach())
    np.testing.assert_array_equal(ys.reshape(20, 2).detach(), flat_ys.detach())
    found = wg.autograd.grad(carry.sum() + ys.exp().sum(), [w, xs])
    for g, right in zip(found, wg.autograd.grad(flat.sum() + flat_ys.exp().sum(), [w, xs]), strict=True):
        np.testing.assert_allclose(g, right, rtol=1e-13)


# ---- what is refused


def keep(s: Any, x: Any) -> Any:
    return s, x


Refusal = tuple[Callable[[], Any], type[Exception], str]

REFUSED: dict[str, Refusal] = {
    "no function": (lambda: scan(one(2), 0, one(2)), TypeError, "combine_fn must be a function, got Tensor"),
    "no pair": (lambda: scan(lambda s, x: s, 0, one(2)), TypeError, r"combine_fn must return \(carry, output\), got Tensor"),
    "three": (lambda: scan(lambda s, x: (s, s, s), 0, one(2)), TypeError, "got tuple of 3"),
    "xs of numbers": (lambda: scan(keep, 0, [1, 2]), TypeError, "the leaves of xs must be tensors, got int"),
    "no length": (lambda: scan(keep, 0, None), ValueError, "nothing says the number of steps; give length"),
    "negative length": (lambda: scan(keep, 0, None, -1), ValueError, "length must not be negative, got -1"),
    "no number of slices": (lambda: slice_map(abs, []), ValueError, "nothing says the number of steps$"),
    "length of a kind": (lambda: scan(keep, 0, None, 2.0), TypeError, "length must be an int, got 2.0"),
    "another length": (lambda: scan(keep, 0, one(2), 3), ShapeError, r"xs has size 2 in dimension 0 .*, length is 3"),
    "sizes": (
        lambda: scan(keep, 0, {"a": one(2), "b": one(3)}), ShapeError, r"xs\['b'\] has size 3 .* that of xs\['a'\] is 2",
    ),
    "no such dimension": (lambda: scan(keep, 0, one(2), dim=1), IndexError, "dim=1 is out of range"),
    "no dimension": (lambda: scan(keep, 0, [one(2), one()]), ShapeError, r"xs\[1\] has shape \(\), there is no dimension 0"),
    "segment": (lambda: scan(keep, 0, one(2), checkpoint=0), ValueError, "checkpoint must be True, False or the length"),
    "carry of text": (lambda: scan(keep, "a", one(2)), TypeError, "must be tensors, numbers or None, got str"),
    "carry structure": (lambda: scan(lambda s, x: ((s, s), x), 0, one(2)), TypeError, r"not of the structure of init"),
    "carry shape": (
        lambda: scan(lambda s, x: ({"s": s["s"] + x[None]}, x), {"s": 0.0}, one(2)),
        ShapeError, r"the carry that combine_fn returns at \['s'\] is .* shape \(1,\) .* in init it is .* shape \(\)",
    ),
    "carry dtype": (
        lambda: scan(lambda s, x: (s + x, x), 0, one(2)), DTypeError, r"wengert.float32, in init it is .* wengert.int64; cast",
    ),
    "output structure": (
        lambda: scan(lambda s, x: (s + 1, x if s < 1 else None), 0, one(2)), TypeError, "is None, in the output of the first",
    ),
    "output shape": (
        lambda: scan(lambda s, x: (s + 1, wg.ones(int(s))), 0, one(2)), ShapeError, "an output is a tensor of shape",
    ),
    "carry changed": (lambda: scan(lambda s, x: (s.add_(1), x), one(2), one(2)), InplaceError, "combine_fn changed the carry"),
    "slice changed": (lambda: scan(lambda s, x: (s, x.add_(1)), 0, one(2)), InplaceError, r"changed xs \(shape \(2,\)\)"),
    "argument changed": (
        lambda: slice_map(lambda x, w: w.add_(x), one(2), one()), InplaceError, r"map\(\): f changed args\[0\]",
    ),
    "slice changed in map": (lambda: slice_map(lambda x: x.add_(1), one(2)), InplaceError, r"map\(\): f changed xs"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()
