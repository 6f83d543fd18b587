"""Optimisers: formulas against NumPy, options, groups, state, hooks."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn, optim

ALL = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop", "Lion"]
GRADS = [10.0, 1.0, -1.0, 0.1, 0.0, 2.0]


def parameter(value: Any, dtype: Any = wg.float64) -> Any:
    return nn.Parameter(wg.tensor(value, dtype=dtype))


def run(name: str, grads: list[float] = GRADS, start: float = 1.0, **options: Any) -> float:
    """Step one element through given gradients."""
    p = parameter([start])
    o = getattr(optim, name)([p], **options)
    for g in grads:
        p.grad = wg.tensor([g], dtype=wg.float64)
        o.step()
    return float(p.item())


# ---- formulas, written again from the papers on plain floats


def adam(grads: list[float], lr: float, decay: float = 0.0, decoupled: bool = False, amsgrad: bool = False) -> float:
    w, m, v, top = 1.0, 0.0, 0.0, 0.0
    for t, g in enumerate(grads, 1):
        w, g = (w * (1 - lr * decay), g) if decoupled else (w, g + decay * w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        top = max(top, v)
        w -= lr * (m / (1 - 0.9**t)) / (math.sqrt((top if amsgrad else v) / (1 - 0.999**t)) + 1e-8)
    return w


def nesterov(grads: list[float], lr: float, momentum: float) -> float:
    w, b = 1.0, 0.0
    for g in grads:
        b = momentum * b + g
        w -= lr * (g + momentum * b)
    return w


def rmsprop(grads: list[float], lr: float, alpha: float, momentum: float) -> float:
    w, v, a, b = 1.0, 0.0, 0.0, 0.0
    for g in grads:
        v, a = alpha * v + (1 - alpha) * g * g, alpha * a + (1 - alpha) * g
        b = momentum * b + g / (math.sqrt(v - a * a) + 1e-8)
        w -= lr * b
    return w


def lion(grads: list[float], lr: float, decay: float) -> float:
    w, m = 1.0, 0.0
    for g in grads:
        c = 0.9 * m + 0.1 * g
        w = w * (1 - lr * decay) - lr * ((c > 0) - (c < 0))
        m = 0.99 * m + 0.01 * g
    return w


def adagrad(grads: list[float], lr: float, lr_decay: float) -> float:
    w, s = 1.0, 0.0
    for k, g in enumerate(grads):
        s += g * g
        w -= lr / (1 + k * lr_decay) * g / (math.sqrt(s) + 1e-10)
    return w


def adadelta(grads: list[float], rho: float) -> float:
    w, v, a = 1.0, 0.0, 0.0
    for g in grads:
        v = rho * v + (1 - rho) * g * g
        d = math.sqrt(a + 1e-6) / math.sqrt(v + 1e-6) * g
        a = rho * a + (1 - rho) * d * d
        w -= d
    return w


def adamax(grads: list[float], lr: float) -> float:
    w, m, u = 1.0, 0.0, 0.0
    for t, g in enumerate(grads, 1):
        m, u = 0.9 * m + 0.1 * g, max(0.999 * u, abs(g) + 1e-8)
        w -= lr / (1 - 0.9**t) * m / u
    return w


def rprop(grads: list[float], lr: float) -> float:
    w, last, size = 1.0, 0.0, lr
    for g in grads:
        if g * last > 0:
            size = min(size * 1.2, 50)
        elif g * last < 0:
            size, g = max(size * 0.5, 1e-6), 0.0
        w -= size * (g > 0) - size * (g < 0)
        last = g
    return w


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (lambda: run("SGD", lr=0.1), 1 - 0.1 * sum(GRADS)),
        (lambda: run("SGD", lr=0.1, maximize=True), 1 + 0.1 * sum(GRADS)),
        (lambda: run("SGD", [1.0, 1.0], lr=0.1, momentum=0.9, dampening=0.5), 1 - 0.1 * (1 + (0.9 + 0.5))),
        (lambda: run("SGD", [1.0], lr=0.1, weight_decay=0.5), 1 - 0.1 * 1.5),
        (lambda: run("SGD", lr=0.1, momentum=0.9, nesterov=True), nesterov(GRADS, 0.1, 0.9)),
        (lambda: run("Adam", lr=0.1), adam(GRADS, 0.1)),
        (lambda: run("Adam", lr=0.1, maximize=True), 2 - adam(GRADS, 0.1)),
        (lambda: run("Adam", lr=0.1, amsgrad=True), adam(GRADS, 0.1, amsgrad=True)),
        (lambda: run("Adam", lr=0.1, weight_decay=0.2), adam(GRADS, 0.1, 0.2)),
        (lambda: run("Adam", lr=0.1, weight_decay=0.2, decoupled_weight_decay=True), adam(GRADS, 0.1, 0.2, True)),
        (lambda: run("AdamW", lr=0.1, weight_decay=0.2), adam(GRADS, 0.1, 0.2, True)),
        (lambda: run("AdamW", lr=0.1), adam(GRADS, 0.1, 0.01, True)),
        (lambda: run("RMSprop", lr=0.1, alpha=0.9, momentum=0.5, centered=True), rmsprop(GRADS, 0.1, 0.9, 0.5)),
        (lambda: run("Adagrad", lr=0.1, lr_decay=0.3), adagrad(GRADS, 0.1, 0.3)),
        (lambda: run("Adadelta", rho=0.8), adadelta(GRADS, 0.8)),
        (lambda: run("Adamax", lr=0.1), adamax(GRADS, 0.1)),
        (lambda: run("Rprop", lr=0.1), rprop(GRADS, 0.1)),
        (lambda: run("Lion", lr=0.1, weight_decay=0.3), lion(GRADS, 0.1, 0.3)),
    ],
    ids=[
        "sgd", "sgd up", "sgd dampening", "sgd decay", "nesterov", "adam", "adam up", "amsgrad", "adam decay",
        "adam decoupled", "adamw", "adamw default", "rmsprop", "adagrad", "adadelta", "adamax", "rprop", "lion",
    ],
)  # fmt: skip
def test_formulas(got: Callable[[], float], want: float) -> None:
    np.testing.assert_allclose(got(), want, rtol=1e-9)


def test_adam_s_penalty_is_not_adamw_s_decay() -> None:
    np.testing.assert_allclose(run("Adam", [0.3], lr=0.1, weight_decay=0.2), 0.900000002, rtol=1e-12)
    np.testing.assert_allclose(run("AdamW", [0.3], lr=0.1, weight_decay=0.2), 0.880000003333333222, rtol=1e-12)


def test_asgd_averages() -> None:
    p = parameter([1.0])
    o = optim.ASGD([p], lr=0.1, lambd=0.0, t0=0)
    seen = []
    for _ in range(4):
        p.grad = wg.ones(1, dtype=wg.float64)
        o.step()
        seen.append(p.item())
    # the weight of step k's average is 1 / max(1, k - 1): the first step only starts it
    np.testing.assert_allclose(o.state[p]["ax"].item(), np.mean(seen[1:]), rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "make",
    [
        lambda: wg.randn(300, 200, dtype=wg.float64),
        lambda: wg.randn(300, 200, dtype=wg.float64).t(),
        lambda: wg.randn((), dtype=wg.float64),
        lambda: wg.randn(0, 3, dtype=wg.float64),
    ],
    ids=["large", "transposed", "0-d", "empty"],
)
def test_every_layout_takes_the_same_steps(name: str, make: Any) -> None:
    wg.manual_seed(0)
    data = make()
    whole = nn.Parameter(data.clone() if data.is_contiguous() else data)
    single = [parameter([v]) for v in data.reshape(-1)[:3].tolist()]
    o, s = getattr(optim, name)([whole]), getattr(optim, name)(single) if single else None
    for _ in range(3):
        whole.grad = wg.randn(*data.shape, dtype=wg.float64)
        o.step()
        if s is not None:
            for p, g in zip(single, whole.grad.reshape(-1)[:3].tolist(), strict=True):
                p.grad = wg.tensor([g], dtype=wg.float64)
            s.step()
    got = whole.reshape(-1)[:3].detach().numpy()
    np.testing.assert_allclose(got, [p.item() for p in single], rtol=1e-12)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16], ids=str)
def test_halves_are_computed_in_float32(name: str, dtype: Any) -> None:
    p, q = parameter([1.0, -2.0, 0.5], dtype), parameter([1.0, -2.0, 0.5], wg.float32)
    o, r = getattr(optim, name)([p]), getattr(optim, name)([q])
    for x in (p, q):
        x.grad = wg.tensor([0.5, 1.0, -1.5], dtype=x.dtype)
    o.step()
    r.step()
    assert p.dtype is dtype
    assert all(v.dtype is dtype for k, v in o.state[p].items() if k not in ("step", "eta", "mu", "mu_product"))
    eps = wg.finfo(dtype).eps
    np.testing.assert_allclose(p.detach().to(wg.float32).numpy(), q.detach().numpy(), rtol=eps)


@pytest.mark.parametrize("name", [n for n in ALL if n != "Rprop"])
def test_complex_parameters_are_two_real_ones(name: str) -> None:
    start, grad = [1 + 2j, -1 + 0.5j], [0.5 - 1j, 2 + 1j]
    z = parameter(start, wg.complex128)
    xy = [parameter([v.real for v in start]), parameter([v.imag for v in start])]
    o, r = getattr(optim, name)([z]), getattr(optim, name)(xy)
    for _ in range(3):
        z.grad = wg.tensor(grad, dtype=wg.complex128)
        xy[0].grad, xy[1].grad = (
            wg.tensor([f(g) for g in grad], dtype=wg.float64) for f in (lambda g: g.real, lambda g: g.imag)
        )
        o.step()
        r.step()
    want = xy[0].detach().numpy() + 1j * xy[1].detach().numpy()
    np.testing.assert_allclose(z.detach().numpy(), want, rtol=1e-12)


def test_a_step_is_noticed_by_the_tape() -> None:
    p = parameter([1.0])
    loss = (p * p).sum()
    p.grad = wg.ones(1, dtype=wg.float64)
    optim.Adam([p]).step()
    with pytest.raises(RuntimeError, match=r"Adam\.step\(\) at .*test_optimizers"):
        loss.backward()


def test_parameters_without_gradient_are_left_alone() -> None:
    p, q = parameter([1.0]), parameter([2.0])
    o = optim.AdamW([p, q], lr=0.1, weight_decay=0.5)
    p.grad = wg.ones(1, dtype=wg.float64)
    o.step()
    assert q.item() == 2.0
    assert list(o.state_dict()["state"]) == [0]


def test_closure_runs_with_gradients_and_its_loss_is_returned() -> None:
    p = parameter([3.0])
    o = optim.SGD([p], lr=0.1)

    def closure() -> Any:
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with wg.no_grad():
        assert o.step(closure).item() == 9.0
    np.testing.assert_allclose(p.item(), 3 - 0.6)


# ---- groups and arguments


def test_groups_have_their_own_options() -> None:
    p, q = parameter([1.0]), parameter([1.0])
    o = optim.SGD([{"params": [p], "lr": 0.5}, {"params": q}], lr=0.1)
    p.grad = q.grad = wg.ones(1, dtype=wg.float64)
    o.step()
    assert (p.item(), q.item()) == (0.5, 0.9)
    r = parameter([1.0])
    o.add_param_group({"params": [r], "momentum": 0.9})
    assert [g["momentum"] for g in o.param_groups] == [0, 0, 0.9]
    o.zero_grad()
    assert p.grad is None
    p.grad = wg.ones(1, dtype=wg.float64)
    o.zero_grad(set_to_none=False)
    assert p.grad.item() == 0.0


def test_named_parameters() -> None:
    m = nn.Linear(1, 1)
    o = optim.SGD(m.named_parameters(), lr=0.1)
    assert o.param_groups[0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="names"):
        o.add_param_group({"params": [parameter([1.0])]})


def test_a_learning_rate_can_be_a_tensor() -> None:
    assert run("SGD", [1.0], lr=wg.tensor(0.5)) == 0.5


P = parameter([1.0])
Q = parameter([1.0])


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: optim.SGD(P), TypeError, "put it in a list"),
        (lambda: optim.SGD([]), ValueError, "empty"),
        (lambda: optim.SGD([P, P]), ValueError, "twice"),
        (lambda: optim.SGD([{"params": [P]}, {"params": [P]}]), ValueError, "twice"),
        (lambda: optim.SGD([P * 2]), ValueError, "no leaf"),
        (lambda: optim.SGD([3.0]), TypeError, "float"),
        (lambda: optim.SGD([{"params": {P}}]), TypeError, "order"),
        (lambda: optim.SGD([P]).add_param_group([P]), TypeError, "dictionary"),
        (lambda: optim.SGD([P], lr=-1.0), ValueError, "SGD: lr must be at least 0, got -1"),
        (lambda: optim.SGD([P], lr=float("nan")), ValueError, "lr"),
        (lambda: optim.Adam([{"params": [P], "lr": wg.ones(2)}]), ValueError, r"one number, got a tensor of shape \(2,\)"),
        (lambda: optim.SGD([("a", P), Q]), ValueError, "either all parameters of a group come with names"),
        (lambda: optim.SGD([Q, ("a", P)]), ValueError, "either all parameters of a group come with names"),
        (lambda: optim.SGD([("a", P, 3)]), ValueError, r"pair \(name, tensor\)"),
        (lambda: optim.SparseAdam([wg.eye(2).to_sparse()]), ValueError, "dense parameters.*sparse_coo"),
        (lambda: optim.SparseAdam([wg.ones(2, dtype=wg.complex64)]), ValueError, "real numbers.*complex64"),
        (lambda: optim.SGD([P], nesterov=True), ValueError, "nesterov"),
        (lambda: optim.SGD([P], momentum=0.9, dampening=0.1, nesterov=True), ValueError, "nesterov"),
        (lambda: optim.Adam([P], betas=(1.0, 0.9)), ValueError, "beta1 must be at least 0 and below 1"),
        (lambda: optim.AdamW([P], eps=-1.0), ValueError, "AdamW: eps"),
        (lambda: optim.NAdam([P], momentum_decay=-1.0), ValueError, "momentum_decay"),
        (lambda: optim.RMSprop([P], alpha=-1.0), ValueError, "alpha"),
        (lambda: optim.Adadelta([P], rho=1.5), ValueError, "rho"),
        (lambda: optim.Rprop([P], etas=(1.5, 1.2)), ValueError, "etas"),
        (lambda: optim.Adam([P], differentiable=True), NotImplementedError, "differentiable=True"),
        (lambda: optim.Adam([P], capturable=True), NotImplementedError, "capturable=True"),
        (lambda: optim.Adam([P], foreach=True, fused=True), RuntimeError, "both"),
        (lambda: optim.Adamm, AttributeError, "Adam"),
    ],
)  # fmt: skip
def test_bad_arguments(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


# ---- state


@pytest.mark.parametrize("name", ALL)
def test_resuming_gives_the_same_bits(name: str) -> None:
    def build() -> tuple[list[Any], Any]:
        wg.manual_seed(1)
        ps = [nn.Parameter(wg.rand(3, dtype=d)) for d in (wg.float32, wg.float64, wg.bfloat16)]
        options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
        return ps, getattr(optim, name)(ps, **options)

    def step(ps: list[Any], o: Any, k: int) -> None:
        for i, p in enumerate(ps):
            p.grad = None if i == 1 and k < 2 else (wg.ones(3, dtype=p.dtype) * (k - 2.5))
        o.step()

    ps, o = build()
    for k in range(6):
        step(ps, o, k)
    qs, half = build()
    for k in range(3):
        step(qs, half, k)
    rs, resumed = build()
    with wg.no_grad():
        for r, q in zip(rs, qs, strict=True):
            r.copy_(q)
    resumed.load_state_dict(copy.deepcopy(half.state_dict()))
    for k in range(3, 6):
        step(rs, resumed, k)
    for p, r in zip(ps, rs, strict=True):
        assert bool((p == r).all()), name


def test_loading_copies_and_casts() -> None:
    p, q = parameter([1.0], wg.float32), parameter([1.0], wg.float64)
    o = optim.Adam([p])
    p.grad = wg.ones(1)
    o.step()
    r = optim.Adam([q], lr=0.5)
    state = o.state_dict()
    r.load_state_dict(state)
    assert r.param_groups[0]["lr"] == 1e-3
    assert r.param_groups[0]["params"] == [q]
    moments = r.state[q]
    assert (moments["exp_avg"].dtype, moments["step"].dtype) == (wg.float64, wg.float32)
    before = state["state"][0]["exp_avg"].item()
    q.grad = wg.ones(1, dtype=wg.float64)
    r.step()
    assert state["state"][0]["exp_avg"].item() == before
    assert state["param_groups"][0]["params"] == [0]


def test_a_step_count_that_is_a_number_loads() -> None:
    p = parameter([1.0])
    o = optim.Adam([p])
    p.grad = wg.ones(1, dtype=wg.float64)
    o.step()
    state = o.state_dict()
    state["state"][0]["step"] = 1
    o.load_state_dict(state)
    o.step()
    assert o.state[p]["step"].item() == 2.0


@pytest.mark.parametrize("groups", [[[1, 1]], [[1], [1]]], ids=["sizes", "groups"])
def test_a_state_of_another_shape_is_refused(groups: list[list[int]]) -> None:
    other = optim.SGD([{"params": [parameter([1.0]) for _ in group]} for group in groups])
    with pytest.raises(ValueError, match=r"the state has"):
        optim.SGD([parameter([1.0])]).load_state_dict(other.state_dict())


def stepped(make: Any, *shape: int) -> optim.Optimizer:
    """An optimiser of one parameter after a step."""
    p = nn.Parameter(wg.ones(*shape))
    o = make([p])
    p.grad = wg.ones(*shape)
    o.step()
    return o


@pytest.mark.parametrize(
    ("saved", "loading", "shape", "match"),
    [
        (lambda p: optim.SGD(p, momentum=0.9), optim.Adam, (2,), r"no state of Adam, which has 'exp_avg' .*'momentum"),
        (optim.Adam, lambda p: optim.SGD(p, momentum=0.9), (2,), r"no state of SGD.*it has 'step', 'exp_avg', 'exp_avg_sq'"),
        (optim.Adam, optim.Adam, (3,), r"parameter 0 .* 'exp_avg' has shape \(2,\), the parameter \(3,\)"),
        (optim.Adagrad, optim.Adagrad, (1, 2), r"'sum' has shape \(2,\), the parameter \(1, 2\)"),
    ],
)  # fmt: skip
def test_a_state_of_another_optimizer_or_parameter_is_refused(saved: Any, loading: Any, shape: Any, match: str) -> None:
    """Large moments of as many elements would be taken in the wrong order without a word."""
    state, o = stepped(saved, 2).state_dict(), stepped(loading, *shape)
    before = copy.deepcopy(o.state_dict())
    with pytest.raises(ValueError, match=match):
        o.load_state_dict(state)
    assert repr(o.state_dict()) == repr(before)


def test_options_that_a_state_lacks_keep_their_values() -> None:
    """An older version's state lacks options that came later."""
    p = parameter([1.0])
    o = optim.Adam([p], lr=0.5, decoupled_weight_decay=True, weight_decay=0.1)
    state = o.state_dict()
    for option in ("decoupled_weight_decay", "fused", "maximize"):
        del state["param_groups"][0][option]
    state["param_groups"][0]["lr"] = 0.25
    o.load_state_dict(state)
    group = o.param_groups[0]
    assert (group["lr"], group["decoupled_weight_decay"], group["maximize"]) == (0.25, True, False)
    p.grad = wg.ones(1, dtype=wg.float64)
    o.step()
    np.testing.assert_allclose(p.item(), 1 - 0.25 * 0.1 - 0.25, rtol=1e-7)


