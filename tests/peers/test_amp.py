"""Mixed precision beside PyTorch: dtypes of operators, sequences of the scaler, averages of models.

PyTorch has a list of its own for the CPU, and one for devices in general, which is the one here. Tensors that are
nothing but a shape and a dtype on a device of that kind show what it does without one.
"""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import wengert as wg
from tests.peers.compare import _leaves, torch_function
from wengert.amp.lists import RULES
from wengert.array.dtype import DType
from wengert.core.registry import operators
from wengert.core.tensor import Tensor, from_array
from wengert.testing.samples import ErrorSample, samples_of

FAKE = FakeTensorMode()
OTHERS = [
    "abs",
    "add",
    "avg_pool2d",
    "cat",
    "clone",
    "cov",
    "dropout",
    "embedding",
    "gelu",
    "inner",
    "linalg_matrix_power",
    "linalg_norm",
    "linear_cross_entropy",
    "logsigmoid",
    "max_pool2d",
    "maximum",
    "mean",
    "mul",
    "relu",
    "sigmoid",
    "silu",
    "sin",
    "sqrt",
    "stack",
    "std",
    "true_divide",
    "var",
    "where",
]

DIFFERENT = {
    "linalg_solve_triangular", "native_batch_norm",  # which PyTorch's shape rules let pass, and whose statistics are float32
    "ldexp",  # float32 in a program, and lower in PyTorch
}  # fmt: skip
ASKED = {  # samples that PyTorch makes of operators without a rule
    ("interpolate", "mode='area'"), ("l1_loss", "weight="), ("pow", "boolean"),
}  # fmt: skip


def fake(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty(tuple(value.shape), dtype=getattr(torch, value.dtype.name), device="cuda")
    if isinstance(value, list | tuple):
        return type(value)(fake(v) for v in value)
    return getattr(torch, value.name) if isinstance(value, DType) else value


def theirs(function: Any, args: Any, kwargs: Any, dtype: str) -> list[str] | None:
    """Return the dtypes of PyTorch's results; None if it cannot run."""
    with FAKE:
        given = fake(args), {k: fake(v) for k, v in kwargs.items()}
        torch.set_autocast_dtype("cuda", getattr(torch, dtype))
        torch.set_autocast_enabled("cuda", True)
        try:
            return [str(t.dtype).removeprefix("torch.") for t in _leaves(function(*given[0], **given[1]), torch.Tensor)]
        except Exception:
            return None
        finally:
            torch.set_autocast_enabled("cuda", False)


def given_in(sample: Any, mode: str, lower: Any) -> tuple[Any, Any, int]:
    """Return the arguments of a sample: all float32, all in lower precision, or in turn; and how many hold floats."""
    count = 0

    def convert(array: Any) -> Any:
        nonlocal count
        if array.dtype.kind != "f":
            return from_array(array)
        count += 1
        return from_array(array).to(wg.float32 if mode == "single" or (mode == "mixed" and count % 2) else lower)

    return *sample.arguments(convert), count


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_dtypes_of_results(dtype: str) -> None:
    lower, wrong, compared = getattr(wg, dtype), [], set()
    names = [n for n in (*RULES, *OTHERS) if n not in DIFFERENT and "::" not in n]
    for name in names if dtype == "bfloat16" else names[::4]:
        op = operators()[name]
        function = torch_function(op)
        samples = [s for s in samples_of(op) if not isinstance(s, ErrorSample)] if function is not None else []
        for sample in (*samples[:1], *samples[-1:]):
            if any(name == n and part in repr(sample) for n, part in ASKED):
                continue
            for mode in ("single", "lower", "mixed"):
                args, kwargs, count = given_in(sample, mode, lower)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    want = None if mode == "mixed" and count < 2 else theirs(function, args, kwargs, dtype)
                if want is None:
                    continue
                with wg.autocast("cpu", dtype=lower):
                    got = [t.dtype.name for t in _leaves(op.function(*args, **kwargs), Tensor)]
                compared.add(name)
                if got != want:
                    wrong.append(f"{name}{sample!r} {mode}: {got}, PyTorch {want}")
    assert not wrong, "\n".join(wrong)
    assert len(compared) > (130 if dtype == "bfloat16" else 30)


def test_binary_cross_entropy_is_refused_by_both() -> None:
    with FAKE:
        torch.set_autocast_enabled("cuda", True)
        try:
            p = torch.empty(3, device="cuda")
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                torch.nn.functional.binary_cross_entropy(p, p)
        finally:
            torch.set_autocast_enabled("cuda", False)
    with wg.autocast("cpu", dtype=wg.float16), pytest.raises(RuntimeError, match="unsafe to autocast"):
        wg.nn.functional.binary_cross_entropy(wg.full((3,), 0.5), wg.ones(3))


# ---- the scaler


def scaled_run(lib: Any, gradients: list[float], options: Any, clip: bool) -> list[Any]:
    """Scale, count, parameter and gradient after each step."""
    p = lib.nn.Parameter(lib.tensor([1.0, -2.0]))
    optimizer = lib.optim.SGD([p], lr=0.1, momentum=0.9)
    scaler = lib.amp.GradScaler(device="cpu", **options)
    seen = []
    for k, g in enumerate(gradients):
        optimizer.zero_grad()
        scaler.scale((p * p * lib.tensor([g, 1.0])).sum()).backward()
        if clip:
            scaler.unscale_(optimizer)
            lib.nn.utils.clip_grad_norm_([p], 0.5)
        scaler.step(optimizer)
        scaler.update(64.0 if k == 4 else None)
        if k == 6:
            state, scaler = scaler.state_dict(), lib.amp.GradScaler(device="cpu")
            scaler.load_state_dict(state)
        state = scaler.state_dict()
        seen.append((list(state.values()), p.detach().numpy().copy(), p.grad.numpy().copy()))
    return seen


INF = float("inf")
GRADIENTS = [1.0, INF, 2.0, 3.0, 1.0, float("nan"), 0.5, 1.0, -INF, 2.0, 1.0, 1.0]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("options", [
    {}, {"init_scale": 3.0, "growth_interval": 2}, {"init_scale": 2.0**127, "growth_interval": 1},
    {"init_scale": 7.0, "growth_factor": 1.5, "backoff_factor": 0.3, "growth_interval": 3},
], ids=str)  # fmt: skip
def test_scaler_sequences(options: Any, clip: bool) -> None:
    for k, (got, want) in enumerate(
        zip(*(scaled_run(lib, GRADIENTS, options, clip) for lib in (wg, torch)), strict=True)
    ):
        assert got[0] == want[0], f"state after step {k}"
        for one, other in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=f"step {k}")


