"""What passes came to, as a table: the kernels and what is in them, bytes and operations before and after."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from wengert.core.place import line_of
from wengert.graph.ir import Graph, Node
from wengert.graph.operations import Fused
from wengert.passes.amounts import amount, duration
from wengert.passes.traffic import flops_of, kernels_of, totals, traffic_of

__all__ = ["aligned", "inner", "lines", "operators", "report"]

WIDEST: Final = 60  # characters of a kernel's operators
MOST_LINES: Final = 5  # of the program, that are named for a row

Seconds = Mapping[Node, float]


def report(before: Graph, after: Graph, *, places: bool = False, **times: Seconds) -> str:
    """Return a table of the kernels of a graph, with what the graph it was made from would have cost.

    A row is a kernel: the operators in it, the bytes it reads and writes if no cache helps (and those of its operators, if
    each were a kernel of its own), and its floating-point operations, as far as operators say theirs. Equal kernels are one
    row with their number. Views have no kernel and no row.

    Args:
        places: name the lines of the user's program that a row computes.
        times: further columns by name: seconds of each node, for example ``predicted=`` and ``measured=``.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> from wengert.passes.pipeline import optimise
        >>> graph = trace(lambda x: (x.sigmoid() * 2).relu())(wg.ones(1000)).graph
        >>> print(report(graph, optimise(graph)))
        kernel     operators           times    before    bytes    flops
        pointwise  sigmoid, mul, relu      1  24.00 kB  8.00 kB  14.00 k
        before: 3 kernels, 24.00 kB, 14.00 k flops
        after:  1 kernel, 8.00 kB, 14.00 k flops
    """
    rows: dict[tuple[str, str], list[Node]] = {}
    for node in after.nodes:
        if kernels_of(node):
            rows.setdefault(_title(node), []).append(node)
    table = [("kernel", "operators", "times", "before", "bytes", "flops", *times)]
    for title, nodes in rows.items():
        unfused = sum(traffic_of(inner(node)) for node in nodes)
        cost = amount(unfused, "B"), amount(traffic_of(nodes), "B"), amount(sum(map(flops_of, nodes)))
        table.append((*title, str(len(nodes)), *cost, *(_taken(nodes, seconds) for seconds in times.values())))
    told = ["lines", *(lines(nodes) for nodes in rows.values())] if places else []
    sums = f"before: {_sum(before)}", f"after:  {_sum(after)}{_sum_of(times)}"
    return "\n".join([*aligned(table, told), *sums])


def inner(node: Node) -> list[Node]:
    """Return the nodes that a node was made of: itself, if it is not fused."""
    return list(node.op.body.nodes) if isinstance(node.op, Fused) else [node]


def operators(node: Node) -> str:
    """Return the operators in a node, equal ones that follow one another with their number."""
    runs: list[tuple[str, int]] = []
    for name in (n.op.name for n in inner(node)):
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    text = ", ".join(name if n == 1 else f"{n} {name}" for name, n in runs)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def lines(nodes: Iterable[Node]) -> str:
    """Return the lines of the program that nodes come from: ``model.py:7, 12``."""
    found: dict[str, dict[int, None]] = {}
    for node in nodes:
        for part in inner(node):
            if (line := line_of(part.place)) is not None:
                found.setdefault(os.path.basename(line[0]), {})[line[1]] = None
    return "; ".join(f"{file}:{_some(sorted(numbers))}" for file, numbers in found.items())


def _some(numbers: Sequence[int]) -> str:
    more = [f"… ({len(numbers)} lines)"] if len(numbers) > MOST_LINES else []
    return ", ".join([*map(str, numbers[:MOST_LINES]), *more])


def _title(node: Node) -> tuple[str, str]:
    return node.op.kind if isinstance(node.op, Fused) else node.op.name, operators(node)


def _taken(nodes: Iterable[Node], seconds: Seconds) -> str:
    known = [seconds[node] for node in nodes if node in seconds]
    return duration(sum(known)) if known else "-"


def aligned(table: Sequence[tuple[str, ...]], last: Sequence[str] = ()) -> Iterator[str]:
    """Yield the rows of a table, two columns to the left, the others to the right; ``last`` is one more to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for k, row in enumerate(table):
        words = [f"{c:<{w}}" for c, w in zip(row[:2], widths[:2], strict=True)]
        numbers = [f"{c:>{w}}" for c, w in zip(row[2:], widths[2:], strict=True)]
        yield "  ".join([*words, *numbers, *last[k : k + 1]]).rstrip()


def _sum(graph: Graph) -> str:
    kernels, moved, computed = totals(graph)
    return f"{kernels} kernel{'s' * (kernels != 1)}, {amount(moved, 'B')}, {amount(computed)} flops"


def _sum_of(times: Mapping[str, Any]) -> str:
    return "".join(f", {name} {duration(sum(seconds.values()))}" for name, seconds in times.items() if seconds)
