"""Whether two arrays differ by more than rounding.

Numbers may differ by rounding, and a program may make much of that. So where tolerances do not suffice, the same is computed
again from inputs that are moved by up to a tenth of them, and what that changes is allowed :data:`ALLOWED` times over. (In the
manner of stochastic arithmetic: J. Vignes, "A stochastic arithmetic for reliable scientific computation", Mathematics and
Computers in Simulation 35, 1993.)
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from wengert.compiling.decisions import generators_of, rewound
from wengert.core.native import OFF, native
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.report import inner

__all__ = ["ALLOWED", "Noise", "apart", "evaluated", "greatest", "moved", "numpy_only", "tolerance", "tolerances"]

RELATIVE: Final = {2: 3e-2, 4: 1e-4, 8: 1e-9, 16: 1e-9}  # by the bytes of a number
SCALE: Final = 0.1  # the part of this that small numbers of an array may be off, in relation to its greatest
MOVED, ALLOWED = 0.1, 16  # the part of it that inputs are moved by at most, and how often what comes of that is allowed


@contextmanager
def numpy_only() -> Iterator[None]:
    """Leave native code out in a block."""
    smallest, native.smallest = native.smallest, OFF
    try:
        yield
    finally:
        native.smallest = smallest


def evaluated(graph: Graph, given: Sequence[Any]) -> list[Any]:
    """Return the results of a graph, computed in NumPy; generators stay where they are."""
    with numpy_only(), np.errstate(all="ignore"), rewound(generators_of(graph)):
        found = evaluate(graph, given)
    return [found[value] for value in graph.results]


class Noise:
    """How far rounding moves the results of a graph, found out when it is first asked for."""

    def __init__(self, graph: Graph, given: Sequence[Any]) -> None:
        self._graph, self._given = graph, given
        self._far: list[float] | None = None

    def of(self, position: int) -> float:
        """Return by how much result ``position`` may be off."""
        if self._far is None:
            plain, other = (evaluated(self._graph, arrays) for arrays in (self._given, moved(self._given)))
            self._far = [ALLOWED * greatest(a, b) for a, b in zip(plain, other, strict=True)]
        return self._far[position]


def tolerances(graph: Graph) -> list[float]:
    """Return how far the numbers of each result may be off, in relation to their size; whole ones not at all.

    That is a matter of the coarsest dtype that anything is rounded to on the way to the result.
    """
    found: dict[Value, float] = {}
    for node in graph.nodes:
        before = max((found.get(value, 0.0) for value in node.inputs), default=0.0)
        for value in node.results:
            found[value] = max(before, tolerance(node))
    return [found.get(value, 0.0) for value in graph.results]


def tolerance(node: Node) -> float:
    """Return how far the numbers that a node computes may be off, in relation to their size."""
    made = [*node.results, *(value for part in inner(node) for value in part.results)]
    return max((_relative(value.dtype.numpy) for value in made), default=0.0)


def _relative(dtype: Any) -> float:
    return RELATIVE[dtype.itemsize // (2 if dtype.kind == "c" else 1)] if _is_inexact(dtype) else 0.0


def _is_inexact(dtype: Any) -> bool:
    return dtype.kind in "fcV"  # bfloat16 is a V


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def greatest(one: Any, other: Any) -> float:
    """Return the greatest distance of two arrays; between equal numbers, or what is no number in both, there is none.

    Example:
        >>> greatest(np.array([1.0, np.inf, np.nan]), np.array([1.5, np.inf, np.nan]))
        0.5
    """
    one, other = _wide(one), _wide(other)
    with np.errstate(all="ignore"):
        far = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return float(np.max(np.where(np.isnan(far), np.inf, far), initial=0.0))


def apart(found: Any, want: Any, relative: float, allowed: float = 0.0) -> float:
    """Return how far two arrays are apart at most, or 0 if that is within a tolerance and what is allowed beyond it.

    Example:
        >>> apart(np.array([1.0, 2.0]), np.array([1.0, 2.1]), 1e-4)
        0.10000000000000009
        >>> apart(np.array([1.0, 2.0]), np.array([1.0, 2.00001]), 1e-4), apart(np.array([1]), np.array([2]), 1e-4)
        (0.0, 1.0)
    """
    if found.shape != want.shape or found.dtype != want.dtype:
        return math.inf
    if not _is_inexact(want.dtype):
        far = 0.0 if np.array_equal(found, want) else max(1.0, greatest(found, want))
        return far if far > allowed else 0.0
    found, want = _wide(found), _wide(want)
    size = np.abs(want)
    scale = float(np.max(size, initial=0.0, where=np.isfinite(size)))
    if np.all(np.isclose(found, want, relative, relative * SCALE * scale + allowed, equal_nan=True)):
        return 0.0
    return greatest(found, want)


def moved(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays whose numbers are moved at random, by a part of what they may be off."""
    draws, found = np.random.default_rng(0), []
    for array in arrays:
        by = MOVED * _relative(array.dtype) * draws.uniform(-1, 1, array.shape)
        found.append((_wide(array) * (1 + by)).astype(array.dtype) if _is_inexact(array.dtype) else array)
    return found
