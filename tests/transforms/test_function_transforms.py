"""``autograd.Function``, ``custom_vjp``, ``custom_jvp`` and ``forward_ad`` under every transform and nesting of them."""

import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import wengert as wg
import wengert.autograd.forward_ad as fwAD
from wengert import func
from wengert.autograd import Function
from wengert.core.state import thread
from wengert.errors import DeclarationError, DTypeError, InplaceError, MissingRuleError, ShapeError, TransformError
from wengert.func import custom_jvp, custom_vjp, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

X = wg.tensor([0.5, -1.2, 2.0], dtype=wg.float64)
ONES = wg.ones(3, dtype=wg.float64)
V = wg.tensor([1.0, 0.5, -2.0], dtype=wg.float64)
BATCH = wg.stack([X, X * 0.7, X - 0.2, X * X])
Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def nothing_left_running() -> Any:
    yield
    state = thread.state
    assert (state.levels, state.grad, state.slow, state.walk) == ([], True, False, None)


def same(found: Any, expected: Any) -> None:
    if isinstance(found, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
        return
    expected = expected.detach().numpy() if isinstance(expected, wg.Tensor) else np.asarray(expected)
    assert tuple(found.shape) == expected.shape
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-11, atol=1e-12)


# ---- the same function in many guises: x·sin(k x), with a twin made of operators


def twin(x: Any, y: Any) -> Any:
    return (x * y).sin() * x


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.save_for_forward(*inputs[:2])


def pull(ctx: Any, g: Any, *rest: Any) -> Any:
    x, y = ctx.saved_tensors
    return g * ((x * y).sin() + x * y * (x * y).cos()), g * x * x * (x * y).cos()


def push(ctx: Any, s: Any, t: Any, *rest: Any) -> Any:
    x, y = ctx.saved_tensors
    return s * ((x * y).sin() + x * y * (x * y).cos()) + t * x * x * (x * y).cos()


class Generated(Function):
    generate_vmap_rule = True
    setup_context, backward, jvp = staticmethod(keep), staticmethod(pull), staticmethod(push)

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return twin(x, y)


class Own(Function):
    setup_context, backward, jvp = staticmethod(keep), staticmethod(pull), staticmethod(push)
    calls: ClassVar[list[Any]] = []

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return twin(x, y)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        Own.calls.append((info.batch_size, info.randomness, in_dims))
        x, y = (v if d is None else v.movedim(d, -1) for v, d in zip((x, y), in_dims, strict=True))
        x, y = (v.unsqueeze(-1) if d is None else v for v, d in zip((x, y), in_dims, strict=True))
        return Own.apply(x, y), -1


class Lists(Generated):
    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return [twin(x, y), (x * 1).argsort()]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return [push(ctx, *tangents), None]


class Named(Lists):
    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return Pair(*Lists.forward(x, y))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        keep(ctx, inputs, output)
        ctx.mark_non_differentiable(output.second)


