"""What functions may do and still be captured, one thing at a time: a compiled call does what a plain one does, or says why.

Each case makes a function, the arguments of several calls, and a look at what the calls leave behind. It is run as it is, and
compiled with ``fullgraph=True``; results, gradients through them, ``.grad`` of arguments and what is left behind must agree.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.compiling.promised import (
    add_to,
    agree,
    arrays,
    count,
    cube,
    drawn,
    leaf,
    linear,
    log,
    logged,
    scaled,
    weight,
)
from wengert import Tensor, func

F = wg.nn.functional
Case = tuple[Callable[..., Any], list[tuple[Any, ...]], Callable[[], Any]]


def case(function: Callable[..., Any], *calls: tuple[Any, ...], seen: Callable[[], Any] = lambda: None) -> Case:
    """Return a case; a single call is made three times."""
    return function, list(calls) * (3 if len(calls) == 1 else 1), seen


def observed(make: Callable[[], Case], backend: str | None) -> tuple[list[Any], Any]:
    """Return what each call of a case gives and leaves, and the compiled function."""
    wg.manual_seed(7)
    function, calls, seen = make()
    run = function if backend is None else wg.compile(function, fullgraph=True, backend=backend)
    found: list[Any] = []
    for args in calls:
        given = [a for a in args if isinstance(a, Tensor)]
        for a in given:
            if a.is_leaf:
                a.grad = None
        returned = run(*args)
        results = [r for r in wg.tree.leaves(returned) if isinstance(r, Tensor)]
        found.append((arrays(returned), [r.requires_grad for r in results], arrays(given)))
        if roots := [r for r in results if r.requires_grad]:
            sum((r * r.detach().cos()).sum() for r in roots).backward()
            found.append(arrays([a.grad if a.is_leaf else None for a in given]))
        found.append(arrays(seen()))
    return found, run


def check(make: Callable[[], Case], backend: str, programs: int) -> None:
    want, _ = observed(make, None)
    found, run = observed(make, backend)
    for k, (got, expected) in enumerate(zip(found, want, strict=True)):
        assert agree(got, expected), f"observation {k}: {got} instead of {expected}"
    assert count(run) == programs


def operator_writes() -> Case:
    total = drawn(4, seed=3)

    def run(x: Any) -> Any:
        before, fresh = total * 1, wg.zeros(4, dtype=wg.float64)
        inner = add_to(total[1:], x[1:])
        add_to(fresh[:2], x[:2])
        return before, inner, add_to(total, x), total + 1, fresh

    return case(run, (drawn(4),), (drawn(4, seed=1),), seen=lambda: total)


def operator_acts() -> Case:
    logged.clear()

    def run(x: Any) -> Any:
        log(x * 2)
        return x + 1

    return case(run, (drawn(3),), (drawn(3, seed=1),), seen=lambda: list(logged))


def operator_in_transforms() -> Case:
    def run(x: Any) -> Any:
        row = x[0]
        return func.vmap(cube)(x), func.grad(lambda v: cube(v).sum())(row), func.jacrev(cube)(row)

    return case(run, (drawn(4, 3),))


def operator_in_a_step() -> Case:
    w = weight(3, 3)
    optimiser = wg.optim.SGD([w], lr=0.01, momentum=0.9)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        h = cube((x @ w).tanh())
        loss = scaled([h, h * 2], 3, shift=1.0)[1].pow(2).mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    step(drawn(5, 3))  # which makes the state
    return case(step, *[(drawn(5, 3, seed=k),) for k in range(4)], seen=lambda: (w, w.grad))


def operator_gradient_inside(x: Any) -> Any:
    return wg.autograd.grad(cube(x * 2).sin().sum(), x)[0]


# ---- functions and hooks


class Product(wg.autograd.Function):
    @staticmethod
    def forward(x: Any, y: Any, k: int) -> Any:
        return x * y * k, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.k = inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        return 5 * g * y * ctx.k + h, g * x, None


class Step(wg.autograd.Function):
    """Looks at one of its arguments only, and gives both a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any) -> Any:
        ctx.shape = scale.shape
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2, g.sum().expand(ctx.shape)


