"""Gradients that go on outside: what a compiled function returns is part of the caller's graph.

When results of a captured function require a gradient, the backward walk from them to the tensors that came from outside is
captured too, as a second graph. What it needs of the first becomes results of that, kept for it; in the caller's graph
the whole is one node.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from wengert.array.device import devices, index_of, placed, unplaced
from wengert.core.interpret import Payload
from wengert.core.node import Leaf, OpNode
from wengert.core.place import here
from wengert.core.state import thread
from wengert.core.tensor import from_array, node_of, version_of
from wengert.errors import GraphFreedError, InplaceError, MissingRuleError
from wengert.graph.capture import Capture
from wengert.graph.evaluate import applied
from wengert.graph.ir import Graph, Value, replaced
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Storage, stand_in
from wengert.tape.api import grad
from wengert.tape.function import Function
from wengert.tape.modes import enable_grad
from wengert.tape.walk import Walk, leading_to

__all__ = ["Outward", "outward"]


_outwards: WeakSet["Outward"] = WeakSet()


class Outward:
    """The second graph, and how it hangs together with the first.

    Attributes:
        graph: from cotangents and what is kept to gradients. results: which of the first graph's results are differentiated.
        kept: which of them the second graph takes, after the cotangents. entries: the sources that gradients are for.
        run: computes the graph from arrays, one call at a time (``lock``), for its memory is its own; made when first needed.
    """

    def __init__(self, graph: Graph, results: list[int], kept: list[int], entries: list[Any]) -> None:
        self.graph, self.results, self.kept, self.entries = graph, results, kept, entries
        self.run: Callable[[Sequence[Any]], list[Any]] | None = None
        self.lock = threading.Lock()
        _outwards.add(self)

    def record(self, program: Any, leaves: Sequence[Any], found: Sequence[Any]) -> dict[int, Any]:
        """Return the differentiated results of a call as tensors, recorded as one node of the caller's graph."""
        call = Call(self, program, leaves, found)
        tensors = [entry.tensor(leaves) for entry in self.entries]
        made = CompiledFunction.apply(call, *tensors)
        found_again, call.saved = call.saved | dict(zip(self.results, made, strict=True)), {}
        return found_again


