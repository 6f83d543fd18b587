"""Roots and fixed points: values, and derivatives of every order and mode, against closed forms and differences."""

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.transforms.implicit import fixed_point, root
from wengert.transforms.linear_solvers import bicgstab, dense, gmres

D = wg.float64
LINEAR_SOLVERS = ("auto", "dense", "gmres", "bicgstab")


def scalar(value: float) -> Any:
    return wg.tensor(value, dtype=D)


def normal(*shape: int, seed: int = 0) -> Any:
    return wg.tensor(np.random.default_rng(seed).normal(size=shape))


def system(n: int = 4) -> tuple[Any, Any]:
    """A well-conditioned matrix and a right-hand side."""
    return normal(n, n) * 0.3 + 3 * wg.eye(n, dtype=D), normal(n, seed=1)


def cubic(A: Any, b: Any, **options: Any) -> Any:
    return root(lambda x, A, b: A @ x + x**3 - b, wg.zeros_like(b), A, b, **options)


def kepler(mean: Any, eccentricity: Any) -> Any:
    """The eccentric anomaly E of E - e sin E = M."""
    return root(lambda x: x - eccentricity * x.sin() - mean, scalar(1.0))


# ---- values


@pytest.mark.parametrize("solver", ["auto", "newton", "newton-krylov"])
@pytest.mark.parametrize("a", [1e-8, 2.0, 9e6])
def test_square_root(solver: str, a: float) -> None:
    found = root(lambda x: x * x / a - 1, scalar(a / 2), solver=solver)
    assert found.item() == pytest.approx(math.sqrt(a), rel=1e-10)


