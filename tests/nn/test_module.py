"""Modes, casts, state dictionaries, hooks on calls and text of modules."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.nn.hooks import register_module_forward_hook, register_module_forward_pre_hook


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


# ---- modes and casts


def test_train_and_eval_reach_every_module() -> None:
    m = net()
    assert all(k.training for k in m.modules())
    assert m.eval() is m
    assert not any(k.training for k in m.modules())
    m.train()
    assert all(k.training for k in m.modules())
    with pytest.raises(ValueError, match="bool"):
        m.train(1)


def test_requires_grad_zero_grad_and_apply() -> None:
    m = net()
    m(wg.randn(5, 3)).sum().backward()
    m.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not bool((p.grad != 0).any()) for p in m.parameters())
    m.zero_grad()
    assert all(p.grad is None for p in m.parameters())
    assert m.requires_grad_(False) is m
    assert not any(p.requires_grad for p in m.parameters())
    seen: list[str] = []
    m.apply(lambda k: seen.append(type(k).__name__))
    assert seen == ["Linear", "BatchNorm1d", "Linear", "Sequential"]


@pytest.mark.parametrize(
    ("cast", "dtype"),
    [
        (lambda m: m.double(), wg.float64),
        (lambda m: m.half(), wg.float16),
        (lambda m: m.bfloat16(), wg.bfloat16),
        (lambda m: m.double().float(), wg.float32),
        (lambda m: m.to(wg.float64), wg.float64),
        (lambda m: m.to("cpu", wg.float64), wg.float64),
        (lambda m: m.to(dtype=wg.float64), wg.float64),
        (lambda m: m.to(wg.zeros(1, dtype=wg.float64)), wg.float64),
    ],
    ids=["double", "half", "bfloat16", "float", "to dtype", "to device dtype", "to keyword", "to tensor"],
)
def test_casts_keep_the_parameter_objects(cast: Any, dtype: Any) -> None:
    m = net()
    m(wg.randn(5, 3)).sum().backward()
    before = list(m.parameters())
    assert cast(m) is m
    for p, q in zip(before, m.parameters(), strict=True):
        assert p is q
        assert q.dtype is dtype
        assert q.grad is not None
        assert q.grad.dtype is dtype
    assert m[1].running_mean.dtype is dtype
    assert m[1].num_batches_tracked.dtype is wg.int64
    m.zero_grad()
    m(wg.ones(5, 3, dtype=dtype)).sum().backward()
    assert m[0].weight.grad.dtype is dtype


def test_type_casts_integers_too() -> None:
    assert net().type(wg.float64)[1].num_batches_tracked.dtype is wg.float64


@pytest.mark.parametrize("arguments", [{"dtype": wg.int32}, {"speed": 3}], ids=str)
def test_to_refuses(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        net().to(**arguments)


def test_forward_must_be_defined() -> None:
    with pytest.raises(NotImplementedError, match="Module does not define forward"):
        nn.Module()(1)


# ---- state


KEYS = [
    "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked", "2.weight",
    "2.bias",
]  # fmt: skip


def test_state_dict_shares_memory_without_gradients() -> None:
    m = net()
    state = m.state_dict()
    assert list(state) == KEYS
    assert not any(v.requires_grad for v in state.values())
    state["0.bias"].fill_(7.0)
    assert m[0].bias.tolist() == [7.0] * 4
    assert m.state_dict(keep_vars=True)["0.bias"] is m[0].bias
    assert list(m.state_dict(prefix="x.")) == [f"x.{key}" for key in KEYS]
    assert state._metadata["1"] == {"version": 2}
    assert state.copy()._metadata == state._metadata


def test_load_copies_into_the_same_parameters() -> None:
    a, b = net(), net()
    parameters = list(b.parameters())
    found = b.load_state_dict(a.state_dict())
    assert repr(found) == "<All keys matched successfully>"
    for p, q, r in zip(parameters, b.parameters(), a.parameters(), strict=True):
        assert p is q
        assert bool((q == r).all())
        assert q.requires_grad


def test_a_bad_state_is_described_at_once() -> None:
    state = dict(net().state_dict())
    del state["2.bias"]
    state["2.biass"] = wg.zeros(2)
    state["0.weight"] = wg.zeros(4, 9)
    state["0.bias"] = np.zeros(4)
    with pytest.raises(RuntimeError) as error:
        net().load_state_dict(state)
    text = str(error.value)
    for part in ("missing: '2.bias'", "'2.biass' (near the missing '2.bias')", "(4, 9)", "(4, 3)", "got ndarray"):
        assert part in text, text
    with pytest.raises(RuntimeError, match=r"\(4, 9\)"):
        net().load_state_dict({"0.weight": wg.zeros(4, 9)}, strict=False)
    with pytest.raises(TypeError, match="list"):
        net().load_state_dict([])


def test_not_strict_returns_what_did_not_match() -> None:
    found = net().load_state_dict({"0.bias": wg.zeros(4), "9.x": wg.zeros(1)}, strict=False)
    assert found.missing_keys == [k for k in KEYS if k not in ("0.bias", "1.num_batches_tracked")]
    assert found.unexpected_keys == ["9.x"]
    missing, _ = found
    assert missing == found.missing_keys


def test_a_child_name_without_rest_is_unexpected() -> None:
    assert net().load_state_dict({"0": wg.zeros(1), "0.x.y": wg.zeros(1)}, strict=False).unexpected_keys == [
        "0",
        "0.x.y",
    ]


@pytest.mark.parametrize("assign", [False, True])
def test_loading_keeps_ties(assign: bool) -> None:
    def tied() -> nn.Module:
        m = nn.Module()
        m.e, m.d = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        m.d.weight = m.e.weight
        return m

    a, b = tied(), tied()
    b.load_state_dict(a.state_dict(), assign=assign)
    assert b.d.weight is b.e.weight
    assert isinstance(b.e.weight, nn.Parameter)
    assert len(list(b.parameters())) == 1
    assert bool((b.e.weight == a.e.weight).all())


def test_assign_takes_dtype_and_keeps_requires_grad() -> None:
    m = nn.Linear(2, 1)
    m.bias.requires_grad_(False)
    m.load_state_dict({"weight": wg.ones(1, 2, dtype=wg.float64), "bias": wg.ones(1, dtype=wg.float64)}, assign=True)
    assert m.weight.dtype is wg.float64
    assert m.weight.requires_grad
    assert not m.bias.requires_grad


def test_an_old_batch_norm_state_loads() -> None:
    m = nn.BatchNorm1d(2)
    state = {k: v for k, v in m.state_dict().items() if k != "num_batches_tracked"}
    m.load_state_dict(state)
    full = m.state_dict()
    del full["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        m.load_state_dict(full)  # its metadata says that it should be there


def test_extra_state() -> None:
    class Counter(nn.Module):
        count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].count = 5
    assert list(a.state_dict()) == ["0._extra_state"]
    b.load_state_dict(a.state_dict())
    assert b[0].count == 5
    assert b.load_state_dict({}, strict=False).missing_keys == ["0._extra_state"]


def test_state_hooks() -> None:
    m = nn.Linear(1, 1)
    seen: list[str] = []
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: seen.append(f"pre {prefix}{keep}"))
    m.register_state_dict_post_hook(lambda mod, state, prefix, meta: state.pop(prefix + "bias"))
    handle = m.register_load_state_dict_pre_hook(lambda mod, state, prefix, *rest: state.pop(prefix + "old", None))
    m.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.clear())
    assert list(m.state_dict(prefix="m.")) == ["m.weight"]
    assert seen == ["pre m.False"]
    m.load_state_dict({"weight": wg.zeros(1, 1), "old": wg.zeros(1)})
    handle.remove()
    with pytest.raises(RuntimeError, match="old"):
        m.load_state_dict({"weight": wg.zeros(1, 1), "old": wg.zeros(1)})


# ---- hooks on calls


def test_forward_hooks_see_and_replace_in_order() -> None:
    m, seen = nn.Linear(1, 1), []
    with wg.no_grad():
        m.weight.fill_(1.0)
        m.bias.fill_(0.0)
    m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    m.register_forward_pre_hook(lambda mod, args: args[0] + 1)  # one value stands for a tuple of one
    m.register_forward_pre_hook(lambda mod, args, kwargs: seen.append(dict(kwargs)), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, out: out * 10)
    m.register_forward_hook(lambda mod, args, kwargs, out: seen.append(out.item()), with_kwargs=True)
    first = m.register_forward_hook(lambda mod, args, out: out + 1, prepend=True)
    assert m(wg.tensor([[3.0]])).item() == ((3 * 2 + 1) + 1) * 10
    assert seen == [{}, 80.0]
    first.remove()
    first.remove()
    assert m(wg.tensor([[3.0]])).item() == 70.0


def test_a_pre_hook_with_kwargs_replaces_both() -> None:
    class Add(nn.Module):
        def forward(self, x: Any, *, y: Any) -> Any:
            return x + y

    m = Add()
    m.register_forward_pre_hook(lambda mod, args, kwargs: ((args[0] * 2,), {"y": kwargs["y"] * 3}), with_kwargs=True)
    assert m(wg.ones(1), y=wg.ones(1)).item() == 5.0
    m.register_forward_pre_hook(lambda mod, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"None or \(args, kwargs\)"):
        m(wg.ones(1), y=wg.ones(1))


def test_always_call_hooks_run_after_an_error() -> None:
    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ZeroDivisionError("forward")

    m, seen = Broken(), []
    m.register_forward_hook(lambda mod, args, out: seen.append("plain"))
    m.register_forward_hook(lambda mod, args, out: seen.append(out), always_call=True)
    with pytest.raises(ZeroDivisionError):
        m(1)
    assert seen == [None]

    def angry(*_: Any) -> None:
        raise KeyError("hook")

    m.register_forward_hook(angry, always_call=True)
    with pytest.warns(UserWarning, match="always_call"), pytest.raises(ZeroDivisionError):
        m(1)


def test_hooks_on_every_module() -> None:
    seen: list[str] = []
    pre = register_module_forward_pre_hook(lambda mod, args: seen.append(f"pre {type(mod).__name__}"))
    post = register_module_forward_hook(lambda mod, args, out: seen.append(f"post {type(mod).__name__}"))
    try:
        nn.Sequential(nn.ReLU())(wg.ones(1))
    finally:
        pre.remove()
        post.remove()
    assert seen == ["pre Sequential", "pre ReLU", "post ReLU", "post Sequential"]
    nn.ReLU()(wg.ones(1))
    assert len(seen) == 4


def test_a_hook_must_be_callable() -> None:
    for register in ("register_forward_hook", "register_full_backward_hook"):
        with pytest.raises(TypeError, match="callable"):
            getattr(nn.ReLU(), register)(3)


# ---- text


def test_repr() -> None:
    m = nn.Sequential(
        nn.Linear(2, 3), nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()]), nn.ModuleDict({"a": nn.Dropout(0.1)}),
        nn.Sequential(),
    )  # fmt: skip
    assert repr(m) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): ModuleList(\n"
        "    (0-1): 2 x ReLU()\n"
        "    (2): Tanh()\n"
        "  )\n"
        "  (2): ModuleDict(\n"
        "    (a): Dropout(p=0.1, inplace=False)\n"
        "  )\n"
        "  (3): Sequential()\n"
        ")"
    )
