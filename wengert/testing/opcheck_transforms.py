"""The checks of ``opcheck`` that run an operator inside transforms: forward mode, forward over reverse, batching."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wengert.core.batch import RULES
from wengert.core.operator import Op
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.errors import TransformError
from wengert.testing.samples import Sample, tensors_in
from wengert.transforms.pushforward import jvp
from wengert.transforms.reverse import vjp
from wengert.transforms.vmap import vmap

__all__ = ["Failure", "close", "differentiable", "directions", "dot", "require", "results_of", "running"]


class Failure(AssertionError):  # noqa: N818 - a failed check, not an error
    """One property that does not hold for one sample."""


def require(condition: Any, what: str) -> None:
    """Raise Failure with ``what`` unless the condition holds."""
    if not condition:
        raise Failure(what)


def close(got: Any, want: Any, what: str, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """Require two arrays to agree."""
    got, want = np.asarray(got), np.asarray(want)
    require(got.shape == want.shape, f"{what}: shape {got.shape} instead of {want.shape}")
    if got.dtype.kind in "fcV":
        require(np.allclose(got.astype(want.dtype), want, rtol=rtol, atol=atol, equal_nan=True),
                f"{what}: {got.ravel()[:6]} instead of {want.ravel()[:6]}")  # fmt: skip
    else:
        require(np.array_equal(got, want), f"{what}: {got.ravel()[:6]} instead of {want.ravel()[:6]}")


def results_of(value: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a result."""
    return (value,) if isinstance(value, Tensor) else tuple(tensors_in(value))


def dot(a: Any, b: Any) -> float:
    """Return the real inner product of two arrays."""
    return float(np.real(np.sum(np.conj(a) * b)))


def directions(rng: np.random.Generator, arrays: list[Any]) -> list[Any]:
    """Return a random direction for each array."""
    found = []
    for array in arrays:
        drawn = rng.standard_normal(array.shape)
        drawn = drawn + 1j * rng.standard_normal(array.shape) if array.dtype.kind == "c" else drawn
        found.append(np.asarray(drawn, array.dtype))
    return found


def slack(arrays: list[Any]) -> float:
    """Return by how much more results may differ where some arrays are in single precision."""
    return 1e5 if any(a.dtype.char in "fF" for a in arrays) else 1.0


def running(op: Op, sample: Sample) -> tuple[Callable[..., tuple[Tensor, ...]], list[Any]]:
    """Return (the call as a function of its tensors alone, the arrays of these tensors)."""
    arrays: list[Any] = []

    def noted(array: Any) -> Any:
        arrays.append(array)
        return from_array(array)

    sample.arguments(noted)

    def run(*tensors: Any) -> tuple[Tensor, ...]:
        given = iter(tensors)
        args, kwargs = sample.arguments(lambda _: next(given))
        return results_of(op.function(*args, **kwargs))

    return run, arrays


def differentiable(op: Op, sample: Sample, mode: str = "reverse") -> tuple[Callable[..., Any], list[Any]] | None:
    """Return (the call as a function of its float tensors, their arrays), results without gradient left out.

    None if there is nothing to differentiate, or not in this mode ("forward", "reverse").
    """
    if not sample.grad or op.family == "nondifferentiable":
        return None
    if mode == "forward" and op.family == "opaque" and getattr(op.kernel, "forward_rule", None) is None:
        return None
    run, arrays = running(op, sample)
    double = (np.float64, np.complex128)  # what the tolerances are for
    places = [i for i, a in enumerate(arrays) if sample.differentiates(i, a) and a.dtype in double]
    if op.rules is not None and not op.composite:
        places = [i for i in places if i in _with_rules(op, sample)]
    tracked = [from_array(a).requires_grad_() if i in places else from_array(a) for i, a in enumerate(arrays)]
    numbers = [k for k, r in enumerate(run(*tracked)) if r.requires_grad]
    if not places or not numbers:
        return None

    def of_floats(*tensors: Any) -> tuple[Tensor, ...]:
        full = [from_array(a) for a in arrays]
        for i, t in zip(places, tensors, strict=True):
            full[i] = t
        results = run(*full)
        return tuple(results[k] for k in numbers)

    return of_floats, [arrays[i] for i in places]


def _with_rules(op: Op, sample: Sample) -> set[int]:
    """Return the numbers of the arrays that belong to arguments with a derivative."""
    made: list[Any] = []

    def noted(array: Any) -> Any:
        made.append(from_array(array))
        return made[-1]

    args, kwargs = sample.arguments(noted)
    names = dict(zip(op.signature.names, args, strict=False)) | kwargs
    number = {id(t): i for i, t in enumerate(made)}
    wanted = [i for i in op.signature.inputs if op.rules is not None and not op.rules.missing(i)]
    return {number[id(t)] for i in wanted for t in tensors_in([names.get(op.signature.names[i])])}


