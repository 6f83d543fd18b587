"""Checkpointing held to PyTorch's non-reentrant variant: gradients, how often what is computed, what may be asked for."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint

import wengert as wg

X = np.random.default_rng(0).standard_normal((3, 3))
W = np.random.default_rng(1).standard_normal((3, 3))


class Framework:
    """One of the two, with the two tensors that every scenario uses, and a note of what was called."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.x = module.tensor(X, dtype=module.float64, requires_grad=True)
        self.w = module.tensor(W, dtype=module.float64, requires_grad=True)
        self.calls: list[str] = []

    def checkpoint(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.module.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

    def noted(self, name: str, function: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            result = function(*args, **kwargs)
            self.calls.append(f"{name} ends")
            return result

        return called

    def gradients(self) -> list[Any]:
        return [None if t.grad is None else t.grad.detach().numpy() for t in (self.x, self.w)]


def layer(f: Framework, x: Any) -> Any:
    return (x @ f.w).tanh() @ f.w


def once(f: Framework, **options: Any) -> Any:
    y = f.checkpoint(f.noted("f", partial(layer, f)), f.x, **options)
    y.exp().sum().backward()
    return [y]


def several_backwards(f: Framework) -> Any:
    y = f.checkpoint(f.noted("f", partial(layer, f)), f.x).sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    return []


def two_layers(f: Framework) -> Any:
    y = f.checkpoint(f.noted("a", partial(layer, f)), f.x)
    z = f.checkpoint(f.noted("b", lambda y: layer(f, y).exp()), y)
    z.sum().backward()
    return [y, z]


def nested(f: Framework) -> Any:
    inner = f.noted("inner", lambda x: x.sin().exp())
    middle = f.noted("middle", lambda x: f.checkpoint(inner, x.cos()).tanh() * x)
    outer = f.noted("outer", lambda x: f.checkpoint(middle, x.exp()).sin())
    f.checkpoint(outer, f.x).sum().backward()
    return []


def nested_at_the_end(f: Framework) -> Any:
    inner = f.noted("inner", lambda x: x.sin().exp())
    f.checkpoint(f.noted("outer", lambda x: f.checkpoint(inner, x.cos())), f.x).sum().backward()
    return []


def second_order(f: Framework) -> Any:
    y = f.checkpoint(f.noted("f", partial(layer, f)), f.x).exp().sum()
    (g,) = f.module.autograd.grad(y, f.x, create_graph=True)
    g.pow(2).sum().backward()
    return [g]


def gradient_inside(f: Framework) -> Any:
    def function(x: Any) -> Any:
        y = layer(f, x).sin()
        (g,) = f.module.autograd.grad(y.sum(), x, create_graph=True)
        return y * g

    f.checkpoint(f.noted("f", function), f.x).sum().backward()
    return []


def part_only(f: Framework) -> Any:
    a, b = f.checkpoint(f.noted("f", lambda x: (x.sin().exp(), layer(f, x).cos())), f.x)
    a.sum().backward()
    b.sum().backward()
    return [a, b]


def some_inputs(f: Framework) -> Any:
    y = f.checkpoint(f.noted("f", partial(layer, f)), f.x).exp().sum()
    y.backward(inputs=[f.w])
    return []


def no_input_with_gradient(f: Framework) -> Any:
    y = f.checkpoint(f.noted("f", lambda x, scale=1.0: layer(f, x) * scale), f.x.detach(), scale=2.0)
    y.sum().backward()
    return [y]


def not_recorded(f: Framework) -> Any:
    with f.module.no_grad():
        y = f.checkpoint(f.noted("f", partial(layer, f)), f.x)
    assert not y.requires_grad
    return [y]


def no_grad_inside(f: Framework) -> Any:
    def function(x: Any) -> Any:
        with f.module.no_grad():
            scale = layer(f, x).abs().sum()
        return (x / scale).exp()

    f.checkpoint(f.noted("f", function), f.x).sum().backward()
    return []


def chain(f: Framework) -> Any:
    functions = [f.noted(name, getattr(f.module, name)) for name in ("sin", "exp", "tanh", "cos", "sin")]
    y = f.module.utils.checkpoint.checkpoint_sequential(functions, 2, f.x, use_reentrant=False)
    y.sum().backward()
    return [y]


def without_early_stop(f: Framework) -> Any:
    with f.module.utils.checkpoint.set_checkpoint_early_stop(False):
        return once(f)


def selective(f: Framework) -> Any:
    kept = [torch.ops.aten.mm.default] if f.module is torch else [wg.matmul]
    make = f.module.utils.checkpoint.create_selective_checkpoint_contexts
    return once(f, context_fn=partial(make, kept))


SCENARIOS = [
    once, partial(once, early_stop=False), partial(once, preserve_rng_state=False), several_backwards, two_layers, nested,
    nested_at_the_end, second_order, gradient_inside, part_only, some_inputs, no_input_with_gradient, not_recorded,
    no_grad_inside, chain, without_early_stop, selective,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: getattr(s, "__name__", None))
def test_values_gradients_and_calls_are_pytorchs(scenario: Any) -> None:
    ours, theirs = Framework(wg), Framework(torch)
    found, expected = scenario(ours), scenario(theirs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
    for a, b in zip(ours.gradients(), theirs.gradients(), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12)
    assert ours.calls == theirs.calls


def changed(f: Framework) -> Any:
    functions = [lambda x: x.sin().exp(), lambda x: x[:2].sin().exp()]
    return f.checkpoint(lambda x: functions.pop(0)(x), f.x).sum()


def fewer(f: Framework) -> Any:
    functions = [lambda x: x.sin().exp(), lambda x: x.sin()]
    return f.checkpoint(lambda x: functions.pop(0)(x), f.x).sum()


def more(f: Framework) -> Any:
    functions = [lambda x: x.sin(), lambda x: x.sin().exp()]
    return f.checkpoint(lambda x: functions.pop(0)(x), f.x, early_stop=False).sum()


@pytest.mark.parametrize("scenario", [changed, fewer, more])
def test_what_pytorch_refuses_is_refused(scenario: Any) -> None:
    for module in (wg, torch):
        y = scenario(Framework(module))
        with pytest.raises(module.utils.checkpoint.CheckpointError):
            y.backward()


def test_the_choices_of_a_policy_are_pytorchs() -> None:
    ours, theirs = wg.utils.checkpoint.CheckpointPolicy, torch.utils.checkpoint.CheckpointPolicy
    assert {c.name: c.value for c in ours} == {c.name: c.value for c in theirs}