class AddOne(wg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3


def function_of_a_parameter() -> Case:
    scale = weight(2)
    return case(lambda x: Step.apply(x, scale), (leaf(3),), seen=lambda: scale.grad)


def tensor_hooks() -> Case:
    p = weight(3)
    p.register_hook(lambda g: g.clamp(-1, 1))

    def run(x: Any) -> Any:
        p.grad = None
        y = x * p
        y.register_hook(lambda g: g * 3)
        y.retain_grad()
        (y * y).sum().backward()
        return y.grad

    return case(run, (drawn(3),), seen=lambda: p.grad)


def post_accumulate_hooks() -> Case:
    p = weight(3)

    def descend(t: Any) -> None:
        with wg.no_grad():
            t.sub_(0.1 * t.grad)
        t.grad = None

    p.register_post_accumulate_grad_hook(descend)
    return case(lambda x: (p * x).sin().sum().backward(), (drawn(3),), seen=lambda: (p, p.grad))


def hook_for_a_while() -> Case:
    p = weight(3)

    def run(x: Any) -> None:
        handle = p.register_hook(lambda g: g * 2)
        (p * x).sum().backward()
        handle.remove()

    return case(run, (drawn(3),), seen=lambda: p.grad)


def module_hooks() -> Case:
    layer = linear(2, 3)
    layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    layer.register_forward_hook(lambda module, args, out: out + 1)
    layer.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))
    return case(lambda x: layer(x).pow(2).sum(), (leaf(4, 3),), seen=lambda: (layer.weight.grad, layer.bias.grad))


def node_hooks(x: Any) -> Any:
    y = (x * x).sum()
    y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else g * 2 for g in inputs))
    return wg.autograd.grad(y, x)[0]


def saved_tensor_hooks(x: Any) -> Any:
    with wg.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = (x * x).sum()
    return wg.autograd.grad(y, x)[0]


def checkpoints() -> Case:
    p = weight(3)
    run = wg.utils.checkpoint.checkpoint
    return case(lambda x: run(lambda v: F.dropout((v * p).sin(), 0.5), x).sum(), (leaf(3),), seen=lambda: p.grad)


# ---- transforms and control flow


