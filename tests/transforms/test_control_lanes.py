"""Control flow under vmap and forward mode: predicates with one value per lane, and gradients that nan does not reach."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import DTypeError, InplaceError, ShapeError
from wengert.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from wengert.transforms.control import cond, while_loop
from wengert.transforms.control_associative import associative_scan
from wengert.transforms.control_scan import map as slice_map
from wengert.transforms.control_scan import scan

NUMBERS = [-2.0, -0.5, 0.0, 0.25, 3.0]


def at(values: Any) -> Any:
    return wg.tensor(values, dtype=wg.float64)


def lane_by_lane(f: Callable[[Any], Any], xs: Any) -> Any:
    """What vmap must return: the function of one lane after the other."""
    return np.stack([np.asarray(f(x).detach()) for x in xs])


def branch(x: Any) -> Any:
    return cond(x > 0, lambda x: x.sqrt() * x, lambda x: x.exp() - x**3, (x,))


def steps(x: Any) -> Any:
    """Squares and adds until the sum is large: from no step to many."""
    return while_loop(lambda i, s: s < 10, lambda i, s: (i + 1, s + x * x + i * s.sin()), (0, x))[1]


def unbatched_start(x: Any) -> Any:
    """The first predicate is the same in all lanes; later ones differ."""
    return while_loop(lambda s: s.abs() < 5, lambda s: (s * 2 + x,), (wg.ones((), dtype=wg.float64),))[0]


def tree_branch(x: Any) -> Any:
    found = cond(x > 0, lambda d: {"y": d["x"] * 2, "k": 1.0}, lambda d: {"y": d["x"] - 1, "k": 2.0}, ({"x": x},))
    return found["y"] * found["k"]


def scanned(x: Any) -> Any:
    last, ys = scan(lambda s, k: (s * x + k, s.sin()), x, wg.arange(4, dtype=wg.float64))
    return last + ys.sum()


def checkpointed(x: Any) -> Any:
    last, ys = scan(lambda s, k: (s * x + k, s.sin()), x, wg.arange(4, dtype=wg.float64), checkpoint=2)
    return last + ys.sum()


def mapped(x: Any) -> Any:
    return slice_map(lambda k: (x * k).sin(), wg.arange(3, dtype=wg.float64)).sum()


def prefixes(x: Any) -> Any:
    return associative_scan(wg.mul, wg.arange(1, 6, dtype=wg.float64) * x, 0).sum()


def nested(x: Any) -> Any:
    return while_loop(
        lambda s: s < 4, lambda s: (cond(s > 1, lambda s: s * 1.5, lambda s: s + x * x + 0.5, (s,)),), (x,)
    )[0]


FUNCTIONS = [branch, steps, unbatched_start, tree_branch, scanned, checkpointed, mapped, prefixes, nested]
POINTS = at([-2.0, -0.5, 0.25, 1.0, 3.0])


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("transform", ["value", "grad", "second", "jvp", "forward over reverse"])
def test_a_lane_is_as_alone(f: Callable[[Any], Any], transform: str) -> None:
    one = {
        "value": f,
        "grad": grad(f),
        "second": grad(grad(f)),
        "jvp": lambda x: jvp(f, (x,), (wg.ones_like(x),))[1],
        "forward over reverse": lambda x: jvp(grad(f), (x,), (wg.ones_like(x),))[1],
    }[transform]
    np.testing.assert_allclose(vmap(one)(POINTS), lane_by_lane(one, POINTS), rtol=1e-12)


@pytest.mark.parametrize("f", [branch, steps, nested])
def test_nested_vmaps_and_the_tape(f: Callable[[Any], Any]) -> None:
    grid = at([[-2.0, 0.25, 1.0], [0.5, 3.0, -0.5]]).requires_grad_()
    expected = np.stack([lane_by_lane(f, row) for row in grid])
    for found in (vmap(vmap(f))(grid), vmap(vmap(f), in_dims=1, out_dims=1)(grid)):
        np.testing.assert_allclose(found.detach(), expected, rtol=1e-12)
    (gradient,) = wg.autograd.grad(vmap(vmap(f))(grid).sum(), grid)
    np.testing.assert_allclose(gradient, np.stack([lane_by_lane(grad(f), row) for row in grid.detach()]), rtol=1e-12)


def test_the_predicate_of_an_outer_vmap_counts_in_an_inner_one() -> None:
    xs, ys = at([-1.0, 2.0]), at([3.0, 4.0, 5.0])
    found = vmap(lambda x: vmap(lambda y: cond(x > 0, lambda y: y * x, lambda y: -y, (y,)))(ys))(xs)
    assert found.tolist() == [[-3.0, -4.0, -5.0], [6.0, 8.0, 10.0]]


def test_derivatives_along_and_across() -> None:
    f = lambda x: vmap(branch)(x).sum()  # noqa: E731
    second = lane_by_lane(grad(grad(branch)), POINTS)
    np.testing.assert_allclose(hessian(f)(POINTS), np.diag(second), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jacfwd(vmap(branch))(POINTS), jacrev(vmap(branch))(POINTS), rtol=1e-12)


# ---- nan and inf of lanes that were not chosen


def safe(x: Any) -> Any:
    return cond(x > 0, lambda x: x.log() / x.sqrt(), lambda x: x * 0, (x,))


def halting(x: Any) -> Any:
    """Diverges to inf and nan in the steps that a finished lane does not take."""
    return while_loop(lambda k, s: k < 3 - x, lambda k, s: (k + 1, (s - 1.5).sqrt() + s), (0, x * 0 + 2))[1]


@pytest.mark.parametrize("f", [safe, halting])
def test_nan_of_other_lanes_does_not_leak(f: Callable[[Any], Any]) -> None:
    xs = at([-1.0, 0.0, 1.0, 2.0])
    for one in (f, grad(f), grad(grad(f)), lambda x: jvp(grad(f), (x,), (wg.ones_like(x),))[1]):
        expected = lane_by_lane(one, xs)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(vmap(one)(xs), expected, rtol=1e-12)
    (first,) = wg.autograd.grad(vmap(f)(xs.requires_grad_()).sum(), xs, create_graph=True)
    (second,) = wg.autograd.grad(first.sum(), xs)
    np.testing.assert_allclose(second, lane_by_lane(grad(grad(f)), xs.detach()), rtol=1e-12)


def test_a_shared_operand_gets_the_gradients_of_its_lanes_alone() -> None:
    w = at(4.0).requires_grad_()
    xs = at([-1.0, 2.0, 3.0])
    branchy = lambda x: cond(x > 0, lambda x, w: (x.log() * w).sqrt(), lambda x, w: x * w, (x, w))  # noqa: E731
    vmap(branchy)(xs).sum().backward()
    expected = -1.0 + sum(np.sqrt(np.log(x) / 4.0) / 2 for x in (2.0, 3.0))
    assert w.grad.item() == pytest.approx(expected)


# ---- what is checked where both branches run


def one_of(f: Callable[[Any], Any], g: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: vmap(lambda x: cond(x > 0, f, g, (x,)))(at(NUMBERS))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "structure": (
        one_of(lambda x: {"a": x}, lambda x: {"b": x}), TypeError,
        r"what false_fn returns is not of the structure of what true_fn returns: .*missing: \['a'\]; not expected: \['b'\]",
    ),
    "shape": (
        one_of(lambda x: (x, x), lambda x: (x, x[None])), ShapeError,
        r"what false_fn returns at \[1\] is a tensor of shape \(1,\) .* in what true_fn returns it is .* shape \(\)",
    ),
    "dtype": (one_of(lambda x: x, lambda x: x.float()), DTypeError, "wengert.float32, in what true_fn returns"),
    "no tensors": (one_of(lambda x: "a", lambda x: "b"), TypeError, "of type str cannot be selected lane by lane"),
    "carry": (
        lambda: vmap(lambda x: while_loop(lambda s: s < 2, lambda s: (s.float(),), (x,)))(at(NUMBERS)), DTypeError,
        r"the carry that body_fn returns at \[0\]",
    ),
    "in place": (
        one_of(lambda x: x.clone().add_(1), lambda x: x.add_(1)), InplaceError, r"false_fn changed operands\[0\]",
    ),
    "number": (
        lambda: vmap(lambda x: while_loop(lambda i, s: s < 2, lambda i, s: (i + 0.5, s + 1), (0, x)))(at(NUMBERS)),
        DTypeError, "cast one, for instance with .to",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()


# ---- the generic mode of associative_scan


@pytest.mark.parametrize(("n", "dim", "reverse"), list(itertools.product((1, 2, 5), (0, 1), (False, True))))
def test_an_operation_on_single_slices(n: int, dim: int, reverse: bool) -> None:
    """The outer dot mixes all of a slice, so that it cannot be run on many slices at once as it stands."""
    xs = at(np.random.default_rng(n).uniform(-1, 1, (n, 3, 3)))
    given = xs if dim == 0 else xs.movedim(0, 1)

    def combine(a: Any, b: Any) -> Any:
        return {"m": (a["m"].T @ b["m"].T).T}

    found = associative_scan(combine, {"m": given}, dim, reverse, "generic")["m"]
    found = found if dim == 0 else found.movedim(1, 0)
    order = list(xs.numpy())[::-1] if reverse else list(xs.numpy())
    expected = list(itertools.accumulate(order, lambda a, b: b @ a))
    np.testing.assert_allclose(found, expected[::-1] if reverse else expected, rtol=1e-10, atol=1e-12)