@pytest.mark.parametrize("solver", ["newton", "newton-krylov"])
def test_a_solution_satisfies_its_system(solver: str) -> None:
    A, b = system()
    x = cubic(A, b, solver=solver)
    np.testing.assert_allclose((A @ x + x**3).numpy(), b.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", ["anderson", "picard", "newton", "newton-krylov", "auto"])
def test_the_fixed_point_of_the_cosine(solver: str) -> None:
    assert fixed_point(lambda x: x.cos(), scalar(1.0), solver=solver).item() == pytest.approx(
        0.7390851332151607, abs=1e-9
    )


def test_anderson_needs_fewer_steps_than_plain_iteration() -> None:
    W = normal(20, 20)
    W = W * (0.95 / np.abs(np.linalg.eigvals(W.numpy())).max())
    calls = {"anderson": 0, "picard": 0}
    for solver in calls:

        def f(x: Any, solver: str = solver) -> Any:
            calls[solver] += 1
            return W @ x + 1

        found = fixed_point(f, wg.zeros(20, dtype=D), solver=solver)
        np.testing.assert_allclose(found.numpy(), np.linalg.solve(np.eye(20) - W.numpy(), np.ones(20)), atol=1e-7)
    assert calls["anderson"] < calls["picard"] / 2


def test_trees_in_and_out() -> None:
    a = scalar(0.4).requires_grad_()

    def f(x: Any, a: Any) -> Any:
        return {"p": (x["q"][0] * a).cos() / 2, "q": [x["p"].sin() / 3 + a]}

    x = fixed_point(f, {"p": wg.zeros(3, dtype=D), "q": [wg.zeros(3, dtype=D)]}, a)
    assert list(x) == ["p", "q"]
    again = f(x, a)
    np.testing.assert_allclose(x["p"].detach().numpy(), again["p"].detach().numpy(), atol=1e-9)
    assert wg.autograd.gradcheck(lambda a: f(x=fixed_point(f, x, a), a=a)["p"], (a,))


def test_a_solver_of_the_users_own() -> None:
    a = scalar(2.0).requires_grad_()

    def bisection(f: Any, x: Any) -> Any:
        low, high = wg.zeros_like(x), x
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if f(middle) < 0 else (low, middle)
        return middle

    x = root(lambda x, a: x * x - a, scalar(3.0), a, solver=bisection)
    assert x.item() == pytest.approx(math.sqrt(2))
    assert wg.autograd.grad(x, a)[0].item() == pytest.approx(0.5 / math.sqrt(2))


def test_float32() -> None:
    a = wg.tensor(2.0, requires_grad=True)
    x = root(lambda x: x * x - a, wg.tensor(1.0))
    assert x.dtype is wg.float32
    assert wg.autograd.grad(x, a)[0].item() == pytest.approx(0.35355, rel=1e-5)


# ---- derivatives


def test_four_derivatives_of_the_square_root() -> None:
    a = scalar(2.0).requires_grad_()
    y = root(lambda x, a: x * x - a, scalar(1.0), a)
    for expected in (0.5 * 2**-0.5, -0.25 * 2**-1.5, 3 / 8 * 2**-2.5, -15 / 16 * 2**-3.5):
        (y,) = wg.autograd.grad(y, a, create_graph=True)
        assert y.item() == pytest.approx(expected, rel=1e-8)


def test_kepler() -> None:
    mean, e = scalar(0.7).requires_grad_(), scalar(0.3).requires_grad_()
    E = kepler(mean, e)
    by_mean, by_e = wg.autograd.grad(E, (mean, e))
    slope = 1 / (1 - 0.3 * math.cos(E.item()))
    assert by_mean.item() == pytest.approx(slope, rel=1e-9)
    assert by_e.item() == pytest.approx(slope * math.sin(E.item()), rel=1e-9)
    assert wg.autograd.gradgradcheck(kepler, (mean, e))


@pytest.mark.parametrize("linear_solver", LINEAR_SOLVERS)
def test_the_derivative_of_a_linear_solve(linear_solver: str) -> None:
    A, b = system()
    A.requires_grad_(), b.requires_grad_()
    g = normal(4, seed=2)
    x = root(lambda x: A @ x - b, wg.zeros(4, dtype=D), linear_solver=linear_solver)
    by_A, by_b = wg.autograd.grad(x, (A, b), g)
    expected = np.linalg.solve(A.detach().numpy().T, g.numpy())
    np.testing.assert_allclose(by_b.numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(by_A.numpy(), -np.outer(expected, x.detach().numpy()), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("linear_solver", LINEAR_SOLVERS)
def test_first_and_second_derivatives_of_a_system(linear_solver: str) -> None:
    A, b = (t.requires_grad_() for t in system(3))
    assert wg.autograd.gradcheck(lambda A, b: cubic(A, b, linear_solver=linear_solver), (A, b))
    assert wg.autograd.gradgradcheck(lambda A, b: cubic(A, b, linear_solver=linear_solver), (A, b))


def test_a_linear_solver_of_the_users_own() -> None:
    A, b = (t.requires_grad_() for t in system(3))
    calls = []

    def solver(matvec: Any, b: Any) -> Any:
        calls.append(b)
        return dense(matvec, b)

    assert wg.autograd.gradcheck(lambda A, b: cubic(A, b, linear_solver=solver), (A, b))
    assert calls


def test_parameters_of_a_module() -> None:
    layer = wg.nn.Linear(3, 3).double()
    with wg.no_grad():
        layer.weight.mul_(0.3)
    x = fixed_point(lambda x: layer(x).tanh(), wg.zeros(3, dtype=D))
    x.sum().backward()
    J = (1 - x.detach() ** 2)[:, None] * layer.weight.detach()
    u = np.linalg.solve(np.eye(3) - J.numpy().T, np.ones(3))
    expected = u * (1 - x.detach().numpy() ** 2)
    np.testing.assert_allclose(layer.bias.grad.numpy(), expected, rtol=1e-7)
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.outer(expected, x.detach().numpy()), rtol=1e-6, atol=1e-10)


def test_closures_that_depend_on_each_other_are_not_counted_twice() -> None:
    b = scalar(2.0).requires_grad_()
    c = 3 * b
    x = root(lambda x: x * x - b * c, scalar(1.0))  # √3 b
    (g,) = wg.autograd.grad(x, b, create_graph=True)
    assert g.item() == pytest.approx(math.sqrt(3))
    assert wg.autograd.grad(g, b)[0].item() == pytest.approx(0, abs=1e-9)


def test_the_gradient_stops_at_a_computed_tensor() -> None:
    b = scalar(2.0).requires_grad_()
    c = 3 * b
    x = root(lambda x: x * x - c, scalar(1.0))
    assert wg.autograd.grad(x, c)[0].item() == pytest.approx(0.5 / math.sqrt(6))


def test_a_large_system_is_solved_without_its_matrix() -> None:
    n = 400
    k = scalar(0.2).requires_grad_()
    b = normal(n)

    def residual(x: Any) -> Any:
        return 3 * x - k * (x.roll(1) + x.roll(-1)) + 0.1 * x.sin() - b

    x = root(residual, b)
    (g,) = wg.autograd.grad(x.sum(), k)
    with wg.no_grad():
        h = 1e-5
        k.add_(h)
        plus = root(residual, b).sum()
        k.sub_(2 * h)
        minus = root(residual, b).sum()
    assert g.item() == pytest.approx((plus - minus).item() / (2 * h), rel=1e-6)


def test_nothing_is_recorded_where_nothing_is_wanted() -> None:
    a = scalar(2.0)
    assert not root(lambda x: x * x - a, scalar(1.0)).requires_grad
    a.requires_grad_()
    with wg.no_grad():
        assert not root(lambda x: x * x - a, scalar(1.0)).requires_grad


def test_a_second_backward_needs_retain_graph() -> None:
    a = scalar(2.0).requires_grad_()
    x = root(lambda x: x * x - a, scalar(1.0))
    x.backward(retain_graph=True)
    x.backward()
    assert a.grad.item() == pytest.approx(2**-0.5)
    with pytest.raises(wg.errors.GraphFreedError, match=r"root\(\)"):
        x.backward()


# ---- transforms

ONE = wg.tensor(1.0, dtype=D)
MODES = {"jvp": lambda f: lambda a: func.jvp(f, (a,), (ONE,))[1], "grad": func.grad}


@pytest.mark.parametrize("closed_over", [True, False])
@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("middle", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_forward_and_reverse_mode_nest_in_any_order(inner: str, middle: str, outer: str, closed_over: bool) -> None:
    def f(a: Any) -> Any:
        if closed_over:
            return root(lambda x: x * x - a, scalar(1.0))
        return root(lambda x, a: x * x - a, scalar(1.0), a)

    first = MODES[inner](f)
    second = MODES[middle](first)
    third = MODES[outer](second)
    found = [g(scalar(2.0)).item() for g in (first, second, third)]
    assert found == pytest.approx([0.5 * 2**-0.5, -0.25 * 2**-1.5, 3 / 8 * 2**-2.5], rel=1e-8)


@pytest.mark.parametrize("linear_solver", ["dense", "gmres", "bicgstab"])
def test_jacobians_and_hessians(linear_solver: str) -> None:
    W, b = normal(3, 3) * 0.2, normal(3, seed=1)

    def f(b: Any) -> Any:
        return fixed_point(lambda x: (W @ x + b).tanh(), wg.zeros(3, dtype=D), linear_solver=linear_solver)

    slope = 1 - f(b) ** 2
    expected = np.linalg.solve(np.eye(3) - (slope[:, None] * W).numpy(), np.diag(slope.numpy()))
    np.testing.assert_allclose(func.jacfwd(f)(b).numpy(), expected, rtol=1e-7)
    np.testing.assert_allclose(func.jacrev(f)(b).numpy(), expected, rtol=1e-7)
    h = 1e-5
    columns = []
    for unit in np.eye(3):
        plus, minus = (func.grad(lambda b: (f(b) ** 2).sum())(b + wg.tensor(s * h * unit)).numpy() for s in (1, -1))
        columns.append((plus - minus) / (2 * h))
    np.testing.assert_allclose(func.hessian(lambda b: (f(b) ** 2).sum())(b).numpy(), np.stack(columns), atol=1e-6)


def test_vmap_before_and_after_derivatives() -> None:
    a = wg.tensor([2.0, 3.0, 50.0], dtype=D)
    values = a.numpy()

    def f(a: Any) -> Any:
        return root(lambda x: x * x - a, scalar(1.0))

    def close(found: Any, expected: Any) -> None:
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-8)

    close(func.vmap(f)(a), values**0.5)
    close(func.vmap(func.grad(f))(a), 0.5 * values**-0.5)
    close(func.vmap(MODES["jvp"](f))(a), 0.5 * values**-0.5)
    close(func.grad(lambda a: func.vmap(f)(a).sum())(a), 0.5 * values**-0.5)
    close(func.jvp(func.vmap(f), (a,), (wg.ones(3, dtype=D),))[1], 0.5 * values**-0.5)
    close(func.vmap(func.grad(func.grad(f)))(a), -0.25 * values**-1.5)
    close(func.grad(lambda a: func.vmap(func.grad(f))(a).sum())(a), -0.25 * values**-1.5)


# ---- linear solvers


@pytest.mark.parametrize("solver", [gmres, bicgstab, dense])
def test_linear_solvers(solver: Any) -> None:
    A, b = system(60)
    A = A + 5 * wg.eye(60, dtype=D)
    np.testing.assert_allclose(solver(lambda u: A @ u, b).numpy(), np.linalg.solve(A.numpy(), b.numpy()), rtol=1e-8)


def test_gmres_restarts() -> None:
    A, b = normal(40, 40) * 0.3 + 6 * wg.eye(40, dtype=D), normal(40, seed=1)
    found = gmres(lambda u: A @ u, b, restart=4)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(A.numpy(), b.numpy()), rtol=1e-8)


@pytest.mark.parametrize("solver", [gmres, bicgstab, dense])
def test_a_singular_system_is_refused(solver: Any) -> None:
    A, b = wg.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=D), wg.ones(2, dtype=D)
    with pytest.raises(RuntimeError, match=r"singular"):
        solver(lambda u: A @ u, b)


