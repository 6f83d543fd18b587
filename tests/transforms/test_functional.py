"""autograd.functional: mathematics, what happens to tensors referred to by name, and what the errors say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp


def at(*values: Any, requires_grad: bool = False) -> Any:
    return wg.tensor(values, dtype=wg.float64, requires_grad=requires_grad)


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


X = np.array([-1.2, 1.0, 0.5])
GRADIENT = np.array([-215.6, 112.0, -100.0])
HESSIAN = np.array([[1330.0, 480.0, 0.0], [480.0, 1202.0, -400.0], [0.0, -400.0, 200.0]])
VECTOR = np.array([1.0, -2.0, 0.5])


def test_products_and_matrices_of_rosenbrocks_function() -> None:
    x, v = wg.tensor(X), wg.tensor(VECTOR)
    np.testing.assert_allclose(jacobian(rosenbrock, x), GRADIENT)
    np.testing.assert_allclose(hessian(rosenbrock, x), HESSIAN)
    for product in (vhp, hvp):
        value, found = product(rosenbrock, x, v)
        assert value.item() == pytest.approx(rosenbrock(x).item())
        np.testing.assert_allclose(found, HESSIAN @ VECTOR)
    np.testing.assert_allclose(vjp(rosenbrock, x)[1], GRADIENT)
    np.testing.assert_allclose(jvp(rosenbrock, x, v)[1], GRADIENT @ VECTOR)


def test_a_tensor_that_is_input_and_referred_to_by_name_counts_as_input_only() -> None:
    x = at(1.0, 2.0, requires_grad=True)
    np.testing.assert_allclose(jacobian(lambda y: y * x, x), np.diag([1.0, 2.0]))
    with pytest.raises(RuntimeError, match="independent of input 0"):
        vjp(lambda y: (x * x).sum(), x, strict=True)


@pytest.mark.parametrize("create_graph", [False, True])
def test_results_have_a_history_only_if_asked_for(create_graph: bool) -> None:
    x = at(1.0, 2.0, requires_grad=True)
    with wg.no_grad():
        found = [
            jacobian(wg.exp, x, create_graph=create_graph),
            hessian(lambda x: x.exp().sum(), x, create_graph=create_graph),
            *vjp(wg.exp, x, at(1.0, 1.0), create_graph=create_graph),
            *jvp(wg.exp, x, at(1.0, 1.0), create_graph=create_graph),
            *vhp(lambda x: x.exp().sum(), x, at(1.0, 1.0), create_graph=create_graph),
            *hvp(lambda x: x.exp().sum(), x, at(1.0, 1.0), create_graph=create_graph),
        ]
    assert [f.requires_grad for f in found] == [create_graph] * len(found)
    if create_graph:
        for f in found:
            np.testing.assert_allclose(wg.autograd.grad(f.sum(), x, retain_graph=True)[0], np.exp([1.0, 2.0]))
    assert x.grad is None


def test_a_product_is_differentiable_by_its_vector() -> None:
    x, v = at(1.0, 2.0), at(3.0, 4.0, requires_grad=True)
    _, found = jvp(lambda x: x**2, x, v, create_graph=True)
    assert wg.autograd.grad(found.sum(), v)[0].tolist() == [2.0, 4.0]


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_outputs_and_inputs_without_elements(shape: tuple[int, ...]) -> None:
    x = wg.ones(3, dtype=wg.float64)
    assert tuple(jacobian(lambda x: x[:0].reshape(shape), x).shape) == (*shape, 3)
    assert tuple(jacobian(lambda y: y.sum() * x, wg.ones(*shape)).shape) == (3, *shape)


STRATEGIES = [(vectorize, strategy) for vectorize in (False, True) for strategy in ("reverse-mode", "forward-mode")]


@pytest.mark.parametrize(("vectorize", "strategy"), STRATEGIES)
def test_all_ways_agree_and_are_differentiable(vectorize: bool, strategy: str) -> None:
    x, y = wg.tensor(X, requires_grad=True), at(0.5, -1.0)
    rows = jacobian(lambda x, y: (x[:2] * y, x.prod()), (x, y), True, False, vectorize, strategy)
    np.testing.assert_allclose(rows[0][0].detach(), np.diag([0.5, -1.0, 0.0])[:2])
    np.testing.assert_allclose(rows[0][1].detach(), np.diag(X[:2]))
    np.testing.assert_allclose(rows[1][0].detach(), [0.5, -0.6, -1.2])
    assert rows[1][1].tolist() == [0.0, 0.0]
    (found,) = wg.autograd.grad(rows[1][0].sum(), x)
    np.testing.assert_allclose(found, [1.5, -0.7, -0.2])
    second = hessian(rosenbrock, x, True, False, vectorize, strategy)
    np.testing.assert_allclose(second.detach(), HESSIAN)
    (third,) = wg.autograd.grad(second[0, 0], x)
    np.testing.assert_allclose(third, [2400 * X[0], -400.0, 0.0])
    for found in (
        jacobian(wg.exp, x, vectorize=vectorize, strategy=strategy),
        hessian(rosenbrock, x, vectorize=vectorize, outer_jacobian_strategy=strategy),
    ):
        assert not found.requires_grad


def test_inside_the_transforms_of_func() -> None:
    points = at([0.5, 2.0, -1.0], [1.0, -2.0, 0.0], [3.0, 0.25, 1.5])
    for strategy in ("reverse-mode", "forward-mode"):
        one = lambda x: hessian(rosenbrock, x, create_graph=True, outer_jacobian_strategy=strategy)  # noqa: B023, E731
        found = wg.func.vmap(one)(points)
        np.testing.assert_allclose(found.detach(), wg.func.vmap(wg.func.hessian(rosenbrock))(points))
    pushed = wg.func.jvp(lambda x: jacobian(rosenbrock, x, create_graph=True), (wg.tensor(X),), (wg.tensor(VECTOR),))[1]
    np.testing.assert_allclose(pushed.detach(), HESSIAN @ VECTOR)
    pushed = wg.func.grad(lambda x: hvp(rosenbrock, x, wg.tensor(VECTOR), create_graph=True)[1] @ wg.tensor(VECTOR))
    numeric = [(hvp(rosenbrock, wg.tensor(X + e), wg.tensor(VECTOR))[1].numpy() @ VECTOR
                - hvp(rosenbrock, wg.tensor(X - e), wg.tensor(VECTOR))[1].numpy() @ VECTOR) / 2e-4
               for e in 1e-4 * np.eye(3)]  # fmt: skip
    np.testing.assert_allclose(pushed(wg.tensor(X)), numeric, rtol=1e-6, atol=1e-5)


Refusal = tuple[Callable[[], Any], type[Exception], str]
ONE, TWO = at(1.0), at(1.0, 2.0)
LEAF = at(1.0, 2.0, requires_grad=True)


def square(x: Any) -> Any:
    return (x * x).sum()


REFUSED: dict[str, Refusal] = {
    "inputs": (lambda: vjp(square, [1.0]), TypeError, r"vjp\(\): inputs must be a tensor or a tuple of tensors, got list"),
    "one input": (lambda: jacobian(square, (TWO, 1.0)), TypeError, r"jacobian\(\): inputs .*, value 1 is float"),
    "output": (lambda: hvp(lambda x: 1.0, TWO, TWO), TypeError, r"hvp\(\): the output of func must .*, got float"),
    "vector": (lambda: jvp(square, TWO, 1.0), TypeError, r"jvp\(\): v must be a tensor .*, got float"),
    "no vector": (lambda: vjp(wg.exp, TWO), RuntimeError, "v can be left out only if func returns a single tensor with one"),
    "no vector of two": (lambda: hvp(square, TWO), RuntimeError, "v can be left out only if the input is a single tensor"),
    "too many vectors": (lambda: vjp(wg.exp, TWO, (TWO, TWO)), RuntimeError, "v must be a single tensor, got 2"),
    "too few vectors": (
        lambda: jvp(wg.add, (TWO, TWO), (TWO,)), RuntimeError, "v must be a tuple of 2 tensors, got 1",
    ),
    "shape": (lambda: vhp(square, TWO, ONE), RuntimeError, r"v must have shape \(2,\), got \(1,\)"),
    "shape of one": (lambda: jvp(wg.add, (TWO, TWO), (TWO, ONE)), RuntimeError, r"v\[1\] must have shape \(2,\)"),
    "several outputs": (lambda: hessian(lambda x: (x, x), TWO), RuntimeError, "must return a single tensor, got a tuple of 2"),
    "no number": (lambda: hessian(wg.exp, TWO), RuntimeError, r"must return a tensor with one element, got shape \(2,\)"),
    "complex": (
        lambda: jacobian(lambda x: x * 1j, TWO), RuntimeError, "output 0 is complex, and a row of its Jacobian is no gradient",
    ),
    "strategy": (lambda: jacobian(wg.exp, TWO, strategy="backward"), ValueError, "must be 'reverse-mode' or 'forward-mode'"),
    "strict, vectorized": (
        lambda: jacobian(wg.exp, TWO, strict=True, vectorize=True), RuntimeError, "strict=True and vectorize=True do not go",
    ),
    "strict, forward": (
        lambda: hessian(square, TWO, strict=True, outer_jacobian_strategy="forward-mode"),
        RuntimeError, "strict=True and forward mode do not go together",
    ),
    "strict: no history": (
        lambda: vjp(lambda x: x.detach(), TWO, TWO, strict=True), RuntimeError, "output 0 of func does not require grad",
    ),
    "strict: unused": (
        lambda: vjp(lambda x, y: x, (TWO, TWO), TWO, strict=True), RuntimeError, "the output of func is independent of input 1",
    ),
    "strict: unused in one output": (
        lambda: jacobian(lambda x, y: (x * y, x * 2), (TWO, TWO), strict=True),
        RuntimeError, "output 1 of func is independent of input 1",
    ),
    "strict: constant Jacobian": (
        lambda: jacobian(lambda x: x * 2, LEAF, create_graph=True, strict=True),
        RuntimeError, "the Jacobian of func is independent of input 0; .* strict mode with create_graph=True",
    ),
    "strict: constant gradient": (
        lambda: hessian(lambda x: x.sum(), TWO, strict=True),
        RuntimeError, "gradient of func with respect to input 0 is independent of the inputs",
    ),
    "strict: constant Hessian": (
        lambda: vhp(square, LEAF, TWO, create_graph=True, strict=True),
        RuntimeError, "the Hessian of func is independent of input 0; .* create_graph=True",
    ),
    "strict: linear": (
        lambda: jvp(lambda x: x * 2, TWO, TWO, create_graph=True, strict=True), RuntimeError, "the Jacobian of func is indep",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("transform", [vjp, jvp, vhp, hvp, jacobian, hessian])
def test_inference_mode_records_nothing_and_is_refused(transform: Callable[..., Any]) -> None:
    arguments = (TWO,) if transform in (jvp, vhp, hvp) else ()
    with wg.inference_mode(), pytest.raises(RuntimeError, match="inside inference_mode"):
        transform(square, TWO, *arguments)
    with pytest.raises(TypeError, match=f"{transform.__name__}.*func must be a function, got int"):
        transform(3, TWO, *arguments)


def test_hessian_is_named_in_its_errors() -> None:
    with pytest.raises(ValueError, match=r"hessian.*strategy"):
        hessian(square, TWO, outer_jacobian_strategy="sideways")
