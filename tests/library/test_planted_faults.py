"""Faults planted in operators of a user's own: each is found when it is declared, called or checked, and named."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import wengert as wg
from wengert import Tensor
from wengert.core import registry
from wengert.core.arguments import Number
from wengert.core.methods import TensorMethods
from wengert.library import Spec, bilinear, custom_op, elementwise, linear, opcheck, operator, ops
from wengert.testing.opcheck import Failure


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Take the operators that a test declares out of the registry again."""
    before, methods = set(registry.operators()), set(vars(TensorMethods))
    yield
    for name in set(registry.operators()) - before:
        registry.withdraw(name)
    vars(registry.ops).pop("demo", None)
    for name in set(vars(TensorMethods)) - methods:
        delattr(TensorMethods, name)
        vars(registry.ops).pop(name, None)


def array(x):
    return np.asarray(x.detach())


def of(value):
    return wg.as_tensor(np.asarray(value))


def saved(ctx, inputs, output):
    ctx.inputs = inputs
    ctx.save_for_backward(*[t for t in inputs if isinstance(t, Tensor)])


A = wg.arange(6, dtype=wg.float64).reshape(3, 2) + 0.5
B = wg.tensor([2.0, -1.0], dtype=wg.float64)
INDEX = wg.tensor([2, 0, 2])


# ---- custom_op: a declaration of a right operator, and what to break in it


