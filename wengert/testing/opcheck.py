"""``opcheck``: hold one operator to its declaration, sample by sample.

The properties, each on every sample: the shape and dtype rule against the real result; equal calls give equal results;
memory layouts (transposed, strided, reversed) give the same values; arguments are not changed and aliasing is declared
truthfully; the vjp against central differences; forward rules against the vjp (⟨u, J t⟩ = ⟨Jᵀ u, t⟩); second order;
batches against loops; lower precisions; the in-place twin; samples that must fail.

    python -m wengert.testing.opcheck NAME [NAME ...]
    python -m wengert.testing.opcheck --file operators/reduce.py
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, bfloat16, float32
from wengert.core.apply import bind, specs
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators, ops
from wengert.core.tensor import Tensor, from_array
from wengert.tape.api import grad
from wengert.testing.case import Case, Failure, agree, close, directions, dot, require, results_of
from wengert.testing.opcheck_native import check_native
from wengert.testing.opcheck_transforms import check_forward_over_reverse, check_jvp, check_vmap
from wengert.testing.samples import ErrorSample, Sample, plain, sample_from, samples_of, tensors_in

__all__ = ["CHECKS", "Failure", "Tally", "opcheck"]

EPS, RTOL, ATOL = 1e-6, 1e-5, 1e-7


def _inferred(case: Case, convert: Callable[[Any], Any] = plain) -> tuple[Any, ...]:
    """Return what the declared shape and dtype rule gives."""
    args, kwargs = case.sample.arguments(convert)
    found = case.op.infer(specs(bind(case.op, tuple(args), kwargs)))
    return (found,) if isinstance(found, Spec) else tuple(found)


def check_spec(case: Case) -> bool:
    """The declared shape and dtype rule gives what the operator gives."""
    if case.op.spec is None or (case.op.composite and not getattr(case.op.kernel, "has_fake", False)):
        return False
    inferred, results = _inferred(case), case.results
    require(len(inferred) == len(results), f"the spec gives {len(inferred)} results, the operator {len(results)}")
    for want, got in zip(inferred, results, strict=True):
        require(
            tuple(want.shape) == tuple(got.shape),
            f"the spec gives shape {tuple(want.shape)}, the result has {tuple(got.shape)}",
        )
        require(want.dtype is got.dtype, f"the spec gives {want.dtype}, the result has {got.dtype}")
    return True


def check_determinism(case: Case) -> bool:
    """Two equal calls give equal results."""
    for got, want in zip(case.call()[1], case.results, strict=True):
        same = np.array_equal(got._payload, want._payload, equal_nan=got.dtype.category >= FLOAT)
        require(same, "two equal calls give different results; draw random numbers outside, and pass them")
    return True


def _layouts(array: Any) -> list[Any]:
    """Return copies of an array in other memory layouts: transposed, strided, reversed."""
    if not array.ndim or not array.size:
        return [array] * 3
    spaced = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    spaced[..., ::2] = array
    return [np.asfortranarray(array), spaced[..., ::2], np.ascontiguousarray(array[..., ::-1])[..., ::-1]]


def check_layouts(case: Case) -> bool:
    """Every memory layout of the arguments gives the same values."""
    if not case.sample.layouts or all(a.size <= 1 for a in case.arrays):
        return False
    for k, name in enumerate(("transposed", "strided", "reversed")):

        def laid_out(array: Any, k: int = k) -> Any:
            return from_array(_layouts(array)[k])

        for g, w in zip(case.call(laid_out)[1], case.results, strict=True):
            close(g._payload, w._payload, f"{name} arguments")
    return True


def _mutated(op: Op) -> set[str] | None:
    """Return the names of the arguments that an operator made by custom_op changes; None for another operator."""
    if op.family != "opaque":
        return None
    return {op.signature.names[i] for i in op.kernel.mutated}  # type: ignore[attr-defined]


def check_mutation(op: Op, samples: list[Sample]) -> None:
    """An argument that is declared to be changed is changed by some call."""
    idle = _mutated(op)
    if not idle:
        return
    for sample in samples:
        case = Case(op, sample)
        given, _ = case.call()
        idle -= {n for n, t, a in zip(case.names, given, case.arrays, strict=True) if not np.array_equal(t._payload, a)}
    require(not idle, f"no call changes {', '.join(sorted(idle))}, which mutates_args names")


def check_aliasing(case: Case) -> bool:
    """Arguments keep their values, and results share memory only where that is declared."""
    args, kwargs = case.sample.arguments(plain)
    given = tensors_in([*args, *kwargs.values()])
    before = [(t._payload.copy(), t._version) for t in given]
    results = results_of(case.op.function(*args, **kwargs))
    declared = _mutated(case.op)
    for t, (b, version), name in zip(given, before, case.names, strict=True):
        allowed = t._version != version if declared is None else name in declared  # of a composite, a write counts
        if not allowed:
            close(t._payload, b, f"argument '{name}' was changed, which is not declared")
    for out in results:
        shares = any(out is not t and out._payload.size and np.shares_memory(out._payload, t._payload) for t in given)
        if shares and not case.op.composite:
            require(case.op.view, "the result shares memory with an argument, which is not declared (view=True)")
            require(out._view is not None, "a view has no link to its base")
    return True


class Point:
    """A case with random directions for its arguments and cotangents for its results."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rng = np.random.default_rng(case.sample.seed + 1)
        given, results = case.call(case.leaves())
        self.inputs = [t for t in given if t.requires_grad]
        self.numbers = [i for i, r in enumerate(results) if r.requires_grad]
        self.outputs = [results[i] for i in self.numbers]
        self.directions = directions(self.rng, [t._payload for t in self.inputs])
        self.cotangents = directions(self.rng, [r._payload for r in self.outputs])

    def gradients(self, cotangents: Any = None, outputs: Any = None, inputs: Any = None) -> tuple[Any, ...]:
        """Return the vjp of the cotangents; recorded, if they are given as tensors that require a gradient."""
        return grad(outputs or self.outputs, inputs or self.inputs, cotangents or list(map(from_array, self.cotangents)),
                    create_graph=cotangents is not None, materialize_grads=True)  # fmt: skip

    def quotient(self) -> float:
        """Return the central difference of ⟨u, f⟩ along the directions."""
        ends = []
        for sign in (1, -1):
            _, results = self.case.moved(self.directions, sign * EPS)
            ends.append(sum(dot(u, results[i]._payload) for u, i in zip(self.cotangents, self.numbers, strict=True)))
        return float(ends[0] - ends[1]) / (2 * EPS)