def check_jvp(op: Op, sample: Sample) -> None:
    """Forward mode is the transpose of reverse mode: ⟨u, J t⟩ = ⟨Jᵀ u, t⟩."""
    found = differentiable(op, sample, "forward")
    if found is None:
        return
    run, arrays = found
    rng = np.random.default_rng(sample.seed + 2)
    tensors = tuple(map(from_array, arrays))
    moves = directions(rng, arrays)
    values, pushed = jvp(run, tensors, tuple(map(from_array, moves)))
    weights = directions(rng, [v._payload for v in values])
    _, pull = vjp(run, *tensors)
    pulled = pull(tuple(map(from_array, weights)))
    got = sum(dot(u, t._payload) for u, t in zip(weights, pushed, strict=True))
    terms = [dot(g._payload, v) for g, v in zip(pulled, moves, strict=True)]
    for v, t in zip(values, pushed, strict=True):
        require(v.shape == t.shape and v.dtype is t.dtype, f"a tangent has {t.shape} {t.dtype} for {v.shape} {v.dtype}")
    require(
        abs(got - sum(terms)) <= 1e-9 * slack(arrays) * (1 + sum(map(abs, terms))),
        f"jvp gives {got:.12g}, vjp gives {sum(terms):.12g}",
    )


def check_forward_over_reverse(op: Op, sample: Sample) -> None:
    """The tangent of the vjp agrees with the vjp of the vjp: ⟨w, H v⟩ by jvp of vjp and by vjp of vjp."""
    found = differentiable(op, sample, "forward")
    if found is None:
        return
    run, arrays = found
    rng = np.random.default_rng(sample.seed + 3)
    tensors = tuple(map(from_array, arrays))
    weights = tuple(map(from_array, directions(rng, [r._payload for r in run(*tensors)])))
    moves, probes = directions(rng, arrays), directions(rng, arrays)

    def gradient(*given: Any) -> Any:
        return vjp(run, *given)[1](weights)

    _, pushed = jvp(gradient, tensors, tuple(map(from_array, moves)))
    _, pull = vjp(gradient, *tensors)
    pulled = pull(tuple(map(from_array, probes)))
    got = sum(dot(w, t._payload) for w, t in zip(probes, pushed, strict=True))
    terms = [dot(h._payload, v) for h, v in zip(pulled, moves, strict=True)]
    require(
        abs(got - sum(terms)) <= 1e-8 * slack(arrays) * (1 + sum(map(abs, terms))),
        f"forward over reverse gives {got:.12g}, reverse over reverse {sum(terms):.12g}",
    )


def _lanes(array: Any) -> list[Any]:
    """Return two examples of an argument: the array, and it reversed in every dimension (which keeps what indices and
    positive definite matrices need); rows of floats that are sorted stay so, for what searches in them."""
    second = np.ascontiguousarray(array[(slice(None, None, -1),) * array.ndim]).reshape(array.shape)
    ordered = array.ndim and array.dtype.kind == "f" and bool(np.all(array[..., 1:] >= array[..., :-1]))
    return [array, np.sort(second, axis=-1) if ordered else second]


def _masks(count: int) -> Iterator[tuple[bool, ...]]:
    yield (True,) * count
    if 1 < count <= 4:
        for k in range(count):
            yield tuple(i == k for i in range(count))


def check_vmap(op: Op, sample: Sample) -> None:
    """A batch gives what its examples give one by one: values, and gradients where there are any."""
    run, arrays = running(op, sample)
    if arrays:
        _against_loop(op, run, arrays, "vmap")
    found = differentiable(op, sample)
    if found is None:
        return
    of_floats, floats = found

    def gradient(*given: Any) -> Any:
        results, pull = vjp(of_floats, *given)
        return pull(tuple(ops.cos(ops.reshape(ops.arange(r.numel(), dtype=r.dtype) + 1, tuple(r.shape)))
                          if not r.is_complex() else ops.ones_like(r) for r in results))  # fmt: skip

    _against_loop(op, gradient, floats, "vmap of the vjp", rtol=1e-8, atol=1e-10)
    if differentiable(op, sample, "forward") is None:
        return

    def tangent(*given: Any) -> Any:
        return jvp(of_floats, given, tuple(ops.ones_like(t) * 0.5 for t in given))[1]

    _against_loop(op, tangent, floats, "vmap of the jvp", rtol=1e-8, atol=1e-10)


def _against_loop(
    op: Op, run: Callable[..., Any], arrays: list[Any], what: str, rtol: float = 1e-9, atol: float = 1e-11
) -> None:
    lanes = [_lanes(a) for a in arrays]
    for mask in _masks(len(arrays)):
        try:
            want = [
                run(*[from_array(lane[k if m else 0]) for lane, m in zip(lanes, mask, strict=True)]) for k in (0, 1)
            ]
        except Exception:
            continue
        again = run(*[from_array(lane[0]) for lane in lanes]) if all(mask) else want[0]
        if any(not np.array_equal(a._payload, b._payload, equal_nan=a.dtype.category >= 2)
               for a, b in zip(again, want[0], strict=True)):  # fmt: skip
            return  # it draws random numbers
        given = [from_array(np.stack(lane)) if m else from_array(lane[0]) for lane, m in zip(lanes, mask, strict=True)]
        try:
            got = vmap(run, tuple(0 if m else None for m in mask), randomness="same")(*given)
        except TransformError:
            if op.batch == "refuse":
                return
            raise
        for g, one, two in zip(got, *want, strict=True):
            close(g._payload, np.stack([one._payload, two._payload]), f"{what} over {mask}", rtol, atol)


def check_batch_declared(op: Op) -> None:
    """A differentiable operator says how it runs on a batch."""
    require(op.composite or op.batch is not None, "no batching rule is declared (batch=)")
    require(not isinstance(op.batch, str) or op.batch in RULES, f"the batching rule {op.batch!r} does not exist")
