"""Compiled modules are modules: inside others, they have parameters, modes, hooks and a state as PyTorch's have."""

import copy
import pickle
from typing import Any

import pytest

import wengert as wg
from wengert import nn


def layers() -> Any:
    wg.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


class Outer(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.head = inner, nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x))


def test_what_belongs_to_it_is_found() -> None:
    outer, plain = Outer(wg.compile(layers(), fullgraph=True, backend="reference")), Outer(layers())
    plain.load_state_dict({k.replace("_orig_mod.", ""): v for k, v in outer.state_dict().items()})
    names = [name.replace("inner.", "inner._orig_mod.") for name, _ in plain.named_parameters()]
    assert [name for name, _ in outer.named_parameters()] == names
    assert list(outer.state_dict()) == [n.replace("inner.", "inner._orig_mod.") for n in plain.state_dict()]
    outer.eval(), plain.eval()
    assert not outer.inner.training
    assert not outer.inner._orig_mod[2].training
    x = wg.randn(5, 3)
    assert wg.allclose(outer(x), plain(x), atol=1e-6)
    outer.train()
    assert outer.inner._orig_mod[2].training
    assert outer.inner.training
    outer(x).sum().backward()
    assert all(p.grad is not None for p in outer.parameters())


def test_a_step_through_both_is_one_program() -> None:
    outer = Outer(wg.compile(layers(), backend="reference"))
    fast, x = wg.compile(outer, fullgraph=True, backend="reference"), wg.randn(5, 3)
    outer.eval()
    assert wg.allclose(fast(x), outer.head(outer.inner._orig_mod(x)), atol=1e-6)
    outer.inner.anything = 1.0
    assert outer.inner._orig_mod.anything == 1.0
    assert "anything" not in vars(outer.inner)
    del outer.inner.anything
    assert not hasattr(outer.inner, "anything")


def test_loading_either_way() -> None:
    plain, fast = layers(), wg.compile(layers())
    plain[0].weight.data.fill_(3.0)
    assert next(iter(fast.state_dict())) == "_orig_mod.0.weight"
    for state in (plain.state_dict(), wg.compile(plain).state_dict()):
        fast._orig_mod[0].weight.data.fill_(0.0)
        fast.load_state_dict(state)
        assert fast._orig_mod[0].weight.tolist() == [[3.0] * 3] * 3
    Outer(fast).load_state_dict(Outer(plain).state_dict())
    with pytest.raises(RuntimeError, match="were saved of a compiled module"):
        plain.load_state_dict(fast.state_dict())


def test_copies_hooks_and_text() -> None:
    fast = wg.compile(nn.Linear(2, 2), backend="reference")
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert type(other) is type(fast)
        assert other.compiled.options == fast.compiled.options
        assert other.weight is not fast.weight
        assert wg.equal(other(wg.ones(2)), fast(wg.ones(2)))
    assert isinstance(fast, nn.Module)
    assert repr(fast).startswith("compiled Linear(")
    want = (fast(wg.ones(2)) * 2).tolist()
    fast.register_forward_hook(lambda module, args, output: output * 2)
    assert fast(wg.ones(2)).tolist() == want
    assert fast._orig_mod._hooks is None
    with pytest.raises(AttributeError, match="nothing_of_it"):
        _ = fast.nothing_of_it


# ---- in place


def eager_and_in_place(**options: Any) -> tuple[Any, Any]:
    """Return a module, and one like it that is compiled in place."""
    plain = layers()
    module = copy.deepcopy(plain)
    module.compile(**({"fullgraph": True} | options))
    return plain, module


def programs(module: Any) -> int:
    return sum(map(len, module._compiled.programs.values()))


@pytest.mark.parametrize("options", [{}, {"backend": "reference"}, {"fullgraph": False, "verify": "first_call"}])
def test_compiled_in_place_it_computes_the_same_and_keeps_its_names(options: dict[str, Any]) -> None:
    plain, module = eager_and_in_place(**options)
    assert type(module) is nn.Sequential
    assert list(module.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in module.named_modules()] == [name for name, _ in plain.named_modules()]
    x, found = wg.randn(5, 3), []
    for model in (plain, module):
        wg.manual_seed(7)
        found.append(model(x))
        found[-1].pow(2).sum().backward()
    assert wg.allclose(*found, atol=1e-6)
    for one, other in zip(plain.parameters(), module.parameters(), strict=True):
        assert wg.allclose(one.grad, other.grad, atol=1e-5)
    assert wg.allclose(plain[1].running_var, module[1].running_var, atol=1e-6)
    assert programs(module) == 1
    plain.eval(), module.eval()
    assert wg.allclose(module(x), plain(x), atol=1e-6)
    assert programs(module) == 2


