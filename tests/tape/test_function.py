"""``autograd.Function`` on the tape: both styles, what a context can do, and every misuse named."""

import gc
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.autograd import Function
from wengert.autograd.function import once_differentiable
from wengert.errors import AnomalyError, DTypeError, GraphFreedError, InplaceError, ShapeError

Pair = namedtuple("Pair", "first second")


def leaf(values: Any = (1.0, 2.0, 3.0)) -> Any:
    return wg.tensor(list(values), dtype=wg.float64, requires_grad=True)


def function(name: str, **members: Any) -> Any:
    """Return a Function of this name with these static methods (and attributes)."""
    return type(name, (Function,), {k: staticmethod(v) if callable(v) else v for k, v in members.items()})


def saving(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*[v for v in inputs if isinstance(v, wg.Tensor)])


def old_forward(ctx: Any, x: Any, k: int = 3) -> Any:
    ctx.save_for_backward(x)
    ctx.k = k
    return x**k


def old_backward(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_tensors
    found = ctx.k * x ** (ctx.k - 1) * g
    return (found, None) if len(ctx.needs_input_grad) == 2 else found


def new_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.k = inputs[1] if len(inputs) > 1 else 3


OldPower = function("OldPower", forward=old_forward, backward=old_backward)
NewPower = function("NewPower", forward=lambda x, k=3: x**k, setup_context=new_setup, backward=old_backward)
VjpPower = function("VjpPower", forward=lambda x, k=3: x**k, setup_context=new_setup, vjp=old_backward)
STYLES = [OldPower, NewPower, VjpPower]


@pytest.mark.parametrize("power", STYLES, ids=lambda f: f.__name__)
def test_both_styles_differentiate_to_any_order(power: Any) -> None:
    x = leaf()
    y = power.apply(x, 4)
    assert y.grad_fn.name() == f"{power.__name__}Backward"
    assert not y.is_leaf
    (first,) = wg.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = wg.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = wg.autograd.grad(second.sum(), x)
    a = x.detach().numpy()
    for found, expected in ((first, 4 * a**3), (second, 12 * a**2), (third, 24 * a)):
        np.testing.assert_allclose(found.detach().numpy(), expected)
    assert wg.autograd.gradcheck(power.apply, (x,))
    assert wg.autograd.gradgradcheck(power.apply, (x,))
    power.apply(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 3 * a**2)


@pytest.mark.parametrize("power", STYLES, ids=lambda f: f.__name__)
def test_nothing_is_recorded_without_need(power: Any) -> None:
    assert power.apply(wg.ones(3)).grad_fn is None
    with wg.no_grad():
        assert power.apply(leaf()).grad_fn is None
    y = power.apply(leaf())
    y.sum().backward()
    with pytest.raises(GraphFreedError, match=power.__name__):
        y.sum().backward()
    z = power.apply(leaf())
    z.sum().backward(retain_graph=True)
    z.sum().backward()


def test_forward_records_nothing_inside() -> None:
    seen = []
    f = function("Inner", forward=lambda ctx, x: seen.append((wg.is_grad_enabled(), (x * 2).requires_grad)) or x * 2,
                 backward=lambda ctx, g: (seen.append(wg.is_grad_enabled()), g * 2)[1])  # fmt: skip
    x = leaf()
    f.apply(x).sum().backward()
    wg.autograd.grad(f.apply(x).sum(), x, create_graph=True)
    assert seen == [(False, False), False, (False, False), True]


def test_needs_input_grad_and_arguments_of_any_kind() -> None:
    seen: list[Any] = []

    def forward(ctx: Any, a: Any, text: str, b: Any, options: dict[str, Any], c: Any = None) -> Any:
        seen.append(ctx.needs_input_grad)
        return a * len(text) + b * options["k"]

    f = function("Mixed", forward=forward,
                 backward=lambda ctx, g: (seen.append(ctx.needs_input_grad), g * 2 if ctx.needs_input_grad[0] else None, None,
                                          g * 5 if ctx.needs_input_grad[2] else None, None, None)[1:])  # fmt: skip
    a, b = leaf(), leaf()
    f.apply(a, "xy", b, {"k": 5}, None).sum().backward()
    f.apply(a.detach(), "xy", b, {"k": 5}, None).sum().backward()
    assert seen == [(True, False, True, False, False)] * 2 + [(False, False, True, False, False)] * 2
    assert a.grad.tolist() == [2.0] * 3
    assert b.grad.tolist() == [10.0] * 3
    with pytest.raises(TypeError, match="keyword"):
        f.apply(a, "xy", b=b, options={})


@pytest.mark.parametrize("kind", [tuple, list, Pair._make])
def test_several_results_in_any_container(kind: Any) -> None:
    f = function("Several", forward=lambda ctx, x: kind([x * 2, x * 3]), backward=lambda ctx, g, h: g * 2 + h * 3)
    x = leaf()
    first, second = out = f.apply(x)
    assert type(out) is type(kind([0, 0]))
    assert first.grad_fn is second.grad_fn
    (first.sum() + second.sum() * 10).backward()
    assert x.grad.tolist() == [32.0] * 3


@pytest.mark.parametrize("materialize", [True, False])
def test_gradients_that_did_not_come(materialize: bool) -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(materialize)
        return x * 2, x.argmax(), x * 3

    def backward(ctx: Any, *cotangents: Any) -> Any:
        seen.extend(cotangents)
        return cotangents[0] * 2

    x = leaf()
    function("Partly", forward=forward, backward=backward).apply(x)[0].sum().backward()
    assert seen[0].tolist() == [1.0] * 3
    assert x.grad.tolist() == [2.0] * 3
    assert seen[1] is None if not materialize else seen[1] is None or not seen[1].any()
    assert seen[2].tolist() == [0.0] * 3 if materialize else seen[2] is None


def test_non_differentiable_results_and_integers() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        order, values = x.argsort(), x * 2
        ctx.mark_non_differentiable(values)
        return x * 3, values, order

    f = function("Marked", forward=forward, backward=lambda ctx, g, h, i: g * 3)
    a, b, c = f.apply(leaf())
    assert (a.requires_grad, b.requires_grad, c.requires_grad) == (True, False, False)
    with pytest.raises(RuntimeError):
        b.sum().backward()


def dirty_forward(ctx: Any, x: Any) -> Any:
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


Doubled = function("Doubled", forward=dirty_forward, backward=lambda ctx, g: g * 2)


def test_dirty_arguments() -> None:
    x = leaf()
    y = x * 1
    assert Doubled.apply(y) is y
    assert y.grad_fn.name() == "DoubledBackward"
    assert y.tolist() == [2.0, 4.0, 6.0]
    assert wg.autograd.grad((y * y).sum(), x)[0].tolist() == [8.0, 16.0, 24.0]
    y = x * 1
    part = y[:2]
    assert Doubled.apply(part) is part
    assert wg.autograd.grad((y * y).sum(), x)[0].tolist() == [8.0, 16.0, 6.0]
    square = x * x  # saves x, not its result
    saved = square.exp()
    Doubled.apply(saved)
    with pytest.raises(InplaceError, match=r"exp|Doubled"):
        saved.sum().backward()
    with pytest.raises(InplaceError, match=r"Doubled.*leaf"):
        Doubled.apply(x)
    with pytest.raises(RuntimeError, match=r"Lost.*does not return"):
        function("Lost", forward=lambda ctx, x: (ctx.mark_dirty(x), x * 2)[1]).apply(x * 1)


def test_saved_tensors_are_guarded() -> None:
    x, y = leaf(), leaf()
    held = y * 1
    f = function("Product", forward=lambda a, b: a * b, setup_context=saving,
                 backward=lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]))  # fmt: skip
    out = f.apply(x, held)
    held.add_(1)
    with pytest.raises(InplaceError, match=r"saved by Product.*changed in place by add_"):
        out.sum().backward()
    result = function("Exp", forward=lambda x: x.exp(), setup_context=lambda ctx, i, o: ctx.save_for_backward(o, None),
                      backward=lambda ctx, g: g * ctx.saved_tensors[0])  # fmt: skip
    out = result.apply(x)
    (first,) = wg.autograd.grad(out.sum(), x, create_graph=True)
    np.testing.assert_allclose(wg.autograd.grad(first.sum(), x)[0].numpy(), np.exp(x.detach().numpy()))
    out = result.apply(x)
    out.mul_(2)
    with pytest.raises(InplaceError, match="saved by Exp"):
        out.sum().backward()


