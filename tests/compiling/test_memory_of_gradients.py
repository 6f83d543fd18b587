"""Small gradients of compiled steps: the same memory again while nobody else has it, and never once somebody has."""

import copy
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg

HOLDERS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda grad: grad,
    "list": lambda grad: [grad],
    "detached": lambda grad: grad.detach(),
    "data": lambda grad: grad.data,
    "row": lambda grad: grad[0],
    "transposed": lambda grad: grad.T,
    "numpy": lambda grad: grad.numpy(),
    "row of numpy": lambda grad: grad.numpy()[1:],
    "asarray": np.asarray,
    "dlpack": np.from_dlpack,
    "memoryview": lambda grad: memoryview(grad.numpy()),
    "parameter": lambda grad: wg.nn.Parameter(grad),
    "shallow copy": copy.copy,
    "saved for backward": lambda grad: _saving(grad),
    "of another tensor": lambda grad: _with_grad(grad),
}


def _saving(grad: Any) -> tuple[Any, Any]:
    leaf = wg.ones(3, 4, requires_grad=True)
    return leaf, (leaf * grad).sum()


def _with_grad(grad: Any) -> Any:
    other = wg.zeros(3, 4, requires_grad=True)
    other.grad = grad
    return other


def _values(held: Any) -> Any:
    """Return a copy of what a holder shows."""
    if isinstance(held, list):
        return _values(held[0])
    if isinstance(held, tuple):
        leaf, total = held
        return wg.autograd.grad(total, leaf, retain_graph=True)[0].numpy().copy()
    if isinstance(held, wg.Tensor) and held.grad is not None:
        return _values(held.grad)
    return np.array(held.detach() if isinstance(held, wg.Tensor) else held)


@pytest.fixture
def step() -> tuple[Any, Callable[..., Any]]:
    """A parameter of shape (3, 4) and a compiled step that moves it."""
    wg.manual_seed(0)
    layer = wg.nn.Linear(4, 3)
    optimiser = wg.optim.SGD(layer.parameters(), lr=0.1)

    @wg.compile(fullgraph=True)
    def step(x: Any) -> Any:
        optimiser.zero_grad()
        loss = (layer(x) ** 2).sum()
        loss.backward()
        optimiser.step()
        return loss

    for _ in range(3):
        step(wg.ones(5, 4))
    return layer.weight, step


@pytest.mark.parametrize("name", HOLDERS)
def test_what_somebody_has_is_not_written_again(name: str, step: Any) -> None:
    weight, run = step
    run(wg.ones(5, 4))
    held = HOLDERS[name](weight.grad)
    before = _values(held)
    for k in range(3):
        run(wg.ones(5, 4) * (k + 2))
        np.testing.assert_array_equal(_values(held), before)
    assert not np.array_equal(weight.grad.numpy(), before)


def test_what_nobody_has_is_the_same_tensor(step: Any) -> None:
    weight, run = step
    run(wg.ones(5, 4))
    tensor, array, values = id(weight.grad), id(weight.grad._payload), weight.grad.tolist()
    run(wg.ones(5, 4) * 2)
    assert (id(weight.grad), id(weight.grad._payload)) == (tensor, array)
    assert weight.grad.tolist() != values


def test_once_it_is_let_go_the_new_one_is_kept(step: Any) -> None:
    weight, run = step
    held = weight.grad
    run(wg.ones(5, 4))
    assert weight.grad is not held
    del held
    kept = id(weight.grad)
    run(wg.ones(5, 4))
    assert id(weight.grad) == kept


def test_a_weak_reference_ends_with_its_gradient(step: Any) -> None:
    weight, run = step
    seen = weakref.ref(weight.grad)
    run(wg.ones(5, 4))
    assert seen() is None


@pytest.mark.parametrize("change", ["none", "other", "requires_grad", "version"])
def test_a_gradient_that_was_changed_is_made_anew(change: str, step: Any) -> None:
    weight, run = step
    eager = copy.deepcopy(weight.detach())
    if change == "none":
        weight.grad = None
    elif change == "other":
        weight.grad = wg.zeros(3, 4)
    elif change == "requires_grad":
        weight.grad.requires_grad_()
    else:
        weight.grad.add_(1)
    run(wg.ones(5, 4))
    assert not weight.grad.requires_grad
    assert weight.grad._version == 0
    np.testing.assert_allclose(weight.detach().numpy(), (eager - 0.1 * weight.grad).numpy(), rtol=1e-6)


