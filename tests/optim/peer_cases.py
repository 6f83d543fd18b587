"""Runs of every optimiser and schedule, made alike here and in PyTorch, whose results are recorded in ``trajectories.npz``.

``python -m tests.peers.record_optim`` writes the record; ``test_recorded.py`` holds this package to it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = ["NOTED", "OPTIMIZERS", "SCHEDULES", "STEPS", "Case", "Schedule", "rates", "trajectory"]

STEPS = 50
NOTED = [*range(1, 11), *range(15, STEPS + 1, 5)]  # the steps whose parameters are kept

RNG = np.random.default_rng(5)
START = {"a": RNG.uniform(-1, 1, (2, 2)), "b": RNG.uniform(-1, 1, 2)}
TARGET = {"a": RNG.uniform(-1, 1, (2, 2)), "b": RNG.uniform(-1, 1, 2)}
ROWS = [[0, 1], [1, 1], [2, 0], [3]]  # of a table, in turn


class Case(NamedTuple):
    """An optimiser and its options; those of a second group; whether gradients are sparse, whether it takes only
    matrices; whether the loss is convex, for line searches, which elsewhere make much of the last bit.
    """

    name: str
    options: dict[str, Any]
    second: dict[str, Any] | None = None
    sparse: bool = False
    matrix: bool = False
    convex: bool = False

    @property
    def label(self) -> str:
        """What the case is called in the record."""
        words = [f"{k}={v}" for k, v in self.options.items()]
        words += [] if self.second is None else [f"then {self.second}"]
        return f"{self.name}({', '.join(words)}){' sparse' * self.sparse}"


BASE: dict[str, dict[str, Any]] = {
    "ASGD": {"lr": 0.05}, "Adadelta": {"lr": 1.0}, "Adafactor": {"lr": 0.1}, "Adagrad": {"lr": 0.1}, "Adam": {"lr": 0.05},
    "AdamW": {"lr": 0.05}, "Adamax": {"lr": 0.05}, "NAdam": {"lr": 0.05}, "RAdam": {"lr": 0.05}, "RMSprop": {"lr": 0.02},
    "Rprop": {"lr": 0.02}, "SGD": {"lr": 0.05},
}  # fmt: skip
VARIED: dict[str, list[dict[str, Any]]] = {
    "ASGD": [{"t0": 3, "lambd": 0.01, "alpha": 0.5}],
    "Adadelta": [{"rho": 0.5, "eps": 1e-3}],
    "Adafactor": [{"beta2_decay": -0.6, "d": 2.0, "eps": (1e-4, 1e-2)}],
    "Adagrad": [{"lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-3}],
    "Adam": [{"betas": (0.8, 0.9), "eps": 1e-3}, {"amsgrad": True}, {"amsgrad": True, "maximize": True, "weight_decay": 0.1},
             {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "AdamW": [{"weight_decay": 0.3, "amsgrad": True}, {"betas": (0.5, 0.6), "eps": 1e-2}],
    "Adamax": [{"betas": (0.7, 0.8), "eps": 1e-2}],
    "NAdam": [{"momentum_decay": 0.1, "betas": (0.8, 0.9)}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{"betas": (0.8, 0.9), "eps": 1e-3}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RMSprop": [{"momentum": 0.5}, {"centered": True}, {"centered": True, "momentum": 0.9, "alpha": 0.9, "eps": 1e-3}],
    "Rprop": [{"etas": (0.4, 1.5), "step_sizes": (1e-4, 0.1)}],
    "SGD": [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.3},
            {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1, "maximize": True}],
}  # fmt: skip
FUSED = ("Adagrad", "Adam", "AdamW", "SGD")


def _cases() -> Iterator[Case]:
    for name, base in BASE.items():
        yield Case(name, base)
        yield from (Case(name, {**base, **more}) for more in VARIED[name])
        yield Case(name, {**base, "maximize": True, **({} if name == "Rprop" else {"weight_decay": 0.1})})
        yield Case(name, base, {"lr": base["lr"] / 2, **({} if name == "Rprop" else {"weight_decay": 0.2})})
        yield Case(name, {**base, "foreach": True})
        yield Case(name, {**base, "foreach": False})
        if name in FUSED:
            yield Case(name, {**base, "fused": True})
    yield Case("LBFGS", {"lr": 0.1})
    yield Case("LBFGS", {"lr": 0.1, "max_iter": 3, "history_size": 2})
    yield Case("LBFGS", {"lr": 1, "line_search_fn": "strong_wolfe", "max_iter": 3}, convex=True)
    yield Case("LBFGS", {"lr": 0.5, "line_search_fn": "strong_wolfe", "max_iter": 2, "history_size": 3}, convex=True)
    yield Case("Muon", {"lr": 0.05}, matrix=True)
    yield Case("Muon", {"lr": 0.05, "nesterov": False, "momentum": 0.8, "adjust_lr_fn": "match_rms_adamw"}, matrix=True)
    yield Case("SparseAdam", {"lr": 0.05}, sparse=True)
    yield Case("SparseAdam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "maximize": True}, sparse=True)
    yield Case("SGD", {"lr": 0.1, "momentum": 0.9}, sparse=True)
    yield Case("Adagrad", {"lr": 0.1, "lr_decay": 0.1}, sparse=True)


OPTIMIZERS = list(_cases())


def trajectory(lib: Any, case: Case) -> np.ndarray[Any, Any]:
    """Return the parameters after each noted step, in float64; ``lib`` is PyTorch or this package."""
    parameters = {n: lib.tensor(v, dtype=lib.float64, requires_grad=True) for n, v in START.items()}
    table = lib.tensor(np.arange(8.0).reshape(4, 2) / 8, dtype=lib.float64, requires_grad=True)
    optimized = [table] if case.sparse else [parameters["a"]] if case.matrix else list(parameters.values())
    if case.second is None:
        optimizer = getattr(lib.optim, case.name)(optimized, **case.options)
    else:
        groups = [{"params": optimized[:1]}, {"params": optimized[1:], **case.second}]
        optimizer = getattr(lib.optim, case.name)(groups, **case.options)
    noted = []
    for step in range(1, STEPS + 1):

        def closure(step: int = step) -> Any:
            optimizer.zero_grad()
            loss = _table_loss(lib, table, step) if case.sparse else _loss(lib, parameters, step, case.convex)
            loss.backward()
            return loss

        optimizer.step(closure)
        if step in NOTED:
            noted.append(np.concatenate([p.detach().numpy().ravel() for p in optimized]))
    return np.array(noted)


def _loss(lib: Any, parameters: dict[str, Any], step: int, convex: bool) -> Any:
    """A loss that changes from step to step; in every seventh step the second parameter has no gradient."""
    total = 0.0
    for name, target in TARGET.items():
        if name == "b" and step % 7 == 0:
            continue
        away = parameters[name] - lib.tensor(target, dtype=lib.float64)
        wave = (away**4 + 0.3 * (step % 5) * away) if convex else (3 * away + 0.1 * step).sin()
        total = total + (away**2).sum() + wave.sum()
    return total


def _table_loss(lib: Any, table: Any, step: int) -> Any:
    rows = lib.nn.functional.embedding(lib.tensor(ROWS[step % len(ROWS)]), table, sparse=True)
    return ((rows - 0.3) ** 2).sum() + (2 * rows + 0.1 * step).sin().sum()


# ---- schedules -------------------------------------------------------------------------


class Schedule(NamedTuple):
    """A schedule by name and options; or, for those made of others, how it is made."""

    name: str
    options: dict[str, Any] = {}  # noqa: RUF012 - never written
    variant: str = ""
    optimizer: str = "SGD"

    @property
    def label(self) -> str:
        """What the case is called in the record."""
        words = [self.variant, *(f"{k}={v}" for k, v in self.options.items() if not callable(v))]
        return f"{self.name}({', '.join(filter(None, words))}) of {self.optimizer}"


def _sequence(lib: Any, optimizer: Any) -> Any:
    from_, to = lib.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5), lib.optim.lr_scheduler
    rest = [to.ExponentialLR(optimizer, 0.9), to.CosineAnnealingLR(optimizer, 12)]
    return to.SequentialLR(optimizer, [from_, *rest], [5, 20])


def _chain(lib: Any, optimizer: Any) -> Any:
    of = lib.optim.lr_scheduler
    return of.ChainedScheduler(
        [of.ConstantLR(optimizer, 0.5, 7), of.ExponentialLR(optimizer, 0.95), of.StepLR(optimizer, 9)]
    )


COMPOSED = {"SequentialLR": _sequence, "ChainedScheduler": _chain}
PLATEAU = [1.0, 0.9, 0.9, 0.91, 0.9, 0.9, 0.5, 0.5, 0.49999, 0.5] + [0.5 + 0.01 * (i % 3) for i in range(STEPS)]
SCHEDULES = [
    Schedule("ConstantLR", {"factor": 0.3, "total_iters": 7}),
    Schedule("CosineAnnealingLR", {"T_max": 20, "eta_min": 0.01}),
    Schedule("CosineAnnealingWarmRestarts", {"T_0": 5}),
    Schedule("CosineAnnealingWarmRestarts", {"T_0": 4, "T_mult": 2, "eta_min": 0.02}),
    *(Schedule("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 6, "step_size_down": 9, "mode": mode,
                            "gamma": 0.95}) for mode in ("triangular", "triangular2", "exp_range")),
    Schedule("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 4, "scale_fn": lambda x: 0.9**x,
                          "scale_mode": "iterations"}, "own scale"),
    Schedule("CyclicLR", {"base_lr": 0.01, "max_lr": 0.2, "step_size_up": 6}, optimizer="Adam"),
    Schedule("ExponentialLR", {"gamma": 0.93}),
    Schedule("LambdaLR", {"lr_lambda": lambda epoch: 1 / (1 + epoch)}),
    Schedule("LinearLR", {"start_factor": 0.2, "end_factor": 0.8, "total_iters": 11}),
    Schedule("MultiStepLR", {"milestones": [3, 8, 8, 30], "gamma": 0.5}),
    Schedule("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.9 + 0.01 * (epoch % 3)}),
    Schedule("OneCycleLR", {"max_lr": 0.3, "total_steps": STEPS + 1}),
    Schedule("OneCycleLR", {"max_lr": [0.3, 0.1], "epochs": 3, "steps_per_epoch": 20, "three_phase": True,
                            "anneal_strategy": "linear", "pct_start": 0.2}),
    Schedule("OneCycleLR", {"max_lr": 0.3, "total_steps": STEPS + 1, "div_factor": 10, "final_div_factor": 100},
             optimizer="Adam"),
    Schedule("PolynomialLR", {"total_iters": 30, "power": 1.7}),
    Schedule("ReduceLROnPlateau", {"patience": 2, "factor": 0.5}),
    Schedule("ReduceLROnPlateau", {"mode": "max", "patience": 1, "cooldown": 2, "threshold_mode": "abs", "min_lr": 0.001}),
    Schedule("StepLR", {"step_size": 6, "gamma": 0.7}),
    Schedule("SequentialLR", {}, "linear, exponential, cosine"),
    Schedule("ChainedScheduler", {}, "constant, exponential, step"),
    Schedule("SWALR", {"swa_lr": 0.02, "anneal_epochs": 8}),
    Schedule("SWALR", {"swa_lr": 0.02, "anneal_epochs": 5, "anneal_strategy": "linear"}),
]  # fmt: skip


def rates(lib: Any, case: Schedule) -> np.ndarray[Any, Any]:
    """Return learning rate and momentum of both groups at the beginning and after each step."""
    first, second = (lib.tensor([1.0], requires_grad=True) for _ in range(2))
    groups = [{"params": [first]}, {"params": [second], "lr": 0.05}]
    options = {"momentum": 0.9} if case.optimizer == "SGD" else {}
    optimizer = getattr(lib.optim, case.optimizer)(groups, lr=0.1, **options)
    if case.name in COMPOSED:
        schedule = COMPOSED[case.name](lib, optimizer)
    elif case.name == "SWALR":
        schedule = lib.optim.swa_utils.SWALR(optimizer, **case.options)
    else:
        schedule = getattr(lib.optim.lr_scheduler, case.name)(optimizer, **case.options)
    found = [_numbers(optimizer)]
    for step in range(STEPS):
        optimizer.step()
        schedule.step(PLATEAU[step]) if case.name == "ReduceLROnPlateau" else schedule.step()
        found.append(_numbers(optimizer))
    return np.array(found)


def _numbers(optimizer: Any) -> list[float]:
    groups = optimizer.param_groups
    return [float(g["lr"]) for g in groups] + [
        float(g["momentum"] if "momentum" in g else g["betas"][0]) for g in groups
    ]