class Lazy(Generated):
    """Wants no zeros, and needs to be told what is wanted."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        keep(ctx, inputs, output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        found = pull(ctx, g)
        return tuple(f if needed else None for f, needed in zip(found, ctx.needs_input_grad, strict=True))

    @staticmethod
    def jvp(ctx: Any, s: Any, t: Any) -> Any:
        x, y = ctx.saved_tensors
        terms = [] if s is None else [push(ctx, s, wg.zeros_like(y))]
        terms += [] if t is None else [push(ctx, wg.zeros_like(x), t)]
        return sum(terms[1:], terms[0])


@custom_jvp
def by_jvp(x: Any, y: Any) -> Any:
    return twin(x, y)


@by_jvp.defjvp
def by_jvp_rule(primals: Any, tangents: Any) -> Any:
    (x, y), (s, t) = primals, tangents
    return by_jvp(x, y), s * ((x * y).sin() + x * y * (x * y).cos()) + t * x * x * (x * y).cos()


@custom_vjp
def by_vjp(x: Any, y: Any) -> Any:
    return twin(x, y)


by_vjp.defvjp(
    lambda x, y: (twin(x, y), {"xy": (x, y), "n": 3}),
    lambda kept, g: (
        g * ((x := kept["xy"][0]) * (y := kept["xy"][1])).sin() + g * x * y * (x * y).cos(),
        g * x * x * (x * y).cos(),
    ),
)

GUISES: dict[str, Callable[[Any, Any], Any]] = {
    "generated": Generated.apply,
    "own vmap": Own.apply,
    "list": lambda x, y: Lists.apply(x, y)[0],
    "named tuple": lambda x, y: Named.apply(x, y).first,
    "lazy": Lazy.apply,
    "custom_jvp": by_jvp,
    "custom_vjp": by_vjp,
}
FORWARD = [n for n in GUISES if n != "custom_vjp"]


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: (f(*args) * V).sum()


def along(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jvp(f, (x,), (V,))[1]


REVERSE: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f(X, X + 1),
    "grad": lambda f: grad(total(f), (0, 1))(X, X + 1),
    "grad of one": lambda f: grad(total(f), 1)(X, X + 1),
    "grad∘grad": lambda f: grad(lambda x: (grad(total(f))(x, x) * V).sum())(X),
    "grad∘grad∘grad": lambda f: grad(lambda z: (grad(lambda x: (grad(total(f))(x, x) * V).sum())(z) * V).sum())(X),
    "vjp∘vjp": lambda f: vjp(lambda x: vjp(lambda x: f(x, x), x)[1](V)[0], X)[1](V)[0],
    "jacrev∘jacrev": lambda f: jacrev(jacrev(lambda x: f(x, x)))(X),
    "vmap": lambda f: vmap(f)(BATCH, BATCH + 1),
    "vmap shared": lambda f: vmap(f, in_dims=(0, None))(BATCH, X),
    "vmap shared first": lambda f: vmap(f, in_dims=(None, 1), out_dims=1)(X, BATCH.T),
    "vmap of nothing batched": lambda f: vmap(lambda b: f(X, X + 1) * b)(BATCH),
    "vmap∘vmap": lambda f: vmap(vmap(f))(BATCH, BATCH + 1),
    "vmap∘vmap crossed": lambda f: vmap(vmap(f, in_dims=(None, 0)), in_dims=(0, None))(BATCH, BATCH),
    "vmap∘grad": lambda f: vmap(grad(total(f), (0, 1)))(BATCH, BATCH + 1),
    "vmap∘grad shared": lambda f: vmap(grad(total(f), (0, 1)), in_dims=(0, None))(BATCH, X),
    "vmap∘grad∘grad": lambda f: vmap(grad(lambda x: (grad(total(f))(x, x) * V).sum()))(BATCH),
    "grad∘vmap": lambda f: grad(lambda b, x: (vmap(f, in_dims=(0, None))(b, x) * V).sum(), (0, 1))(BATCH, X),
    "grad∘vmap∘grad": lambda f: grad(lambda b: (vmap(grad(total(f)), in_dims=(0, None))(b, X) * V).sum())(BATCH),
    "vmap∘grad∘vmap": lambda f: vmap(lambda x: grad(lambda y: (vmap(f)(x, y) * V).sum())(x))(BATCH),
    "vmap∘vmap∘grad": lambda f: vmap(vmap(grad(lambda x, y: f(x, y))))(BATCH, BATCH + 1),
    "batched cotangents": lambda f: vmap(vjp(f, X, X)[1])(BATCH),
    "grad of a leaf": lambda f: wg.autograd.grad(total(f)(z := X.clone().requires_grad_(), z), z),
    "grad of a batch's leaf": lambda f: wg.autograd.grad(vmap(f)(z := BATCH.clone().requires_grad_(), z).sum(), z),
}
PUSHED: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: jvp(f, (X, X + 1), (V, ONES)),
    "jvp of one": lambda f: jvp(lambda y: f(X, y), (X,), (V,)),
    "jvp∘jvp": lambda f: along(along(lambda x: f(x, x)))(X),
    "jvp∘grad": lambda f: along(grad(lambda x: total(f)(x, x)))(X),
    "grad∘jvp": lambda f: grad(lambda x: (along(lambda x: f(x, X))(x) * V).sum())(X),
    "jvp∘grad∘jvp": lambda f: along(grad(lambda x: along(lambda x: total(f)(x, x))(x)))(X),
    "hessian": lambda f: hessian(lambda x: total(f)(x, x))(X),
    "jacrev∘jacfwd": lambda f: jacrev(jacfwd(lambda x: f(x, x)))(X),
    "jacfwd∘jacfwd": lambda f: jacfwd(jacfwd(lambda x: f(x, x)))(X),
    "linearize": lambda f: linearize(f, X, X + 1)[1](V, ONES),
    "vmap∘jvp": lambda f: vmap(along(lambda x: f(x, X)))(BATCH),
    "vmap∘jvp of what is shared": lambda f: vmap(lambda b: along(lambda x: f(x, b))(X))(BATCH),
    "jvp∘vmap": lambda f: jvp(vmap(f), (BATCH, BATCH), (BATCH, BATCH * 2)),
    "jvp∘vmap shared": lambda f: jvp(lambda x: vmap(f, in_dims=(None, 0))(x, BATCH), (X,), (V,)),
    "vmap∘jvp∘grad": lambda f: vmap(along(grad(lambda x: total(f)(x, x))))(BATCH),
    "vmap∘hessian": lambda f: vmap(hessian(lambda x: total(f)(x, x)))(BATCH),
    "jvp∘vmap∘grad": lambda f: jvp(vmap(grad(lambda x: total(f)(x, x))), (BATCH,), (BATCH,)),
    "vmap∘vmap∘jvp": lambda f: vmap(vmap(lambda x: jvp(lambda x: f(x, x), (x,), (x,))[1]))(BATCH),
    "forward_ad": lambda f: in_level(lambda d: fwAD.unpack_dual(f(d, X))),
    "forward_ad over backward": lambda f: in_level(lambda d: fwAD.unpack_dual(wg.autograd.grad(total(f)(d, d), d)[0])),
}


def in_level(f: Callable[[Any], Any]) -> Any:
    with fwAD.dual_level():
        return f(fwAD.make_dual(X.clone().requires_grad_(), V))


@pytest.mark.parametrize("nesting", REVERSE)
@pytest.mark.parametrize("guise", GUISES)
def test_functions_do_what_their_operators_do(guise: str, nesting: str) -> None:
    same(REVERSE[nesting](GUISES[guise]), REVERSE[nesting](twin))


@pytest.mark.parametrize("nesting", PUSHED)
@pytest.mark.parametrize("guise", FORWARD)
def test_functions_do_what_their_operators_do_in_forward_mode(guise: str, nesting: str) -> None:
    same(PUSHED[nesting](GUISES[guise]), PUSHED[nesting](twin))


@pytest.mark.parametrize("nesting", ["jvp∘grad", "hessian", "vmap∘jvp∘grad", "vmap∘hessian", "jvp∘vmap∘grad"])
def test_forward_over_the_reverse_rule(nesting: str) -> None:
    same(PUSHED[nesting](by_vjp), PUSHED[nesting](twin))


def test_own_vmap_is_told_what_is_batched() -> None:
    Own.calls.clear()
    vmap(Own.apply, in_dims=(None, 1), randomness="same")(X, BATCH.T)
    assert Own.calls == [(4, "same", (None, 0))]


@pytest.mark.parametrize("wrap", [vmap, lambda f: lambda x: jvp(f, (x,), (x,))[0], lambda f: vmap(vmap(f))])
@pytest.mark.parametrize(("kind", "function"), [(list, Lists), (Pair, Named)])
def test_containers_survive(wrap: Any, kind: Any, function: Any) -> None:
    seen = []
    wrap(lambda x: (seen.append(type(function.apply(x, x))), x)[1])(BATCH)
    assert seen == [kind]


# ---- misuse


def broken(**members: Any) -> Any:
    """Return a Function that doubles, with these members changed."""
    base = {"forward": lambda x: x * 2, "setup_context": lambda ctx, i, o: None, "backward": lambda ctx, g: g * 2,
            "jvp": lambda ctx, t: t * 2}  # fmt: skip
    chosen = {k: v for k, v in {**base, **members}.items() if v is not None}
    return type("Mine", (Function,), {k: staticmethod(v) if callable(v) else v for k, v in chosen.items()})


def pushed(function: Any) -> Any:
    return jvp(function.apply, (X,), (X,))


def mapped(function: Any) -> Any:
    return vmap(function.apply)(BATCH)


WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("no jvp", lambda: pushed(broken(jvp=None)), MissingRuleError, "Mine has no jvp"),
    ("no jvp below vmap", lambda: jvp(vmap(broken(jvp=None, generate_vmap_rule=True).apply), (BATCH,), (BATCH,)),
     MissingRuleError, "Mine has no jvp"),
    ("no backward below vmap",
     lambda: grad(lambda b: vmap(broken(backward=None, generate_vmap_rule=True).apply)(b).sum())(BATCH),
     RuntimeError, "Mine has no backward"),
    ("no vmap", lambda: mapped(broken()), MissingRuleError, "Mine has no vmap.*generate_vmap_rule"),
    ("both vmaps", lambda: mapped(broken(generate_vmap_rule=True, vmap=lambda i, d, x: (x, 0))), RuntimeError,
     "Mine defines vmap and"),
    ("generated in the old style",
     lambda: mapped(broken(generate_vmap_rule=True, setup_context=None, forward=lambda ctx, x: x)),
     MissingRuleError, "Mine sets generate_vmap_rule.*setup_context"),
    ("old style in forward over reverse", lambda: jvp(grad(lambda x: broken(
        setup_context=None, forward=lambda ctx, x: x * 2).apply(x).sum()), (X,), (X,)), TransformError, "Mine.*setup_context"),
    ("vmap without dims", lambda: mapped(broken(vmap=lambda i, d, x: x)), TypeError, "Mine.vmap must return a pair"),
    ("vmap with too many dims", lambda: mapped(broken(vmap=lambda i, d, x: (x, (0, 0)))), ValueError, "Mine.vmap.*out_dims"),
    ("vmap with another dim", lambda: mapped(broken(vmap=lambda i, d, x: (x, 7))), ShapeError, "Mine.vmap.*7"),
    ("vmap with another size", lambda: mapped(broken(vmap=lambda i, d, x: (x[:1], 0))), ShapeError, "Mine.vmap.*4 examples"),
    ("tangent shape", lambda: pushed(broken(jvp=lambda ctx, t: t[:2])), ShapeError, r"jvp of Mine.*\(2,\).*\(3,\)"),
    ("tangent number", lambda: pushed(broken(jvp=lambda ctx, t: 3.0)), TypeError, "jvp of Mine.*float"),
    ("two tangents", lambda: pushed(broken(jvp=lambda ctx, t: (t, t))), RuntimeError, "jvp of Mine returned 2 tangents"),
    ("complex tangent", lambda: pushed(broken(jvp=lambda ctx, t: t * 1j)), DTypeError, "jvp of Mine.*complex"),
    ("dirty inside", lambda: pushed(broken(forward=lambda x: x.mul_(2), setup_context=lambda ctx, i, o: ctx.mark_dirty(i[0]))),
     TransformError, "Mine: mark_dirty"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "error", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_misuse_names_the_function(name: str, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_no_tangent_is_zero() -> None:
    same(pushed(broken(jvp=lambda ctx, t: None)), (2 * X, 0 * X))


def test_writes_into_arguments_do_not_reach_results_that_are_views() -> None:
    view = broken(forward=lambda x: x.view(3, 1), backward=lambda ctx, g: -g.view(3), jvp=lambda ctx, t: -t.view(3, 1),
                  generate_vmap_rule=True)  # fmt: skip

    def f(x: Any) -> Any:
        y = x * 1
        z = view.apply(y)
        y.mul_(10)
        return z.sum() + y.sum()

    same(jvp(f, (X,), (ONES,)), (X.sum() * 11, 27.0))
    same(vmap(f)(BATCH), BATCH.sum(1) * 11)
    same(vmap(grad(f))(BATCH), BATCH * 0 + 9)
    with pytest.raises(InplaceError, match="a result of Mine is a view"):
        grad(f)(X)


# ---- custom rules


def test_custom_rules_on_trees() -> None:
    @custom_vjp
    def scaled(tree: Any, factor: Any) -> Any:
        return {"out": tree["a"] * factor, "n": tree["b"][0] * 1}

    def fwd(tree: Any, factor: Any) -> Any:
        return scaled(tree, factor), (tree["a"], factor)

    def bwd(kept: Any, g: Any) -> Any:
        a, factor = kept
        return {"a": g["out"] * factor * 10, "b": [g["n"], None]}, (g["out"] * a).sum()

    scaled.defvjp(fwd, bwd)
    tree = {"a": X, "b": [V, wg.arange(3)]}
    assert list(scaled(tree, wg.tensor(2.0, dtype=wg.float64))) == ["out", "n"]
    f = lambda a, k: (scaled({"a": a, "b": [V, wg.arange(3)]}, k)["out"] * V).sum()  # noqa: E731
    k = wg.tensor(2.0, dtype=wg.float64)
    same(grad(f, (0, 1))(X, k), (20 * V, (X * V).sum()))
    same(vmap(grad(f, (0, 1)), in_dims=(0, None))(BATCH, k), ((20 * V).expand(4, 3), (BATCH * V).sum(1)))
    same(grad(lambda k: (grad(f)(X, k) * X).sum())(k), (10 * V * X).sum())

    @custom_jvp
    def pair(tree: Any) -> Any:
        return tree["a"] * 2, [tree["b"] * 3]

    @pair.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return pair(*primals), (tangents[0]["a"] * 20, [tangents[0]["b"] * 30])

    same(jvp(pair, ({"a": X, "b": V},), ({"a": ONES, "b": ONES},)), ((2 * X, [3 * V]), (20 * ONES, [30 * ONES])))
    same(grad(lambda a, b: (pair({"a": a, "b": b})[0] * b).sum(), (0, 1))(X, V), (20 * V, 2 * X))


def test_fwd_may_call_its_function() -> None:
    @custom_vjp
    def f(x: Any) -> Any:
        return x**2

    f.defvjp(lambda x: (y := f(x), (x, y)), lambda kept, g: (g * kept[1] * 3,))  # 3x² in place of 2x
    same(f(X), X**2)
    same(grad(lambda x: f(x).sum())(X), 3 * X**2)
    same(vmap(grad(lambda x: f(x).sum()))(BATCH), 3 * BATCH**2)
    same(grad(lambda b: vmap(f)(b).sum())(BATCH), 3 * BATCH**2)
    slope = grad(lambda x: f(x).sum())
    same(grad(lambda x: slope(x).sum())(X), 9 * X**2)  # of 3 f(x), by the rule again
    same(jvp(slope, (X,), (ONES,))[1], 6 * X)  # forward mode goes through the function itself
    with wg.no_grad(), pytest.raises(MissingRuleError, match="custom_jvp"):
        jvp(f, (X,), (X,))


def test_arguments_that_are_not_differentiated() -> None:
    @custom_vjp
    def vjp_power(kind: str, x: Any, n: int) -> Any:
        return x**n

    vjp_power = custom_vjp(vjp_power.fun, nondiff_argnums=(0, 2))
    vjp_power.defvjp(lambda kind, x, n: (x**n, x), lambda kind, n, x, g: (g * n * x ** (n - 1) * len(kind),))

    def power(kind: str, x: Any, n: int) -> Any:
        return x**n

    jvp_power = custom_jvp(power, nondiff_argnums=(0, 2))
    jvp_power.defjvp(lambda kind, n, primals, tangents: (
        jvp_power(kind, primals[0], n), tangents[0] * n * primals[0] ** (n - 1) * len(kind)))  # fmt: skip
    for f in (vjp_power, jvp_power):
        g = lambda x, f=f: f("ab", x, 3).sum()  # noqa: E731
        same(grad(g)(X), 6 * X**2)
        same(vmap(grad(g))(BATCH), 6 * BATCH**2)
        same(grad(lambda x, g=g: grad(g)(x).sum())(X), 12 * X)
    same(jvp(lambda x: jvp_power("abc", x, 2), (X,), (ONES,))[1], 6 * X)


def test_custom_rules_misused() -> None:
    identity = lambda x: x * 1  # noqa: E731
    for bare, kind in ((custom_vjp(identity), "custom_vjp"), (custom_jvp(identity), "custom_jvp")):
        with pytest.raises(DeclarationError, match=kind):
            bare(X)
    f = custom_vjp(identity)
    f.defvjp(lambda x: (x * 1, None), lambda kept, g: g)
    with pytest.raises(TypeError, match="tuple of 1 cotangents, got Tensor"):
        grad(lambda x: f(x).sum())(X)
    f.defvjp(lambda x: (x * 1, None), lambda kept, g: (g, g))
    with pytest.raises(TypeError, match="got 2 cotangents"):
        grad(lambda x: f(x).sum())(X)
    f.defvjp(lambda x: x * 1, lambda kept, g: (g,))
    with pytest.raises(TypeError, match=r"pair .output, residuals., got Tensor"):
        f(X)
    f.defvjp(lambda x: (x * 1, None), lambda kept, g: (g,))
    with pytest.raises(MissingRuleError, match=r"custom_vjp.*forward mode.*custom_jvp"):
        jvp(f, (X,), (X,))
    h = custom_jvp(identity)
    h.defjvp(lambda primals, tangents: tangents[0])
    with pytest.raises(TypeError, match="pair"):
        jvp(h, (X,), (X,))
    h.defjvp(lambda primals, tangents: (primals[0] * 1, (tangents[0], tangents[0])))
    with pytest.raises(TypeError, match="tensors as tangents, got tuple"):
        jvp(h, (X,), (X,))
    h.defjvp(lambda primals, tangents: ((primals[0] * 1,), [tangents[0]]))
    with pytest.raises(ValueError, match="structure"):
        jvp(h, (X,), (X,))


def test_messages_name_the_decorated_function() -> None:
    def doubled(x: Any) -> Any:
        return x * 2

    f, h = custom_vjp(doubled), custom_jvp(doubled)
    f.defvjp(lambda x: (x * 2, None), lambda kept, g: (wg.ones(2),))
    h.defjvp(lambda primals, tangents: (primals[0] * 2, tangents[0][:2]))
    with pytest.raises(ShapeError, match=r"doubled\(\)"):
        grad(lambda x: f(x).sum())(X)
    with pytest.raises(ShapeError, match="jvp of doubled"):
        jvp(h, (X,), (X,))
    x = X.clone().requires_grad_()
    assert (f(x).grad_fn.name(), h(x).grad_fn.name()) == ("doubledBackward", "doubledBackward")


def test_ready_made_rules() -> None:
    rounded = func.straight_through(wg.round)
    same(rounded(X), wg.round(X))
    same(grad(lambda x: (rounded(x) * V).sum())(X), V)
    same(jvp(rounded, (X,), (V,)), (wg.round(X), V))
    same(vmap(grad(lambda x: (rounded(x) ** 2).sum()))(BATCH), 2 * wg.round(BATCH))
    same(func.gradient_reversal(X, 3.0), X)
    same(grad(lambda x: (func.gradient_reversal(x, 3.0) * V).sum())(X), -3 * V)
    same(jvp(lambda x: func.gradient_reversal(x), (X,), (V,)), (X, -V))
    same(vmap(grad(lambda x: (func.gradient_reversal(x) * V).sum()))(BATCH), (-V).expand(4, 3))
    stopped = lambda x: (func.stop_gradient({"a": x, "n": 3})["a"] * x).sum()  # noqa: E731
    same(grad(stopped)(X), X)
    same(jvp(stopped, (X,), (ONES,))[1], X.sum())
    same(hessian(stopped)(X), np.zeros((3, 3)))


# ---- forward_ad


def dual(x: Any = X, t: Any = ONES) -> Any:
    return fwAD.make_dual(x.clone(), t)


def test_duals_carry_tangents_and_lose_them() -> None:
    with fwAD.dual_level() as number:
        assert number == 0
        x = dual()
        y = x**3
        same(fwAD.unpack_dual(y), (X**3, 3 * X**2))
        assert fwAD.unpack_dual(y.detach()).tangent is None
        assert fwAD.unpack_dual(X).tangent is None
        assert fwAD.unpack_dual(X).primal is X
        assert fwAD.unpack_dual(fwAD.unpack_dual(y).primal).tangent is None
        t = ONES.clone()
        assert fwAD.unpack_dual(fwAD.make_dual(X, t)).tangent is t
        with wg.no_grad():
            same(fwAD.unpack_dual(x * 2).tangent, 2 * ONES)
    assert fwAD.unpack_dual(y) == (y, None)
    same(y + 1, X**3 + 1)
    assert type(y._payload) is np.ndarray
    np.testing.assert_allclose(y.numpy(), X.numpy() ** 3)
    with fwAD.dual_level():
        assert fwAD.unpack_dual(y).tangent is None  # another level, other tangents


def test_writes_into_duals_and_their_views() -> None:
    plain = wg.zeros(3, dtype=wg.float64)
    base = wg.zeros(2, 3, dtype=wg.float64)
    row = base[1]
    with fwAD.dual_level():
        x = dual()
        x.mul_(x)
        same(fwAD.unpack_dual(x), (X**2, 2 * X))
        view = x[1:]
        view.mul_(3)
        same(fwAD.unpack_dual(x).tangent, 2 * X * wg.tensor([1.0, 3.0, 3.0]))
        x.add_(dual()[0])
        same(fwAD.unpack_dual(view).tangent, 6 * X[1:] + 1)
        x[0] = 5.0
        same(fwAD.unpack_dual(x).tangent[0], 0.0)
        plain.copy_(x)
        row.add_(x)
        same(fwAD.unpack_dual(plain).tangent, fwAD.unpack_dual(x).tangent)
        same(fwAD.unpack_dual(base).tangent, wg.stack([0 * X, fwAD.unpack_dual(x).tangent]))
        value = fwAD.unpack_dual(x).primal.clone()
    for tensor, expected in ((plain, value), (row, value), (base[1], value)):
        assert type(tensor._payload) is np.ndarray
        same(tensor, expected)
    tangent = ONES.clone()
    with fwAD.dual_level():
        fwAD.make_dual(X.clone(), tangent).mul_(2)
    same(tangent, ONES)


def test_forward_over_reverse_and_reverse_over_forward() -> None:
    x, s = X.clone().requires_grad_(), ONES.clone().requires_grad_()
    with fwAD.dual_level():
        d = fwAD.make_dual(x, V)
        (d**3).sum().backward()
        same(fwAD.unpack_dual(x.grad), (3 * X**2, 6 * X * V))
        (g,) = wg.autograd.grad((d**3).sum(), x)
        same(fwAD.unpack_dual(g).tangent, 6 * X * V)
        tangent = fwAD.unpack_dual(fwAD.make_dual(x, s) ** 3).tangent
        same(wg.autograd.grad(tangent.sum(), (x, s)), (6 * X, 3 * X**2))
    same(x.grad, 3 * X**2)
    assert type(x.grad._payload) is np.ndarray
    with fwAD.dual_level():
        (fwAD.make_dual(x, V) ** 3).sum().backward()
    same(x.grad, 6 * X**2)  # accumulated, without tangents
    wg.optim.SGD([x], lr=0.0).step()


def test_levels_and_transforms_nest() -> None:
    def slope(x: Any) -> Any:
        with fwAD.dual_level():
            return fwAD.unpack_dual(fwAD.make_dual(x, wg.ones_like(x)) ** 3).tangent

    same(slope(X), 3 * X**2)
    same(grad(lambda x: slope(x).sum())(X), 6 * X)
    same(vmap(slope)(BATCH), 3 * BATCH**2)
    same(jvp(slope, (X,), (ONES,))[1], 6 * X)
    same(vmap(grad(lambda x: slope(x).sum()))(BATCH), 6 * BATCH)
    with fwAD.dual_level():
        d = fwAD.make_dual(X, ONES)
        same(fwAD.unpack_dual(grad(lambda x: (x**3).sum())(d)).tangent, 6 * X)
        same(fwAD.unpack_dual(jvp(lambda x: x**3, (d,), (ONES,))[1]).tangent, 6 * X)
        many = fwAD.make_dual(BATCH, BATCH)
        same(fwAD.unpack_dual(vmap(lambda x: (x**3).sum())(many)).tangent, (3 * BATCH**3).sum(1))
        same(fwAD.unpack_dual(hessian(lambda x: (x**3).sum())(d)).tangent, np.diag(6 * np.ones(3)))


FORBIDDEN: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("no level", lambda: fwAD.make_dual(X, ONES), RuntimeError, "running level"),
    ("no level to leave", lambda: fwAD.exit_dual_level(), RuntimeError, "without a running"),
    ("nested levels", lambda: in_level(lambda d: in_level(lambda e: e)), RuntimeError, "do not nest"),
    ("tangent of a tangent", lambda: in_level(lambda d: fwAD.make_dual(d, V)), RuntimeError, "has a tangent already"),
    ("another shape", lambda: in_level(lambda d: fwAD.make_dual(X, V[:2])), ShapeError, r"\(2,\).*\(3,\)"),
    ("integers", lambda: in_level(lambda d: fwAD.make_dual(wg.arange(3), wg.arange(3))), DTypeError, "int64"),
    ("a number", lambda: in_level(lambda d: fwAD.make_dual(X, 1.0)), TypeError, "float"),
    ("unpack a number", lambda: fwAD.unpack_dual(1.0), TypeError, "float"),
    ("a custom_vjp",
     lambda: in_level(lambda d: by_vjp(d.detach() * 0 + fwAD.make_dual(X, V), X)), MissingRuleError, "custom_jvp"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "error", "message"), FORBIDDEN, ids=[f[0] for f in FORBIDDEN])
def test_forward_ad_refuses(name: str, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    assert in_level(lambda d: fwAD.unpack_dual(d * 2).tangent.tolist()) == (2 * V).tolist()


def test_levels_entered_by_hand_belong_to_their_thread() -> None:
    fwAD.enter_dual_level()
    errors: list[Exception] = []

    def leave() -> None:
        try:
            fwAD.exit_dual_level()
        except RuntimeError as error:
            errors.append(error)

    worker = threading.Thread(target=leave)
    worker.start()
    worker.join()
    assert len(errors) == 1
    same(fwAD.unpack_dual(fwAD.make_dual(X, V) * 2).tangent, 2 * V)
    fwAD.exit_dual_level()


def test_a_level_left_late_takes_no_other_with_it() -> None:
    def generator() -> Any:
        with fwAD.dual_level():
            yield 1

    first = generator()
    next(first)
    seen = []

    def f(x: Any) -> Any:
        first.close()  # its level lies below this one
        seen.append(len(thread.state.levels))
        return x

    f(X)
    assert seen == [0]
    same(vmap(lambda x: x * 2)(BATCH), BATCH * 2)
