"""The checks of ``opcheck`` that run an operator inside transforms: forward mode, forward over reverse, batching."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.tensor import from_array
from wengert.errors import TransformError
from wengert.testing.case import Case, agree, close, directions, dot, require
from wengert.transforms.pushforward import jvp
from wengert.transforms.reverse import vjp
from wengert.transforms.vmap import vmap

__all__ = ["check_forward_over_reverse", "check_jvp", "check_vmap"]


def tensors(arrays: list[Any]) -> tuple[Any, ...]:
    """Return arrays as tensors."""
    return tuple(map(from_array, arrays))


def check_jvp(case: Case) -> bool:
    """Forward mode is the transpose of reverse mode: ⟨u, J t⟩ = ⟨Jᵀ u, t⟩."""
    if not case.forward:
        return False
    rng = np.random.default_rng(case.sample.seed + 2)
    run, given = case.of_floats(), tensors(case.floats)
    moves = directions(rng, case.floats)
    values, pushed = jvp(run, given, tensors(moves))
    weights = directions(rng, [v._payload for v in values])
    pulled = vjp(run, *given)[1](tensors(weights))
    got = sum(dot(u, t._payload) for u, t in zip(weights, pushed, strict=True))
    terms = [dot(g._payload, v) for g, v in zip(pulled, moves, strict=True)]
    for v, t in zip(values, pushed, strict=True):
        require(v.shape == t.shape and v.dtype is t.dtype, f"a tangent has {t.shape} {t.dtype} for {v.shape} {v.dtype}")
    agree(got, sum(terms), 1e-9 * (1 + sum(map(abs, terms))), "jvp", "vjp")
    return True


def check_forward_over_reverse(case: Case) -> bool:
    """The tangent of the vjp agrees with the vjp of the vjp: ⟨w, H v⟩ by jvp of vjp and by vjp of vjp."""
    if not case.forward:
        return False
    rng = np.random.default_rng(case.sample.seed + 3)
    run, given = case.of_floats(), tensors(case.floats)
    weights = tensors(directions(rng, [case.results[k]._payload for k in case.numbers]))
    moves, probes = directions(rng, case.floats), directions(rng, case.floats)

    def gradient(*at: Any) -> Any:
        return vjp(run, *at)[1](weights)

    _, pushed = jvp(gradient, given, tensors(moves))
    pulled = vjp(gradient, *given)[1](tensors(probes))
    got = sum(dot(w, t._payload) for w, t in zip(probes, pushed, strict=True))
    terms = [dot(h._payload, v) for h, v in zip(pulled, moves, strict=True)]
    agree(got, sum(terms), 1e-8 * (1 + sum(map(abs, terms))), "forward over reverse", "reverse over reverse")
    return True


def _lanes(array: Any) -> list[Any]:
    """Return two examples of an argument: the array, and it reversed in every dimension (which keeps what indices and
    positive definite matrices need); rows of floats that are sorted stay so, for what searches in them."""
    second = np.ascontiguousarray(array[(slice(None, None, -1),) * array.ndim]).reshape(array.shape)
    ordered = array.ndim and array.dtype.kind == "f" and bool(np.all(array[..., 1:] >= array[..., :-1]))
    return [array, np.sort(second, axis=-1) if ordered else second]


def _masks(count: int) -> list[tuple[bool, ...]]:
    """Return which arguments are batched: all of them, then each alone."""
    alone = [tuple(i == k for i in range(count)) for k in range(count)] if 1 < count <= 4 else []
    return [(True,) * count, *alone]


def check_vmap(case: Case) -> bool:
    """A batch gives what its examples give one by one: values, and vjp and jvp where there are any.

    Derivatives of an operator are taken for each choice of arguments with a batch; those of a composite, which has no
    batching rule, for the one in which all have it.
    """
    if not case.arrays or not getattr(case.op.kernel, "has_vmap", True):  # a custom_op without a rule loops by itself
        return False
    masks = _masks(len(case.arrays))
    _against_loop(case, case.run, masks if case.op.composite or not case.differentiable else masks[:1], {"vmap": None})
    if not case.differentiable:
        return False
    weights = tensors([np.cos(np.arange(1.0, r._payload.size + 1)).reshape(r.shape).astype(r._payload.dtype)
                       for r in (case.results[k] for k in case.numbers)])  # fmt: skip
    moves = tensors([np.full(a.shape, 0.5, a.dtype) for a in case.floats])

    def derivatives(*given: Any) -> Any:
        run, floats = case.of_floats(given), tuple(given[i] for i in case.places)
        values, pull = vjp(run, *floats)
        pulled = pull(weights)
        return (*values, *pulled, *(jvp(run, floats, moves)[1] if case.forward else ()))

    count = len(case.numbers)
    parts = {"vmap of the vjp": count + len(case.places), "vmap of the jvp": None}
    _against_loop(case, derivatives, masks[:1] if case.op.composite else masks, {"vmap": count, **parts})
    return True


def _against_loop(case: Case, run: Callable[..., Any], masks: Any, parts: dict[str, int | None]) -> None:
    """Compare vmap with a loop; ``parts`` says what the results are: those before a number, in order."""
    lanes = [_lanes(a) for a in case.arrays]
    try:
        first = run(*[from_array(lane[0]) for lane in lanes])
    except Exception:
        return  # fails by itself, which other checks say
    for mask in masks:
        second = [from_array(lane[m]) for lane, m in zip(lanes, mask, strict=True)]
        given = [from_array(np.stack(lane)) if m else from_array(lane[0]) for lane, m in zip(lanes, mask, strict=True)]
        try:
            alone = run(*second)
        except Exception:
            continue  # no valid example
        try:
            got = vmap(run, tuple(0 if m else None for m in mask), randomness="same")(*given)
        except TransformError:
            if case.op.batch == "refuse":
                return
            raise
        for k, (g, one, two) in enumerate(zip(got, first, alone, strict=True)):
            what = next(name for name, end in parts.items() if end is None or k < end)
            rtol, atol = (1e-9, 1e-11) if what == "vmap" else (1e-8, 1e-10)
            close(g._payload, np.stack([one._payload, two._payload]), f"{what} over {mask}", rtol, atol)