def test_an_optimizer_can_be_copied() -> None:
    p = parameter([1.0])
    o = optim.SGD([p], momentum=0.9, lr=0.1)
    p.grad = wg.ones(1, dtype=wg.float64)
    o.step()
    c = copy.deepcopy(o)
    (q,) = c.param_groups[0]["params"]
    q.grad = wg.ones(1, dtype=wg.float64)
    c.step()
    np.testing.assert_allclose([p.item(), q.item()], [0.9, 0.71])


def test_repr_lists_the_options() -> None:
    text = repr(optim.SGD([P], lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n")
    assert "    lr: 0.1\n" in text


# ---- hooks and subclasses


def test_step_hooks() -> None:
    p = parameter([1.0])
    o = optim.SGD([p])
    seen: list[str] = []
    pre = o.register_step_pre_hook(lambda opt, args, kwargs: seen.append("pre"))
    o.register_step_post_hook(lambda opt, args, kwargs: seen.append("post"))
    everywhere = [
        optim.register_optimizer_step_pre_hook(lambda *_: seen.append("all pre")),
        optim.register_optimizer_step_post_hook(lambda *_: seen.append("all post")),
    ]
    o.step()
    pre.remove()
    for handle in everywhere:
        handle.remove()
    o.step()
    assert seen == ["all pre", "pre", "post", "all post", "post"]
    o.register_step_pre_hook(lambda opt, args, kwargs: (args, {"closure": lambda: 7}))
    assert o.step() == 7
    o.register_step_pre_hook(lambda *_: 3)
    with pytest.raises(RuntimeError, match="None or"):
        o.step()


def test_state_hooks() -> None:
    o = optim.SGD([P], lr=0.1)
    o.register_state_dict_pre_hook(lambda opt: opt.param_groups[0].update(lr=0.2))
    o.register_state_dict_post_hook(lambda opt, state: {**state, "note": 1})
    state = o.state_dict()
    assert (state["param_groups"][0]["lr"], state["note"]) == (0.2, 1)
    loaded: list[float] = []
    r = optim.SGD([P])
    r.register_load_state_dict_pre_hook(lambda opt, s: {**s, "param_groups": [{**s["param_groups"][0], "lr": 0.7}]})
    r.register_load_state_dict_post_hook(lambda opt: loaded.append(opt.param_groups[0]["lr"]))
    r.load_state_dict(state)
    assert loaded == [0.7]


def test_a_subclass_with_its_own_step_has_hooks_too() -> None:
    class Half(optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            with wg.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.mul_(0.5)

    p, seen = parameter([1.0]), []
    o = Half([p], {})
    o.register_step_post_hook(lambda *_: seen.append(p.item()))
    o.step()
    assert seen == [0.5]
    with pytest.raises(NotImplementedError, match="neither"):
        optim.Optimizer([p], {}).step()


def test_training_reaches_the_minimum() -> None:
    wg.manual_seed(0)
    x = wg.randn(64, 3)
    true = wg.tensor([[1.0], [-2.0], [0.5]])
    m = nn.Linear(3, 1)
    o = optim.Adam(m.parameters(), lr=0.1)
    for _ in range(200):
        o.zero_grad()
        loss = ((m(x) - x @ true - 3.0) ** 2).mean()
        loss.backward()
        o.step()
    np.testing.assert_allclose(m.weight.detach().numpy().ravel(), [1.0, -2.0, 0.5], atol=1e-2)
    np.testing.assert_allclose(m.bias.item(), 3.0, atol=1e-2)
