"""The samples of a declaration: small calls that every check of an operator runs.

A declaration's ``samples`` is a function of a :class:`Sampler`, so that importing the package makes no arrays.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.operator import Op
from wengert.core.registry import operators
from wengert.core.tensor import Tensor, from_array

__all__ = ["ErrorSample", "Literal", "Sample", "Sampler", "samples_of"]


class Literal:
    """A tensor argument given by its elements."""

    def __init__(self, data: Any) -> None:
        self.array = np.asarray(data)

    def draw(self, rng: np.random.Generator) -> Any:
        """Return the array."""
        return self.array


class Drawn:
    """A tensor argument of random elements."""

    def __init__(
        self, shape: tuple[int, ...], kind: str, low: float | None, high: float | None, of: str | None
    ) -> None:
        self.shape, self.kind, self.low, self.high, self.of = shape, kind, low, high, of

    def draw(self, rng: np.random.Generator) -> Any:
        """Return the array."""
        low, high = self.low, self.high
        if self.kind == "integer":
            array: Any = rng.integers(-3 if low is None else int(low), 4 if high is None else int(high), self.shape)
        elif self.kind == "boolean":
            array = rng.random(self.shape) < 0.5
        else:
            low, high = (
                (0.5 if self.kind == "positive" else -2.0) if low is None else low,
                2.0 if high is None else high,
            )
            array = rng.uniform(low, high, self.shape)
            if self.kind == "complex":
                array = array + 1j * rng.uniform(low, high, self.shape)
        if self.of is not None:
            array = np.asarray(array).astype(self.of)
        return np.asarray(array)


def recipes(values: Any) -> list[Any]:
    """Return every recipe of an array among arguments (lists included), in order."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Drawn | Literal):
            found.append(value)
        elif isinstance(value, list):
            found.extend(recipes(value))
    return found


