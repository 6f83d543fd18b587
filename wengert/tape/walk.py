"""The backward walk: from roots to leaves, each node once, latest first, without recursion.

A first pass counts how many gradients each node will receive; a node runs when all have come. Of the ready nodes the
one recorded last runs first; leaves run at once, so that a hook on a parameter fires as soon as its gradient is whole.
Gradients in flight live in one table, keyed by node, and never on the nodes: while nothing is recorded they travel as
plain arrays (see :mod:`wengert.tape.lane`), and become tensors where a rule or hook needs one.
"""

from heapq import heappush
from typing import Any

import numpy as np

from wengert.core.interpret import memory_of
from wengert.core.node import Freed, Leaf, Node, OpNode, Output
from wengert.core.place import Place, describe
from wengert.core.record import unpack
from wengert.core.registry import ops
from wengert.core.state import State, thread
from wengert.core.tensor import from_array
from wengert.errors import AnomalyError
from wengert.tape.accumulate import accumulate, into_leaf, retain
from wengert.tape.function_node import FunctionNode
from wengert.tape.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from wengert.tape.lane import GRADIENT, LEFT, OWNED, ZERO, Pending, drain, fitted, freed_error, noted, wrapped

__all__ = ["Walk"]


class Walk:
    """One backward pass.

    Args:
        keep: keep what the graph saved, so that it can be walked again.
        create: record the pass itself, so that gradients can be differentiated.
        place: the user's line that asked for it.
        targets: nodes whose gradients are captured (None: gradients are accumulated into every leaf).
        into_leaves: whether gradients reach ``.grad`` of leaves (of the targets only, if there are any).
    """

    __slots__ = ("captured", "create", "freed", "into_leaves", "keep", "needed", "notes", "ready", "table", "targets")

    def __init__(self, *, keep: bool, create: bool, place: Place, targets: set[Node] | None, into_leaves: bool) -> None:
        self.keep, self.create, self.freed = keep, create, Freed(place)
        self.targets, self.into_leaves = targets, into_leaves
        self.table: dict[Node, Pending] = {}
        self.ready: list[tuple[int, int, Node]] = []
        self.needed: set[Node] | None = None
        self.captured: dict[Node, Any] = {}
        self.notes: dict[Any, Any] = {}  # what hooks on several gradients remember during this pass

    def run(self, roots: list[tuple[Node, Any]]) -> dict[Node, Any]:
        """Walk from ``roots`` (node and cotangent) and return the gradients of the targets."""
        starts = [node for node, _ in roots]
        if self.targets is not None:
            needed = self.needed = leading_to(starts, self.targets)
            starts = [node for node in starts if node in needed]
        self._count(starts)
        state = thread.state
        if state.captures is not None:
            state.captures.history.check_walk(self.table)
        before, state.grad = state.grad, self.create
        outer, state.walk = state.walk, self
        casting, state.casting = state.casting, None  # gradients have the dtypes of what they are gradients of
        if casting is not None:
            state.update()
        try:
            for node, cotangent in roots:
                if node in self.table:
                    self._receive(node, cotangent)
            for node in dict.fromkeys(starts):
                if not self.table[node][LEFT]:
                    self.enqueue(node)
            drain(self, state)
        finally:
            state.grad, state.walk, state.casting = before, outer, casting
            if casting is not None:
                state.update()
        return self.captured

    def reaches(self, node: Node) -> bool:
        """True if this pass visits the node."""
        return node in self.table

    def _count(self, starts: list[Node]) -> None:
        """Enter every node that will run, with the number of gradients it will receive."""
        table, needed = self.table, self.needed
        for node in starts:
            table[node] = [0, False, None]
        stack = list(table)
        while stack:
            for after in stack.pop().inputs:
                if after is None or (needed is not None and after not in needed):
                    continue
                pending = table.get(after)
                if pending is None:
                    table[after] = [1, False, None]
                    stack.append(after)
                else:
                    pending[LEFT] += 1

    def enqueue(self, node: Node) -> None:
        """Enter a node whose gradients have all come among the ready ones."""
        heappush(self.ready, (-node.sequence, id(node), node))

    def visit(self, node: Node, pending: Pending, state: State) -> None:
        """Run one node with everything that may hang on it: hooks, captures, several results, a user's Function."""
        g, pending[GRADIENT] = wrapped(pending[GRADIENT]), None
        if g is ZERO:
            g = self._zero(node)
        if g is not None and g is not ZERO and node.extra is not None:
            g = run_tensor_hooks(node, g)
        if self.targets is not None and node in self.targets and g is not None:
            self.captured[node] = g
        if isinstance(node, Leaf):
            if g is not None and self.into_leaves:
                holder = [run_pre_hooks(node, g)]
                hooked = node.extra is not None and node.extra.post_hooks
                g = holder[0] if hooked else None  # nothing else may hold what the leaf is to own
                into_leaf(node, holder, self.create)
                if hooked:
                    run_post_hooks(node, [], g)
            return
        if g is ZERO:
            self._pass_zero(node)
        elif g is not None:
            if node.extra is not None:
                g = run_pre_hooks(node, g)
                retain(node, g, self.create)
            if isinstance(node, Output):
                self._collect(node, g)
            elif isinstance(node, FunctionNode):
                self._custom(node, g, state)
            elif any_below(node, self.needed):
                self._differentiate(node, g, state)  # type: ignore[arg-type]
        for after in node.inputs:
            waiting = None if after is None else self.table.get(after)
            if after is not None and waiting is not None:
                waiting[LEFT] -= 1
                if not waiting[LEFT]:
                    self.enqueue(after)

    def _zero(self, node: Node) -> Any:
        """Return a structural zero as what the node needs: zeros if somebody sees them, else the mark itself."""
        seen = node.extra is not None or isinstance(node, Leaf) or (self.targets is not None and node in self.targets)
        return from_array(np.zeros(node.shape, node.dtype)) if seen else ZERO

    def _pass_zero(self, node: Node) -> None:
        """Hand a structural zero on to everything below."""
        for after in node.inputs:
            waiting = None if after is None else self.table.get(after)
            if waiting is not None and waiting[GRADIENT] is None:
                waiting[GRADIENT] = ZERO

    def _collect(self, node: Output, g: Any) -> None:
        """Put the gradient of one of several results into its slot."""
        parent: Any = node.inputs[0]
        pending = self.table.get(parent)
        if pending is None:  # the walk ends here: nothing behind the operator is wanted
            return
        if pending[GRADIENT] is None or pending[GRADIENT] is ZERO:
            pending[GRADIENT] = [None] * parent.outputs
        slots = pending[GRADIENT]
        held = slots[node.index]
        slots[node.index] = g if held is None else ops.add(held, g)

    def _differentiate(self, node: OpNode, g: Any, state: State) -> None:
        """Run the rules of one operator and pass the results on."""
        if isinstance(node.saved, Freed):
            raise freed_error(node)
        plan, inputs = node.plan, node.inputs
        if isinstance(g, list):
            g = materialized(node, g)
        needed = self.needed
        hooked: list[Any] | None = [None] * len(inputs) if node.extra is not None and node.extra.post_hooks else None
        try:
            for number, rule, slots, _ in plan.rules:
                if type(number) is tuple or plan.many:
                    self._group(node, g, number, rule, slots, hooked, state)
                    continue
                after = inputs[number]
                if needed is not None and after not in needed:
                    continue
                found = rule(g, *[unpack(node, slot) for slot in slots])
                if found is not None:
                    self._pass_on(node, number, after, found, hooked, state)
        except Exception as error:
            raise noted(error, node) from None
        if hooked is not None:
            for after, found in zip(inputs, run_post_hooks(node, hooked, g), strict=True):
                if after is not None and found is not None:
                    self._receive(after, found)
        if not self.keep and plan.keeps_tensors:
            node.saved, node.versions = self.freed, None

    def _custom(self, node: FunctionNode, g: Any, state: State) -> None:
        """Run the backward of a user's Function and pass the results on."""
        wanted = [n is not None and (self.needed is None or n in self.needed) for n in node.inputs]
        if not any(wanted):
            return
        found = node.differentiate(g if isinstance(g, list) else [g])
        hooked: list[Any] | None = [None] * len(wanted) if node.extra is not None and node.extra.post_hooks else None
        for i, (value, want) in enumerate(zip(found, wanted, strict=True)):
            if value is not None and want:
                self._pass_on(node, i, node.inputs[i], value, hooked, state)
        if hooked is not None:
            for after, value in zip(
                node.inputs, run_post_hooks(node, hooked, tuple(g) if isinstance(g, list) else g), strict=True
            ):
                if after is not None and value is not None:
                    self._receive(after, value)
        if not self.keep:
            node.free(self.freed)

    def _group(self, node: OpNode, g: Any, number: Any, rule: Any, slots: Any, hooked: Any, state: State) -> None:
        """Run a rule that serves several tensors: a joint rule, or the rule of a sequence argument."""
        counts = node.saved[node.plan.width]
        starts = np.cumsum((0, *counts)).tolist()
        wanted = [n is not None and (self.needed is None or n in self.needed) for n in node.inputs]
        numbers = number if isinstance(number, tuple) else (number,)
        needs = tuple(any(wanted[starts[k] : starts[k + 1]]) for k in range(len(counts)))
        if not any(needs[k] for k in numbers):
            return
        found = rule(g, *[unpack(node, slot, needs) for slot in slots])
        for k, value in zip(numbers, found if isinstance(number, tuple) else (found,), strict=True):
            values = value if isinstance(value, tuple | list) else (value,) * counts[k] if value is None else (value,)
            for i, v in zip(range(starts[k], starts[k + 1]), values, strict=True):
                if v is not None and wanted[i]:
                    self._pass_on(node, i, node.inputs[i], v, hooked, state)

    def _pass_on(self, node: Any, index: int, after: Any, found: Any, hooked: list[Any] | None, state: State) -> None:
        found = fitted(node, after, found)
        if state.anomaly and state.anomaly_nan and np.isnan(memory_of(found)).any():
            raise anomaly(node, index)
        if hooked is not None:
            hooked[index] = found
        elif isinstance(node, OpNode) and node.plan.op.places and is_constant_zero(found):
            self._receive(after, ZERO)
        else:
            self._receive(after, found)

    def _receive(self, node: Node, g: Any) -> None:
        pending = self.table[node]
        held = pending[GRADIENT]
        if held is None or held is ZERO:
            pending[GRADIENT] = g
        elif g is not ZERO:
            pending[GRADIENT] = accumulate(wrapped(held), g, self.create, pending[OWNED])
            pending[OWNED] = True