def transforms_inside(w: Any, x: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        return (w * x).sin().pow(2).sum()

    return {
        "value": func.value_and_grad(loss)(w, x), "jvp": func.jvp(lambda w: loss(w, x), (w,), (x,)),
        "vmap": func.vmap(loss, in_dims=(None, 0))(w, wg.stack([x, x * 2])), "jacfwd": func.jacfwd(wg.sin)(w * x),
        "jacrev": func.jacrev(lambda w: w.sin() * x)(w), "hessian": func.hessian(loss)(w, x),
        "vjp": func.vjp(lambda w: w * x * w, w)[1](x), "hvp": func.hvp(lambda w: loss(w, x), (w,), (x,)),
        "linearize": func.linearize(lambda w: w.sin(), w)[1](x),
    }  # fmt: skip


def stacked_modules() -> Case:
    models = [linear(2, 3) for _ in range(3)]
    with wg.no_grad():
        models[1].weight.mul_(2)
    params, buffers = func.stack_module_state(models)

    def run(x: Any) -> Any:
        call = func.vmap(lambda p, b: func.functional_call(models[0], (p, b), (x,)))
        return call(params, buffers)

    return case(run, (drawn(4, 3),), seen=lambda: models[0].weight)


def gradients_per_example() -> Case:
    model = linear(2, 3)

    def run(x: Any, y: Any) -> Any:
        params = {name: p.detach() for name, p in model.named_parameters()}
        one = func.grad(lambda p, x, y: F.mse_loss(func.functional_call(model, p, (x,)), y))
        return func.vmap(one, in_dims=(None, 0, 0))(params, x, y)

    return case(run, (drawn(4, 3), drawn(4, 2)))


def inner_compiled() -> Case:
    inner = wg.compile(lambda x: x.sin() * 2)
    return case(lambda x: inner(x) + inner(x * 2), (leaf(3),))


def scans(x: Any, w: Any) -> Any:
    carry, ys = func.scan(lambda c, v: ((c * w).sin() + v, c * v), x[0], x, checkpoint=True)
    return carry, ys, func.associative_scan(lambda a, b: a * b, x, dim=0), func.map(lambda v: v * w, x)


def branches_of_lanes(x: Any) -> Any:
    return func.vmap(lambda v: wg.cond(v.sum() > 0, wg.sin, lambda v: v * 2, (v,)))(x)


def babylonian(a: Any) -> Any:
    return func.fixed_point(lambda x, a: 0.5 * (x + a / x), wg.ones_like(a), a)


def decay(y: Any) -> Any:
    return func.odeint(lambda t, y: -y, y, wg.linspace(0, 1, 3, dtype=wg.float64), method="rk4")


def while_small(x: Any) -> Any:
    return wg.while_loop(lambda n, v: v.norm() < 10, lambda n, v: (n + 1, v * 1.5), (0, x))


def item_branch(x: Any) -> Any:
    return x * 2 if x.sum().item() > 0 else x - 1


# ---- memory


def views_of_what_is_written(x: Any) -> Any:
    part, rows = x[1:3], x.view(2, 2)
    part.add_(1)
    rows[0].mul_(2)
    return part, rows, x.sum(), x.detach()


def written_twice(x: Any, y: Any) -> Any:
    x.add_(1)
    return x * y


def base_and_view() -> Case:
    def run(x: Any, part: Any) -> Any:
        x.mul_(2)
        part.add_(1)
        return part + 1, x * 1, part

    x, other = drawn(4), drawn(4, seed=1)
    return case(run, (x, x[1:3]), (x, x[1:3]), (x, other[1:3]), (x, x[2:]), (x, x[1:3]), seen=lambda: (x, other))


def sometimes_the_same() -> Case:
    x, y, shared = drawn(4), drawn(4, seed=1), np.arange(4.0)
    calls = [(x, y), (x, x.detach()), (x, x), (x, y), (wg.from_numpy(shared), wg.from_numpy(shared)), (x, y)]
    return case(written_twice, *calls, seen=lambda: (x, y, wg.from_numpy(shared)))


def read_only_aliases() -> Case:
    x, y = drawn(4), drawn(4, seed=1)
    return case(lambda a, b: a + b, (x, x.detach()), (x, y), (x[:2], x[:2]), (x[:2], y[:2]))


def held_and_given() -> Case:
    held, other = drawn(4), drawn(4, seed=1)

    def run(a: Any) -> Any:
        held.mul_(2)
        return a * 1

    return case(run, (other,), (held.detach(),), (held,), (other,), seen=lambda: held)


def held_and_read() -> Case:
    held = drawn(4)
    return case(lambda a: a + held, (held.detach(),), (drawn(4, seed=1),))


def a_view_of_other_memory() -> Case:
    part = drawn(6)[1:4]

    def move() -> None:  # after the first call
        part.data = drawn(3, seed=2)

    return case(lambda x: part * x, (drawn(3),), (drawn(3),), seen=move)


def gradients_as_arguments() -> Case:
    p = weight(3)
    p.grad = drawn(3, seed=4)

    def run(x: Any, g: Any) -> Any:
        (p * x).sum().backward()
        return g * 1

    return case(run, (drawn(3), p.grad), (drawn(3), p.grad), (drawn(3), drawn(3, seed=6)), seen=lambda: p.grad)


def static_arguments() -> Case:
    def run(x: Any, y: Any = None, *rest: int, mode: str = "a", **options: Any) -> Any:
        return {"sum": x * len(rest) if y is None else x + y, "mode": mode, "nothing": None, "options": options}

    return case(run, (drawn(3),), (drawn(3), None, 1, 2), (drawn(3), drawn(3), 4))


def gradients_kept() -> Case:
    p = weight(3)
    optimiser = wg.optim.SGD([p], lr=0.1)

    def run(x: Any) -> None:
        optimiser.zero_grad(set_to_none=False)
        for row in x:
            ((p * row).sin().sum() / 2).backward()
        optimiser.step()

    run(drawn(2, 3))
    return case(run, (drawn(2, 3),), seen=lambda: (p, p.grad))


PROMISES: dict[str, tuple[Callable[[], Case], int]] = {
    "operator": (lambda: case(lambda x: cube(x * 2) + 1, (leaf(3),), (leaf(3, seed=1),)), 1),
    "operator, gradient inside": (lambda: case(operator_gradient_inside, (leaf(3),)), 1),
    "operator of a list": (lambda: case(lambda x, y: scaled([x, y], 3, shift=1.0), (leaf(3), leaf(2))), 1),
    "operator that writes": (operator_writes, 1),
    "operator that only acts": (operator_acts, 1),
    "operator in transforms": (operator_in_transforms, 1),
    "operator in a step": (operator_in_a_step, 1),
    "Function": (lambda: case(lambda x, y: Product.apply(x, y, 2), (leaf(3), leaf(3, seed=1))), 1),
    "Function that does not look": (lambda: case(Step.apply, (leaf(3), leaf(2))), 1),
    "Function of a parameter": (function_of_a_parameter, 1),
    "Function that writes": (lambda: case(lambda x: AddOne.apply(x * 2).sin(), (leaf(3),)), 1),
    "tensor hooks": (tensor_hooks, 1),
    "post-accumulate hooks": (post_accumulate_hooks, 1),
    "a hook for a while": (hook_for_a_while, 2),
    "module hooks": (module_hooks, 1),
    "node hooks": (lambda: case(node_hooks, (leaf(3),)), 1),
    "saved-tensor hooks": (lambda: case(saved_tensor_hooks, (leaf(3),)), 1),
    "checkpoint": (checkpoints, 1),
    "transforms inside": (lambda: case(transforms_inside, (drawn(3), drawn(3, seed=1))), 1),
    "stacked modules": (stacked_modules, 1),
    "gradients per example": (gradients_per_example, 1),
    "compiled inside": (inner_compiled, 1),
    "scan and map": (lambda: case(scans, (leaf(4, 3), leaf(3, seed=1))), 1),
    "cond of lanes": (lambda: case(branches_of_lanes, *[(leaf(4, 3, seed=k),) for k in range(3)]), 1),
    "fixed point": (lambda: case(babylonian, ((drawn(3) ** 2 + 1).detach().requires_grad_(),)), 1),
    "differential equation": (lambda: case(decay, (leaf(3),)), 1),
    "cond": (
        lambda: case(
            lambda x: wg.cond(x.sum() > 0, wg.sin, lambda v: v * 2, (x,)), *[(leaf(3, seed=k),) for k in range(4)]
        ),
        1,
    ),
    "while_loop": (lambda: case(while_small, *[(leaf(3, seed=k),) for k in range(4)]), 3),
    "item()": (lambda: case(item_branch, *[(leaf(3, seed=k % 2),) for k in range(4)]), 2),
    "views of what is written": (lambda: case(views_of_what_is_written, (drawn(4),)), 1),
    "a base and a view": (base_and_view, 3),
    "sometimes the same memory": (sometimes_the_same, 3),
    "the same memory, only read": (read_only_aliases, 4),
    "held and given": (held_and_given, 2),
    "held and read": (held_and_read, 2),
    "a view of other memory": (a_view_of_other_memory, 2),
    "gradients as arguments": (gradients_as_arguments, 2),
    "static arguments": (static_arguments, 3),
    "gradients that are kept": (gradients_kept, 1),
}


NATIVE = (  # where a plan does something of its own
    "operator", "operator of a list", "operator that writes", "operator that only acts", "operator in a step", "module hooks",
    "Function that writes", "post-accumulate hooks", "while_loop", "item()", "views of what is written", "a base and a view",
    "sometimes the same memory", "held and given", "gradients that are kept",
)  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_promise(name: str) -> None:
    check(PROMISES[name][0], "reference", PROMISES[name][1])


@pytest.mark.parametrize("name", NATIVE)
def test_promise_in_native_code(name: str) -> None:
    check(PROMISES[name][0], "native", PROMISES[name][1])


def cubes(x: Any) -> Any:
    return (x * x * x).sin()


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "grad": lambda f: func.grad(lambda x: f(x).sum())(drawn(3)),
    "vmap": lambda f: func.vmap(f)(drawn(4, 3)),
    "jvp": lambda f: func.jvp(f, (drawn(3),), (drawn(3, seed=1),)),
    "vjp": lambda f: func.vjp(f, drawn(3))[1](drawn(3, seed=1)),
    "jacrev": lambda f: func.jacrev(f)(drawn(3)),
    "jacfwd of vmap": lambda f: func.jacfwd(func.vmap(f))(drawn(2, 3)),
    "hessian": lambda f: func.hessian(lambda x: f(x).sum())(drawn(3)),
    "compiled again": lambda f: wg.compile(lambda x: f(x) + 1, fullgraph=True, backend="reference")(drawn(3)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_compiled_functions(name: str) -> None:
    run = wg.compile(cubes, fullgraph=True, backend="reference")
    assert agree(arrays(TRANSFORMS[name](run)), arrays(TRANSFORMS[name](cubes)))
