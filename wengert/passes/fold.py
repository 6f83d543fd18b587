"""What depends on constants alone is computed once."""

import math
from collections.abc import Sequence

import numpy as np

from wengert.core.operator import Op
from wengert.graph.evaluate import compute
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.rewriting import Rewriter, rewritten

__all__ = ["fold"]

SMALL = 64 * 1024  # bytes that a result may have though its arguments have fewer


def fold(graph: Graph) -> Graph:
    """Compute nodes of constants, where the results are small or smaller than the constants; views stay as they are."""
    return rewritten(graph, _computed)


def _computed(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    constants = rewriter.graph.constants
    given = node.inputs
    if not isinstance(node.op, Op) or node.op.view or not given or not all(v in constants for v in given):
        return None
    size = sum(math.prod(v.shape) * v.dtype.itemsize for v in node.results)
    if size > SMALL and size > sum(constants[v].nbytes for v in given):
        return None
    try:
        with np.errstate(all="ignore"):
            arrays = [np.array(a, order="K") for a in compute(node, constants.__getitem__)]
    except Exception:  # whatever is wrong is to be said when the program runs
        return None
    return [rewriter.graph.constant(v.spec, a) for v, a in zip(node.results, arrays, strict=True)]
