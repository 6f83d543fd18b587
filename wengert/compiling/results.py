"""What becomes of the tensors that a captured function returns."""

from collections.abc import Callable, Sequence
from itertools import combinations
from sys import getrefcount
from typing import Any, Final
from weakref import getweakrefcount

import numpy as np

from wengert.compiling.surroundings import is_lasting
from wengert.core.node import Leaf, OpNode, Output
from wengert.core.tensor import Tensor, from_array, node_of
from wengert.graph.refusals import NotCapturable
from wengert.graph.storage import Traced
from wengert.sparse.captured import index_of
from wengert.sparse.pattern import Coo
from wengert.sparse.payload import Sparse, is_sparse

__all__ = [
    "KeptGradient", "Result", "SparseGradient", "result_of", "returned_gradients", "share_memory", "sparse_gradients",
]  # fmt: skip


class Result:
    """What becomes of one tensor that the function returns.

    Attributes:
        kind: "value" (a new tensor of the graph's result number ``item``), "source" (a tensor that came in), "gradient" (the
            new ``.grad`` of one), "view" (of the result ``item``, whose memory it shares), or "same" (an object that is
            returned as it is).
        chain: the views that lead to it. detached: whether its history is cut off.
    """

    __slots__ = ("chain", "detached", "item", "kind")

    def __init__(self, kind: str, item: Any, chain: tuple[Any, ...] = (), detached: bool = False) -> None:
        self.kind, self.item, self.chain, self.detached = kind, item, chain, detached


def result_of(level: Any, source: Callable[[Any], Any], leaf: Any) -> Result:
    """Return what becomes of a tensor, or another object, that the function returns.

    Args:
        source: says where a tensor from outside comes from.

    Raises:
        NotCapturable: for what each call would have to make anew.
    """
    if not isinstance(leaf, Tensor):
        if not is_lasting(leaf):
            raise NotCapturable(f"it returns a {type(leaf).__name__}, which each call would have to make anew")
        _check_rate(level, leaf)
        return Result("same", leaf)
    held = leaf._payload
    if index_of(leaf) is not None:
        raise NotCapturable("it returns a sparse tensor that it makes")
    if not isinstance(held, Traced):
        return Result("value", level.value_of(leaf)) if level.known(held) else Result("source", source(leaf))
    outer = held.storage.source
    if outer is not None and level.is_adopted(leaf):
        return Result("source", source(leaf))
    node = node_of(leaf)
    if outer is None or isinstance(node, Leaf) or not _is_of_views(node, level):
        return Result("value", level.value_of(leaf))
    return Result("source", source(outer), held.chain, detached=node is None)


def _is_of_views(node: Any, level: Any) -> bool:
    """Whether a history, up to tensors from outside, is what taking views anew would record."""
    while node is not None and node not in level.entries:
        if node.extra is not None or not (isinstance(node, Output) or (isinstance(node, OpNode) and node.op.view)):
            return False
        node = node.inputs[0]
    return True


class KeptGradient:
    """The new ``.grad`` of a tensor that the function holds: the same tensor again as long as nobody else has it.

    While a call may write its memory it is off the tensor, as if ``.grad`` were None: no other thread can get hold of it.

    Attributes:
        held: the tensor. grad: what its ``.grad`` became in the last call; None once that may not be written again.
    """

    __slots__ = ("grad", "held")

    def __init__(self, held: Any) -> None:
        self.held = held
        self.grad: Any = None

    def take(self) -> bool:
        """Take the gradient off the tensor if nothing else knows it, and it is as it was made; otherwise forget it."""
        grad, held = self.grad, self.held
        if grad is None or held._grad is not grad:
            self.grad = None
            return False
        held._grad = None
        plain = grad._cell is grad._node is grad._grad is None and not grad.__dict__
        if plain and getrefcount(self.grad) == TWICE and not getweakrefcount(grad):  # of this object and this function
            return True
        held._grad, self.grad = grad, None
        return False

    def put_back(self) -> None:
        """Let the tensor have again what was taken off it, as the call has failed, and written nothing."""
        if self.grad is not None and self.held._grad is None:
            self.held._grad = self.grad

    def set(self, array: Any) -> None:
        """Let the tensor have what was found in a call: what was taken, if that lies there."""
        if self.grad is None or self.grad._payload is not array:
            self.grad = from_array(array)
        self.held._grad = self.grad


def _twice() -> int:
    """Return what ``getrefcount`` says of an object that is held twice, and asked for by an attribute or an index."""
    pair = [object()]
    pair *= 2
    return getrefcount(pair[0])


TWICE: Final = _twice()


