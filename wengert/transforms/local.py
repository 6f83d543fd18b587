"""The derivative of one piece of a computation: of a function's own result, with respect to all that it reads.

A solver runs a user's function many times and wants the derivative of one run only: with respect to the arguments, and
to the tensors that the function closes over (parameters of a module, say), but not of how those were computed. So the
function is recorded once, and a walk back from its results stops at everything that was recorded earlier. What comes of
it is given to a node of its own, which stands on the tape for the whole solve.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.interpret import memory_of
from wengert.core.node import Freed, Leaf, Node, Output, next_sequence
from wengert.core.place import describe, here
from wengert.core.registry import ops
from wengert.core.state import State, thread
from wengert.core.tensor import Tensor, alias, from_array, node_of
from wengert.errors import GraphFreedError
from wengert.tape.function_node import FunctionNode
from wengert.tape.lane import GRADIENT, LEFT, ZERO, drain, wrapped
from wengert.tape.modes import enable_grad
from wengert.tape.walk import Walk

__all__ = [
    "Key",
    "Link",
    "Local",
    "attach",
    "concrete",
    "constant",
    "is_plain",
    "key_of",
    "link",
    "variable",
]

Pull = Callable[[list[Any], list[Any]], Sequence[Any]]


def is_plain(tensor: Any) -> bool:
    """True for a tensor without history that belongs to no transform: nothing is lost by computing with its array."""
    return type(tensor._payload) is np.ndarray and node_of(tensor) is None


def constant(tensor: Any) -> Any:
    """Return the tensor's values without history and tangents."""
    return tensor if is_plain(tensor) else ops.detach(tensor)


def variable(tensor: Any) -> Any:
    """Return the tensor as a new leaf that requires grad; inside forward mode or vmap it is still of their level."""
    out = alias(tensor)
    out._node = Leaf(out)
    return out


