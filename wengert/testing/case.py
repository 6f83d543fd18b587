"""One call of an operator as the checks see it: its arrays drawn once, its plain results computed once."""

from collections.abc import Callable
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from wengert.core.operator import Op
from wengert.core.tensor import Tensor, from_array
from wengert.testing.samples import Sample, plain, tensors_in

__all__ = ["Case", "Failure", "agree", "close", "directions", "dot", "require", "results_of"]

DOUBLE = (np.dtype(np.float64), np.dtype(np.complex128))  # what the tolerances of derivatives are for


class Failure(AssertionError):  # noqa: N818 - a failed check, not an error
    """One property that does not hold for one sample."""


def require(condition: Any, what: str) -> None:
    """Raise Failure with ``what`` unless the condition holds."""
    if not condition:
        raise Failure(what)


def close(got: Any, want: Any, what: str, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """Require two arrays to agree."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise Failure(f"{what}: shape {got.shape} instead of {want.shape}")
    if np.array_equal(got, want):
        return
    inexact = got.dtype.kind in "fcV"
    if not (inexact and np.allclose(got.astype(want.dtype), want, rtol=rtol, atol=atol, equal_nan=True)):
        raise Failure(f"{what}: {got.ravel()[:6]} instead of {want.ravel()[:6]}")


def agree(got: float, want: float, tolerance: float, what: str, source: str) -> None:
    """Require two numbers to agree; ``what`` and ``source`` say where they are from."""
    if not abs(got - want) <= tolerance:
        raise Failure(f"{what} gives {got:.12g}, {source} gives {want:.12g}")


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


def results_of(value: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a result (none of None)."""
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(tensors_in(value))


class Case:
    """One sample of an operator.

    Attributes:
        arrays: the arrays of the tensors given, in order. results: what the call gives on them.
        places: numbers of the arrays it can be differentiated by. numbers: of the results that then carry a gradient.
    """

    def __init__(self, op: Op, sample: Sample) -> None:
        self.op, self.sample = op, sample

    def call(self, convert: Callable[[Any], Any] = plain) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Call the operator; return the tensors it was given and those it gave."""
        args, kwargs = self.sample.arguments(convert)
        return tensors_in([*args, *kwargs.values()]), results_of(self.op.function(*args, **kwargs))

    def run(self, *tensors: Any) -> tuple[Tensor, ...]:
        """Call the operator with given tensors in the places of the sample's."""
        given = iter(tensors)
        args, kwargs = self.sample.arguments(lambda _: next(given))
        return results_of(self.op.function(*args, **kwargs))

    def leaves(self) -> Callable[[Any], Any]:
        """Return what makes a tensor of each array in turn, one that requires a gradient if to be differentiated by."""
        number = count()

        def convert(array: Any) -> Any:
            chosen = self.sample.differentiates(next(number), array)
            return from_array(array).requires_grad_() if chosen else from_array(array)

        return convert

    def moved(self, moves: list[Any], step: float, leaves: bool = False) -> Any:
        """Call the operator with the arrays to be differentiated by moved by ``step`` along ``moves``, in double precision."""
        rest, number, convert = iter(moves), count(), self.leaves() if leaves else plain

        def made(array: Any) -> Any:
            if not self.sample.differentiates(next(number), array):
                return convert(array)
            double = np.result_type(array, np.float64)
            return convert(array.astype(double) + step * next(rest).astype(double))

        return self.call(made)

    @cached_property
    def arrays(self) -> list[Any]:
        """The arrays of the tensors given."""
        found: list[Any] = []

        def noted(array: Any) -> Any:
            found.append(array)
            return from_array(array)

        self.sample.arguments(noted)
        return found

    @cached_property
    def names(self) -> list[str]:
        """The name of the argument that each array belongs to."""
        args, kwargs = self.sample.arguments(plain)
        names = self.op.signature.names  # without those that *args gathers
        named = [(names[i] if i < len(names) else f"argument {i}", a) for i, a in enumerate(args)]
        return [name for name, value in [*named, *kwargs.items()] for _ in tensors_in([value])]

    @cached_property
    def results(self) -> tuple[Tensor, ...]:
        """What the call gives."""
        return self.call()[1]

    @property
    def differentiable(self) -> bool:
        """True if derivatives are to be checked here."""
        return self.sample.grad and self.op.family != "nondifferentiable" and bool(self.places and self.numbers)

    @property
    def forward(self) -> bool:
        """True if there are forward-mode rules as well."""
        return self.differentiable and (
            self.op.family != "opaque" or getattr(self.op.kernel, "forward_rule", None) is not None
        )

    @cached_property
    def places(self) -> list[int]:
        """The numbers of the double-precision arrays that belong to arguments with a derivative."""
        found = [i for i, a in enumerate(self.arrays) if a.dtype in DOUBLE and self.sample.differentiates(i, a)]
        if self.op.rules is None or self.op.composite:
            return found
        allowed = self._with_rules()
        return [i for i in found if i in allowed]

    def _with_rules(self) -> set[int]:
        made: list[Any] = []

        def noted(array: Any) -> Any:
            made.append(from_array(array))
            return made[-1]

        args, kwargs = self.sample.arguments(noted)
        signature, rules = self.op.signature, self.op.rules
        names = dict(zip(signature.names, args, strict=False)) | kwargs
        number = {id(t): i for i, t in enumerate(made)}
        wanted = [i for i in signature.inputs if rules is not None and not rules.missing(i)]
        return {number[id(t)] for i in wanted for t in tensors_in([names.get(signature.names[i])])}

    @cached_property
    def numbers(self) -> list[int]:
        """The numbers of the results that carry a gradient."""
        tracked = [from_array(a).requires_grad_() if i in self.places else from_array(a)
                   for i, a in enumerate(self.arrays)]  # fmt: skip
        return [k for k, r in enumerate(self.run(*tracked)) if r.requires_grad]

    @property
    def floats(self) -> list[Any]:
        """The arrays to differentiate by."""
        return [self.arrays[i] for i in self.places]

    def of_floats(self, fixed: Any = None) -> Callable[..., tuple[Tensor, ...]]:
        """Return the call as a function of the tensors it is differentiated by; the others are ``fixed``."""

        def function(*tensors: Any) -> tuple[Tensor, ...]:
            full = list(map(from_array, self.arrays)) if fixed is None else list(fixed)
            for i, t in zip(self.places, tensors, strict=True):
                full[i] = t
            results = self.run(*full)
            return tuple(results[k] for k in self.numbers)

        return function