def test_saved_tensors_pass_the_hooks() -> None:
    packed: list[Any] = []
    x = leaf()
    with wg.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t.shape) or t.detach().numpy().copy(), wg.from_numpy
    ):
        y = NewPower.apply(x)
    (first,) = wg.autograd.grad(y.sum(), x, create_graph=True)
    assert packed
    assert first.tolist() == [3.0, 12.0, 27.0]
    assert wg.autograd.grad(first.sum(), x)[0].tolist() == [6.0, 12.0, 18.0]


def test_a_result_saved_for_backward_does_not_keep_itself_alive() -> None:
    f = function("Exp", forward=lambda x: x.exp(), setup_context=lambda ctx, i, o: ctx.save_for_backward(o),
                 backward=lambda ctx, g: g * ctx.saved_tensors[0])  # fmt: skip
    gc.collect()
    gc.disable()
    try:
        y = f.apply(leaf())
        node = weakref.ref(y)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_results_that_are_views_of_arguments() -> None:
    same = function("Same", forward=lambda ctx, x: x, backward=lambda ctx, g: -g)
    view = function(
        "View", forward=lambda ctx, x: x.view(3, 1)[1:], backward=lambda ctx, g: wg.cat([g[:1] * 0, -g]).view(3)
    )
    for f, expected in ((same, [-1.0, -1.0, -1.0]), (view, [0.0, -1.0, -1.0])):
        x = leaf()
        y = x * 1
        z = f.apply(y)
        assert z is not y
        assert z.data_ptr() >= y.data_ptr()
        assert wg.autograd.grad(z.sum(), x, retain_graph=True)[0].tolist() == expected
        with pytest.raises(InplaceError, match=f"{f.__name__} returned it as a view"):
            z.mul_(2)
        with pytest.raises(InplaceError, match=f"{f.__name__} returned it as a view"):
            z[0].mul_(2)
        y.add_(1)
        with pytest.raises(InplaceError, match=f"a result of {f.__name__} is a view"):
            z.sum().backward()
        with wg.no_grad():
            f.apply(leaf()).mul_(2)