def times(**broken):
    """x · y by broadcasting."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return of(array(x) * array(y))

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, (g * x).sum(0)

    def push(ctx, t, u):
        x, y = ctx.saved_tensors
        return t * y + x * u

    def batch(info, in_dims, x, y):
        x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.unsqueeze(0)
        y = y.movedim(in_dims[1], 0).unsqueeze(1) if in_dims[1] is not None else y
        return x * y, 0

    parts = {
        "fn": fn,
        "backward": backward,
        "push": push,
        "batch": batch,
        "fake": lambda x, y: wg.empty_like(x),
        **broken,
    }
    op = custom_op("demo::times", parts["fn"], mutates_args=())
    op.register_autograd(parts["backward"], setup_context=saved, jvp=parts["push"])
    op.register_vmap(parts["batch"])
    op.register_fake(parts["fake"])
    return op, (A.clone().requires_grad_(), B.clone().requires_grad_())


def rows(**broken):
    """x[index], whose gradient accumulates where an index repeats."""

    def fn(x: Tensor, index: Tensor) -> Tensor:
        return of(array(x)[array(index)])

    def backward(ctx, g):
        x, index = ctx.saved_tensors
        return wg.zeros_like(x).index_put((index,), g, accumulate=True), None

    parts = {"fn": fn, "backward": backward, **broken}
    op = custom_op("demo::rows", parts["fn"], mutates_args=())
    op.register_autograd(parts["backward"], setup_context=saved)
    op.register_fake(lambda x, index: x.new_empty((*index.shape, *x.shape[1:])))
    op.register_vmap(parts.get("batch", lambda info, dims, x, i: (wg.func.vmap(lambda a, b: a[b], dims)(x, i), 0)))
    return op, (A.clone().requires_grad_(), INDEX.clone())


def factor(ctx, g):
    x, y = ctx.saved_tensors
    return 2 * g * y, (g * x).sum(0)


def wrong_sign(ctx, g):
    x, y = ctx.saved_tensors
    return g * y, -(g * x).sum(0)


def wrong_reduction(ctx, g):
    x, y = ctx.saved_tensors
    return g * y, (g * x).sum(1)


def averaged(ctx, g):
    x, y = ctx.saved_tensors
    return g * y, (g * x).mean(0)


def not_twice(ctx, g):
    x, y = ctx.saved_tensors
    return g * y.detach(), (g * x.detach()).sum(0)


def assigned(ctx, g):
    x, index = ctx.saved_tensors
    return wg.zeros_like(x).index_put((index,), g), None


def wrong_jvp(ctx, t, u):
    _, y = ctx.saved_tensors
    return t * y


def writes(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(y)
    return x.clone()


def writes_through_numpy(x: Tensor, y: Tensor) -> Tensor:
    value = x.numpy()
    value *= array(y)
    return x.clone()


def gives_its_argument(x: Tensor, y: Tensor) -> Tensor:
    return x


def gives_a_view(x: Tensor, y: Tensor) -> Tensor:
    return x.view(3, 2)


def in_single(x: Tensor, y: Tensor) -> Tensor:
    return of((array(x) * array(y)).astype(np.float32))


def random(x: Tensor, y: Tensor) -> Tensor:
    return of(array(x) * array(y) + np.random.default_rng().random((3, 2)))


COUNTER = itertools.count()


def with_state(x: Tensor, y: Tensor) -> Tensor:
    return of(array(x) * array(y) + next(COUNTER))


def mixed_examples(info, in_dims, x, y):
    x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.unsqueeze(0)
    y = y.movedim(in_dims[1], 0).unsqueeze(1) if in_dims[1] is not None else y
    return (x * y).flip(0), 0


def wrong_dimension(info, in_dims, x, y):
    return x * (y.unsqueeze(1) if in_dims[1] is not None else y), 1


CUSTOM = [
    ("a factor", times, {"backward": factor}, Failure, r"vjp of demo::times.*wrong with respect to 'x';.*factor and sign"),
    ("a sign", times, {"backward": wrong_sign}, Failure, r"vjp of demo::times.*wrong with respect to 'y'"),
    ("a sum over the wrong dimension", times, {"backward": wrong_reduction}, Failure, r"vjp of demo::times.*shape"),
    ("a mean in place of a sum", times, {"backward": averaged}, Failure, r"vjp of demo::times.*'y'.*broadcast dimensions"),
    ("assignment in place of accumulation", rows, {"backward": assigned}, Failure,
     r"vjp of demo::rows.*'x'.*accumulation where an index repeats"),
    ("a detached rule", times, {"backward": not_twice}, Failure, r"second order of demo::times.*detach\(\)"),
    ("a wrong jvp", times, {"push": wrong_jvp}, Failure, r"jvp of demo::times.*jvp gives .* vjp gives"),
    ("a wrong shape rule", times, {"fake": lambda x, y: wg.empty_like(y)}, Failure,
     r"spec of demo::times.*spec gives shape \(2,\), the result has \(3, 2\).*register_fake"),
    ("a wrong dtype rule", times, {"fake": lambda x, y: x.new_empty(x.shape, dtype=wg.float32)}, Failure,
     r"spec of demo::times.*gives wengert.float32, the result has wengert.float64"),
    ("a result of another dtype", times, {"fn": in_single}, Failure, r"spec of demo::times.*result has wengert.float32"),
    ("an undeclared mutation", times, {"fn": writes}, Failure, r"aliasing of demo::times.*'x' was changed.*mutates_args"),
    ("an undeclared mutation through NumPy", times, {"fn": writes_through_numpy}, Failure,
     r"aliasing of demo::times.*'x' was changed"),
    ("a result that is the argument", times, {"fn": gives_its_argument}, Failure, r"demo::times\(\): a result shares memory"),
    ("a result that is a view", times, {"fn": gives_a_view}, Failure, r"demo::times\(\): a result shares memory"),
    ("random numbers", times, {"fn": random}, Failure, r"determinism of demo::times.*two equal calls.*random numbers"),
    ("state", times, {"fn": with_state}, Failure, r"determinism of demo::times.*two equal calls"),
    ("a batch of mixed examples", times, {"batch": mixed_examples}, Failure, r"vmap of demo::times.*register_vmap"),
    ("a batch elsewhere", times, {"batch": wrong_dimension}, Failure,
     r"register_vmap rule of demo::times says that dimension 1 .* 2 examples"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "broken", "error", "match"), [c[1:] for c in CUSTOM], ids=[c[0] for c in CUSTOM])
def test_a_fault_of_a_custom_op_is_found_and_named(made, broken, error, match):
    op, args = made(**broken)
    with pytest.raises(error, match=match):
        opcheck(op, args)


@pytest.mark.parametrize("made", [times, rows])
def test_without_a_fault_nothing_is_found(made):
    op, args = made()
    assert opcheck(op, args) == {}


def test_a_gradient_of_the_broadcast_shape_is_summed():
    def unsummed(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    op, args = times(backward=unsummed)
    assert opcheck(op, args) == {}
    op = declared(operator, vjp={"x": lambda g, y: g * y, "y": lambda g, x: g * x}, jvp=PUSH, spec=spec)
    assert opcheck(op) == {}


def test_a_declared_mutation_that_does_not_happen_is_found():
    @custom_op("demo::zero_", mutates_args=("x",))
    def zero_(x: Tensor) -> None:
        x.clone().zero_()

    with pytest.raises(Failure, match=r"mutation of demo::zero_: .*no call changes x, which mutates_args names"):
        opcheck(zero_, (A.clone(),))


def test_a_declared_mutation_that_happens_is_right():
    @custom_op("demo::zero_", mutates_args=("x",))
    def zero_(x: Tensor) -> None:
        x.zero_()

    assert opcheck(zero_, (A.clone(),)) == {}


# ---- one declaration


def product(x: Number, y: Number):
    """Return the product."""
    return x * y


def declared(family, kernel=product, **options):
    """Declare the product, right but for what is given."""

    def samples(s):
        return [s((2, 3), (2, 3)), s((2, 3), (3,))]

    return family(**{"samples": samples, "batch": "broadcast", **options})(kernel).op


RIGHT = {
    "x": lambda g, y, x_shape: ops.sum_to_size(g * y, x_shape),
    "y": lambda g, x, y_shape: ops.sum_to_size(g * x, y_shape),
}
PUSH = {"x": lambda t, y: t * y, "y": lambda t, x: t * x}


def spec(x, y):
    return Spec(x.shape, x.dtype)


def off(argument, rule):
    return {**RIGHT, argument: rule}


def overwrites(x: Number, y: Number):
    """Return the product, and overwrite an argument."""
    x *= y
    return x.copy()


def noisy(x: Number, y: Number):
    """Return the product of something else each time."""
    return x * y + np.random.default_rng().random(x.shape)


def unreduced(x: Number, y: Number):
    """Return the first argument's memory."""
    return x[...]


