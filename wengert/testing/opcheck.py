"""``opcheck``: hold one operator to its declaration, sample by sample.

The properties, each on every sample: the shape and dtype rule against the real result; memory layouts (transposed,
strided, reversed) give the same values; arguments are not changed and aliasing is declared truthfully; the vjp against
central differences; forward rules against the vjp (⟨u, J t⟩ = ⟨Jᵀ u, t⟩); second order; lower precisions; the in-place
twin; samples that must fail.

    python -m wengert.testing.opcheck NAME [NAME ...]
    python -m wengert.testing.opcheck --file operators/reduce.py
"""

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from wengert.array.dtype import bfloat16, float32
from wengert.core.apply import bind, specs
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators, ops
from wengert.core.tensor import Tensor, from_array
from wengert.tape.api import grad
from wengert.testing.opcheck_transforms import (
    Failure,
    check_batch_declared,
    check_forward_over_reverse,
    check_jvp,
    check_vmap,
    close,
    require,
    results_of,
)  # fmt: skip
from wengert.testing.samples import ErrorSample, Sample, plain, sample_from, samples_of, tensors_in

__all__ = ["Failure", "opcheck"]

EPS, RTOL, ATOL = 1e-6, 1e-5, 1e-7


def leaves(sample: Sample) -> Callable[[Any], Any]:
    """Return what makes a tensor of each array in turn, one that requires a gradient if it is to be differentiated by."""
    number = count()

    def convert(array: Any) -> Any:
        chosen = sample.differentiates(next(number), array)
        return from_array(array).requires_grad_() if chosen else from_array(array)

    return convert


