"""Gradients of a function checked against central differences: ``gradcheck`` and ``gradgradcheck``."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from wengert.core.tensor import Tensor, from_array
from wengert.tape.api import grad
from wengert.transforms.diagnosis import Evidence, Place, Tolerance, diagnose, ignoring, located
from wengert.transforms.differences import (
    Array,
    Probe,
    analytical_jacobian,
    array_of,
    as_tuple,
    is_inexact,
    numerical_jacobian,
    real_components,
    widened,
)
from wengert.transforms.gradcheck_forward import check_batched_backward, check_batched_forward, check_forward
from wengert.transforms.gradcheck_report import GradcheckError, GradcheckReport, Verdict

__all__ = ["GradcheckError", "GradcheckReport", "Verdict", "gradcheck", "gradgradcheck"]

SEED = 1964_0806  # of the random projections; unlike the seeds that inputs are usually made with


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
    double: bool = False,
) -> bool:
    """Compare the gradients of ``func`` with central differences at ``inputs``.

    Every floating-point or complex input that requires grad is checked against every output that requires grad. An
    analytical value ``a`` agrees with a numerical value ``n`` if ``|a - n| <= atol + rtol * |n|``. A complex output
    counts as two real functions, its real and its imaginary part; the gradient with respect to ``z = x + iy`` is
    ``dL/dx + i dL/dy``.

    Args:
        func: takes ``inputs``, returns a tensor or a tuple of tensors.
        inputs: a tensor, or a tuple of tensors and other values; what is not a tensor is passed through.
        eps: the step of the differences. The defaults are meant for float64; others are warned about.
        atol, rtol: absolute and relative tolerance.
        raise_exception: raise :class:`GradcheckError` on failure; if False, return False instead.
        nondet_tol: largest accepted difference between two backward runs on the same values.
        check_undefined_grad: also check that an output left out of the backward run counts as one with zero gradient.
        check_grad_dtypes: also check that every gradient has the dtype of its input.
        check_batched_grad: also check the backward run under vmap.
        check_batched_forward_grad: also check forward mode under vmap.
        check_forward_ad: also check forward-mode derivatives.
        check_backward_ad: check reverse-mode derivatives.
        fast_mode: compare one random projection of each Jacobian (a few runs) and build the Jacobians (a run for each
            element) only if it disagrees; the Jacobians decide. Small errors in large Jacobians can go unnoticed.
        masked: for sparse inputs, which are not accepted here; pass their values and build the tensor in ``func``.
        double: check at float64 or complex128 copies of the inputs.

    Returns:
        True if everything agrees.

    Raises:
        GradcheckError: if something does not; its ``report`` names the input, the output, the element, both values,
            the difference quotients for many steps, and the likely cause.
        ValueError: if no input requires grad, two inputs share memory, or the flags contradict each other.
        TypeError: if ``func`` returns no tensor.

    Example:
        >>> import wengert as wg
        >>> x = wg.randn(3, dtype=wg.float64, requires_grad=True)
        >>> gradcheck(lambda x: x.sin() * x, (x,))
        True
    """
    refuse_contradictions(
        (check_forward_ad or check_backward_ad, "check_forward_ad or check_backward_ad must be True"),
        (check_backward_ad or not check_batched_grad, "check_batched_grad=True needs check_backward_ad=True"),
        (
            check_forward_ad or not check_batched_forward_grad,
            "check_batched_forward_grad=True needs check_forward_ad=True",
        ),
    )
    values = tuple(map(doubled, as_tuple(inputs))) if double else as_tuple(inputs)
    warn_low_precision(values)
    tol = Tolerance(eps, atol, rtol, nondet_tol)
    checks = Checks(
        backward=check_backward_ad, undefined=check_undefined_grad, dtypes=check_grad_dtypes, fast=fast_mode,
        batched=check_batched_grad, forward="forward mode" if check_forward_ad else "",
        batched_forward=check_batched_forward_grad,
    )  # fmt: skip
    return verified(Probe(func, values), tol, checks, raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
    double: bool = False,
) -> bool:
    """Compare the second derivatives of ``func`` with central differences of its gradients.

    The function checked is ``inputs, grad_outputs -> gradients of the inputs``; what is returned, raised and reported
    is as in :func:`gradcheck`, whose arguments these are, and

    Args:
        grad_outputs: the incoming gradients, one for each output that requires grad; None for random ones.
        gen_non_contig_grad_outputs: make the random ones non-contiguous.
        check_fwd_over_rev: check forward mode over reverse mode.
        check_rev_over_rev: check reverse mode over reverse mode.

    Example:
        >>> import wengert as wg
        >>> x = wg.randn(3, dtype=wg.float64, requires_grad=True)
        >>> gradgradcheck(lambda x: x.sin() * x, (x,))
        True
    """
    refuse_contradictions(
        (check_fwd_over_rev or check_rev_over_rev, "check_fwd_over_rev or check_rev_over_rev must be True"),
        (check_rev_over_rev or not check_undefined_grad, "check_undefined_grad=True needs check_rev_over_rev=True"),
        (check_rev_over_rev or not check_batched_grad, "check_batched_grad=True needs check_rev_over_rev=True"),
    )
    values = tuple(map(doubled, as_tuple(inputs))) if double else as_tuple(inputs)
    seeds = random_seeds(func, values, gen_non_contig_grad_outputs) if grad_outputs is None else as_tuple(grad_outputs)
    warn_low_precision(values + seeds)
    tol = Tolerance(eps, atol, rtol, nondet_tol)
    probe = gradient_probe(func, values, seeds)
    checks = Checks(
        backward=check_rev_over_rev, undefined=check_undefined_grad, dtypes=check_grad_dtypes, fast=fast_mode,
        batched=check_batched_grad, forward="forward over reverse mode" if check_fwd_over_rev else "",
    )  # fmt: skip
    return verified(probe, tol, checks, raise_exception)


# ---- what is checked


def gradient_probe(func: Callable[..., Any], values: tuple[Any, ...], seeds: tuple[Any, ...]) -> Probe:
    """Return the probe of ``values, seeds -> gradients of func``."""
    count = len(values)
    wanted = [i for i, x in enumerate(values) if is_inexact(x) and x.requires_grad]
    reached: list[int] = []

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        outputs = differentiable(func(*args[:count]))
        found = grad(outputs, [args[i] for i in wanted], args[count:], create_graph=True, allow_unused=True)
        reached[:] = [i for i, g in zip(wanted, found, strict=True) if g is not None]
        if not reached:
            raise ValueError("gradgradcheck found no output that depends on an input that requires grad")
        return tuple(g for g in found if g is not None)

    def input_name(i: int) -> str:
        return f"input {i}" if i < count else f"grad_output {i - count}"

    return Probe(
        gradients, values + seeds, input_name, lambda k: f"gradient of input {reached[k]}", "reverse over reverse mode"
    )


def differentiable(outputs: Any) -> tuple[Tensor, ...]:
    """Return the outputs that require grad."""
    found = tuple(out for out in as_tuple(outputs) if is_inexact(out) and out.requires_grad)
    if not found:
        raise ValueError("gradgradcheck needs a function with an output that requires grad, but this one has none")
    return found


def random_seeds(func: Callable[..., Any], values: tuple[Any, ...], apart: bool) -> tuple[Tensor, ...]:
    """Return random incoming gradients for ``func``, non-contiguous if ``apart``."""
    rng = np.random.default_rng(SEED)
    seeds = []
    for out in differentiable(func(*values)):
        memory = array_of(out)
        room = np.zeros((*memory.shape, 2), memory.dtype)
        inside = room[..., 0] if apart else np.zeros(memory.shape, memory.dtype)
        parts = rng.uniform(-1, 1, (2, *memory.shape))
        inside[...] = parts[0] + 1j * parts[1] if np.iscomplexobj(memory) else parts[0]
        seeds.append(from_array(inside).requires_grad_())
    return tuple(seeds)


def doubled(value: Any) -> Any:
    """Return a differentiable input as a new leaf in double precision, and anything else as it is."""
    if not is_inexact(value):
        return value
    return from_array(widened(array_of(value))).requires_grad_(value.requires_grad)


# ---- what is refused


def refuse_contradictions(*rules: tuple[bool, str]) -> None:
    """Raise for the first rule that does not hold."""
    for holds, text in rules:
        if not holds:
            raise ValueError(f"gradient check: {text}")


def warn_low_precision(inputs: Sequence[Any]) -> None:
    """Warn, at the caller of the public function, about differentiated inputs that are not in double precision."""
    for i, x in enumerate(inputs):
        if is_inexact(x) and x.requires_grad and array_of(x).dtype not in (np.float64, np.complex128):
            warnings.warn(
                f"input {i} requires grad and is {x.dtype}: differences are only accurate enough in double precision, "
                "so this check will likely fail; pass float64 or complex128 inputs, or double=True",
                stacklevel=3,
            )


# ---- the checks


class Checks(NamedTuple):
    """What to check: reverse mode and its particulars, forward mode (by the name it has in reports), both under vmap."""

    backward: bool
    undefined: bool
    dtypes: bool
    fast: bool
    batched: bool = False
    forward: str = ""
    batched_forward: bool = False


def verified(probe: Probe, tol: Tolerance, checks: Checks, raise_exception: bool) -> bool:
    """Run every check; raise the failure, or return False for it."""
    try:
        if checks.backward:
            check_backward(probe, tol, checks)
        if checks.forward:
            check_forward(probe, tol, checks.forward)
        if checks.batched_forward:
            check_batched_forward(probe, tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def check_backward(probe: Probe, tol: Tolerance, checks: Checks) -> None:
    """Check reverse mode."""
    if probe.detached:
        check_detached(probe, tol)
        return
    if checks.undefined:
        check_undefined_gradients(probe, tol)
    check_contract(probe, tol, checks.dtypes)
    if not (checks.fast and projections_agree(probe, tol)):
        check_jacobians(probe, tol)
    check_zero(probe, tol)
    if checks.batched:
        check_batched_backward(probe, tol)


def check_jacobians(probe: Probe, tol: Tolerance) -> None:
    """Compare every entry of every Jacobian."""
    evidence = Evidence(numerical_jacobian(probe, tol.eps), analytical_jacobian(probe), tol)
    if not evidence.agree():
        raise GradcheckError(diagnose(probe, evidence))


def projections_agree(probe: Probe, tol: Tolerance) -> bool:
    """Compare ``v J u`` for one random ``u`` per input and ``v`` per output."""
    rng, left = np.random.default_rng(SEED), random_rows(probe)
    rows = [probe.pullback({k: v}) for k, v in enumerate(left)]
    for p, place in enumerate(probe.wrt):
        memory = widened(probe.memory[place])
        direction = rng.uniform(-1, 1, memory.size * len(probe.units(place)))
        step = tol.eps * direction.view(memory.dtype).reshape(memory.shape)
        with probe.displaced(place, ..., step):
            plus = probe.values()
        with probe.displaced(place, ..., -step):
            minus = probe.values()
        for k, v in enumerate(left):
            gradient = rows[k][p]
            with np.errstate(invalid="ignore", over="ignore"):
                numerical = v @ (plus[k] - minus[k]) / (2 * tol.eps)
            analytical = 0.0 if gradient is None else real_components(gradient) @ direction
            spread = np.linalg.norm(v) * np.linalg.norm(direction)  # how far errors of one size in all entries add up
            if not abs(analytical - numerical) <= tol.atol * spread + tol.rtol * abs(numerical):
                return False
    return True


def check_detached(probe: Probe, tol: Tolerance) -> None:
    """Check that outputs of which none requires grad do not move with the inputs."""
    for k, of_output in enumerate(numerical_jacobian(probe, tol.eps)):
        for p, numerical in enumerate(of_output):
            wrong = ~tol.close(0.0, numerical)
            if wrong.any():
                row, column = (int(n) for n in np.argwhere(wrong)[0])
                fail(
                    Verdict.MISSING,
                    "no output requires grad, but an output moves with an input that does",
                    numerical=numerical[row, column].item(),
                    analytical=0.0,
                    **located(probe, Place(k, p, row, column)),
                )


def check_contract(probe: Probe, tol: Tolerance, check_dtypes: bool) -> None:
    """Check that backward is repeatable and gives gradients of the right kind, with random incoming gradients."""
    for k, v in enumerate(random_rows(probe)):
        first, *others = (probe.pullback({k: v}) for _ in range(3))
        for p, gradient in enumerate(first):
            if gradient is None:
                continue
            memory = array_of(probe.inputs[probe.wrt[p]])
            kinds = [np.iscomplexobj(gradient) == np.iscomplexobj(memory), gradient.shape == memory.shape]
            if not all(kinds) or (check_dtypes and gradient.dtype != memory.dtype):
                got, expected = (f"{a.dtype} of shape {a.shape}" for a in (gradient, memory))
                fail(Verdict.DTYPE, f"the gradient is {got}, the input is {expected}", **around(probe, k, p))
            for other in others:
                check_repeatable(probe, k, p, gradient, other[p], tol)


def check_repeatable(probe: Probe, k: int, p: int, once: Array, again: Array | None, tol: Tolerance) -> None:
    """Check that two backward runs gave the same gradient."""
    repeated = np.zeros_like(once) if again is None else again
    if np.allclose(once, repeated, rtol=0.0, atol=tol.nondet, equal_nan=True):
        return
    with np.errstate(invalid="ignore"):
        column = int(np.argmax(np.abs(once - repeated)))
    values = f"{once.flat[column]} and {repeated.flat[column]}"
    text = f"backward was run twice with the same incoming gradient and gave {values}"
    fail(Verdict.NONDETERMINISTIC, text, **around(probe, k, p, column))


def check_undefined_gradients(probe: Probe, tol: Tolerance) -> None:
    """Check that an output left out of the backward run counts as one with a zero gradient."""
    rows = random_rows(probe)
    if len(rows) == 1:
        return
    for k, v in enumerate(rows):
        explicit = probe.pullback({j: v if j == k else np.zeros_like(w) for j, w in enumerate(rows)})
        try:
            implicit = probe.pullback({k: v})
        except Exception as error:
            text = f"backward works with zeros for the other outputs, but without them raises {error!r}"
            place = probe.kept[k]
            fail(Verdict.UNDEFINED, text, error, mode=probe.mode, output=place, output_name=probe.output_name(place))
        for p, (with_zeros, without) in enumerate(zip(explicit, implicit, strict=True)):
            expected = 0.0 if with_zeros is None else with_zeros
            found = np.zeros_like(expected) if without is None else without
            known = np.isfinite(expected)
            if not tol.close(found, expected)[known].all():
                text = "leaving the other outputs undefined gives another gradient than zeros for them"
                fail(Verdict.UNDEFINED, text, **around(probe, k, p))


def check_zero(probe: Probe, tol: Tolerance) -> None:
    """Check that a zero incoming gradient gives zero gradients."""
    for k in range(len(probe.outputs)):
        for p in ignoring(probe, k, tol.nondet):
            text = "backward returns a gradient even when the one it receives is zero"
            fail(Verdict.IGNORED, text, **around(probe, k, p))


def random_rows(probe: Probe) -> list[Array]:
    """Return a random incoming gradient for each output, as real components."""
    rng = np.random.default_rng(SEED + 1)
    return [rng.uniform(-1, 1, of_output[0].shape[:1]) for of_output in probe.zeros()]


def around(probe: Probe, k: int, p: int, column: int | None = None) -> dict[str, Any]:
    """Return the fields of a report on an input and an output as a whole, or on one element of the input."""
    fields = located(probe, Place(k, p, 0, column or 0)) | {"output_index": (), "component": ""}
    return fields if column is not None else fields | {"input_index": ()}


def fail(verdict: Verdict, explanation: str, cause: Exception | None = None, **fields: Any) -> NoReturn:
    """Raise a failure that needs no diagnosis."""
    raise GradcheckError(GradcheckReport(verdict, explanation, **fields)) from cause