def _point(case: Case) -> Point | None:
    if not case.sample.grad or case.op.family == "nondifferentiable":
        return None
    point = Point(case)
    return point if point.inputs and point.outputs else None


def _differences(got: float, want: float, scale: float, what: str) -> None:
    agree(got, want, RTOL * max(scale, abs(want)) + ATOL, what, "central differences")


def check_vjp(case: Case) -> bool:
    """The reverse rules agree with central differences."""
    point = _point(case)
    if point is None:
        return False
    found = point.gradients()
    for g, t in zip(found, point.inputs, strict=True):
        require(
            g.shape == t.shape and g.dtype is t.dtype, f"a gradient has {g.shape} {g.dtype} for {t.shape} {t.dtype}"
        )
    terms = [dot(g._payload, v) for g, v in zip(found, point.directions, strict=True)]
    try:
        _differences(sum(terms), point.quotient(), sum(map(abs, terms)), "vjp")
    except Failure as error:
        raise Failure(f"{error}; wrong with respect to {', '.join(_wrong_arguments(point, terms))}") from None
    return True


def _wrong_arguments(point: Point, terms: list[float]) -> list[str]:
    """Return the names of the arguments whose gradient alone disagrees with differences."""
    found, every = [], point.directions
    names = [n for n, a, i in zip(point.case.names, point.case.arrays, count(), strict=False)
             if point.case.sample.differentiates(i, a)]  # fmt: skip
    for k, (name, term) in enumerate(zip(names, terms, strict=True)):
        point.directions = [v if i == k else v * 0 for i, v in enumerate(every)]
        want = point.quotient()
        if not abs(term - want) <= RTOL * max(abs(term), abs(want)) + ATOL:
            found.append(f"'{name}'")
    return found or ["several arguments together"]


def check_second_order(case: Case) -> bool:
    """The derivative of the derivative agrees with central differences of the derivative."""
    point = _point(case)
    if point is None:
        return False
    weights = directions(point.rng, [t._payload for t in point.inputs])
    ends = []
    for sign in (1, -1):
        given, results = case.moved(point.directions, sign * EPS, leaves=True)
        inputs = [t for t in given if t.requires_grad]
        found = point.gradients(outputs=[results[i] for i in point.numbers], inputs=inputs)
        ends.append(sum(dot(w, g._payload) for w, g in zip(weights, found, strict=True)))
    cotangents = [from_array(u).requires_grad_() for u in point.cotangents]
    found = point.gradients(cotangents)
    traced = [(g, from_array(w)) for g, w in zip(found, weights, strict=True) if g.requires_grad]
    variables = [*point.inputs, *cotangents]
    second = [ops.zeros_like(v) for v in variables]  # where nothing is traced, the gradient is constant
    if traced:
        second = grad([g for g, _ in traced], variables, [w for _, w in traced], materialize_grads=True)
    terms = [dot(h._payload, v) for h, v in zip(second, [*point.directions, *point.cotangents], strict=True)]
    count = len(point.inputs)
    scale = 10 * (1 + sum(map(abs, terms)))
    _differences(sum(terms[:count]), float(ends[0] - ends[1]) / (2 * EPS), scale, "second order")
    value = sum(
        dot(w, g._payload) for g, w in zip(found, weights, strict=True)
    )  # linear in the cotangent: its own derivative
    single = any(t.dtype is float32 for t in point.inputs)
    agree(
        sum(terms[count:]),
        value,
        (1e-5 if single else 1e-9) * scale,
        "the derivative by the cotangent",
        "the vjp, linear in it,",
    )
    return True