@pytest.mark.parametrize("name", ["gmres", "bicgstab"])
@pytest.mark.parametrize(("size", "factor"), [(1e-200, 1.0), (1e200, 1.0), (math.nan, math.nan), (math.inf, math.nan)])
def test_a_gradient_of_any_size_comes_through_an_iterative_solver(name: str, size: float, factor: float) -> None:
    """Squares of such numbers underflow or overflow; what is not finite is NaN, not an error or zero."""
    a = scalar(2.0).requires_grad_()
    root(lambda x: x * x - a, scalar(1.0), linear_solver=name).backward(scalar(size))
    np.testing.assert_allclose(a.grad.item() / size, factor / (2 * math.sqrt(2)), rtol=1e-6)


@pytest.mark.parametrize("name", ["gmres", "bicgstab", "dense"])
def test_examples_of_very_different_size_are_solved_each(name: str) -> None:
    a, sizes = wg.tensor([1.0, 2.0, 5.0], dtype=D), wg.tensor([1.0, 1e-12, 1e12], dtype=D)

    def solution(a: Any) -> Any:
        return root(lambda x: x * x - a, scalar(1.0), linear_solver=name)

    found = func.vmap(func.grad(lambda a, size: solution(a) * size))(a, sizes)
    np.testing.assert_allclose(found, sizes.numpy() / (2 * np.sqrt(a.numpy())), rtol=1e-7)
    np.testing.assert_allclose(func.vmap(func.hessian(solution))(a), -0.25 * a.numpy() ** -1.5, rtol=1e-7)


