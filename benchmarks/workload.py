"""What is timed: a workload has cases, and for each framework a function that builds the work."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Case", "Job", "Limits", "Round", "Runner", "RunnerError", "Workload", "framework_of"]

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """One size or variant of a workload.

    Attributes:
        name: unique within the workload.
        must, aim: the ratio of wengert's time to the best peer's that is promised, and the one that is hoped for.
        parameters: what the builders need to know.
        unit: of the measurements: ``"s"`` or ``"MB"``.
    """

    name: str
    must: float
    aim: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "s"


def framework_of(name: str) -> Any:
    """Return the module of a framework, or of a variant of it such as ``"torch compiled"`` or ``"torch, written out"``."""
    return importlib.import_module(name.replace(",", " ").partition(" ")[0])


class Job(NamedTuple):
    """What a builder returns.

    Attributes:
        step: does one unit of work; it must return only when the results are in memory.
        results: gives what the steps so far produced, to compare with the other frameworks.
    """

    step: Callable[[], object]
    results: Callable[[], Arrays]


class Limits(NamedTuple):
    """How long one round of one framework lasts: so many samples, or so many seconds, whichever comes first."""

    samples: int
    seconds: float


class Round(NamedTuple):
    """The samples of one framework in one round, and the cores that other processes used meanwhile."""

    samples: Sequence[float]
    others: float | None


class RunnerError(RuntimeError):
    """A framework that cannot be measured; the message says why."""


class Runner(Protocol):
    """A framework that is ready to be measured: built, and its first steps done."""

    first: float | None
    """Seconds to build the work and do it once, the framework being imported."""
    results: Arrays
    """What the first steps produced."""

    def round(self, limits: Limits) -> Round:
        """Measure once more."""

    def close(self) -> None:
        """Give everything back."""


Builder = Callable[[Case, Arrays, str], Any]
Data = Callable[[Case, np.random.Generator], Arrays]


class Workload:
    """Work that several frameworks do: the same data, the same mathematics.

    Args:
        promise: the id of the promise it measures, such as ``"P1"``.
        name: what tells it from the promise's other workloads.
        title: one line that says what one step does.
        cases: its sizes and variants.
        data: makes inputs and first parameters; every framework gets the same.
        steps: how many steps are done before the results are compared.
        tolerance: the largest error allowed in a result, relative to the norm of the reference's.
        reference: gives the right results in float64; without it the first peer that runs is the reference.
        from_outside: builders give a :class:`Runner`, here and now, instead of a :class:`Job` in a new process.
        peers: variants of wengert that the others are measured against.

    Example:
        >>> cases = [Case("small", must=1, aim=1)]
        >>> squares = Workload("P0", "square", "x * x", cases, lambda case, rng: {"x": rng.random(8)})
        >>> @squares.framework("numpy")
        ... def build(case, data, name):
        ...     out = {}
        ...     return Job(lambda: out.update(y=data["x"] * data["x"]), lambda: out)
        >>> list(squares.builders)
        ['numpy']
    """

    def __init__(
        self,
        promise: str,
        name: str,
        title: str,
        cases: Sequence[Case],
        data: Data,
        *,
        steps: int = 1,
        tolerance: float = 1e-4,
        reference: Callable[[Case, Arrays], Arrays] | None = None,
        from_outside: bool = False,
        peers: Sequence[str] = (),
    ) -> None:
        self.promise, self.name, self.title = promise, name, title
        self.cases = {case.name: case for case in cases}
        self.steps, self.tolerance, self.reference, self.from_outside = steps, tolerance, reference, from_outside
        self.builders: dict[str, Builder] = {}
        self._peers = frozenset(peers)
        self._data = data

    def is_subject(self, name: str) -> bool:
        """Whether a framework is what is measured, not what it is measured against."""
        return name.startswith("wengert") and name not in self._peers

    def framework(self, *names: str) -> Callable[[Builder], Builder]:
        """Register a builder under one or more names: ``build(case, data, name)`` gives a :class:`Job`.

        A name that begins with ``wengert``, unless it is one of the ``peers``, is measured against the best of the others.
        """

        def register(builder: Builder) -> Builder:
            self.builders.update(dict.fromkeys(names, builder))
            return builder

        return register

    def data(self, case: Case) -> Arrays:
        """Return the case's arrays: the same numbers in every process."""
        return self._data(case, np.random.default_rng(0))
