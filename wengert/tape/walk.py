"""The backward walk: from roots to leaves, each node once, latest first, without recursion.

A first pass counts how many gradients each node will receive; a node runs when all have come. Of the ready nodes the
one recorded last runs first; leaves run at once, so that a hook on a parameter fires as soon as its gradient is whole.
Gradients in flight live in one table, keyed by node, and never on the nodes.
"""

from heapq import heappop, heappush
from typing import Any

import numpy as np

from wengert.core.node import Freed, Leaf, Node, OpNode, Output
from wengert.core.place import Place, describe
from wengert.core.record import Packed, unpack
from wengert.core.registry import ops
from wengert.core.state import State, thread
from wengert.core.tensor import Tensor, from_array
from wengert.errors import AnomalyError, GraphFreedError, ShapeError
from wengert.tape.accumulate import accumulate, into_leaf, retain
from wengert.tape.function import FunctionNode
from wengert.tape.hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks

__all__ = ["Walk"]

ndarray, asarray, new_tensor = np.ndarray, np.asarray, object.__new__


class Walk:
    """One backward pass.

    Args:
        keep: keep what the graph saved, so that it can be walked again.
        create: record the pass itself, so that gradients can be differentiated.
        place: the user's line that asked for it.
        targets: nodes whose gradients are captured (None: gradients are accumulated into every leaf).
        into_leaves: whether gradients reach ``.grad`` of leaves (of the targets only, if there are any).
    """

    __slots__ = ("captured", "create", "counts", "freed", "grads", "into_leaves", "keep", "needed", "notes", "owned", "ready", "starts", "targets")

    def __init__(self, *, keep: bool, create: bool, place: Place, targets: set[Node] | None, into_leaves: bool) -> None:
        self.keep, self.create, self.freed = keep, create, Freed(place)
        self.targets, self.into_leaves = targets, into_leaves
        self.grads: dict[Node, Any] = {}
        self.owned: set[Node] = set()
        self.counts: dict[Node, int] = {}
        self.ready: list[tuple[int, int, Node]] = []
        self.needed: set[Node] | None = None
        self.captured: dict[Node, Any] = {}
        self.starts: list[Node] = []
        self.notes: dict[Any, Any] = {}  # what hooks on several gradients remember during this pass

    def run(self, roots: list[tuple[Node, Any]]) -> dict[Node, Any]:
        """Walk from ``roots`` (node and cotangent) and return the gradients of the targets."""
        starts = self.starts = [node for node, _ in roots]
        if self.targets is not None:
            self.needed = leading_to(starts, self.targets)
        self._count(starts)
        state = thread.state
        before, state.grad = state.grad, self.create
        outer, state.walk = state.walk, self
        try:
            for node, cotangent in roots:
                if self.needed is None or node in self.needed:
                    self._receive(node, cotangent)
            for node in dict.fromkeys(starts):
                if node not in self.counts and (self.needed is None or node in self.needed):
                    self._enqueue(node)
            self._drain(state)
        finally:
            state.grad, state.walk = before, outer
        return self.captured

    def reaches(self, node: Node) -> bool:
        """True if this pass visits the node."""
        return node in self.counts or node in self.starts

    def _count(self, starts: list[Node]) -> None:
        counts, needed = self.counts, self.needed
        seen = set(starts)
        stack = list(seen)
        while stack:
            for node in stack.pop().inputs:
                if node is None or (needed is not None and node not in needed):
                    continue
                counts[node] = counts.get(node, 0) + 1
                if node not in seen:
                    seen.add(node)
                    stack.append(node)

    def _enqueue(self, node: Node) -> None:
        heappush(self.ready, (-node.sequence, id(node), node))

    def _drain(self, state: State) -> None:
        """Run ready nodes until none is left: those with nothing special about them here, the others in ``_visit``."""
        ready, grads, counts, owned = self.ready, self.grads, self.counts, self.owned
        plain = self.targets is None and not state.anomaly and not self.create
        keep, freed, run = self.keep, self.freed, state.run
        while ready:
            node: Any = heappop(ready)[2]
            if not plain or type(node) is not OpNode or node.extra is not None or not node.plan.simple:
                self._visit(node, state)
                continue
            g = grads.pop(node, None)
            if g is None or type(node.saved) is Freed:
                self._visit(node, state, g)
                continue
            saved, versions, inputs, dtype = node.saved, node.versions, node.inputs, node.dtype
            for number, rule, slots, arithmetic in node.plan.rules:
                after = inputs[number]
                try:
                    found = self._arithmetic(run, rule, g, saved, versions, slots, dtype) if arithmetic else None
                    if found is None:
                        found = rule(g, *[unpack(node, slot) for slot in slots])
                except Exception as error:
                    raise noted(error, node) from None
                array = found._payload
                if array.shape != after.shape or array.dtype is not after.dtype:
                    found = fitted(node, after, found)
                held = grads.get(after)
                if held is None:
                    grads[after] = found
                else:
                    grads[after] = accumulate(held, found, False, after in owned)
                    owned.add(after)
                left = counts[after] - 1
                counts[after] = left
                if not left:
                    heappush(ready, (-after.sequence, id(after), after))
            if not keep and node.plan.keeps_tensors:
                node.saved, node.versions = freed, None

    @staticmethod
    def _arithmetic(run: Any, rule: Any, g: Any, saved: Any, versions: Any, slots: Any, dtype: Any) -> Any:
        """Run an arithmetic rule on the arrays of unchanged tensors of one dtype; None if they are not such."""
        x = g._payload
        if type(x) is not ndarray or x.dtype is not dtype or dtype.kind != "f":
            return None
        arguments = [x]
        for slot in slots:
            value, version = saved[slot], versions[slot]
            if version is not None:
                if type(version) is int:
                    cell = value._cell
                    if cell is not None and cell.count != version:
                        return None
                    value = value._payload
                elif type(version) is tuple or version.count:
                    return None
                if type(value) is not ndarray or value.dtype is not dtype:
                    return None
            elif isinstance(value, Packed):
                return None
            arguments.append(value)
        array = run(rule, *arguments)
        if array is x:
            return g
        out = new_tensor(Tensor)
        out._payload = array if type(array) is ndarray else asarray(array)
        out._node = out._cell = out._view = out._grad = None
        return out

    def _visit(self, node: Node, state: State, g: Any = None) -> None:
        if g is None:
            g = self.grads.pop(node, None)
        self.owned.discard(node)
        if g is not None and node.extra is not None:
            g = run_tensor_hooks(node, g)
        if self.targets is not None and node in self.targets and g is not None:
            self.captured[node] = g
        if isinstance(node, Leaf):
            if g is not None and self.into_leaves:
                holder = [g]
                del g
                into_leaf(node, holder, self.create)
            return
        if g is not None and node.extra is not None:
            g = run_pre_hooks(node, g)
            retain(node, g, self.create)
        if g is not None:
            if isinstance(node, Output):
                self._collect(node, g)
            elif isinstance(node, FunctionNode):
                self._custom(node, g, state)
            elif any_below(node, self.needed):
                self._differentiate(node, g, state)  # type: ignore[arg-type]
        counts, needed = self.counts, self.needed
        for after in node.inputs:
            if after is not None and (needed is None or after in needed):
                left = counts[after] - 1
                counts[after] = left
                if not left:
                    self._enqueue(after)

    def _collect(self, node: Output, g: Any) -> None:
        """Put the gradient of one of several results into its slot."""
        parent: Any = node.inputs[0]
        slots = self.grads.get(parent)
        if slots is None:
            slots = self.grads[parent] = [None] * parent.outputs
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
            for after, value in zip(node.inputs, run_post_hooks(node, hooked, tuple(g) if isinstance(g, list) else g), strict=True):
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
        if state.anomaly and state.anomaly_nan and np.isnan(found._payload).any():
            raise anomaly(node, index)
        if hooked is not None:
            hooked[index] = found
        else:
            self._receive(after, found)

    def _receive(self, node: Node, g: Any) -> None:
        held = self.grads.get(node)
        if held is None:
            self.grads[node] = g
        else:
            self.grads[node] = accumulate(held, g, self.create, node in self.owned)
            self.owned.add(node)