def test_a_solver_takes_derivatives_even_in_inference_mode() -> None:
    with wg.inference_mode():
        assert root(lambda x: x * x - 2, scalar(1.0)).item() == pytest.approx(math.sqrt(2))


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: root(lambda x: x * x + 1, scalar(0.5)),
            RuntimeError,
            "did not converge: after .* largest residual is",
        ),
        (lambda: root(lambda x: x * 0 + 1, scalar(1.0)), RuntimeError, "no Newton step"),
        (lambda: root(lambda x: x.log(), scalar(-1.0)), RuntimeError, "not finite at the starting point"),
        (lambda: root(lambda x: x.exp() - 1e3, scalar(0.0), max_steps=1), RuntimeError, "after 1 steps"),
        (lambda: fixed_point(lambda x: 2 * x + 1, scalar(1.0), solver="picard"), RuntimeError, "did not converge"),
        (lambda: root(lambda x: x, scalar(1.0), solver=lambda f, x: x), RuntimeError, "is no solution"),
        (
            lambda: root(lambda x: x[:1], wg.zeros(3)),
            wg.errors.ShapeError,
            r"shape \(3,\), but the function returned \(1,\)",
        ),
        (lambda: root(lambda x: x.double(), wg.zeros(3)), wg.errors.DTypeError, "float32, but the function returned"),
        (lambda: root(lambda x: (x, x), wg.zeros(3)), TypeError, "returned tuple"),
        (lambda: root(lambda x: x, wg.zeros(3, dtype=wg.int64)), TypeError, "float32 or float64"),
        (lambda: root(lambda x: x, ()), ValueError, "without tensors"),
        (lambda: root(lambda x: x, scalar(1.0), solver="guess"), ValueError, "'guess' is unknown"),
        (lambda: root(lambda x: x, scalar(1.0), solver=3), TypeError, "solver must be"),
        (lambda: root(lambda x: x, scalar(1.0), linear_solver="cg"), ValueError, "'cg' is unknown"),
        (lambda: root(lambda x: x, scalar(1.0), linear_solver=3), TypeError, "linear_solver must be"),
        (lambda: root(3, scalar(1.0)), TypeError, "residual must be a function, got int"),
        (lambda: root(lambda x: x, "a"), TypeError, "init must be a tensor of float32 or float64, got str"),
        (lambda: root(lambda x: x, scalar(1.0), tol="a"), TypeError, "tol must be a number"),
        (lambda: root(lambda x: x, scalar(1.0), max_steps=1.5), TypeError, "max_steps must be an int"),
        (lambda: root(lambda x: x, scalar(1.0), tol=0.0), ValueError, "tol must be positive"),
        (lambda: root(lambda x: x, scalar(1.0), max_steps=0), ValueError, "max_steps must be"),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (None, TypeError, "must return a tensor, got NoneType"),
        (wg.ones(2, dtype=D), wg.errors.ShapeError, r"shape \(2,\)"),
    ],
)
def test_what_a_given_linear_solver_returns_is_checked(answer: Any, error: type[Exception], message: str) -> None:
    a = scalar(2.0).requires_grad_()
    x = root(lambda x: x * x - a, scalar(1.0), linear_solver=lambda matvec, b: answer)
    with pytest.raises(error, match=message):
        x.backward()


def test_a_singular_jacobian_has_no_derivative() -> None:
    a = scalar(0.0).requires_grad_()
    x = root(lambda x: x**3 - a, scalar(0.0))
    with pytest.raises(RuntimeError, match="singular"):
        x.backward()


def test_a_change_in_place_before_backward_is_noticed() -> None:
    a = scalar(2.0).requires_grad_()
    x = root(lambda x: a * x - 1, scalar(1.0))
    with wg.no_grad():
        a.mul_(2)
    with pytest.raises(wg.errors.InplaceError):
        wg.autograd.grad(x, a)
    with pytest.raises(RuntimeError, match="changed in place"):
        wg.autograd.grad(x, a, create_graph=True)
