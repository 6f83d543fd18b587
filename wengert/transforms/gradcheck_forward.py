"""Gradient checks of forward mode, and of both modes under vmap."""

from copy import copy
from typing import Any

import numpy as np

from wengert.core.interpret import entered
from wengert.core.tensor import from_array
from wengert.transforms.batched_grad import grad
from wengert.transforms.diagnosis import Evidence, Tolerance, diagnose
from wengert.transforms.differences import (
    Array,
    Blocks,
    Probe,
    array_of,
    as_tuple,
    by_columns,
    like,
    numerical_jacobian,
    real_components,
)  # fmt: skip
from wengert.transforms.dual import DualLevel, unwrapped
from wengert.transforms.gradcheck_report import GradcheckError, GradcheckReport, Verdict
from wengert.transforms.vmap import vmap

__all__ = ["check_batched_backward", "check_batched_forward", "check_forward"]


def pushforward(probe: Probe, tangents: dict[int, Any]) -> list[Any]:
    """Return the tangent of each output (None: zero) from those of some inputs, by place."""
    level = DualLevel()
    with entered(level):
        args = list(probe.inputs)
        for place in probe.wrt:
            args[place] = level.wrap(args[place].detach(), tangents.get(place)).requires_grad_()
        everything = as_tuple(probe.func(*args))
        return [unwrapped(level, everything[k])[1] for k in probe.kept]


def _unit(probe: Probe, place: int, index: Any, unit: complex) -> Array:
    tangent = np.zeros_like(probe.memory[place])
    tangent[index] = unit if np.iscomplexobj(tangent) else unit.real
    return tangent


def forward_jacobian(probe: Probe) -> Blocks:
    """Return every Jacobian column by column in forward mode, as :func:`numerical_jacobian` gives them."""

    def column(place: int, index: Any, unit: complex) -> list[Array]:
        found = pushforward(probe, {place: from_array(_unit(probe, place, index, unit))})
        return [np.zeros(real_components(array_of(out)).size) if t is None else real_components(array_of(t))
                for out, t in zip(probe.outputs, found, strict=True)]  # fmt: skip

    return by_columns(probe, column)


def check_forward(probe: Probe, tol: Tolerance, mode: str) -> None:
    """Compare every entry of every Jacobian of forward mode with difference quotients."""
    forward = copy(probe)
    forward.mode = mode
    evidence = Evidence(numerical_jacobian(forward, tol.eps), forward_jacobian(forward), tol)
    if not evidence.agree():
        raise GradcheckError(diagnose(forward, evidence))


def _failed(probe: Probe, what: str, cause: Exception | None = None) -> GradcheckError:
    error = GradcheckError(GradcheckReport(Verdict.BATCHED, what, mode=f"{probe.mode} under vmap"))
    error.__cause__ = cause
    return error


def _compared(probe: Probe, batched: Any, one_by_one: list[Any], tol: Tolerance, what: str) -> None:
    for together, *apart in zip(batched, *one_by_one, strict=True):
        alone = np.stack([array_of(t) for t in apart])
        if not np.allclose(array_of(together), alone, rtol=1e-8, atol=max(1e-10, tol.nondet), equal_nan=True):
            raise _failed(probe, f"{what} of several at once differs from one at a time")


def check_batched_backward(probe: Probe, tol: Tolerance) -> None:
    """Check that the backward run under vmap gives what it gives for one incoming gradient after the other."""
    rng = np.random.default_rng(7)
    for k, out in enumerate(probe.outputs):
        seeds = [like(out, rng.uniform(-1, 1, real_components(array_of(out)).size)) for _ in range(2)]
        stacked = from_array(np.stack([array_of(s) for s in seeds]))
        wanted = [probe.inputs[i] for i in probe.wrt]
        options: Any = {"retain_graph": True, "materialize_grads": True}
        try:
            batched = grad(out, wanted, stacked, is_grads_batched=True, **options)
        except Exception as error:
            raise _failed(
                probe, f"the backward of output {probe.kept[k]} cannot run under vmap: {error}", error
            ) from error
        _compared(probe, batched, [grad(out, wanted, s, **options) for s in seeds], tol, "the backward")


def check_batched_forward(probe: Probe, tol: Tolerance) -> None:
    """Check that forward mode under vmap gives what it gives for one tangent after the other."""
    rng = np.random.default_rng(8)
    for place in probe.wrt:
        memory = probe.memory[place]
        tangents = [like(probe.inputs[place], rng.uniform(-1, 1, real_components(memory).size)) for _ in range(2)]
        stacked = from_array(np.stack([array_of(t) for t in tangents]))

        def push(tangent: Any, place: int = place) -> tuple[Any, ...]:
            found = pushforward(probe, {place: tangent})
            return tuple(from_array(np.zeros_like(array_of(out))) if t is None else t
                         for out, t in zip(probe.outputs, found, strict=True))  # fmt: skip

        try:
            batched = vmap(push)(stacked)
        except Exception as error:
            text = f"forward mode of {probe.input_name(place)} cannot run under vmap: {error}"
            raise _failed(probe, text, error) from error
        _compared(probe, batched, [push(t) for t in tangents], tol, "forward mode")