def test_a_call_that_fails_leaves_gradients_as_they_were() -> None:
    wg.manual_seed(0)
    layer = wg.nn.Linear(4, 3)

    @wg.compile(fullgraph=True)
    def step(x: Any, y: Any) -> Any:
        layer.zero_grad()
        loss = wg.nn.functional.cross_entropy(layer(x), y)
        loss.backward()
        return loss

    x, right, wrong = wg.randn(5, 4), wg.tensor([0, 1, 2, 0, 1]), wg.tensor([0, 1, 2, 3, 1])
    for _ in range(3):
        step(x, right)
    before = layer.weight.grad.numpy().copy()
    with pytest.raises(IndexError, match="3"):
        step(x * 2, wrong)
    np.testing.assert_array_equal(layer.weight.grad.numpy(), before)
    step(x, right)
    np.testing.assert_array_equal(layer.weight.grad.numpy(), before)


def test_returned_gradients_are_those_of_their_call(step: Any) -> None:
    layer = wg.nn.Linear(4, 3)

    @wg.compile(fullgraph=True)
    def both(x: Any) -> Any:
        layer.zero_grad()
        layer(x).sum().backward()
        return layer.weight.grad, layer.weight.grad[0]

    found = [both(wg.ones(2, 4) * k) for k in range(5)]
    for k, (whole, row) in enumerate(found):
        np.testing.assert_array_equal(whole.numpy(), np.full((3, 4), 2.0 * k))
        np.testing.assert_array_equal(row.numpy(), np.full(4, 2.0 * k))


def test_a_gradient_that_is_held_from_the_very_first_call_on_stays() -> None:
    layer = wg.nn.Linear(4, 3)
    run = wg.compile(lambda x: (layer.zero_grad(), layer(x).sum().backward())[1], fullgraph=True)
    held, right = [], []
    for k in range(6):
        run(wg.ones(5, 4) * k)
        held.append(layer.weight.grad if k % 2 else layer.weight.grad.numpy()[:2])
        right.append(np.full((3, 4) if k % 2 else (2, 4), 5.0 * k))
        for one, values in zip(held, right, strict=True):
            np.testing.assert_array_equal(np.asarray(one), values)


def test_what_was_hung_on_a_gradient_is_not_on_the_next(step: Any) -> None:
    weight, run = step
    weight.grad.tag = "mine"
    run(wg.ones(5, 4))
    assert not hasattr(weight.grad, "tag")
    weight.grad.grad = wg.ones(3, 4)
    run(wg.ones(5, 4))
    assert weight.grad.grad is None


def test_another_thread_never_sees_a_gradient_change(step: Any) -> None:
    weight, run = step
    torn, done = [], threading.Event()

    def look() -> None:
        while not done.is_set():
            held = weight.grad
            if held is not None and held.numpy().tobytes() != held.numpy().tobytes():  # bits, as numbers may be NaN
                torn.append(held)

    watcher = threading.Thread(target=look)
    watcher.start()
    for k in range(3000):
        run(wg.ones(5, 4) * (k % 7))
    done.set()
    watcher.join()
    assert not torn


def test_a_gradient_is_off_its_tensor_while_it_may_be_written() -> None:
    weight, seen = wg.nn.Parameter(wg.ones(3)), []
    note = wg.library.custom_op("test::note_the_gradient", mutates_args=())(_noting(weight, seen))
    note.register_fake(lambda x: wg.empty_like(x))

    @wg.compile(fullgraph=True)
    def step(x: Any) -> Any:
        weight.grad = None
        y = note(x)
        (weight * y.sin()).sum().backward()

    for k in range(4):
        step(wg.ones(3) * k)
        np.testing.assert_allclose(weight.grad.numpy(), np.full(3, np.sin(k)), rtol=1e-6)
    assert all(grad is None for grad in seen[1:])


def _noting(weight: Any, seen: list[Any]) -> Callable[[Any], Any]:
    def note(x: wg.Tensor) -> wg.Tensor:
        seen.append(None if weight.grad is None else weight.grad.tolist())
        return x.clone()

    return note