class Sample:
    """One call: arguments by position and keyword, tensors still as recipes.

    Attributes:
        wanted: the numbers of the tensors to differentiate by; None: all that hold floats.
        grad: whether derivatives are checked against differences here (False at kinks, ties and infinities).
        layouts: whether other memory layouts give the same (False for what is defined by strides).
    """

    layouts = True

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool, seed: int, wanted: frozenset[int] | None = None
    ) -> None:
        self.args, self.kwargs, self.grad, self.seed, self.wanted = args, kwargs, grad, seed, wanted
        self.drawn: list[Any] | None = None

    def differentiates(self, number: int, array: Any) -> bool:
        """True if the derivative by the array with this number is to be checked."""
        return array.dtype.kind in "fc" and (self.wanted is None or number in self.wanted)

    def arguments(self, convert: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with every array passed through ``convert`` (array to tensor)."""
        if self.drawn is None:
            rng = np.random.default_rng(self.seed)
            self.drawn = [r.draw(rng) for r in recipes([*self.args, *self.kwargs.values()])]
        arrays = iter(self.drawn)

        def make(value: Any) -> Any:
            if isinstance(value, Drawn | Literal):
                return convert(next(arrays).copy())
            if isinstance(value, list):
                return [make(v) for v in value]
            return value() if isinstance(value, Late) else value

        return [make(v) for v in self.args], {k: make(v) for k, v in self.kwargs.items()}

    def __repr__(self) -> str:
        def show(value: Any) -> str:
            if isinstance(value, Drawn):
                return f"{value.kind}{value.shape}"
            if isinstance(value, Literal):
                return f"array({value.array.tolist()})"
            return f"[{', '.join(map(show, value))}]" if isinstance(value, list) else repr(value)

        parts = [show(a) for a in self.args] + [f"{k}={show(v)}" for k, v in self.kwargs.items()]
        return f"({', '.join(parts)})"


class ErrorSample(Sample):
    """A call that must raise ``error`` with a message that matches ``match``."""

    def __init__(
        self, error: type[Exception], match: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
    ) -> None:
        super().__init__(args, kwargs, False, seed)
        self.error, self.match = error, match


class Late:
    """A value that can be made only once every operator is declared."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __call__(self) -> Any:
        return self.make()


class Sampler:
    """Makes samples: ``s((2, 3), (3,), alpha=2)`` is a call with two random tensors and ``alpha=2``.

    A tuple of ints is a random float64 tensor of that shape; ``kind`` makes it "positive", "integer", "boolean" or
    "complex", ``low`` and ``high`` bound it, ``of`` names another dtype. A list of tuples is a sequence of tensors.
    ``grad`` says whether derivatives are checked, ``wrt`` by which tensors alone (their numbers);
    ``layouts=False`` that the call depends on how memory is laid out.
    Other values, and all other keyword arguments, are passed as they are (``s.array`` makes a literal tensor).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    array = staticmethod(Literal)

    def __call__(
        self, *inputs: Any, kind: str = "real", low: float | None = None, high: float | None = None, of: str | None = None,
        grad: bool = True, wrt: Sequence[int] | None = None, layouts: bool = True, **params: Any,
    ) -> Sample:  # fmt: skip
        wanted = None if wrt is None else frozenset(wrt)
        sample = Sample(self._recipes(inputs, kind, low, high, of), params, grad, self._seed(), wanted)
        sample.layouts = layouts
        return sample

    def error(
        self, error: type[Exception], match: str, *inputs: Any, kind: str = "real", of: str | None = None, **params: Any
    ) -> ErrorSample:
        """Return a call that must raise ``error`` with a message matching the regular expression ``match``."""
        return ErrorSample(error, match, self._recipes(inputs, kind, None, None, of), params, self._seed())

    def tensor(
        self, shape: tuple[int, ...], kind: str = "real", low: Any = None, high: Any = None, of: Any = None
    ) -> Any:
        """Return one tensor argument of its own kind, where the tensors of a call differ."""
        return Drawn(shape, kind, low, high, of)

    def view_write(self, shape: tuple[int, ...], at: int | slice) -> Sample:
        """Return a call of ``view_write`` through a view at index (or slice) ``at`` of the first dimension."""
        sub = np.empty(shape)[at].shape

        def chain() -> Any:
            return ((operators()["getitem"], [None, (at,)], None),)

        return Sample((Drawn(shape, "real", None, None, None), Drawn(sub, "real", None, None, None), Late(chain)), {}, True,
                      self._seed())  # fmt: skip

    def _recipes(self, inputs: Any, kind: str, low: Any, high: Any, of: Any) -> tuple[Any, ...]:
        def recipe(value: Any) -> Any:
            if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
                return Drawn(value, kind, low, high, of)
            return [recipe(v) for v in value] if isinstance(value, list) else value

        return tuple(recipe(v) for v in inputs)

    def _seed(self) -> int:
        self.count += 1
        return zlib.crc32(f"{self.name} {self.count}".encode())


def samples_of(op: Op) -> list[Sample]:
    """Return the samples of an operator."""
    return list(op.samples(Sampler(op.name)))


def sample_from(args: Any, kwargs: Any) -> Sample:
    """Return a call with given arguments as a sample; it is differentiated by the tensors that require grad."""
    wanted: list[int] = []
    count = 0

    def literal(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Tensor):
            if value.requires_grad:
                wanted.append(count)
            count += 1
            return Literal(value.detach().numpy().copy())
        return [literal(v) for v in value] if isinstance(value, list | tuple) and any(
            isinstance(v, Tensor) for v in value) else value  # fmt: skip

    made = tuple(literal(v) for v in args), {k: literal(v) for k, v in dict(kwargs or {}).items()}
    return Sample(*made, bool(wanted), 0, frozenset(wanted))


def tensors_in(arguments: Any) -> list[Tensor]:
    """Return every tensor among arguments (lists and tuples included), in order."""
    found: list[Tensor] = []
    for value in arguments:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(tensors_in(value))
    return found


def plain(array: Any) -> Any:
    """Return an array as a tensor without history."""
    return from_array(array)