def leading_to(starts: list[Node], targets: set[Node]) -> set[Node]:
    """Return the nodes reachable from ``starts`` from which some target is reached, targets included."""
    needed = {node for node in starts if node in targets}
    done: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(node, False) for node in starts]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            if node in targets or any(n in needed for n in node.inputs if n is not None):
                needed.add(node)
        elif node not in done:
            done.add(node)
            stack.append((node, True))
            stack.extend((n, False) for n in node.inputs if n is not None and n not in done)
    return needed


def is_constant_zero(g: Any) -> bool:
    """True for a gradient of zeros that has no derivative of its own: neither recorded nor of a transform."""
    return g._node is None and isinstance(g._payload, np.ndarray) and not g._payload.any()


def any_below(node: Node, needed: set[Node] | None) -> bool:
    """True if some input of the node is wanted."""
    return needed is None or any(n in needed for n in node.inputs if n is not None)


def materialized(node: OpNode, slots: list[Any]) -> tuple[Any, ...]:
    """Return the cotangents of several results, zeros for those that received none (None for those that carry none)."""
    shapes = node.saved[node.plan.width + 1]
    filled = []
    for g, (shape, dtype) in zip(slots, shapes, strict=True):
        if g is None and dtype.kind in "fcV":
            g = from_array(np.zeros(shape, dtype))
        filled.append(g)
    return tuple(filled)


def anomaly(node: Any, index: int) -> AnomalyError:
    """Return the error for a NaN that the rule of one operator made."""
    return AnomalyError(
        f"the derivative of {node.title}() with respect to {node.argument(index)} is NaN; it ran at {describe(node.place)}"
    )