# ---- misuse


def returning(found: Callable[[Any, Any], Any], **members: Any) -> Callable[[], Any]:
    """Return a call of backward through a Function whose backward returns this."""

    def go() -> Any:
        x = leaf()
        f = function("Mine", forward=lambda x: x * 2, setup_context=saving, backward=found, **members)
        (f.apply(x * 1) * wg.tensor([1.0, 2.0, 3.0])).sum().backward()
        return x.grad

    return go


WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("too many gradients", returning(lambda ctx, g: (g, g)), RuntimeError, "Mine returned 2 gradients.*takes 1"),
    ("too few", returning(lambda ctx, g: ()), RuntimeError, "Mine returned 0 gradients"),
    ("an array", returning(lambda ctx, g: g.numpy()), TypeError, "Mine returned ndarray for argument 0"),
    ("a number", returning(lambda ctx, g: 1.0), TypeError, "Mine returned float"),
    ("another shape", returning(lambda ctx, g: wg.ones(2)), ShapeError, r"Mine\(\).*\(2,\).*\(3,\)"),
    ("a number for a vector", returning(lambda ctx, g: wg.tensor(5.0)), ShapeError, r"Mine\(\)"),
    ("complex", returning(lambda ctx, g: g * 1j), DTypeError, "Mine returned a complex gradient for argument 0"),
    ("a write into what is saved", returning(lambda ctx, g: ctx.saved_tensors[0].mul_(g)), InplaceError, "saved by Mine.*mul_"),
    ("a write into the gradient", returning(lambda ctx, g: g.mul_(2)), InplaceError, "backward of Mine changed an incoming"),
    ("a write into its view", returning(lambda ctx, g: (g[:1].zero_(), g)[1]), InplaceError, "backward of Mine changed"),
    ("NaN", lambda: detecting(returning(lambda ctx, g: g * float("nan"))), AnomalyError, r"Mine\(\)"),
    ("no forward", lambda: function("Mine", backward=old_backward).apply(leaf()), RuntimeError, "Mine has no forward"),
    ("no backward", lambda: function("Mine", forward=lambda ctx, x: x * 2).apply(leaf()).sum().backward(), RuntimeError,
     "Mine has no backward"),
    ("a number saved", lambda: function("Mine", forward=lambda ctx, x: ctx.save_for_backward(x, 3)).apply(leaf()), TypeError,
     "Mine: save_for_backward.*int"),
    ("a number saved for forward", lambda: function("Mine", forward=lambda ctx, x: ctx.save_for_forward(3)).apply(leaf()),
     TypeError, "Mine: save_for_forward.*int"),
    ("a dirty number", lambda: function("Mine", forward=lambda ctx, x: ctx.mark_dirty(3)).apply(leaf()), TypeError,
     "Mine: mark_dirty.*int"),
    ("a marked number", lambda: function("Mine", forward=lambda ctx, x: ctx.mark_non_differentiable(3)).apply(leaf()),
     TypeError, "Mine: mark_non_differentiable.*int"),
    ("an instance", lambda: OldPower(), RuntimeError, r"OldPower.apply"),
    ("a gradient for a number", lambda: function("Mine", forward=lambda ctx, x, k: x * k, backward=lambda ctx, g: (g, g)).apply(
        leaf(), 2.0).sum().backward(), RuntimeError, "Mine returned a gradient for argument 1, which is not a tensor"),
]  # fmt: skip