def check_precisions(case: Case) -> bool:
    """float32 and bfloat16 arguments give results of the dtype the rule says, near those of float64."""
    if all(a.dtype != np.float64 for a in case.arrays):
        return False
    for dtype, tolerance in ((float32, 1e-3), (bfloat16, 0.1)):

        def convert(array: Any, dtype: Any = dtype) -> Any:
            return from_array(array.astype(dtype.numpy) if array.dtype == np.float64 else array)

        def rounded(array: Any, dtype: Any = dtype) -> Any:
            return from_array(array.astype(dtype.numpy).astype(np.float64) if array.dtype == np.float64 else array)

        _, got = case.call(convert)
        if not case.op.composite:
            for spec, g in zip(_inferred(case, convert), got, strict=True):
                require(spec.dtype is g.dtype, f"of {dtype}: the spec gives {spec.dtype}, the result is {g.dtype}")
        if not case.sample.grad:
            continue
        _, want = case.call(rounded)
        for g, w in zip(got, want, strict=True):
            if g._payload.dtype.kind in "fV":
                scale = float(np.max(np.abs(w._payload), initial=1.0, where=np.isfinite(w._payload)))
                close(g._payload.astype(np.float64), w._payload, f"in {dtype}", rtol=tolerance, atol=tolerance * scale)
    return True


def check_inplace(case: Case) -> bool:
    """The in-place twin writes what the operator returns, and returns its argument."""
    twin = ops.__dict__.get(case.op.name + "_")
    if twin is None or case.op.composite:
        return False
    args, kwargs = case.sample.arguments(plain)
    want = case.results[0]
    if not isinstance(args[0], Tensor) or want.dtype is not args[0].dtype:
        return False
    reshapes = case.op.view  # the twin of a view is the same tensor in another shape
    if want.shape != args[0].shape and not reshapes:
        return False
    target = ops.clone(args[0])
    require(twin(target, *args[1:], **kwargs) is target, "the in-place twin does not return its argument")
    close(target._payload, want._payload, "the in-place twin")
    if not reshapes:
        require(target._cell is not None and target._cell.count == 1, "the in-place twin does not count as one write")
    return True


def check_error(case: Case) -> bool:
    """A call that must fail fails as declared."""
    sample: Any = case.sample
    args, kwargs = sample.arguments(plain)
    try:
        case.op.function(*args, **kwargs)
    except sample.error as error:
        require(re.search(sample.match, str(error)), f"the message {str(error)!r} does not match {sample.match!r}")
    except Exception as error:
        raise Failure(f"raised {type(error).__name__}: {error}, expected {sample.error.__name__}") from error
    else:
        raise Failure(f"no error, expected {sample.error.__name__}")
    return True


CHECKS: dict[str, Callable[[Case], bool]] = {
    "spec": check_spec, "determinism": check_determinism, "layouts": check_layouts, "aliasing": check_aliasing,
    "vjp": check_vjp, "jvp": check_jvp, "second order": check_second_order,
    "forward over reverse": check_forward_over_reverse, "vmap": check_vmap, "precisions": check_precisions,
    "inplace": check_inplace, "native": check_native,
}  # fmt: skip

LOOK_AT = {
    "spec": "look at spec= (of a custom_op: register_fake), or at the shape and dtype that the kernel returns",
    "determinism": "look for random numbers, uninitialised memory or state in the kernel",
    "layouts": "look for code in the kernel that relies on contiguous memory",
    "aliasing": "look at what the kernel writes to and what memory it returns: copy it, or declare it (view=, mutates_args=)",
    "vjp": "look at the vjp rule: its factor and sign, the sum over broadcast dimensions, accumulation where an index repeats",
    "jvp": "look at the jvp rule, which must be the derivative that the vjp is the transpose of",
    "second order": "look at what the vjp rule takes out of differentiation: detach(), NumPy, values saved otherwise",
    "forward over reverse": "look at the jvp rules of what the vjp rule calls, and at detach() in it",
    "vmap": "look at batch= (of a custom_op: register_vmap): the results must have the batch where it says",
    "precisions": "look at the dtype of the result in spec= and in the kernel",
    "native": "look at lowering= (or at what the NumPy kernel does of single elements), and at the operator's native kernel",
    "inplace": "look at the in-place twin: it must write its first argument, once, and return it",
    "error": "look at how the kernel and spec= refuse bad arguments",
    "reference": "look at the kernel",
}


