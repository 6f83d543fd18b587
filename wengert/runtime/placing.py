"""Where values of a graph lie that have no place in a plan's own memory: in that of an input, or of the caller."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np

from wengert.graph.control import Control
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Callback, Draw, Formula, Fused
from wengert.runtime.arena import ALIGNMENT

__all__ = ["LARGE", "handed_out", "in_place", "kept", "replaces", "reserved"]

LARGE: Final = 1 << 16  # bytes: less is copied sooner than addresses are changed
OVER: Final = frozenset({"increase_rows", "put_rows"})  # operators that change some rows of their first argument


def in_place(graph: Graph, bound: Sequence[Any]) -> dict[Value, Any]:
    """Return the values that may be computed where an input lies, because nothing reads the input after them.

    Args:
        bound: for each input the array that it is at every call, or None where it differs.
    """
    last = {value: k for k, node in enumerate(graph.nodes) for value in node.inputs}
    made = {value: k for k, node in enumerate(graph.nodes) for value in node.results}
    arrays = dict(zip(graph.inputs, bound, strict=True))
    outputs, aliased = set(graph.outputs), _aliased(graph)
    found: dict[Value, Any] = {}
    readers: dict[Node, Counter[Value]] = {}
    for target, value in graph.writes:
        array, maker = arrays[target], value.node
        if (
            maker is not None and value in made and value not in found and target not in outputs
            and target not in aliased and last.get(target, -1) <= made[value]
            and array is not None and array.flags.carray and (_is_elementwise(maker.op) or _is_over(maker, target))
            and (not _is_formulas(maker.op) or _readers(maker, readers)[target] <= 1)
        ):  # fmt: skip
            found[value] = array
    return found


def handed_out(graph: Graph, large: float = LARGE) -> list[Value]:
    """Return the results that are large enough, in bytes, to be computed in memory of the caller's."""
    written = {value for _, value in graph.writes}
    once = [v for v, number in Counter(graph.outputs).items() if number == 1]
    return [
        v for v in once
        if v.node is not None and not getattr(v.node.op, "view", False) and v not in written and v.nbytes >= large
    ]  # fmt: skip


def kept(graph: Graph, numbers: Collection[int], large: float = LARGE) -> dict[Value, int]:
    """Return those of some outputs, given by their numbers, that may lie where the last call had them, if that is free."""
    own = [v for v in handed_out(graph, 1) if v.nbytes < large]
    found = {graph.outputs[number]: number for number in numbers}
    return {value: found[value] for value in own if value in found}


def reserved(values: Sequence[Value]) -> dict[Value, Any]:
    """Return arrays at addresses that stand for others: in one large block, of which no page is there before it is written."""
    ends = np.cumsum([0, *(-(-v.nbytes // ALIGNMENT) * ALIGNMENT for v in values)]).tolist()
    block = np.empty(ends[-1] + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    return {
        v: np.ndarray(v.shape, v.dtype.numpy, block.data, start + place)
        for v, place in zip(values, ends[:-1], strict=True)
    }


def replaces(node: Node) -> bool:
    """Whether the results of a node may take the place of arguments that end there."""
    return _is_elementwise(node.op) and not _is_formulas(node.op)


def _aliased(graph: Graph) -> set[Value]:
    """Return the inputs that some view looks at: they may be read through it later."""
    return {node.inputs[0] for node in graph.nodes if getattr(node.op, "view", False) and node.inputs}


def _is_over(node: Node, target: Value) -> bool:
    """Whether a node changes rows of an input, and reads it as nothing else."""
    return getattr(node.op, "name", "") in OVER and node.arguments[0] is target and node.inputs.count(target) == 1


def _is_formulas(op: Any) -> bool:
    return isinstance(op, Fused) and op.kind == "formulas"


def _readers(node: Node, known: dict[Node, Counter[Value]]) -> Counter[Value]:
    """Return how many of the kernels of a node read each value; ``known`` are those that were counted before."""
    if node not in known:
        outer = dict(zip(node.op.body.inputs, node.arguments, strict=True))
        known[node] = Counter(v for n in node.op.body.nodes for v in {outer[i] for i in n.inputs if i in outer})
    return known[node]


def _is_elementwise(op: Any) -> bool:
    """Whether an operation reads an element of its arguments only where it writes the result's, so that they may be one."""
    if isinstance(op, Callback | Control | Draw):
        return False
    if isinstance(op, Fused):
        return op.kind in ("pointwise", "formulas")
    return isinstance(op, Formula) or (op.batch == "broadcast" and op.single)
