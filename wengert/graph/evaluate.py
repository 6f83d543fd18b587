"""What a graph means: its nodes one by one, on NumPy arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.apply import execute
from wengert.core.operator import Op
from wengert.core.place import describe
from wengert.core.tensor import Tensor, from_array
from wengert.errors import TransformError
from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.tape.modes import no_grad

__all__ = ["applied", "compute", "evaluate", "noted"]


def compute(node: Node, arrays: Callable[[Value], Any]) -> list[Any]:
    """Return the arrays of a node's results; ``arrays`` gives those of its arguments."""
    op = node.op
    if not isinstance(op, Op):
        found: list[Any] = op.compute(replaced(node.arguments, arrays))
        return found
    given = list(replaced(node.arguments, lambda v: from_array(arrays(v))))
    try:
        with no_grad():
            result = execute(op, given)
    except Exception as error:
        noted(error, node)
        raise
    return [r._payload for r in ((result,) if isinstance(result, Tensor) else result)]


def noted(error: Exception, node: Node) -> None:
    """Say in an error which line of the function it is about, if that is known and was not said."""
    if node.place is not None and not getattr(error, "__notes__", ()):
        error.add_note(f"in {node.op.name}() of a compiled function, called at {describe(node.place)}")


def evaluate(
    graph: Graph, inputs: Sequence[Any], watch: Callable[[Node, list[Any]], None] | None = None
) -> dict[Value, Any]:
    """Run a graph.

    Args:
        graph: the program. inputs: an array for each of its inputs; none of them is written to. watch: called with each
            node and its results.

    Returns:
        The array of each value that is an output, or that an input is to hold afterwards.
    """
    held: dict[Value, Any] = dict(graph.constants)
    held.update(zip(graph.inputs, inputs, strict=True))
    left = _uses_left(graph)
    for node in graph.nodes:
        results = compute(node, held.__getitem__)
        if watch is not None:
            watch(node, results)
        for value, array in zip(node.results, results, strict=True):
            held[value] = np.asarray(array)
        for value in {*node.inputs, *node.results}:
            if value in left:
                left[value] -= value in node.inputs
                if not left[value]:
                    held.pop(value, None)
    return {value: _apart(held[value], inputs) for value in graph.results}


def applied(graph: Graph, tensors: Sequence[Any]) -> list[Any]:
    """Return the outputs of a graph for tensors, of any transform: its operators are called as a user calls them.

    Raises:
        TransformError: if a transform meets an operation that has nothing but arrays.
    """
    held = {value: from_array(array) for value, array in graph.constants.items()}
    held.update(zip(graph.inputs, tensors, strict=True))
    for node in graph.nodes:
        if isinstance(node.op, Op):
            result = execute(node.op, list(replaced(node.arguments, held.__getitem__)))
        elif all(type(held[v]._payload) is np.ndarray for v in node.inputs):
            result = list(map(from_array, node.op.compute(replaced(node.arguments, lambda v: held[v]._payload))))
        else:
            raise TransformError(f"{node.op.name} in a compiled function cannot be transformed; call it uncompiled")
        held.update(zip(node.results, (result,) if isinstance(result, Tensor) else result, strict=True))
    return [held[value] for value in graph.outputs]


def _apart(array: Any, inputs: Sequence[Any]) -> Any:
    """Return a result in memory that no input shares: that of an input may be written before the result is used."""
    return array.copy() if any(np.may_share_memory(array, i) for i in inputs) else array


def _uses_left(graph: Graph) -> dict[Value, int]:
    """Return how many nodes read each value that may be forgotten after them."""
    kept = {*graph.results, *graph.inputs, *graph.constants}
    uses = {value: len(nodes) for value, nodes in graph.uses().items() if value not in kept}
    unused = {v: 0 for n in graph.nodes for v in n.results if v not in kept and v not in uses}
    return uses | unused
