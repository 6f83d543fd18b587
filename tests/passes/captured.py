"""Captured functions for the tests of passes: their graphs, arrays for the inputs, and what the graphs give."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import wengert as wg
from wengert import tree
from wengert.compiling.capturing import capture
from wengert.compiling.program import Program
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph
from wengert.graph.verify import verify
from wengert.passes.pipeline import optimise

__all__ = ["arrays_of", "captured", "names", "outcome", "program_of", "same"]


def program_of(function: Callable[..., Any], *args: Any) -> tuple[Program, list[Any]]:
    """Return what a function does as a program, and the leaves of its arguments."""
    leaves, structure = tree.flatten((args, {}))
    return capture(function, leaves, structure), leaves


def captured(function: Callable[..., Any], *args: Any) -> tuple[Graph, list[Any]]:
    """Return the graph of a function, and the arrays that its inputs are now."""
    program, leaves = program_of(function, *args)
    return program.graph, arrays_of(program, leaves)


def arrays_of(program: Program, leaves: Sequence[Any]) -> list[Any]:
    """Return the arrays of a program's inputs, host numbers too."""
    numbers = {v: n for host in program.hosts if host.values for v, n in zip(host.values, host.do(), strict=True)}
    return [
        np.asarray(numbers[v], v.dtype.numpy) if source is None else source.tensor(leaves)._payload.copy()
        for v, source in zip(program.graph.inputs, program.sources, strict=True)
    ]


def outcome(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """Return the arrays of a graph's outputs and writes, with the random numbers of one seed."""
    wg.manual_seed(5)
    found = evaluate(graph, arrays)
    return [found[v] for v in graph.results]


def same(graph: Graph, arrays: Sequence[Any], *, exact: bool = True, **options: Any) -> Graph:
    """Optimise a graph, check that it means what it did, and return it.

    Args:
        exact: every bit must be the same, else float64 to rounding and float32 accordingly.
    """
    text, targets = str(graph), [t for t, _ in graph.writes]
    found = optimise(graph, verify=verify, **options)
    assert str(graph) == text, "the graph given was changed"
    assert found.inputs == graph.inputs
    assert [t for t, _ in found.writes] == targets
    assert len(found.outputs) == len(graph.outputs)
    for a, b in zip(outcome(graph, arrays), outcome(found, arrays), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if exact or a.dtype.kind not in "fcV":
            assert a.tobytes() == b.tobytes() or _same_but_for_nans(a, b), f"{a}\n{b}\n{graph}\n{found}"
        else:
            scale = 1e-12 if a.dtype.itemsize >= 8 and a.dtype.kind == "f" else 2e-5
            np.testing.assert_allclose(b, a, rtol=scale, atol=scale * max(1.0, float(np.max(np.abs(a), initial=0))))
    return found


def _same_but_for_nans(a: Any, b: Any) -> bool:
    """Whether two arrays are equal but for the payloads and signs of NaN."""
    if a.dtype.kind not in "fcV":
        return False
    a, b = (x.astype(np.float64) if x.dtype.kind == "V" else x for x in (a, b))
    real = np.isnan(a) == np.isnan(b)
    keep = ~np.isnan(a)
    return bool(real.all()) and a[keep].tobytes() == b[keep].tobytes()


def names(graph: Graph) -> list[str]:
    """Return the names of a graph's nodes."""
    return [node.op.name for node in graph.nodes]
