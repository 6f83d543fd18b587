"""What ``wengert.func`` is connected to outside, and what it leaves behind: history, levels, modes, memory."""

import gc
import threading
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.state import thread
from wengert.errors import AnomalyError, TransformError
from wengert.func import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)

X = wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64)
ONES = wg.ones(3, dtype=wg.float64)
BATCH = wg.arange(6, dtype=wg.float64).reshape(2, 3)
Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def nothing_left_running() -> Any:
    """Whatever a test does, no transform and no mode may outlive it."""
    yield
    state = thread.state
    assert (state.levels, state.grad, state.slow, state.walk) == ([], True, False, None)


def leaf(values: Any = (1.0, 2.0, 3.0)) -> Any:
    return wg.tensor(list(values), dtype=wg.float64, requires_grad=True)


def same(found: Any, expected: Any) -> None:
    """Compare trees of tensors with trees of numbers."""
    assert type(found) is type(expected) or isinstance(found, wg.Tensor), (found, expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(found, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(found, wg.Tensor):
        expected = expected.numpy() if isinstance(expected, wg.Tensor) else np.asarray(expected)
        assert tuple(found.shape) == expected.shape
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)
    else:
        assert found == expected


def cube(x: Any) -> Any:
    return (x**3).sum()


# ---- connections


def test_results_do_not_require_grad_without_reason() -> None:
    results = [
        grad(cube)(X), value_and_grad(cube)(X), vjp(lambda x: x * 2, X)[0], vjp(lambda x: x * 2, X)[1](X),
        jvp(cube, (X,), (X,)), linearize(cube, X)[0], linearize(cube, X)[1](X), jacrev(lambda x: x * x)(X),
        jacfwd(lambda x: x * x)(X), hessian(cube)(X),
        hvp(cube, (X,), (X,)), vmap(grad(cube))(BATCH), linear_transpose(lambda x: x * 2, X)(X), grad(lambda x: x)(X[0]),
        grad(grad(lambda x: x**3))(X[0]), vjp(lambda x: x, X),
    ]  # fmt: skip
    for tensor in (t for t in wg.tree.leaves(results) if isinstance(t, wg.Tensor)):
        assert not tensor.requires_grad
        assert tensor.grad_fn is None
        assert type(tensor._payload) is np.ndarray
    assert not X.requires_grad
    assert X.grad is None


CONNECTED: list[tuple[str, Callable[[Any], Any], Any]] = [
    # a function of a leaf [1, 2, 3], and the gradient of the sum of what it returns
    ("grad by its argument", lambda r: grad(cube)(r), [6.0, 12.0, 18.0]),
    ("grad closed over", lambda r: grad(lambda x: (x**2 * r).sum())(X), [2.0, 4.0, 6.0]),
    ("value", lambda r: value_and_grad(cube)(r)[0], [3.0, 12.0, 27.0]),
    ("both", lambda r: sum(t.sum() for t in value_and_grad(lambda x: (x**2 * r).sum())(r)), [3 + 4.0, 12 + 8.0, 27 + 12.0]),
    ("vjp output", lambda r: vjp(lambda x: x**3, r)[0], [3.0, 12.0, 27.0]),
    ("vjp pulled", lambda r: vjp(lambda x: x**3, r)[1](ONES)[0], [6.0, 12.0, 18.0]),
    ("vjp cotangent", lambda r: vjp(lambda x: x**3, X)[1](r)[0], [3.0, 12.0, 27.0]),
    ("jvp output", lambda r: jvp(lambda x: x**3, (r,), (ONES,))[0], [3.0, 12.0, 27.0]),
    ("jvp tangent", lambda r: jvp(lambda x: x**3, (r,), (ONES,))[1], [6.0, 12.0, 18.0]),
    ("jvp direction", lambda r: jvp(lambda x: x**3, (X,), (r,))[1], [3.0, 12.0, 27.0]),
    ("jvp closed over", lambda r: jvp(lambda x: x**2 * r, (X,), (ONES,))[1], [2.0, 4.0, 6.0]),
    ("linearize", lambda r: linearize(lambda x: x**3, r)[1](ONES), [6.0, 12.0, 18.0]),
    ("linearize direction", lambda r: linearize(lambda x: x**3, X)[1](r), [3.0, 12.0, 27.0]),
    ("transpose", lambda r: linear_transpose(lambda x: x * r, X)(X)[0], [1.0, 2.0, 3.0]),
    ("vmap", lambda r: vmap(lambda x: x**2)(r), [2.0, 4.0, 6.0]),
    ("vmap closed over", lambda r: vmap(lambda x: x * r.sum())(BATCH), [15.0, 15.0, 15.0]),
    ("vmap of grad", lambda r: vmap(grad(lambda x: (x * x * r).sum()))(BATCH), [6.0, 10.0, 14.0]),
    ("jacrev", lambda r: jacrev(lambda x: x**3)(r), [6.0, 12.0, 18.0]),
    ("jacfwd", lambda r: jacfwd(lambda x: x**3)(r), [6.0, 12.0, 18.0]),
    ("hessian", lambda r: hessian(cube)(r), [6.0, 6.0, 6.0]),
    ("hvp", lambda r: hvp(cube, (r,), (ONES,))[1], [6.0, 6.0, 6.0]),
    ("aux", lambda r: grad(lambda x: (x.sum(), r * 2), has_aux=True)(X)[1], [2.0, 2.0, 2.0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "f", "expected"), CONNECTED, ids=[c[0] for c in CONNECTED])
def test_what_is_outside_stays_connected(name: str, f: Any, expected: Any) -> None:
    r = leaf()
    f(r).sum().backward()
    same(r.grad, expected)
    same(wg.autograd.grad(f(r).sum(), r)[0], expected)
    same(grad(lambda q: f(q).sum())(X), expected)
    with wg.no_grad():
        assert not f(r).requires_grad


def test_no_grad_counts_inside_and_not_outside() -> None:
    def f(x: Any) -> Any:
        with wg.no_grad():
            shift = x**2
        return (x - shift).sum()

    same(grad(f)(X), ONES)
    with wg.no_grad():
        same(grad(f)(X), ONES)
        same(grad(cube)(X), [3.0, 12.0, 27.0])
        same(vjp(cube, X)[1](wg.tensor(1.0))[0], [3.0, 12.0, 27.0])
        _, pull = vjp(cube, X)
    same(pull(wg.tensor(1.0))[0], [3.0, 12.0, 27.0])
    same(jvp(f, (X,), (ONES,))[1], 3 - 12.0)  # forward mode has no such switch
    with wg.inference_mode():
        same(vmap(cube)(BATCH), [9.0, 216.0])
        same(jvp(cube, (X,), (ONES,))[1], 42.0)
        with pytest.raises(RuntimeError, match="inference_mode"):
            grad(cube)(X)


@pytest.mark.parametrize("wrap", [
    grad, lambda f: vmap(grad(f)), lambda f: lambda x: jvp(grad(f), (x,), (x,)), hessian,
    lambda f: grad(lambda x: vmap(f)(x).sum()),
])  # fmt: skip
def test_anomaly_mode_finds_nan_in_every_transform(wrap: Any) -> None:
    with wg.autograd.detect_anomaly():
        wrap(cube)(BATCH)
        with pytest.raises(AnomalyError, match="sqrt"):
            wrap(lambda x: (x - x).sqrt().mul(0).sum())(BATCH)


def test_detached_values_are_constants() -> None:
    f = lambda x: (x.detach() * x).sum()  # noqa: E731
    same(grad(f)(X), X)
    same(jvp(f, (X,), (ONES,))[1], 6.0)
    same(jvp(grad(f), (X,), (ONES,))[1], 0 * X)
    same(hessian(f)(X), np.zeros((3, 3)))
    same(vmap(grad(f))(BATCH), BATCH)


def test_outer_leaves_get_no_grad_of_their_own() -> None:
    layer = wg.nn.Linear(3, 1, dtype=wg.float64)
    found = grad(lambda x: layer(x).sum())(X)
    assert layer.weight.grad is None
    assert found.requires_grad
    same(found, layer.weight[0].detach())
    with pytest.raises(RuntimeError, match="does not require grad"):
        vmap(lambda x: (layer(x).sum().backward(), x)[1])(BATCH)
    assert layer.weight.grad is None


# ---- what is left behind


@pytest.mark.parametrize("use", [
    lambda t: t + 1, lambda t: t[0], lambda t: t.sum(), lambda t: t.numpy(), lambda t: t.sum().item(), lambda t: t.tolist(),
    lambda t: X.clone().add_(t), lambda t: X.clone().copy_(t), lambda t: wg.stack([X, t]),
    lambda t: vmap(lambda x: x + t)(BATCH),     lambda t: jvp(lambda x: x + t, (X,), (X,)),
    lambda t: grad(lambda x: (x + t).sum())(X), lambda t: np.sin(t), lambda t: t @ t,
])  # fmt: skip
def test_tensors_that_outlive_their_transform(use: Any) -> None:
    kept: list[Any] = []
    vmap(lambda x: (kept.append(x * 1), x)[1])(BATCH)
    jvp(lambda x: (kept.append(x * 1), x)[1], (X,), (X,))
    for tensor in kept:
        assert tuple(tensor.shape) == (3,)
        assert repr(tensor)
        with pytest.raises(TransformError, match="kept after the end of"):
            use(tensor)


@pytest.mark.parametrize("wrap", [
    grad, vmap, jacrev, jacfwd, hessian, lambda f: lambda x: jvp(f, (x,), (x,)), lambda f: lambda x: vjp(f, x),
    lambda f: lambda x: linearize(f, x), lambda f: vmap(grad(f)), lambda f: grad(lambda x: vmap(f)(x).sum()),
    lambda f: lambda x: linear_transpose(f, x), lambda f: lambda x: hvp(f, (x,), (x,)),
])  # fmt: skip
def test_errors_leave_nothing_behind(wrap: Any) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("mine")

    class Stop(BaseException):
        pass

    def stop(x: Any) -> Any:
        raise Stop

    for function, error in ((fail, KeyError), (stop, Stop), (lambda x: x @ wg.ones(7, 7), Exception)):
        with pytest.raises(error):
            wrap(function)(BATCH)
        assert thread.state.levels == []
        assert thread.state.grad
    same(grad(cube)(X), [3.0, 12.0, 27.0])


def test_threads_have_transforms_of_their_own() -> None:
    found: dict[int, Any] = {}
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        def f(x: Any) -> Any:
            barrier.wait()  # all are inside at once
            return (x**number).sum()

        found[number] = vmap(grad(f))(BATCH + 1) if number % 2 else jvp(grad(f), (X,), (ONES,))[1]

    workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    b, x = BATCH.numpy() + 1, X.numpy()
    for number, expected in ((1, b * 0 + 1), (2, 2 + x * 0), (3, 3 * b**2), (4, 12 * x**2)):
        same(found[number], expected)


def test_a_batch_is_refused_in_another_thread() -> None:
    caught: list[Any] = []

    def f(x: Any) -> Any:
        def use() -> None:
            try:
                x * 2
            except TransformError as error:
                caught.append(error)

        worker = threading.Thread(target=use)
        worker.start()
        worker.join()
        return x

    vmap(f)(BATCH)
    assert len(caught) == 1


def attempt(call: Callable[[], Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        call()


KEPT: list[tuple[str, Callable[[Any], Any]]] = [
    ("grad", lambda f: grad(f)(X)),
    ("value_and_grad", lambda f: value_and_grad(f)(X)),
    ("grad of grad", lambda f: grad(lambda x: grad(f)(x).sum())(X)),
    ("vjp", lambda f: vjp(f, X)[1](wg.tensor(1.0))),
    ("jvp", lambda f: jvp(f, (X,), (X,))),
    ("linearize", lambda f: linearize(f, X)[1](X)),
    ("vmap", lambda f: vmap(f)(BATCH)),
    ("vmap of grad", lambda f: vmap(grad(f))(BATCH)),
    ("jacrev", lambda f: jacrev(lambda x: x * f(x))(X)),
    ("hessian", lambda f: hessian(f)(X)),
    ("hvp", lambda f: hvp(f, (X,), (X,))),
    ("failing", lambda f: attempt(lambda: grad(lambda x: (f(x), 1 / 0))(X))),
    ("leaf", lambda f: grad(f)(leaf())),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call"), KEPT, ids=[k[0] for k in KEPT])
def test_graphs_are_freed_without_the_collector(name: str, call: Any) -> None:
    made: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        inner = x.sin()
        made.append(weakref.ref(inner))
        return (inner * inner).sum()

    gc.collect()
    gc.disable()
    try:
        call(f)
        assert made
        assert all(ref() is None for ref in made)
    finally:
        gc.enable()


def test_a_pullback_keeps_its_graph_only_as_long_as_it_lives() -> None:
    made: list[Any] = []
    y, pull = vjp(lambda x: (made.append(weakref.ref(h := x.sin())), h * h)[1], X)
    pull(y), pull(y)
    assert made[0]() is not None
    del pull, y
    assert made[0]() is None