FAMILIES = [
    ("a factor", operator, {"vjp": off("y", lambda g, x, y_shape: ops.sum_to_size(2 * g * x, y_shape))}, "vjp of .*'y'"),
    ("a sum over the wrong dimension", operator, {"vjp": off("y", lambda g, x, y: (g * x).sum(-1) if y.ndim == 1 else g * x)},
     r"vjp of .*shape"),
    ("a detached argument", operator, {"vjp": off("x", lambda g, y, x_shape: ops.sum_to_size(g * y.detach(), x_shape))},
     "second order of .*detach"),
    ("a detached cotangent", operator, {"vjp": off("x", lambda g, y, x_shape: ops.sum_to_size(g.detach() * y, x_shape))},
     "second order of .*derivative by the cotangent"),
    ("a wrong jvp", operator, {"jvp": {**PUSH, "x": lambda t, y: t * y * 2}}, "jvp of .*jvp gives"),
    ("a wrong shape", operator, {"spec": lambda x, y: Spec(y.shape, x.dtype)}, "spec of .*spec gives shape"),
    ("a wrong dtype", operator, {"spec": lambda x, y: Spec(x.shape, wg.int64)}, "spec of .*spec gives wengert.int64"),
    ("mixed examples", operator, {"batch": lambda op, values, batched, size: op.function(*[v.flip(0) for v in values])},
     "vmap of"),
    ("a view that is not declared", operator, {"kernel": unreduced}, "aliasing of .*not declared"),
    ("a mutation", operator, {"kernel": overwrites}, "aliasing of .*'x' was changed"),
    ("other values each time", operator, {"kernel": noisy}, "determinism of"),
    ("a wrong transpose", bilinear, {"transpose": {**RIGHT, "x": lambda g, y, x_shape: ops.sum_to_size(-g * y, x_shape)},
                                     "vjp": None, "jvp": None}, "vjp of .*'x'"),
    ("a wrong derivative", elementwise, {"derivative": {"x": lambda g, y: g * y, "y": lambda g, y: g * y}, "vjp": None,
                                         "jvp": None, "spec": None, "batch": None}, "vjp of .*'y'"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "broken", "match"), [f[1:] for f in FAMILIES], ids=[f[0] for f in FAMILIES])
def test_a_fault_of_one_declaration_is_found_and_named(family, broken, match):
    options = {"vjp": RIGHT, "jvp": PUSH, "spec": spec, **broken}
    op = declared(family, **{k: v for k, v in options.items() if v is not None})
    with pytest.raises(Failure, match=match) as caught:
        opcheck(op)
    assert op.name in str(caught.value)


def test_without_a_fault_the_declaration_holds():
    assert opcheck(declared(operator, vjp=RIGHT, jvp=PUSH, spec=spec)) == {}


def test_a_wrong_transpose_of_a_linear_operator_is_found():
    def doubled(x: Number):
        """Return twice the argument."""
        return x * 2

    op = linear(transpose=lambda g: g * 3, spec=lambda x: x, batch="broadcast", samples=lambda s: [s((2,))])(doubled).op
    with pytest.raises(Failure, match=r"vjp of doubled.*'x'"):
        opcheck(op)


def test_an_inplace_twin_that_does_not_write_is_found(monkeypatch):
    op = declared(elementwise, derivative={"x": lambda g, y: g * y, "y": lambda g, x: g * x}, batch=None)
    assert opcheck(op) == {}
    monkeypatch.setattr(ops, "product_", lambda x, y: x)
    with pytest.raises(Failure, match=r"inplace of product.*the in-place twin"):
        opcheck(op)