@dataclass
class Tally:
    """How much was checked: operators, samples, and the checks that applied to them."""

    operators: int = 0
    samples: int = 0
    checks: int = 0

    def __str__(self) -> str:
        return f"{self.operators:,} operators, {self.samples:,} samples, {self.checks:,} checks"


def check_reference(case: Case, reference: Callable[..., Any]) -> bool:
    """The operator gives what a function of NumPy arrays gives."""
    args, kwargs = case.sample.arguments(lambda array: array)
    want = reference(*args, **kwargs)
    for g, w in zip(case.results, want if isinstance(want, tuple | list) else (want,), strict=True):
        close(g._payload, w, "the reference", rtol=1e-6, atol=1e-9)
    return True


def checks_of(sample: Sample, reference: Callable[..., Any] | None = None) -> dict[str, Callable[[Case], bool]]:
    """Return the checks that a sample goes through, by name."""
    if isinstance(sample, ErrorSample):
        return {"error": check_error}
    return CHECKS if reference is None else {**CHECKS, "reference": partial(check_reference, reference=reference)}


def opcheck(
    op: Any, args: Any = None, kwargs: Any = None, *, reference: Callable[..., Any] | None = None,
    raise_exception: bool = True, tally: Tally | None = None,
) -> dict[str, str]:  # fmt: skip
    """Run every check on an operator: on the samples of its declaration, or on one call.

    Checked are, each on every sample: the shape and dtype rule, that equal calls give equal results, memory layouts,
    aliasing and mutation, vjp against central differences, jvp against vjp, second order, forward over reverse, vmap
    against a loop, lower precisions, the in-place twin, error samples.

    Args:
        op: the operator (a declaration, its public function, or its name). args, kwargs: a call to check instead of the
            samples; it is differentiated by the tensors that require grad.
        reference: a function of NumPy arrays that gives the same. raise_exception: raise the first failure instead of
            returning it. tally: counts what was checked.

    Returns:
        ``{"check of sample": "what failed"}``, empty if everything holds.

    Raises:
        Failure: for the first property that does not hold; it names the operator, the check, the call and what to look at.

    Example:
        >>> import wengert as wg
        >>> wg.library.opcheck("tanh")
        {}
    """
    declared = operators()[op] if isinstance(op, str) else getattr(op, "op", op)
    found: dict[str, str] = {}
    tally = Tally() if tally is None else tally
    tally.operators += 1

    def failed(where: str, what: str, look: str, error: Exception | None = None) -> None:
        found[where] = f"{what}; {look}"
        if raise_exception:
            raise Failure(f"{where}: {found[where]}") from error

    samples = samples_of(declared) if args is None and kwargs is None else [sample_from(args or (), kwargs)]
    if not samples:
        failed(
            f"samples of {declared.name}", f"operator '{declared.name}' has no samples", "give samples=, or one call"
        )
    try:
        check_mutation(declared, [s for s in samples if not isinstance(s, ErrorSample)])
    except Exception as error:
        failed(f"mutation of {declared.name}", f"{type(error).__name__}: {error}", LOOK_AT["aliasing"], error)
    for sample in samples:
        case = Case(declared, sample)
        tally.samples += 1
        for name, check in checks_of(sample, reference).items():
            try:
                tally.checks += check(case)
            except Exception as error:
                failed(f"{name} of {declared.name}{sample!r}", f"{type(error).__name__}: {error}", LOOK_AT[name], error)
    return found


def main() -> int:
    """Check the operators named on the command line (all of them without a name); return the exit status."""
    parser = argparse.ArgumentParser(description="check operators against their declarations")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--file", help="check every operator declared in a file whose path ends so")
    options = parser.parse_args()
    known = operators()
    names = options.names or [n for n, op in known.items() if not options.file or _file(op).endswith(options.file)]
    bad, tally = 0, Tally()
    for name in names:
        for where, what in opcheck(known[name], raise_exception=False, tally=tally).items():
            bad += 1
            print(f"{where}\n    {what}")
    print(f"{tally}, {bad} failures")
    return 1 if bad else 0


def _file(op: Op) -> str:
    return (
        str(op.kernel.__code__.co_filename)
        if hasattr(op.kernel, "__code__")
        else str(sys.modules[op.function.__module__].__file__)
    )


if __name__ == "__main__":
    sys.exit(main())