def detecting(call: Callable[[], Any]) -> Any:
    with wg.autograd.detect_anomaly():
        return call()


@pytest.mark.parametrize(("name", "call", "error", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_misuse_names_the_function(name: str, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_forgotten_setup_context_is_hinted_at() -> None:
    with pytest.raises(TypeError) as caught:
        function("Mine", forward=lambda x: x * 2, backward=old_backward).apply(leaf())
    assert "Mine has no setup_context" in caught.value.__notes__[0]
    with pytest.raises(TypeError) as caught:
        function("Mine", forward=lambda ctx, x: x + "a").apply(leaf())
    assert not getattr(caught.value, "__notes__", None)


def test_errors_of_the_user_say_where_forward_was() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        returning(lambda ctx, g: 1 / 0)()
    assert "in the backward of Mine" in caught.value.__notes__[0]
    assert "test_function.py" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("found", "expected"),
    [(lambda ctx, g: [g], [1, 2, 3]), (lambda ctx, g: (g, None, None), [1, 2, 3]), (lambda ctx, g: None, None),
     (lambda ctx, g: g.float(), [1, 2, 3]), (lambda ctx, g: wg.ones(3, dtype=wg.int64), [1, 1, 1]),
     (lambda ctx, g: g.expand(4, 3), [4, 8, 12]), (lambda ctx, g: g[None], [1, 2, 3])],
)  # fmt: skip
def test_gradients_that_fit(found: Any, expected: Any) -> None:
    grad = returning(found)()
    assert grad is None if expected is None else (grad.tolist() == expected and grad.dtype is wg.float64)


def test_backward_may_write_into_what_is_its_own() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        mask = (x > 1).double()
        ctx.save_for_backward(mask)
        return x * mask

    f = function("Masked", forward=forward, backward=lambda ctx, g: ctx.saved_tensors[0].mul_(g))
    x = leaf()
    f.apply(x).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0]


def test_gradients_shared_by_others_are_not_spoilt() -> None:
    spoiler = function("Spoiler", forward=lambda ctx, x: x * 1, backward=lambda ctx, g: g.clone().mul_(100))
    x, y = leaf(), leaf()
    (spoiler.apply(x * 1) + y * 1).sum().backward()
    assert x.grad.tolist() == [100.0] * 3
    assert y.grad.tolist() == [1.0] * 3


def test_once_differentiable() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    f = function("Once", forward=forward, backward=once_differentiable(lambda ctx, g: 2 * ctx.saved_tensors[0] * g))
    x = leaf()
    assert wg.autograd.grad(f.apply(x).sum(), x)[0].tolist() == [2.0, 4.0, 6.0]
    (first,) = wg.autograd.grad((f.apply(x) * x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="Once is marked once_differentiable"):
        first.sum().backward()


def test_hooks_on_results_of_a_function() -> None:
    x, seen = leaf(), []
    a, b = function("Two", forward=lambda ctx, x: (x * 2, x * 3), backward=lambda ctx, g, h: g * 2 + h * 3).apply(x)
    a.register_hook(lambda g: g * 10)
    b.retain_grad()
    a.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    (a.sum() + b.sum()).backward()
    assert x.grad.tolist() == [23.0] * 3
    assert b.grad.tolist() == [1.0] * 3
    assert seen == [(1, 2)]


def test_attributes_may_be_put_on_the_context() -> None:
    f = function(
        "Tagged", forward=lambda ctx, x: (setattr(ctx, "scale", 7), x * 7)[1], backward=lambda ctx, g: g * ctx.scale
    )
    x = leaf()
    y = f.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [7.0] * 3


def test_subclasses_inherit() -> None:
    class Quadrupled(NewPower):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(x: Any, k: int = 3) -> Any:
            return x**k * 4

    x = leaf()
    assert wg.autograd.grad(Quadrupled.apply(x).sum(), x)[0].tolist() == [3.0, 12.0, 27.0]