@pytest.mark.parametrize("calls", [
    "unscale_ unscale_", "step unscale_", "step step", "unscale_ step step", "update", "step update step update",
    "unscale_ update unscale_ step", "unscale_ update update",
])  # fmt: skip
def test_the_scaler_refuses_what_pytorchs_does(calls: str) -> None:
    def outcome(lib: Any) -> list[str]:
        p = lib.nn.Parameter(lib.tensor([1.0]))
        optimizer, scaler = lib.optim.SGD([p], lr=0.1), lib.amp.GradScaler(device="cpu")
        scaler.scale(p.sum()).backward()
        said = []
        for name in calls.split():
            try:
                getattr(scaler, name)(*(() if name == "update" else (optimizer,)))
                said.append("done")
            except (RuntimeError, AssertionError) as error:
                said.append(str(error)[:30])
        return said

    assert outcome(wg) == outcome(torch)


# ---- averages


def averaged_run(lib: Any, options: Any) -> list[Any]:
    swa = lib.optim.swa_utils
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 1))
    rng = np.random.default_rng(0)
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(rng.standard_normal(tuple(p.shape)), dtype=lib.float32))
    made = {k: getattr(swa, v[0])(*v[1:]) if isinstance(v, tuple) else v for k, v in options.items()}
    average = swa.AveragedModel(model, **made)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.05)
    schedule = swa.SWALR(optimizer, swa_lr=0.01, anneal_epochs=4)
    batches = [lib.tensor(rng.standard_normal((5, 3)), dtype=lib.float32) for _ in range(8)]
    seen = []
    for x in batches:
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
        seen += [t.detach().numpy().copy() for t in average.state_dict().values()]
        seen.append(np.asarray(optimizer.param_groups[0]["lr"]))
    swa.update_bn(batches, average)
    return [*seen, *[b.numpy() for b in average.buffers()]]


@pytest.mark.parametrize("options", [
    {}, {"use_buffers": True}, {"avg_fn": ("get_swa_avg_fn",)}, {"multi_avg_fn": ("get_swa_multi_avg_fn",)},
    {"avg_fn": ("get_ema_avg_fn", 0.9)}, {"multi_avg_fn": ("get_ema_multi_avg_fn", 0.9)},
    {"multi_avg_fn": ("get_ema_multi_avg_fn", 0.9), "use_buffers": True},
], ids=str)  # fmt: skip
def test_averaged_models(options: Any) -> None:
    for got, want in zip(*(averaged_run(lib, options) for lib in (wg, torch)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
