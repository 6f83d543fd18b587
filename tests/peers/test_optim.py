"""Trajectories of optimisers and schedules beside PyTorch's."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg
import wengert.optim

STEPS = 20
RNG = np.random.default_rng(0)
DATA = {name: RNG.uniform(-1, 1, shape) for name, shape in {"a": (3, 2), "b": (4,), "c": (), "x": (2, 4)}.items()}

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adam", {"lr": 0.01, "maximize": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True}),
    ("RMSprop", {"lr": 0.02}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.9, "momentum": 0.5, "centered": True, "weight_decay": 0.05}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.05, "initial_accumulator_value": 0.2}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"lr": 0.05}),
    ("ASGD", {"lr": 0.05, "t0": 3, "lambd": 0.01, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.02}),
    ("Adafactor", {"lr": 0.1}),
    (
        "Adafactor",
        {"lr": 0.05, "beta2_decay": -0.6, "d": 2.0, "eps": (1e-4, 1e-2), "weight_decay": 0.1, "maximize": True},
    ),
]


def label(case: tuple[str, dict[str, Any]]) -> str:
    return ",".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


def problem(lib: Any, dtype: str) -> tuple[list[Any], Any]:
    """Parameters, and a loss whose gradient changes a lot from step to step."""
    a, b, c = (lib.tensor(DATA[n], dtype=getattr(lib, dtype), requires_grad=True) for n in "abc")
    x = lib.tensor(DATA["x"], dtype=getattr(lib, dtype))

    def loss(k: int) -> Any:
        z = (a.matmul(x) + b * c).tanh()
        return (z**2).sum() * 3 + (a * math.sin(k)).sum() + (b**4).sum() + c * c

    return [a, b, c], loss


def trajectory(lib: Any, name: str, options: dict[str, Any], dtype: str) -> tuple[list[Any], dict[str, Any]]:
    params, loss = problem(lib, dtype)
    make = getattr(lib.optim, name)
    o = make(params, **options)
    seen = []
    for k in range(STEPS):
        o.zero_grad()
        loss(k).backward()
        if k == 4:
            params[1].grad = None
        o.step()
        if k == STEPS // 2:  # go on with a new optimiser from the saved state
            state = copy.deepcopy(o.state_dict())
            o = make(params, **options)
            o.load_state_dict(state)
        seen += [p.detach().numpy().copy() for p in params]
    return seen, o.state_dict()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", OPTIMIZERS, ids=label)
def test_trajectories(case: tuple[str, dict[str, Any]], dtype: str) -> None:
    got, state = trajectory(wg, *case, dtype)
    want, peer = trajectory(torch, *case, dtype)
    tolerance = 1e-6 if dtype == "float64" else 2e-5
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance, err_msg=f"step {k // 3}")
    assert state["param_groups"] == peer["param_groups"]
    assert {i: list(s) for i, s in state["state"].items()} == {i: list(s) for i, s in peer["state"].items()}
    for i, moments in state["state"].items():
        for name, value in moments.items():
            other = peer["state"][i][name]
            if name not in ("eta", "mu", "mu_product"):  # a state that is loaded there takes the parameter's dtype
                assert str(value.dtype).removeprefix("wengert") == str(other.dtype).removeprefix("torch"), name
            np.testing.assert_allclose(value.numpy(), other.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": False, "weight_decay": 0.0, "adjust_lr_fn": "original"},
        {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
    ],
    ids=str,
)
def test_muon_orthogonalises_alike(options: dict[str, Any]) -> None:
    """To the precision of bfloat16, in which the iteration is done, which amplifies it."""
    found = []
    for lib in (wg, torch):
        params = [lib.nn.Parameter(lib.tensor(DATA[n], dtype=lib.float32)) for n in ("a", "x")]
        o = lib.optim.Muon(params, lr=0.02, **options)
        for k in range(5):
            o.zero_grad()
            (((params[0] @ params[1]) ** 2).sum() + (params[1] * math.sin(k)).sum()).backward()
            o.step()
        found.append([p.detach().numpy() for p in params])
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, atol=5e-3)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("options", [{"lr": 0.1}, {"lr": 1, "history_size": 2, "max_iter": 7}], ids=str)
def test_lbfgs_takes_the_same_steps(search: str | None, options: dict[str, Any]) -> None:
    found = []
    for lib in (wg, torch):
        params, loss = problem(lib, "float64")
        o = lib.optim.LBFGS(params, line_search_fn=search, **options)

        def closure(o: Any = o, loss: Any = loss) -> Any:
            o.zero_grad()
            value = loss(1) + loss(2) * 0.1
            value.backward()
            return value

        losses = [o.step(closure).item() for _ in range(4)]
        state = o.state_dict()["state"][0]
        found.append((losses, state["func_evals"], state["n_iter"], [p.detach().numpy() for p in params]))
    (losses, *counts, params), (their_losses, *their_counts, their_params) = found
    np.testing.assert_allclose(losses, their_losses, rtol=1e-6)
    assert counts == their_counts
    for got, want in zip(params, their_params, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_state_of_pytorch_goes_on_here(name: str) -> None:
    """Parameters and optimiser state move over in the middle of a run."""
    options = {"lr": 0.05, **({"momentum": 0.9} if name == "SGD" else {})}
    want = trajectory(torch, name, options, "float64")[0][-3:]
    theirs, their_loss = problem(torch, "float64")
    ours, our_loss = problem(wg, "float64")
    peer, mine = getattr(torch.optim, name)(theirs, **options), getattr(wg.optim, name)(ours, **options)

    def run(params: list[Any], loss: Any, o: Any, steps: range) -> None:
        for k in steps:
            o.zero_grad()
            loss(k).backward()
            if k == 4:
                params[1].grad = None
            o.step()

    run(theirs, their_loss, peer, range(7))
    with wg.no_grad():
        for p, q in zip(ours, theirs, strict=True):
            p.copy_(wg.from_numpy(q.detach().numpy()))
    state = peer.state_dict()
    state["state"] = {i: {k: wg.from_numpy(v.numpy()) for k, v in s.items()} for i, s in state["state"].items()}
    mine.load_state_dict(state)
    run(ours, our_loss, mine, range(7, STEPS))
    for p, w in zip(ours, want, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_repr_and_groups(name: str) -> None:
    texts = []
    for lib in (wg, torch):
        p, q = (lib.nn.Parameter(lib.ones(1)) for _ in range(2))
        texts.append(repr(getattr(lib.optim, name)([{"params": [p], "lr": 0.5}, {"params": [q]}], lr=0.1)))
    assert texts[0] == texts[1]


METRICS = [5, 4, 4, 4, 4, 3.9995, 4, 4, 2, 2, 2, 2, 2, 2, 1, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 0.5, *[9] * 7]

SCHEDULES = {
    "StepLR": lambda s, o: s.StepLR(o, 7, gamma=0.3),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [0, 3, 3, 11], gamma=0.3),
    "ConstantLR": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=4),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.2, 0.9, total_iters=6),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, total_iters=12, power=2.0),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, T_max=10, eta_min=0.01),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=0.01),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda k: 0.9**k, lambda k: 1 / (k + 1)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda k: 0.95 + 0.01 * (k % 3)),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(o, 0.1, 1.0, step_size_up=4, mode="triangular2"),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, step_size_down=3, mode="exp_range", gamma=0.97),
    "CyclicLR function": lambda s, o: s.CyclicLR(
        o, [0.1, 0.2], [1.0, 2.0], 4, scale_fn=lambda x: 1 / x, cycle_momentum=False
    ),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, max_lr=1.0, total_steps=31),
    "OneCycleLR three phases": lambda s, o: s.OneCycleLR(
        o, max_lr=[1.0, 2.0], epochs=4, steps_per_epoch=8, anneal_strategy="linear", three_phase=True, pct_start=0.3
    ),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o,
        [s.ConstantLR(o, 0.1), s.CosineAnnealingLR(o, 6), s.MultiStepLR(o, [0, 3]), s.PolynomialLR(o, 4),
         s.LambdaLR(o, lambda k: 0.5 ** (k + 1)), s.CosineAnnealingWarmRestarts(o, 3), s.StepLR(o, 2),
         s.LinearLR(o, 0.3)],
        [3, 9, 14, 17, 20, 24, 27],
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.CosineAnnealingLR(o, 5), s.StepLR(o, 4), s.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, cooldown=1, factor=0.5, min_lr=0.02),
    "ReduceLROnPlateau max": lambda s, o: s.ReduceLROnPlateau(
        o, mode="max", patience=1, threshold=0.5, threshold_mode="abs"
    ),
}  # fmt: skip


def rates(lib: Any, name: str) -> list[Any]:
    def make() -> tuple[Any, Any]:
        p, q = (lib.nn.Parameter(lib.ones(1)) for _ in range(2))
        o = lib.optim.SGD([{"params": [p], "lr": 0.5}, {"params": [q], "lr": 0.1}], lr=0.5, momentum=0.9)
        return o, SCHEDULES[name](lib.optim.lr_scheduler, o)

    o, s = make()
    seen = []
    for k in range(30):
        seen.append([*(g["lr"] for g in o.param_groups), *(g["momentum"] for g in o.param_groups), *s.get_last_lr()])
        o.step()
        if k == 12:
            saved = copy.deepcopy((o.state_dict(), s.state_dict()))
            o, s = make()
            o.load_state_dict(saved[0])
            s.load_state_dict(saved[1])
            o.step()
        s.step(*([METRICS[k]] if name.startswith("ReduceLROnPlateau") else []))
    return seen


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_equal_to_the_bit(name: str) -> None:
    assert rates(wg, name) == rates(torch, name)