def call(op: Op, sample: Sample, convert: Callable[[Any], Any]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Call the operator; return the tensors it was given and those it gave."""
    args, kwargs = sample.arguments(convert)
    return tensors_in([*args, *kwargs.values()]), results_of(op.function(*args, **kwargs))


def check_spec(op: Op, sample: Sample) -> None:
    """The declared shape and dtype rule gives what the operator gives."""
    if op.spec is None or (op.composite and not getattr(op.kernel, "has_fake", False)):
        return
    args, kwargs = sample.arguments(plain)
    _, results = call(op, sample, plain)
    inferred = op.infer(specs(bind(op, tuple(args), kwargs)))
    inferred = (inferred,) if isinstance(inferred, Spec) else tuple(inferred)
    require(len(inferred) == len(results), f"the spec gives {len(inferred)} results, the operator {len(results)}")
    for want, got in zip(inferred, results, strict=True):
        require(
            tuple(want.shape) == tuple(got.shape),
            f"the spec gives shape {tuple(want.shape)}, the result has {tuple(got.shape)}",
        )
        require(want.dtype is got.dtype, f"the spec gives {want.dtype}, the result has {got.dtype}")


def _layouts(array: Any) -> list[tuple[str, Any]]:
    if not array.ndim or not array.size:
        return []
    spaced = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    spaced[..., ::2] = array
    return [("transposed", np.asfortranarray(array)), ("strided", spaced[..., ::2]),
            ("reversed", np.ascontiguousarray(array[..., ::-1])[..., ::-1])]  # fmt: skip


def check_layouts(op: Op, sample: Sample) -> None:
    """Every memory layout of the arguments gives the same values."""
    _, want = call(op, sample, plain)
    for k, name in enumerate(("transposed", "strided", "reversed")):

        def convert(array: Any, k: int = k) -> Any:
            made = _layouts(array)
            return from_array(made[k][1] if made else array)

        _, got = call(op, sample, convert)
        for g, w in zip(got, want, strict=True):
            close(g._payload, w._payload, f"{name} arguments")


def check_aliasing(op: Op, sample: Sample) -> None:
    """Arguments keep their values, and results share memory only where that is declared."""
    args, kwargs = sample.arguments(plain)
    given = tensors_in([*args, *kwargs.values()])
    before = [(t._payload.copy(), t._version) for t in given]
    results = results_of(op.function(*args, **kwargs))
    for t, (b, version) in zip(given, before, strict=True):
        if t._version == version:  # a declared mutation counts as a write
            close(t._payload, b, "an argument was changed, which is not declared")
    for out in results:
        shares = any(out is not t and out._payload.size and np.shares_memory(out._payload, t._payload) for t in given)
        if shares and not op.composite:
            require(op.view, "the result shares memory with an argument, which is not declared (view=True)")
            require(out._view is not None, "a view has no link to its base")


def _dot(a: Any, b: Any) -> float:
    return float(np.real(np.sum(np.conj(a) * b)))


def _direction(rng: np.random.Generator, array: Any) -> Any:
    found = rng.standard_normal(array.shape)
    return found + 1j * rng.standard_normal(array.shape) if array.dtype.kind == "c" else found


def _shifted(op: Op, sample: Sample, directions: list[Any], step: float, convert: Callable[[Any], Any] = plain) -> Any:
    """Call the operator with its float arguments moved by ``step`` along ``directions``."""
    moves, number = iter(directions), count()

    def moved(array: Any) -> Any:
        return convert(array + step * next(moves) if sample.differentiates(next(number), array) else array)

    return call(op, sample, moved)


class Point:
    """One sample with random directions for its arguments and cotangents for its results."""

    def __init__(self, op: Op, sample: Sample) -> None:
        self.op, self.sample = op, sample
        self.rng = np.random.default_rng(sample.seed + 1)
        given, results = call(op, sample, leaves(sample))
        self.inputs = [t for t in given if t.requires_grad]
        self.numbers = [i for i, r in enumerate(results) if r.requires_grad]
        self.outputs = [results[i] for i in self.numbers]
        self.directions = [_direction(self.rng, t._payload) for t in self.inputs]
        self.cotangents = [np.asarray(_direction(self.rng, r._payload)) for r in self.outputs]

    def gradients(self, create: bool = False, outputs: Any = None, inputs: Any = None) -> tuple[Any, ...]:
        """Return the vjp of the cotangents."""
        return grad(outputs or self.outputs, inputs or self.inputs, [from_array(u) for u in self.cotangents],
                    create_graph=create, materialize_grads=True)  # fmt: skip

    def quotient(self) -> float:
        """Return the central difference of ⟨u, f⟩ along the directions."""
        ends = []
        for sign in (1, -1):
            _, results = _shifted(self.op, self.sample, self.directions, sign * EPS)
            ends.append(sum(_dot(u, results[i]._payload) for u, i in zip(self.cotangents, self.numbers, strict=True)))
        return float(ends[0] - ends[1]) / (2 * EPS)


def _agree(got: float, want: float, scale: float, what: str) -> None:
    require(
        abs(got - want) <= RTOL * max(scale, abs(want)) + ATOL,
        f"{what}: {got:.10g}, central differences give {want:.10g}",
    )


def _differentiable(op: Op, sample: Sample) -> Point | None:
    if not sample.grad or op.family == "nondifferentiable":
        return None
    point = Point(op, sample)
    return point if point.inputs and point.outputs else None


def check_vjp(op: Op, sample: Sample) -> None:
    """The reverse rules agree with central differences."""
    point = _differentiable(op, sample)
    if point is None:
        return
    found = point.gradients()
    for g, t in zip(found, point.inputs, strict=True):
        require(
            g.shape == t.shape and g.dtype is t.dtype, f"a gradient has {g.shape} {g.dtype} for {t.shape} {t.dtype}"
        )
    terms = [_dot(g._payload, v) for g, v in zip(found, point.directions, strict=True)]
    _agree(sum(terms), point.quotient(), sum(map(abs, terms)), "vjp")


def check_second_order(op: Op, sample: Sample) -> None:
    """The derivative of the derivative agrees with central differences of the derivative."""
    point = _differentiable(op, sample)
    if point is None:
        return
    weights = [_direction(point.rng, t._payload) for t in point.inputs]

    def projected(given: Any, results: Any, create: bool) -> Any:
        inputs = [t for t in given if t.requires_grad]
        found = point.gradients(create, [results[i] for i in point.numbers], inputs)
        return inputs, found

    ends = []
    for sign in (1, -1):
        given, results = _shifted(op, sample, point.directions, sign * EPS, leaves(sample))
        _, found = projected(given, results, create=False)
        ends.append(sum(_dot(w, g._payload) for w, g in zip(weights, found, strict=True)))
    given, results = call(op, sample, leaves(sample))
    inputs, found = projected(given, results, create=True)
    traced = [(g, from_array(np.asarray(w))) for g, w in zip(found, weights, strict=True) if g.requires_grad]
    got, scale = 0.0, 1.0
    if traced:
        second = grad([g for g, _ in traced], inputs, [w for _, w in traced], materialize_grads=True)
        terms = [_dot(h._payload, v) for h, v in zip(second, point.directions, strict=True)]
        got, scale = sum(terms), 1 + sum(map(abs, terms))
    _agree(got, float(ends[0] - ends[1]) / (2 * EPS), scale * 10, "second order")


def check_precisions(op: Op, sample: Sample) -> None:
    """float32 and bfloat16 arguments give results of the dtype the rule says, near those of float64."""
    _, want = call(op, sample, plain)
    for dtype, tolerance in ((float32, 1e-3), (bfloat16, 0.1)):

        def convert(array: Any, dtype: Any = dtype) -> Any:
            return from_array(array.astype(dtype.numpy) if array.dtype == np.float64 else array)

        def rounded(array: Any, dtype: Any = dtype) -> Any:
            return from_array(array.astype(dtype.numpy).astype(np.float64) if array.dtype == np.float64 else array)

        args, kwargs = sample.arguments(convert)
        if all(t.dtype is not dtype for t in tensors_in([*args, *kwargs.values()])):
            return
        _, got = call(op, sample, convert)
        _, want = call(op, sample, rounded)
        if not op.composite:
            inferred = op.infer(specs(bind(op, tuple(args), kwargs)))
            for spec, g in zip((inferred,) if isinstance(inferred, Spec) else inferred, got, strict=True):
                require(spec.dtype is g.dtype, f"of {dtype}: the spec gives {spec.dtype}, the result is {g.dtype}")
        for g, w in zip(got, want, strict=True):
            if g._payload.dtype.kind in "fV" and sample.grad:
                scale = float(np.max(np.abs(w._payload), initial=1.0, where=np.isfinite(w._payload)))
                close(g._payload.astype(np.float64), w._payload, f"in {dtype}", rtol=tolerance, atol=tolerance * scale)


def check_inplace(op: Op, sample: Sample) -> None:
    """The in-place twin writes what the operator returns, and returns its argument."""
    twin = ops.__dict__.get(op.name + "_")
    if twin is None or op.composite:
        return
    args, kwargs = sample.arguments(plain)
    want = op.function(*args, **kwargs)
    if not isinstance(args[0], Tensor) or want.shape != args[0].shape or want.dtype is not args[0].dtype:
        return
    target = ops.clone(args[0])
    require(twin(target, *args[1:], **kwargs) is target, "the in-place twin does not return its argument")
    close(target._payload, want._payload, "the in-place twin")
    require(target._cell is not None and target._cell.count == 1, "the in-place twin does not count as one write")


def check_error(op: Op, sample: ErrorSample) -> None:
    """A call that must fail fails as declared."""
    args, kwargs = sample.arguments(plain)
    try:
        op.function(*args, **kwargs)
    except sample.error as error:
        require(re.search(sample.match, str(error)), f"the message {str(error)!r} does not match {sample.match!r}")
    except Exception as error:
        raise Failure(f"raised {type(error).__name__}: {error}, expected {sample.error.__name__}") from error
    else:
        raise Failure(f"no error, expected {sample.error.__name__}")


CHECKS: dict[str, Callable[[Op, Any], None]] = {
    "spec": check_spec, "layouts": check_layouts, "aliasing": check_aliasing, "vjp": check_vjp, "jvp": check_jvp,
    "second order": check_second_order,
    "forward over reverse": check_forward_over_reverse, "vmap": check_vmap, "precisions": check_precisions,
    "inplace": check_inplace,
}  # fmt: skip


def check_reference(op: Op, sample: Sample, reference: Callable[..., Any]) -> None:
    """The operator gives what a function of NumPy arrays gives."""
    args, kwargs = sample.arguments(lambda array: array)
    want = reference(*args, **kwargs)
    _, got = call(op, sample, plain)
    for g, w in zip(got, want if isinstance(want, tuple | list) else (want,), strict=True):
        close(g._payload, w, "the reference", rtol=1e-6, atol=1e-9)


def opcheck(
    op: Any, args: Any = None, kwargs: Any = None, *, reference: Callable[..., Any] | None = None, raise_exception: bool = True
) -> dict[str, str]:  # fmt: skip
    """Run every check on an operator: on the samples of its declaration, or on one call.

    Checked are, each on every sample: the shape and dtype rule, memory layouts, aliasing and mutation, vjp against central
    differences, jvp against vjp, second order, forward over reverse, vmap against a loop, lower precisions, the in-place
    twin, error samples.

    Args:
        op: the operator (a declaration, its public function, or its name). args, kwargs: a call to check instead of the
            samples; it is differentiated by the tensors that require grad.
        reference: a function of NumPy arrays that gives the same. raise_exception: raise the first failure instead of
            returning it.

    Returns:
        ``{"check of sample": "what failed"}``, empty if everything holds.

    Raises:
        Failure: for the first property that does not hold.

    Example:
        >>> import wengert as wg
        >>> wg.library.opcheck("tanh")
        {}
    """
    declared = operators()[op] if isinstance(op, str) else getattr(op, "op", op)
    found: dict[str, str] = {}
    samples = samples_of(declared) if args is None and kwargs is None else [sample_from(args or (), kwargs)]
    if not samples:
        found["samples"] = f"operator '{declared.name}' has no samples"
    try:
        check_batch_declared(declared)
    except Failure as error:
        if raise_exception:
            raise
        found[f"vmap of {declared.name}"] = str(error)
    for sample in samples:
        checks: dict[str, Any] = {"error": check_error} if isinstance(sample, ErrorSample) else dict(CHECKS)
        if reference is not None and not isinstance(sample, ErrorSample):
            checks["reference"] = partial(check_reference, reference=reference)
        for name, check in checks.items():
            try:
                check(declared, sample)
            except Exception as error:
                found[f"{name} of {declared.name}{sample!r}"] = f"{type(error).__name__}: {error}"
                if raise_exception:
                    error.add_note(f"opcheck: {name} of {declared.name}{sample!r}")
                    raise
    return found


def main() -> int:
    """Check the operators named on the command line (all of them without a name); return the exit status."""
    parser = argparse.ArgumentParser(description="check operators against their declarations")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--file", help="check every operator declared in a file whose path ends so")
    options = parser.parse_args()
    known = operators()
    names = options.names or [n for n, op in known.items() if not options.file or _file(op).endswith(options.file)]
    bad = 0
    for name in names:
        for where, what in opcheck(known[name], raise_exception=False).items():
            bad += 1
            print(f"{where}\n    {what}")
    print(f"{len(names)} operators, {bad} failures")
    return 1 if bad else 0


def _file(op: Op) -> str:
    return (
        str(op.kernel.__code__.co_filename)
        if hasattr(op.kernel, "__code__")
        else str(sys.modules[op.function.__module__].__file__)
    )


if __name__ == "__main__":
    sys.exit(main())