def concrete(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the numbers of a tensor, for decisions that are not differentiated (has it converged? how large a step?).

    Under vmap they are those of all examples, which stand in front: the decision is taken for all at once.
    """
    return np.asarray(memory_of(tensor))


class Stopping(Walk):
    """A backward pass that goes no further than its targets, and visits only the nodes it is told to."""

    def __init__(self, targets: set[Node], needed: set[Node], create: bool) -> None:
        super().__init__(keep=True, create=create, place=here(1), targets=targets, into_leaves=False)
        self.needed = needed

    def run(self, roots: list[tuple[Node, Any]]) -> dict[Node, Any]:
        """Walk from ``roots`` (node and cotangent) and return the gradients of the targets."""
        roots = [(node, g) for node, g in roots if node in self.needed]  # type: ignore[operator]
        self._count([node for node, _ in roots])
        state = thread.state
        before, state.grad = state.grad, self.create
        outer, state.walk = state.walk, self
        try:
            for node, cotangent in roots:
                self._receive(node, cotangent)
            for node in dict.fromkeys(node for node, _ in roots):
                if not self.table[node][LEFT]:
                    self.enqueue(node)
            drain(self, state)
        finally:
            state.grad, state.walk = before, outer
        return self.captured

    def _count(self, starts: list[Node]) -> None:
        table, targets, needed = self.table, self.targets, self.needed
        for node in starts:
            table[node] = [0, False, None]
        stack = list(table)
        while stack:
            node = stack.pop()
            for after in () if node in targets else node.inputs:  # type: ignore[operator]
                if after is None or after not in needed:  # type: ignore[operator]
                    continue
                pending = table.get(after)
                if pending is None:
                    table[after] = [1, False, None]
                    stack.append(after)
                else:
                    pending[LEFT] += 1

    def visit(self, node: Node, pending: list[Any], state: State) -> None:
        """Keep the gradient of a target; run any other node."""
        if node not in self.targets:  # type: ignore[operator]
            super().visit(node, pending, state)
            return
        g = wrapped(pending[GRADIENT])
        if g is ZERO:
            g = from_array(np.zeros(node.shape, node.dtype))
        if g is not None:
            self.captured[node] = g


Key = Node | tuple[Node, int]


def key_of(node: Node) -> Key:
    """Return what tells a place on the tape from others; the same result of an operator may have several nodes."""
    return (node.inputs[0], node.index) if isinstance(node, Output) and node.inputs[0] is not None else node


class Local:
    """One recorded run of a function.

    Args:
        fn: returns a list of tensors. args: what it is called with; those that require grad count as read by it.

    Attributes:
        outputs: what it returned. reads: the nodes of all that it read, by key, in the order found.
        inside: the nodes of the run itself. ends: the nodes at which it ends; several may belong to one key.
    """

    __slots__ = ("ends", "inside", "outputs", "reads")

    def __init__(self, fn: Callable[..., list[Any]], *args: Any) -> None:
        moment = next_sequence()
        with enable_grad():
            self.outputs = fn(*args)
        self.reads: dict[Key, Node] = {}
        self.ends: set[Node] = set()
        self.inside: list[Node] = []  # every node comes after those that it leads to
        found: set[Node] = set()
        for output in self.outputs:
            node = node_of(output)
            if node is not None:
                self._explore(node, moment, found)

    def _explore(self, start: Node, moment: int, found: set[Node]) -> None:
        stack = [(start, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                self.inside.append(node)
            elif node not in found:
                found.add(node)
                if older(node, moment):
                    self.reads.setdefault(key_of(node), node)
                    self.ends.add(node)
                else:
                    stack.append((node, True))
                    stack.extend((n, False) for n in node.inputs if n is not None)

    def toward(self, node: Node) -> set[Node]:
        """Return the nodes from which ``node`` is reached, itself included."""
        needed = {node}
        for candidate in self.inside:
            if not needed.isdisjoint(candidate.inputs):
                needed.add(candidate)
        return needed

    def pull(
        self, cotangents: Sequence[Any], create: bool, targets: set[Node] | None = None, needed: set[Node] | None = None
    ) -> dict[Key, Any]:
        """Return the gradients of what was read, by key; what received none is not in it.

        Args:
            cotangents: one per output, None for none. create: record the gradients.
            targets: only these nodes; ``needed`` is then :meth:`toward` of them.
        """
        stops = self.ends if targets is None else targets
        walk = Stopping(stops, {*self.inside, *self.ends} if needed is None else needed, create)
        roots = [(node_of(out), g) for out, g in zip(self.outputs, cotangents, strict=True) if g is not None]
        total: dict[Key, Any] = {}
        for node, g in walk.run([(node, g) for node, g in roots if node is not None]).items():
            key = key_of(node)
            total[key] = total[key] + g if key in total else g
        return total


def older(node: Node, moment: int) -> bool:
    """True for what was on the tape before ``moment``: leaves always count as such."""
    if isinstance(node, Output) and node.inputs[0] is not None and not isinstance(node.inputs[0], Leaf):
        return node.inputs[0].sequence < moment
    return isinstance(node, Leaf) or node.sequence < moment


class Attached(FunctionNode):
    """The record of a whole solve: ``pull(results, cotangents)`` gives a gradient for each node that was read."""

    __slots__ = ("freed", "label", "payloads", "pull")

    label: str
    payloads: list[Any]
    pull: Pull | None
    freed: Freed | None

    @property
    def title(self) -> str:
        """The name of the solver, for messages."""
        return self.label

    def argument(self, index: int) -> str:
        """What it read, for messages."""
        return f"tensor {index} that it reads"

    def free(self, freed: Freed) -> None:
        """Drop what the derivative needs."""
        self.pull, self.freed, self.payloads = None, freed, []

    def differentiate(self, cotangents: list[Any]) -> list[Any]:
        """Return one gradient (or None) per node that was read."""
        if self.pull is None:
            where = describe(self.freed.place) if self.freed is not None else "an earlier line"
            raise GraphFreedError(
                f"backward a second time through {self.label}(), called at {describe(self.place)}: it was freed by the "
                f"backward at {where}; pass retain_graph=True to that one"
            )
        results = [from_array(p) for p in self.payloads]
        for result, owner in zip(results, owners(self, self.payloads), strict=True):
            result._node = owner
        return list(self.pull(results, cotangents))


class Link(Attached):
    """A point that is read before there is the node which its gradient goes on to."""

    __slots__ = ()

    def free(self, freed: Freed) -> None:
        """Do nothing: it saves nothing."""


def owners(node: Attached, payloads: list[Any]) -> list[Node]:
    """Return the node of each result."""
    return [node] if len(payloads) == 1 else [Output(node, i, p) for i, p in enumerate(payloads)]  # type: ignore[arg-type]


def attach(label: str, values: Sequence[Tensor], reads: Sequence[Node], pull: Pull) -> list[Any]:
    """Return tensors of the same values whose gradients ``pull`` passes on to ``reads``.

    Args:
        label: the solver's name. values: results without history. reads: the nodes they depend on.
        pull: (results, cotangents) to one gradient or None per node of ``reads``; the results given to it carry the
            history, so that a recorded ``pull`` can be differentiated. A cotangent may be None.
    """
    return _stand(Attached(), label, values, reads, pull)


def link(x: Tensor) -> tuple[Any, Link]:
    """Return the tensor as a new point of the tape and its node, whose ``inputs`` may be set later to the one it stands for."""
    node = Link()
    return _stand(node, "link", [x], (), lambda _, cotangents: cotangents)[0], node


def _stand(node: Attached, label: str, values: Sequence[Tensor], reads: Sequence[Node], pull: Pull) -> list[Any]:
    node.label, node.pull, node.freed, node.context = label, pull, None, None
    node.payloads = [v._payload for v in values]
    node.inputs, node.extra, node.outputs = tuple(reads), None, len(values)
    node.code, node.lasti = here(2)
    node.sequence = next_sequence()
    node.shape, node.dtype = node.payloads[0].shape, node.payloads[0].dtype
    node.shapes = [(p.shape, p.dtype) for p in node.payloads]
    results = [from_array(p) for p in node.payloads]
    for result, owner in zip(results, owners(node, node.payloads), strict=True):
        result._node = owner
    return results