def noted(error: Exception, node: OpNode) -> Exception:
    """Return an error with the forward operator and user line it belongs to as a note."""
    error.add_note(f"while differentiating {node.op.name}(), recorded at {describe(node.place)}")
    return error


def freed_error(node: Any) -> GraphFreedError:
    """Return the error for a second backward through a node."""
    return GraphFreedError(
        f"backward a second time through {node.title}() (recorded at {describe(node.place)}): what it saved was freed "
        f"by the first backward, at {describe(node.saved.place)}.\n"
        "  If a value computed in an earlier iteration is used again (a hidden state, a running loss), detach() it.\n"
        "  If two losses share a part, add them and call backward once, or pass retain_graph=True to the first."
    )


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


def fitted(node: Any, after: Node, g: Any) -> Any:
    """Return a gradient in the shape and dtype of the tensor it belongs to: broadcasting and promotion are undone."""
    array = g._payload
    if array.shape != after.shape:
        try:
            g = ops.sum_to_size(g, after.shape)
        except RuntimeError:
            raise ShapeError(
                f"the derivative of {node.title}() gave a gradient of shape {tuple(array.shape)} for a tensor of "
                f"shape {tuple(after.shape)}"
            ) from None
    if array.dtype is not after.dtype and array.dtype != after.dtype:
        g = ops.cast(g, after.dtype)
    return g


def anomaly(node: Any, index: int) -> AnomalyError:
    """Return the error for a NaN that the rule of one operator made."""
    return AnomalyError(
        f"the derivative of {node.title}() with respect to {node.argument(index)} is NaN; it ran at {describe(node.place)}"
    )
