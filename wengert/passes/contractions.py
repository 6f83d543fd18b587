"""Operands of matrix products and convolutions are read where they lie; what follows a convolution moves into its weights."""

from collections.abc import Sequence
from typing import Final

from wengert.array.dtype import FLOAT
from wengert.core.operator import Op
from wengert.core.registry import operators
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.rewriting import Rewriter, rewritten
from wengert.passes.simplify import in_rows, same_layout
from wengert.passes.traffic import bytes_of

__all__ = ["CONTRACTIONS", "in_place", "into_weights"]

CONTRACTIONS: Final = frozenset({"matmul", "linear", "rows_product", "addmm", "baddbmm"})


# ---- strides


def in_place(graph: Graph) -> Graph:
    """Let matrix products read the operands of copies, and of expansions of leading dimensions: they take any strides."""
    return rewritten(_turned(graph), _read_in_place)


def _turned(graph: Graph) -> Graph:
    """Compute what only a transposition reads of a product over rows the other way round: (AᵀB)ᵀ = BᵀA.

    So the gradients of a matrix that is used again and again add up where they lie, in the layout of the matrix.
    """
    uses, kept = graph.uses(), set(graph.results)
    single = {v for v, nodes in uses.items() if len(nodes) == 1 and v not in kept}
    dense: set[Value] = set()

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        name, given = node.op.name, node.arguments
        found = None
        if name == "transpose" and given[0] in single and set(given[1:]) == {0, 1}:
            product = _made_by(given[0], "rows_product")
            if product is not None and len(given[0].shape) == 2:
                found = rewriter.call(product.op, *reversed(product.arguments), like=node)
        elif name == "add" and dense.intersection(node.inputs) and all(in_rows(v) for v in node.inputs):
            found = rewriter.call(node.op, *given, like=node)
        elif name == "clone" and given[0] in dense and same_layout(given[0], node.results[0]):
            return (given[0],)
        if found is None:
            return None
        dense.add(found)
        return (found,)

    return rewritten(graph, rule)


def _read_in_place(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if not isinstance(node.op, Op) or node.op.name not in CONTRACTIONS:
        return None
    arguments = tuple(_original(a) if isinstance(a, Value) else a for a in node.arguments)
    if node.op.name == "matmul":
        arguments = _unexpanded(node, arguments)
    if arguments == node.arguments:
        return None
    strides = node.results[0].strides
    return (rewriter.call(node.op, *arguments, like=node, strides=strides),)


def _made_by(value: Value, name: str) -> Node | None:
    node = value.node
    return node if node is not None and isinstance(node.op, Op) and node.op.name == name else None


def _original(value: Value) -> Value:
    """Return what a value is a copy of in another layout."""
    node = _made_by(value, "clone")
    return value if node is None else node.arguments[0]


def _unexpanded(node: Node, arguments: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return operands of a product without expansions that its own broadcasting does."""
    shape = node.results[0].shape
    for k, operand in enumerate(arguments):
        inner = _made_by(operand, "expand")
        if inner is None:
            continue
        first: Value = inner.arguments[0]
        if len(first.shape) < 2 or first.shape[-2:] != operand.shape[-2:]:
            continue
        trial = (*arguments[:k], first, *arguments[k + 1 :])
        if node.op.infer([v.spec for v in trial]).shape == shape:
            arguments = trial
    return arguments


# ---- normalisation by known statistics


def into_weights(graph: Graph) -> Graph:
    """Fold factors and summands per channel that follow a convolution into its weights and its bias.

    A batch normalisation by running statistics is such a factor and summand: conv(x, w, b) s + t = conv(x, w s, b s + t).
    It is done where the result of the convolution has no other use and is larger than the weights.
    """
    uses = graph.uses()
    kept = set(graph.results)
    single = {v.name for v, nodes in uses.items() if len(nodes) == 1 and v not in kept}

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if not isinstance(node.op, Op) or node.op.name not in ("mul", "add"):
            return None
        for k in (0, 1):
            value, channel = node.arguments[k], node.arguments[1 - k]
            if not isinstance(value, Value) or value.name not in single or not isinstance(channel, Value):
                continue
            conv = _made_by(value, "conv")
            if conv is not None and _fits(node, conv, channel):
                return (_scaled if node.op.name == "mul" else _shifted)(node, conv, channel, rewriter, single)
        return None

    return rewritten(graph, rule)


def _fits(node: Node, conv: Node, channel: Value) -> bool:
    """Whether an operand has one element for each channel, and the weights are smaller than what they save."""
    out, weight = conv.results[0], conv.arguments[1]
    shape = (1,) * (len(out.shape) - len(channel.shape)) + channel.shape
    wanted = (1, out.shape[1], *(1,) * (len(out.shape) - 2))
    same = node.results[0].spec == out.spec and channel.dtype is out.dtype and out.dtype.category == FLOAT
    plain = node.op.name == "mul" or node.arguments[2] == 1
    return same and plain and shape == wanted and bytes_of(weight) < bytes_of(out)


def _scaled(node: Node, conv: Node, factor: Value, rewriter: Rewriter, single: set[str]) -> Sequence[Value]:
    images, weight, bias, *rest = conv.arguments
    call, named = rewriter.call, operators()
    column = call(named["reshape"], factor, (weight.shape[0], *(1,) * (len(weight.shape) - 1)), like=node)
    weight = call(named["mul"], weight, column, like=node)
    if bias is not None:
        bias = call(named["mul"], bias, call(named["reshape"], factor, bias.shape, like=node), like=node)
    return (_again(node, conv, (images, weight, bias, *rest), rewriter, single),)


def _shifted(node: Node, conv: Node, summand: Value, rewriter: Rewriter, single: set[str]) -> Sequence[Value]:
    images, weight, bias, *rest = conv.arguments
    call, named = rewriter.call, operators()
    row = call(named["reshape"], summand, (weight.shape[0],), like=node)
    bias = row if bias is None else call(named["add"], bias, row, 1, like=node)
    return (_again(node, conv, (images, weight, bias, *rest), rewriter, single),)


def _again(node: Node, conv: Node, arguments: tuple[object, ...], rewriter: Rewriter, single: set[str]) -> Value:
    """Enter the convolution anew; what follows the node may move into it too."""
    result = rewriter.call(conv.op, *arguments, like=conv, strides=conv.results[0].strides)
    if node.results[0].name in single:
        single.add(result.name)
    return result
