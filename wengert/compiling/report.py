"""``graph.report()``: what the passes make of a graph, and how long it takes at best on this machine."""

from wengert.compiling.program import KINDS
from wengert.graph.ir import Graph, Node
from wengert.passes.pipeline import optimise
from wengert.passes.report import report
from wengert.runtime.machine import measured
from wengert.runtime.roof import roof

__all__ = ["predicted", "report_of"]


def report_of(graph: Graph) -> str:
    """Return a table of the kernels that a graph becomes: see :func:`wengert.passes.report.report`.

    The predicted time is the machine's roof, :mod:`wengert.runtime.roof`. The measured one stands beside it in what
    :meth:`wengert.compiling.explain.Explanation.measure` returns.

    Example:
        >>> import wengert as wg
        >>> print(wg.trace(lambda x: (x.sigmoid() * 2).relu())(wg.ones(1000)).graph.report())  # doctest: +ELLIPSIS
        kernel     operators           times    before    bytes    flops  predicted  lines
        pointwise  sigmoid, mul, relu      1  24.00 kB  8.00 kB  14.00 k  ...
        before: 3 kernels, 24.00 kB, 14.00 k flops
        after:  1 kernel, 8.00 kB, 14.00 k flops, predicted ...
    """
    after = optimise(graph, kinds=KINDS)
    return report(graph, after, places=True, predicted=predicted(after))


def predicted(graph: Graph) -> dict[Node, float]:
    """Return the seconds that each node takes at best."""
    machine = measured()
    return {node: roof(node, machine) for node in graph.nodes}
