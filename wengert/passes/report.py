"""What passes came to, as a table: the kernels and what is in them, bytes and operations before and after."""

from collections.abc import Sequence
from typing import Final

from wengert.graph.ir import Graph, Node
from wengert.graph.operations import Fused
from wengert.passes.traffic import flops_of, kernels_of, totals, traffic_of

__all__ = ["report"]

WIDEST: Final = 60  # characters of a kernel's operators


def report(before: Graph, after: Graph) -> str:
    """Return a table of the kernels of a graph, with what the graph it was made from would have cost.

    A row is a kernel: the operators in it, the bytes it reads and writes if no cache helps, and its floating-point
    operations, as far as operators say theirs. Equal kernels are one row with their number. Views have no kernel and no row.

    Example:
        >>> import wengert as wg
        >>> from wengert.compiling.trace import trace
        >>> from wengert.passes.pipeline import optimise
        >>> graph = trace(lambda x: (x.sigmoid() * 2).relu())(wg.ones(1000)).graph
        >>> print(report(graph, optimise(graph)))
        kernel     operators           times    bytes    flops
        pointwise  sigmoid, mul, relu      1  8.00 kB  14.00 k
        before: 3 kernels, 24.00 kB, 14.00 k flops
        after:  1 kernel, 8.00 kB, 14.00 k flops
    """
    rows: dict[tuple[str, str], list[int]] = {}
    for node in after.nodes:
        if kernels_of(node):
            row = rows.setdefault(_operators(node), [0, 0, 0])
            for k, cost in enumerate((1, traffic_of([node]), flops_of(node))):
                row[k] += cost
    table = [("kernel", "operators", "times", "bytes", "flops")]
    table += [(*key, str(times), _amount(b, "B"), _amount(f, "")) for key, (times, b, f) in rows.items()]
    return "\n".join([*_aligned(table), f"before: {_sum(before)}", f"after:  {_sum(after)}"])


def _operators(node: Node) -> tuple[str, str]:
    """Return the name of a node's kernel, and the operators in it, equal ones that follow one another with their number."""
    if not isinstance(node.op, Fused):
        return node.op.name, node.op.name
    runs: list[tuple[str, int]] = []
    for inner in node.op.body.nodes:
        name = inner.op.name
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    text = ", ".join(name if n == 1 else f"{n} {name}" for name, n in runs)
    return node.op.kind, text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        words = [f"{c:<{w}}" for c, w in zip(row[:2], widths[:2], strict=True)]
        numbers = [f"{c:>{w}}" for c, w in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*words, *numbers]).rstrip())
    return lines


def _amount(count: int, unit: str) -> str:
    """Return a number with a decimal prefix.

    Example:
        >>> _amount(999, "B"), _amount(1500, "B"), _amount(2_500_000, "")
        ('999 B', '1.50 kB', '2.50 M')
    """
    number, prefixes = float(count), iter("kMGTP")
    prefix = ""
    while number >= 1000:
        number, prefix = number / 1000, next(prefixes)
    return (f"{number:.2f} {prefix}{unit}" if prefix else f"{count} {unit}").strip()


def _sum(graph: Graph) -> str:
    kernels, moved, computed = totals(graph)
    return f"{kernels} kernel{'s' * (kernels != 1)}, {_amount(moved, 'B')}, {_amount(computed, '')} flops"
