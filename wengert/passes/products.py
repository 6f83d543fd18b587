"""What follows a matrix product element by element is computed before the product is stored."""

from typing import Any, Final

from wengert.array.dtype import FLOAT
from wengert.core.operator import Op
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.grouping import Group, fused

__all__ = ["PRODUCTS", "fuse_products"]

PRODUCTS: Final = frozenset({"matmul", "linear", "rows_product", "addmm", "conv"})
# Activations, and the arguments behind the tensor with which they are one of a kernel.
ACTIVATIONS: Final[dict[str, tuple[tuple[Any, ...], ...]]] = {
    "relu": ((),), "sigmoid": ((),), "tanh": ((),), "silu": ((),), "gelu": (("none",), ("tanh",)), "softplus": ((1, 20),),
}  # fmt: skip


def fuse_products(graph: Graph) -> Graph:
    """Make one node of each product and the chain of a factor, a bias, a summand and an activation that alone reads it."""
    uses, kept = graph.uses(), set(graph.results)
    groups = []
    taken: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node.op, Op) or node.op.name not in PRODUCTS or node.results[0].dtype.category != FLOAT:
            continue
        chain = _Chain(node)
        while chain.last not in kept and len(users := uses.get(chain.last, [])) == 1:
            if users[0] in taken or not chain.takes(users[0]):
                break
        if len(chain.nodes) > 1:
            groups.append(Group("product", chain.nodes))
            taken.update(chain.nodes)
    return fused(graph, groups)


class _Chain:
    """A product and what follows: ``activation(factor * product + summand + bias)``.

    Attributes:
        nodes: in order. last: the value that the last of them makes.
    """

    def __init__(self, product: Node) -> None:
        self.nodes = [product]
        self.last = product.results[0]
        self._bias = product.op.name in ("linear", "conv") and product.arguments[2] is not None
        self._summand = product.op.name == "addmm"
        self._factor = product.op.name == "addmm"
        self._ended = False

    def takes(self, node: Node) -> bool:
        """Take a node that reads the last value, if it fits."""
        op = node.op
        if self._ended or not isinstance(op, Op) or not op.single or node.results[0].spec != self.last.spec:
            return False
        if op.name in ACTIVATIONS:
            self._ended = fits = _options(node) in ACTIVATIONS[op.name]
        elif op.name == "add":
            fits = node.arguments[2] == 1 and self._adds(self._other(node))
        elif op.name == "mul":
            fits = not (self._factor or self._bias or self._summand) and type(self._other(node)) in (int, float)
            self._factor = self._factor or fits
        else:
            fits = False
        if fits:
            self.nodes.append(node)
            self.last = node.results[0]
        return fits

    def _other(self, node: Node) -> Any:
        """Return what is combined with the last value; None if that is it again."""
        a, b = node.arguments[:2]
        return None if a is b else b if a is self.last else a

    def _adds(self, other: Any) -> bool:
        """Whether a summand fits: one bias, and one array of any shape that broadcasts to the result's."""
        if not isinstance(other, Value) or other.dtype is not self.last.dtype:
            return False
        if not self._bias and self._is_bias(other.shape):
            self._bias = True
            return True
        if self._summand:
            return False
        self._summand = True
        return True

    def _is_bias(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape is one number for each column, or for each channel of a convolution."""
        result = self.last.shape
        if self.nodes[0].op.name == "conv":
            wanted: tuple[int, ...] = (result[1], *(1,) * (len(result) - 2))
            return shape in (wanted, (1, *wanted))
        return len(result) > 0 and shape == result[-1:]


def _options(node: Node) -> tuple[Any, ...]:
    """Return what an activation is given beside the tensor; whether it may write in place means nothing in a graph."""
    return tuple(
        a for name, a in zip(node.op.signature.names[1:], node.arguments[1:], strict=True) if name != "inplace"
    )
