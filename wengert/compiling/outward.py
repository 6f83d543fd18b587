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

import numpy as np

from wengert.array.device import devices, index_of, placed, unplaced
from wengert.core.interpret import Payload
from wengert.core.node import Leaf
from wengert.core.place import here
from wengert.core.state import thread
from wengert.core.tensor import from_array, node_of, version_of
from wengert.errors import GraphFreedError, InplaceError, TransformError
from wengert.graph.bodies import split
from wengert.graph.capture import Capture
from wengert.graph.evaluate import applied
from wengert.graph.ir import Graph, Value
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Storage, stand_in
from wengert.sparse.payload import is_sparse
from wengert.tape.api import grad
from wengert.tape.function import Function
from wengert.tape.modes import enable_grad
from wengert.tape.walk import Walk

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

    def materialized(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return cotangents with zeros for results that nothing came back to."""
        specs = [value.spec for value in self.graph.inputs]
        return [
            from_array(np.zeros(spec.shape, spec.dtype.numpy)) if g is None else g
            for g, spec in zip(cotangents, specs, strict=False)
        ]

    def wanted(self, cotangents: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        """Return what leaves out the gradients that depend on nothing but results that nothing came back to."""
        if all(g is not None for g in cotangents):
            return lambda gradients: gradients
        used = [self._used_by(value) for value in self.graph.outputs]
        none = [bool(of) and all(cotangents[k] is None for k in of) for of in used]
        return lambda gradients: [None if n else g for n, g in zip(none, gradients, strict=True)]

    def _used_by(self, value: Value) -> set[int]:
        """Return the numbers of the results whose cotangents a gradient is computed from."""
        given = {v: k for k, v in enumerate(self.graph.inputs[: len(self.results)])}
        found, seen, left = set[int](), set[Value](), [value]
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                found.update({given[one]} if one in given else ())
                left += one.node.inputs if one.node is not None else ()
        return found

    def record(self, program: Any, leaves: Sequence[Any], found: Sequence[Any]) -> dict[int, Any]:
        """Return the differentiated results of a call as tensors, recorded as one node of the caller's graph."""
        call = Call(self, program, leaves, found)
        tensors = [entry.tensor(leaves) for entry in self.entries]
        with enable_grad():  # the function may have turned it on itself
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
            RuntimeError: if it cannot be run a second time, or what it reads besides its arguments is no longer what it was.
            InplaceError: if it would meet other values.
        """
        if self.program.acts:
            raise RuntimeError(
                "second derivatives (create_graph=True) of a compiled function that writes, steps or draws random numbers: "
                "they need it to be run again; compile the part that does not, or call the function uncompiled"
            )
        if (changed := self.program.guards.broken(self.leaves)) is not None:
            raise RuntimeError(
                "second derivatives (create_graph=True) of a compiled function need it to be run again, and since it was "
                f"called, {changed}; compile the function that takes the derivatives, or call this one uncompiled"
            )
        for entry, version in zip(entries, self.versions, strict=True):
            if version_of(entry).count != version:
                raise InplaceError(
                    f"a tensor of shape {tuple(entry.shape)} that a compiled function read was changed in place, and a second "
                    "derivative needs it as it was; change it out of place"
                )
        with enable_grad():
            results = self.program.called(self.leaves)
            pairs = [(results[i], g) for i, g in zip(self.outward.results, cotangents, strict=True) if g is not None]
            chosen, given = zip(*pairs, strict=True)
            return grad(chosen, entries, given, create_graph=True, allow_unused=True)


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
        ctx.set_materialize_grads(False)
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
        wanted, cotangents = outward.wanted(cotangents), outward.materialized(cotangents)
        if any(isinstance(g._payload, Payload) for g in cotangents):  # under vmap, for the rows of a Jacobian
            return (None, *wanted(applied(outward.graph, (*cotangents, *kept))))
        with outward.lock:
            if outward.run is None:
                outward.run = call.program.runner(outward.graph)
            given = [t._payload for t in (*cotangents, *kept)]
            found = outward.run([unplaced(a) for a in given] if devices.several else given)
        if devices.several:
            found = [placed(a, index_of(e._payload.dtype)) for a, e in zip(found, call.entries, strict=True)]
        return (None, *wanted(list(map(from_array, found))))


def outward(level: Capture, finder: Any, results: list[tuple[int, Any]]) -> Outward | None:
    """Capture the walk from results to tensors from outside; None where no gradient goes there.

    Args:
        results: (number among the graph's outputs, tensor) pairs.
    """
    roots = [(i, t, node) for i, t in results if (node := node_of(t)) is not None]
    if not roots:
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
    if any(map(is_sparse, found.values())):
        raise NotCapturable(
            "the sparse gradient of a table would be found outside of it; compile the whole step, with backward()"
        )
    given = [level.value_of(g) for g in cotangents]
    gradients = {node: level.value_of(g) for node, g in found.items()}
    second, kept = split(graph, first, given, list(gradients.values()))
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
    for node in targets:  # what hangs on them, and what lies behind them, is the caller's
        node.extra = None
        if not isinstance(node, Leaf):
            node.inputs = (None,) * len(node.inputs)
    try:
        return Walk(keep=True, create=False, place=here(1), targets=targets, into_leaves=False).run(roots)
    except GraphFreedError:
        return None
    except TransformError:
        raise
    except Exception as error:  # the caller will be told, if it walks
        raise NotCapturable(f"one cannot walk back from what it returns: {error}") from error
    finally:
        for node, extra, inputs in before:
            node.extra, node.inputs = extra, inputs


def _without(graph: Graph, cotangents: list[Any], level: Capture) -> None:
    """Take the cotangents out of the first graph."""
    gone = {level.value_of(g) for g in cotangents}
    graph.inputs = [v for v in graph.inputs if v not in gone]