class SparseGradient:
    """A new ``.grad`` of rows that were looked up in a table.

    Attributes:
        source: the table. at: which result of the graph says where the rows are; the next one is the rows. shape: of the table.
    """

    __slots__ = ("at", "shape", "source")

    def __init__(self, source: Any, at: int, shape: tuple[int, ...]) -> None:
        self.source, self.at, self.shape = source, at, shape

    def set(self, found: Sequence[Any], leaves: Sequence[Any]) -> None:
        """Let the table have it, as found in a call."""
        pattern = Coo(found[self.at][np.newaxis], self.shape)
        self.source.tensor(leaves)._grad = from_array(Sparse(pattern, from_array(found[self.at + 1])))


def sparse_gradients(
    level: Any, source: Callable[[Any], Any], gradients: list[tuple[Any, Any]]
) -> list[SparseGradient]:
    """Take new gradients that are sparse out of a list, let the graph return their parts, and say where these are."""
    found, outputs = [], level.graph.outputs
    for tensor, grad in [(t, g) for t, g in gradients if g is not None and is_sparse(g)]:
        index = index_of(grad)
        if index is None or node_of(grad) is not None:
            raise NotCapturable(
                "it makes a sparse tensor the .grad of another, and that is no gradient of rows it looked up"
            )
        found.append(SparseGradient(source(tensor), len(outputs), tuple(grad.shape)))
        outputs += [level.value_of(index), level.value_of(grad._payload.entries)]
    gradients[:] = [(t, g) for t, g in gradients if g is None or not is_sparse(g)]
    return found


def returned_gradients(
    source: Callable[[Any], Any], gradients: Sequence[tuple[Any, Any]], found: Sequence[Any]
) -> dict[int, Result]:
    """Return what becomes of results that are new gradients, or look at their memory, by identity.

    Args:
        source: says where a tensor from outside comes from. gradients: such tensors, and what their ``.grad`` is now.
        found: the tensors that the function returns, among other values.
    """
    by_storage = {id(g._payload.storage): (g, t) for t, g in gradients if g is not None and _is_whole(g)}
    made: dict[int, Result] = {}
    for leaf in found:
        held = leaf._payload if isinstance(leaf, Tensor) and node_of(leaf) is None else None
        grad, tensor = by_storage.get(id(held.storage), (None, None)) if isinstance(held, Traced) else (None, None)
        if grad is not None and held is not None:
            whole = made.setdefault(id(grad), Result("gradient", source(tensor)))
            if leaf is not grad:
                made[id(leaf)] = Result("view", whole, held.chain, detached=not held.chain)
    return made


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor of a program is all of new memory, and without history."""
    held = tensor._payload
    return isinstance(held, Traced) and not held.chain and held.storage.source is None and node_of(tensor) is None


def _check_rate(level: Any, value: Any) -> None:
    """Refuse to return an option of an optimiser whose scheduler is stepped: that is done when the program has run.

    Raises:
        NotCapturable: if ``value`` is one.
    """
    if type(value) is float and any(not host.values for host in level.hosts):
        for group in [ask.group for ask, _ in level.guards if hasattr(ask, "group")]:
            for name, option in group.items():
                if option is value:
                    raise NotCapturable(f"it returns {name} of an optimiser whose scheduler it steps; read it outside")


def share_memory(found: Sequence[Any], made: dict[int, Result]) -> None:
    """Make results that lie in the same new memory views of one of them, or of what none of them is the whole of.

    Raises:
        NotCapturable: for the latter, if they have a history; and for one whose history is not that of a view.
    """
    families: dict[int, dict[int, Any]] = {}
    for leaf in found:
        if made[id(leaf)].kind == "value" and isinstance(leaf._payload, Traced):
            families.setdefault(id(leaf._payload.storage), {})[id(leaf)] = leaf
    for storage, members in families.items():
        leaves = list(members.values())
        if not any(_overlap(a, b) for a, b in combinations(leaves, 2)):
            continue
        base = next((leaf for leaf in leaves if not leaf._payload.chain), None)
        if base is not None:
            whole = made[id(base)]
        elif any(node_of(leaf) is not None for leaf in leaves):
            raise NotCapturable(
                "it returns tensors with a history that share memory, but not the tensor they are views of"
            )
        else:
            whole = made[storage] = Result("value", leaves[0]._payload.storage.value)
        for leaf in leaves:
            if leaf is not base:
                if node_of(leaf) is not None and (leaf._view is None or leaf._view.base is not base):
                    raise NotCapturable("it returns tensors that share memory and have histories of their own")
                cut = base is not None and node_of(base) is not None and node_of(leaf) is None
                made[id(leaf)] = Result("view", whole, leaf._payload.chain, detached=cut)


def _overlap(one: Any, other: Any) -> bool:
    """Whether two tensors have elements in common."""
    try:
        return bool(np.shares_memory(one._payload.array, other._payload.array, max_work=1000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