class Call:
    """One call whose results are differentiated."""

    def __init__(self, outward: Outward, program: Any, leaves: Sequence[Any], found: Sequence[Any]) -> None:
        self.outward, self.program, self.leaves, self.found = outward, program, leaves, found
        self.entries: Sequence[Any] = ()
        self.versions: list[int] = []
        self.saved: dict[int, Any] = {}

    def again(self, entries: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        """Return the gradients as functions of everything, by running the function itself, which can be differentiated.

        Raises:
            RuntimeError: if it cannot be run a second time. InplaceError: if it would meet other values.
        """
        if self.program.acts:
            raise RuntimeError(
                "second derivatives (create_graph=True) of a compiled function that writes, steps or draws random numbers: "
                "they need it to be run again; compile the part that does not, or call the function uncompiled"
            )
        for entry, version in zip(entries, self.versions, strict=True):
            if version_of(entry).count != version:
                raise InplaceError(
                    f"a tensor of shape {tuple(entry.shape)} that a compiled function read was changed in place, and a second "
                    "derivative needs it as it was; change it out of place"
                )
        with enable_grad():
            results = self.program.called(self.leaves)
            chosen = [results[i] for i in self.outward.results]
            return grad(chosen, entries, cotangents, create_graph=True, allow_unused=True)


def _begin_anew() -> None:
    """Begin anew in the child of a fork: a thread that is no longer there may have been in the middle of a walk."""
    for one in list(_outwards):
        one.lock, one.run = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class CompiledFunction(Function):
    """What the caller's graph knows of a compiled function."""

    @staticmethod
    def forward(ctx: Any, call: Call, *entries: Any) -> Any:
        """Return the results that are differentiated."""
        found = call.found
        made = tuple(from_array(found[i]) for i in call.outward.results)
        by_place = dict(zip(call.outward.results, made, strict=True))
        call.saved = {i: from_array(found[i]) for i in call.outward.kept if i not in by_place}
        ctx.save_for_backward(*(by_place[i] if i in by_place else call.saved[i] for i in call.outward.kept))
        ctx.call, call.found = call, ()
        call.entries, call.versions = entries, [version_of(e).count for e in entries]
        return made

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Return the gradients of the tensors from outside."""
        call = ctx.call
        kept = ctx.saved_tensors
        if thread.state.grad:
            return (None, *call.again(call.entries, cotangents))
        outward = call.outward
        if any(isinstance(g._payload, Payload) for g in cotangents):  # under vmap, for the rows of a Jacobian
            return (None, *applied(outward.graph, (*cotangents, *kept)))
        with outward.lock:
            if outward.run is None:
                outward.run = call.program.runner(outward.graph)
            given = [t._payload for t in (*cotangents, *kept)]
            found = outward.run([unplaced(a) for a in given] if devices.several else given)
        if devices.several:
            found = [placed(a, index_of(e._payload.dtype)) for a, e in zip(found, call.entries, strict=True)]
        return (None, *map(from_array, found))


def outward(level: Capture, finder: Any, results: list[tuple[int, Any]]) -> Outward | None:
    """Capture the walk from results to tensors from outside; None where no gradient goes there.

    Args:
        results: (number among the graph's outputs, tensor) pairs.
    """
    roots = [(i, t, node) for i, t in results if (node := node_of(t)) is not None]
    if not roots or not thread.state.grad:
        return None
    graph = level.graph
    first = len(graph.nodes)
    cotangents = [_cotangent(level, t) for _, t, _ in roots]
    pairs = [(node, g) for (_, _, node), g in zip(roots, cotangents, strict=True)]
    found = _walked(level, pairs)
    if found is None:  # the function walked back from some of them itself
        walkable = [k for k, pair in enumerate(pairs) if _walked(level, [pair]) is not None]
        del graph.nodes[first:]
        _without(graph, [g for k, g in enumerate(cotangents) if k not in walkable], level)
        roots, cotangents = [roots[k] for k in walkable], [cotangents[k] for k in walkable]
        found = _walked(level, [pairs[k] for k in walkable]) if roots else {}
    if not found:
        del graph.nodes[first:]
        _without(graph, cotangents, level)
        if roots:
            raise NotCapturable("it returns what requires the gradient of a tensor that it made itself")
        return None
    given = [level.value_of(g) for g in cotangents]
    gradients = {node: level.value_of(g) for node, g in found.items()}
    second, kept = _second(graph, first, given, list(gradients.values()))
    _without(graph, cotangents, level)
    places = []
    for value in kept:
        if value not in graph.outputs:
            graph.outputs.append(value)
        places.append(graph.outputs.index(value))
    entries = [finder.source(level.entries[node]) for node in gradients]
    return Outward(second, [i for i, _, _ in roots], places, entries)


def _cotangent(level: Capture, tensor: Any) -> Any:
    """Return a tensor of the program that stands for what will come from outside."""
    held = tensor._payload
    spec = level.value_of(tensor).spec
    value = level.graph.input(spec, stand_in(spec.shape, spec.dtype.numpy).strides, level.graph.fresh("g"))
    return level.tensor(Storage(value), (), value, stand_in(held.shape, held.dtype))


def _walked(level: Capture, roots: list[tuple[Any, Any]]) -> dict[Any, Any] | None:
    """Return the gradients at the nodes of tensors from outside; what hangs on these is run by the caller's walk.

    None is returned where the function has walked the way itself, and freed it.
    """
    targets = set(level.entries)
    before = [(node, node.extra, node.inputs) for node in targets]
    for node in targets:
        others = [n for n in node.inputs if n is not None]
        if not isinstance(node, OpNode | Leaf) and leading_to(others, targets - {node}):
            raise NotCapturable("one of its tensors is one of several results that were computed from another of them")
    for node in targets:  # what hangs on them, and what lies behind them, is the caller's
        node.extra = None
        if isinstance(node, OpNode):
            node.inputs = (None,) * len(node.inputs)
    try:
        return Walk(keep=True, create=False, place=here(1), targets=targets, into_leaves=False).run(roots)
    except GraphFreedError:
        return None
    except (InplaceError, MissingRuleError) as error:  # the caller will be told, if it walks
        raise NotCapturable(f"one cannot walk back from what it returns: {error}") from error
    finally:
        for node, extra, inputs in before:
            node.extra, node.inputs = extra, inputs


def _without(graph: Graph, cotangents: list[Any], level: Capture) -> None:
    """Take the cotangents out of the first graph."""
    gone = {level.value_of(g) for g in cotangents}
    graph.inputs = [v for v in graph.inputs if v not in gone]


def _second(graph: Graph, first: int, given: list[Value], gradients: list[Value]) -> tuple[Graph, list[Value]]:
    """Cut the nodes from ``first`` on off as a graph of their own; return it, and the values it takes of the rest."""
    second = Graph()
    second._named = graph._named
    second.nodes = graph.nodes[first:]
    del graph.nodes[first:]
    own = {v for node in second.nodes for v in node.results} | set(given)
    second.inputs = list(given)
    kept: list[Value] = []
    renamed: dict[Value, Value] = {}

    def inside(value: Value) -> Value:
        if value in own or value in renamed:
            return renamed.get(value, value)
        if value in graph.constants:
            second.constants[value] = graph.constants[value]
            return value
        copy = renamed[value] = second.input(value.spec, value.strides, value.name)
        kept.append(value)
        return copy

    for node in second.nodes:
        node.arguments = replaced(node.arguments, inside)
    second.outputs = [inside(v) for v in gradients]
    return second, kept