def test_hooks_run_inside_of_what_is_compiled_in_place() -> None:
    plain, module = (model.eval() for model in eager_and_in_place())
    x = wg.randn(5, 3)
    want = plain(x)
    assert wg.allclose(module(x), want, atol=1e-6)
    handles = [
        module.register_forward_pre_hook(lambda module, args: (args[0] * 1,)),
        module.register_forward_hook(lambda module, args, output: output * 2),
        module[0].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,)),
    ]
    start = x.clone().requires_grad_()
    found = module(start)
    assert wg.allclose(found, 2 * want, atol=1e-6)
    found.sum().backward()
    with_hooks, start.grad = start.grad, None
    for handle in handles:
        handle.remove()
    module(start).sum().backward()
    assert wg.allclose(with_hooks, 6 * start.grad, atol=1e-5)
    assert wg.allclose(module(x), want, atol=1e-6)


class KeepsAll(nn.Linear):
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("kind", [nn.Linear, KeepsAll])
def test_copies_of_what_is_compiled_in_place(kind: Any, again: Any) -> None:
    module = kind(2, 2)
    module.compile(backend="reference")
    want = module(wg.ones(2))
    other = again(module)
    assert wg.equal(other(wg.ones(2)), want)
    assert kind is KeepsAll or other._compiled is None  # as in PyTorch
    if again is not copy.copy:
        with wg.no_grad():
            other.weight.zero_(), other.bias.fill_(3.0)
        assert other(wg.ones(2)).tolist() == [3.0, 3.0]
    assert wg.equal(module(wg.ones(2)), want)


def test_compiled_in_place_within_others_and_taken_back() -> None:
    plain, module = (model.eval() for model in eager_and_in_place())
    x = wg.randn(5, 3)
    fast = wg.compile(Outer(module), fullgraph=True)
    assert wg.allclose(fast(x), fast.head(plain(x)), atol=1e-6)
    assert programs(module) == 0  # it became a part of the other program
    wrapped = wg.compile(module, fullgraph=True)
    wrapped.compile(backend="reference")
    assert module._compiled.backend == "reference"
    assert wg.allclose(wrapped(x), plain(x), atol=1e-6)
    module.compile(disable=True)
    assert wg.equal(module(x), plain(x))
    lazy = nn.LazyLinear(2)
    lazy.compile(fullgraph=True)
    assert lazy(x).shape == (5, 2)
    assert type(lazy) is nn.Linear
    assert programs(lazy) == 1


class Keeping(nn.Module):
    def forward(self, x: Any) -> Any:
        self.kept = x * 1
        return x


def test_what_is_wrong_is_named_after_the_module() -> None:
    module = Keeping()
    module.compile(fullgraph=True)
    with pytest.raises(wg.errors.CaptureError, match=r"^Keeping cannot be compiled"):
        [module(wg.ones(2)) for _ in range(20)]  # for it might be only the first time
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        module.compile(nonsense=1)
    layer = nn.ReLU()
    layer.compile()
    with pytest.raises(TypeError, match="must be a tensor, got"):
        layer("text")


# ---- with other parameters


@pytest.mark.parametrize("way", ["in place", "as another module"])
def test_functional_call_of_a_compiled_module(way: str) -> None:
    plain, module = (model.eval() for model in eager_and_in_place())
    prefix = "" if way == "in place" else "_orig_mod."
    if prefix:
        module.compile(disable=True)
        module = wg.compile(module)
    x = wg.randn(5, 3)
    given = {name: parameter.detach() + 1 for name, parameter in plain.named_parameters()}

    def loss(of: Any, parameters: Any) -> Any:
        named = {(prefix if of is module else "") + name: value for name, value in parameters.items()}
        return wg.func.functional_call(of, named, x).pow(2).sum()

    for _ in range(2):
        assert wg.allclose(module(x), plain(x), atol=1e-6)
        assert wg.allclose(loss(module, given), loss(plain, given), rtol=1e-5)
        found, want = (wg.func.grad(lambda p, of=of: loss(of, p))(given) for of in (module, plain))
        assert all(wg.allclose(found[name], want[name], rtol=1e-4, atol=1e-4) for name in given)
    for parameter in given.values():
        parameter.requires_grad_()
    gradient = wg.func.grad(lambda p: loss(module, p))
    with pytest.raises(RuntimeError, match=r"since it was called, \w+ has changed; compile the function that takes"):
        gradient(given)  # which can be differentiated again, and for that the module would need these parameters still
    found, want = wg.compile(gradient, fullgraph=True)(given), wg.func.grad(lambda p: loss(plain, p))(given)
    assert all(wg.allclose(found[name], want[name], rtol=1e-4, atol=1e-4) for name in given)
