"""Structured branches and loops: their values, gradients of every order, and what their bodies are refused."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import DTypeError, InplaceError, ShapeError
from wengert.transforms.control import cond, while_loop


def leaf(*shape: int, seed: int = 0) -> Any:
    """A float64 tensor of random numbers in [0.5, 1.5) that requires grad."""
    return wg.from_numpy(np.random.default_rng(seed).uniform(0.5, 1.5, shape)).requires_grad_()


def derivatives(value: Any, x: Any, order: int) -> list[float]:
    """The value and its derivatives of a number ``x``."""
    found = [value.item()]
    for _ in range(order):
        (value,) = wg.autograd.grad(value, x, create_graph=True)
        found.append(value.item())
    return found


# ---- cond

PREDICATES = [
    (True, True), (False, False), (1, True), (0, False), (0.5, True), (np.True_, True), (np.int64(0), False),
    (wg.tensor(True), True), (wg.tensor([[False]]), False), (wg.tensor(2), True), (wg.tensor(0.0), False),
]  # fmt: skip


@pytest.mark.parametrize(("pred", "holds"), PREDICATES, ids=repr)
def test_cond_takes_one_branch(pred: Any, holds: bool) -> None:
    calls: list[str] = []

    def branch(name: str, x: Any) -> Any:
        calls.append(name)
        return {name[0]: x}

    result = cond(pred, partial(branch, "true"), partial(branch, "false"), (wg.ones(2),))
    assert calls == (["true"] if holds else ["false"])
    assert result["t" if holds else "f"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("at", "expected"), [(2.0, [8.0, 12.0, 12.0, 6.0]), (-2.0, [4.0, -4.0, 2.0, 0.0])])
def test_derivatives_go_through_the_branch_that_was_taken(at: float, expected: list[float]) -> None:
    x = wg.tensor(at, dtype=wg.float64, requires_grad=True)
    y = cond(x > 0, lambda x: x**3, lambda x: x**2 + 0 * x**3, (x,))
    assert derivatives(y, x, 3) == expected


def test_operands_and_results_are_trees() -> None:
    a, b = leaf(2), leaf(3, seed=1)
    operands = ({"a": a, "rest": [b, None]}, 2.0)
    result = cond(True, lambda tree, k: (tree["a"] * k, tree["rest"]), lambda tree, k: None, operands)
    (result[0].sum() + result[1][0].sum()).backward()
    assert result[1][1] is None
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad.tolist() == [1.0, 1.0, 1.0]


def test_captured_tensors_get_gradients() -> None:
    w = leaf()
    cond(False, lambda: w, lambda: w * w).backward()
    assert w.grad.item() == pytest.approx(2 * w.item())


# ---- while_loop


def test_a_loop_is_a_python_loop() -> None:
    x = leaf(3)
    steps, y, tree = while_loop(
        lambda i, y, tree: i < 4, lambda i, y, tree: (i + 1, y * x.sin(), [tree[0] + y]), (0, x, [wg.zeros(3).double()])
    )
    expected, total = x, wg.zeros(3)
    for _ in range(4):
        expected, total = expected * x.sin(), total + expected
    assert steps == 4
    assert isinstance(steps, int)
    np.testing.assert_array_equal(y.detach(), expected.detach())
    np.testing.assert_array_equal(tree[0].detach(), total.detach())
    found = wg.autograd.grad(y.sum() + tree[0].sum(), x)[0]
    np.testing.assert_array_equal(found, wg.autograd.grad(expected.sum() + total.sum(), x)[0])


def test_the_number_of_steps_may_depend_on_the_data() -> None:
    x = wg.tensor(1.5, dtype=wg.float64, requires_grad=True)
    (y,) = while_loop(lambda y: y < 10, lambda y: [y * x], [x])
    assert derivatives(y, x, 4) == pytest.approx([1.5**6, 6 * 1.5**5, 30 * 1.5**4, 120 * 1.5**3, 360 * 1.5**2])
    assert wg.autograd.gradcheck(lambda x: while_loop(lambda y: y < 10, lambda y: (y * x,), (x,))[0], (x,))


def test_no_step_returns_what_was_given() -> None:
    x = leaf(2)
    assert while_loop(lambda x: wg.tensor([False]), lambda x: (x + 1,), (x,))[0] is x
    assert while_loop(lambda: False, lambda: (), ()) == ()


def test_newtons_method_is_differentiable() -> None:
    a = wg.tensor(2.0, dtype=wg.float64, requires_grad=True)
    root = while_loop(lambda r: (r * r - a).abs() > 1e-14, lambda r: ((r + a / r) / 2,), (wg.ones(()).double(),))[0]
    assert derivatives(root, a, 1) == pytest.approx([2**0.5, 0.5 / 2**0.5])


def test_a_long_loop_neither_recurses_nor_slows_down() -> None:
    x = leaf()
    _, y = while_loop(lambda i, y: i < 5000, lambda i, y: (i + 1, y + x), (0, x))
    y.backward()
    assert x.grad.item() == 5001


# ---- what is refused

global_tensor = wg.zeros(3)


def captures(kind: str) -> Callable[..., Any]:
    """A body that writes in place to a tensor that it refers to."""
    local = wg.zeros(3)

    def body(x: Any) -> Any:
        (local if kind == "local" else global_tensor).add_(1)
        return (x,)

    return partial(body) if kind == "partial" else body


def one(*shape: int, dtype: Any = wg.float32) -> Any:
    return wg.ones(*shape, dtype=dtype)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "cond: a branch that is no function": (lambda: cond(True, one(2), one), TypeError, "true_fn must be a function, got"),
    "cond: bare operand": (
        lambda: cond(True, one, one, one(2)), TypeError, r"operands must be a tuple or list, got Tensor; write \(operand,\)",
    ),
    "cond: several elements": (
        lambda: cond(one(2) > 0, one, one, (one(2),)), RuntimeError, r"pred must have exactly one element, its shape is \(2,\)",
    ),
    "cond: no predicate": (lambda: cond("yes", one, one), TypeError, "pred must be a bool or a tensor .* got str"),
    "cond: an operand changed": (
        lambda: cond(True, lambda a: a["x"][1].mul_(2), one, ({"x": [1, one(2)]},)),
        InplaceError, r"cond\(\): true_fn changed operands\[0\]\['x'\]\[1\] \(shape \(2,\)\) in place, by mul_\(\) at",
    ),
    "cond: a view of an operand changed": (
        lambda: cond(False, one, lambda a: a[0].zero_(), (one(2),)), InplaceError, r"false_fn changed operands\[0\]",
    ),
    "cond: a captured tensor changed": (
        lambda: cond(True, captures("local"), one, (one(2),)), InplaceError, "changed the captured tensor 'local'",
    ),
    "cond: a global tensor changed": (
        lambda: cond(True, captures("partial"), one, (one(2),)), InplaceError, "the captured tensor 'global_tensor'",
    ),
    "while_loop: bare carry": (
        lambda: while_loop(lambda x: True, lambda x: x, one(2)), TypeError, "carried_inputs must be a tuple or list, got",
    ),
    "while_loop: bare result": (
        lambda: while_loop(lambda x: True, lambda x: x, (one(2),)), TypeError, "body_fn must return a tuple, got Tensor",
    ),
    "while_loop: structure": (
        lambda: while_loop(lambda s: True, lambda s: ({"h": s["h"]},), ({"h": one(2), "c": one(2)},)),
        TypeError, r"\(\{'h': \*\},\) instead of \(\{'h': \*, 'c': \*\},\); missing: \[0\]\['c'\]",
    ),
    "while_loop: more values": (
        lambda: while_loop(lambda x: True, lambda x: (x, x), (one(2),)), TypeError, r"not expected: \[1\]",
    ),
    "while_loop: shape": (
        lambda: while_loop(lambda s: True, lambda s: ({"h": s["h"][None]},), ({"h": one(2)},)),
        ShapeError, r"the carry that body_fn returns at \[0\]\['h'\] is a tensor of shape \(1, 2\) .* it is .* shape \(2,\)",
    ),
    "while_loop: dtype": (
        lambda: while_loop(lambda x: True, lambda x: (x.double(),), (one(2),)),
        DTypeError, r"at \[0\] is a .* wengert.float64, .* wengert.float32; cast one, for instance with .to\(wengert.float32\)",
    ),
    "while_loop: number becomes tensor": (
        lambda: while_loop(lambda i: True, lambda i: (i + one(),), (0,)), TypeError, "in the carry before it is a Python int",
    ),
    "while_loop: predicate": (
        lambda: while_loop(lambda x: x > 0, lambda x: (x,), (one(2),)), RuntimeError, "what cond_fn returns must have exactly",
    ),
    "while_loop: carry changed by the body": (
        lambda: while_loop(lambda x: True, lambda x: (x.add_(1),), (one(2),)), InplaceError, r"body_fn changed the carry\[0\]",
    ),
    "while_loop: carry changed by the predicate": (
        lambda: while_loop(lambda x: x.add_(1).sum() < 9, lambda x: (x,), (one(2),)),
        InplaceError, r"cond_fn changed the carry\[0\]",
    ),
    "while_loop: a captured tensor changed": (
        lambda: while_loop(lambda x: True, captures("local"), (one(2),)), InplaceError, "captured tensor 'local'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()


def test_a_body_may_change_what_it_made() -> None:
    assert cond(True, lambda x: x.clone().add_(1), one, (one(2),)).tolist() == [2.0, 2.0]
    with wg.inference_mode():  # nothing counts writes there
        assert cond(True, lambda x: x + 1, one, (one(2),)).tolist() == [2.0, 2.0]
