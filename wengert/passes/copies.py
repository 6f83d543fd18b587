"""Reshapes that are no views are copies, whose memory is planned like that of other nodes."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np

from wengert.core.registry import operators
from wengert.core.state import thread
from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.graph.storage import stand_in
from wengert.passes.rewriting import Rewriter

__all__ = ["copies"]


RESHAPES: Final = frozenset({"contiguous", "flatten", "reshape", "view"})  # views, or copies of what has gaps


def copies(graph: Graph) -> Graph:
    """Put a copy before each reshape of an argument that lies in memory in such a way that there is no view of that shape.

    Results of nodes that are no views are taken to be dense, as plans lay them.
    """
    rewriter = Rewriter(graph)
    arrays: dict[Value, Any] = {v: _lying(v) for v in graph.inputs} | graph.constants

    def of(value: Value) -> Any:
        if value not in arrays:
            arrays[value] = stand_in(value.shape, value.dtype.numpy)
        return arrays[value]

    for node in graph.nodes:
        now = rewriter.mapped(node)
        if getattr(now.op, "view", False) and now.inputs:
            found = _views(now, of)
            if found is None:
                copy = rewriter.call(operators()["clone"], now.inputs[0], None, like=now)
                now.arguments = (copy, *now.arguments[1:])
                found = _views(now, of)
            arrays.update(zip(now.results, found or (), strict=False))
        rewriter.graph.nodes.append(now)
    return rewriter.finish()


def _views(node: Node, of: Callable[[Value], Any]) -> list[Any] | None:
    """Return arrays that lie like the results of a view; None if it copies."""
    source = of(node.inputs[0])
    if node.op.name in RESHAPES and node.results[0].dtype is node.inputs[0].dtype:
        if node.op.name == "contiguous" and not source.flags.c_contiguous:
            return None
        with suppress(ValueError):
            return [np.reshape(source, node.results[0].shape, copy=False)]
        return None
    held = [replaced((a,), of)[0] for a in node.arguments]
    found = thread.state.run(node.op.call_kernel, held)  # of any numbers: without warnings
    return [found] if node.op.single else list(found)


def _lying(value: Value) -> Any:
    """Return an array that lies as a value does in the program that was captured."""
    if any(stride < 0 for stride in value.strides):
        return stand_in(value.shape, value.dtype.numpy)
    ends = [(n - 1) * stride for n, stride in zip(value.shape, value.strides, strict=True) if n]
    size = value.dtype.numpy.itemsize
    whole = stand_in((-(-sum(ends) // size) + 1,), value.dtype.numpy)
    return np.lib.stride_tricks.as_strided(whole, value.shape, value.strides)
