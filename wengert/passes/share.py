"""What is computed twice is computed once."""

import struct
from collections.abc import Hashable, Sequence
from typing import Any

from wengert.core.operator import Op
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.rewriting import Rewriter

__all__ = ["share"]

SMALL = 1024  # bytes of constants that are compared


def share(graph: Graph) -> Graph:
    """Let equal calls of pure operators, and equal small constants, be one."""
    rewriter = Rewriter(graph)
    seen: dict[Hashable, Sequence[Value]] = {}
    for value, array in graph.constants.items():
        if array.nbytes <= SMALL:
            key = (value.spec, value.strides, array.tobytes())
            (known,) = seen.setdefault(key, (value,))
            if known is not value:
                rewriter.replace((value,), (known,))
    for node in graph.nodes:
        now = rewriter.mapped(node)
        found = _key(now)
        same = now.results if found is None else seen.setdefault(found, now.results)
        if same is now.results:
            rewriter.graph.nodes.append(now)
        else:
            rewriter.replace(node.results, same)
    return rewriter.finish()


def _key(node: Node) -> Hashable | None:
    """Return what is equal for calls with equal results; None for calls that are like no other."""
    if not isinstance(node.op, Op):
        return None
    try:
        key = (node.op, tuple(_plain(a) for a in node.arguments))
        hash(key)
    except TypeError:
        return None
    return key


def _plain(argument: Any) -> Hashable:
    """Return an argument as something that is equal only to what means the same: 1, 1.0 and True differ, 0.0 and -0.0 do."""
    if isinstance(argument, float):
        return float, struct.pack("d", argument)
    if isinstance(argument, complex):
        return complex, struct.pack("dd", argument.real, argument.imag)
    if isinstance(argument, tuple | list):
        return type(argument), tuple(_plain(a) for a in argument)
    if isinstance(argument, slice):
        return slice, _plain((argument.start, argument.stop, argument.step))
    return type(argument), argument
