"""A graph as something to run: memory for its values, and one table of native tasks that computes them.

Tasks that follow one another run in one native call. Between them stand *steps* of Python: operators without native code,
random draws, whatever a user declared.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from wengert.core.native import native
from wengert.errors import KernelError
from wengert.graph.ir import Graph, Value
from wengert.graph.operations import Draw, Formula, Fused
from wengert.runtime.executor import Table
from wengert.runtime.lowering import lower
from wengert.runtime.plan_memory import Scratch, Values
from wengert.runtime.pool import empty
from wengert.runtime.recording import Recording, Task, recording

__all__ = ["Plan"]


class Native:
    """Tasks that run in one native call."""

    __slots__ = ("checks", "table", "words")

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.words = np.frombuffer(b"".join(t.arguments for t in tasks), np.int64).copy()
        ends = np.cumsum([len(t.arguments) // 8 for t in tasks])
        start = self.words.__array_interface__["data"][0]
        places = [start + 8 * int(end) - len(t.arguments) for end, t in zip(ends, tasks, strict=True)]
        self.table = Table(np.array([(*t[:3], p) for t, p in zip(tasks, places, strict=True)], np.int64))
        self.checks = [int(end) - 1 for end, t in zip(ends, tasks, strict=True) if t.checked]

    def __call__(self) -> None:
        """Run the tasks.

        Raises:
            KernelError: with bounds checks, if an access was outside its buffer.
        """
        self.table.run()
        for place in self.checks:
            if self.words[place]:
                raise KernelError(f"access {self.words[place]} of a compiled kernel is outside its buffer")


class Plan:
    """A graph, ready to run again and again.

    Args:
        graph: the program. bound: for each input the array that it is at every call, or None where it differs.
        in_place: whether what is written may be computed in the memory of an input.

    Attributes:
        steps: what is run, in order. arrays: where each value lies. values, scratch: the memory.
    """

    def __init__(self, graph: Graph, bound: Sequence[Any], *, in_place: bool = True) -> None:
        native.loaded()
        self.graph = graph
        self.arrays: dict[Value, Any] = dict(graph.constants)
        self.bound = list(bound)
        self.buffers: list[Any] = []
        for value, array in zip(graph.inputs, bound, strict=True):
            held = empty(value.shape, value.dtype.numpy) if array is None else array
            self.arrays[value] = held
            self.buffers.append(held)
        self._changing = [(i, self.buffers[i]) for i, array in enumerate(bound) if array is None]
        self._fixed = [(i, array) for i, array in enumerate(bound) if array is not None]
        self.steps: list[Any] = []
        self._build(self._in_place() if in_place else {})

    def _build(self, places: dict[Value, Any]) -> None:
        self.values = Values(self.graph, places, lambda node: _is_elementwise(node.op) and not _is_formulas(node.op))
        self.scratch, whole = Scratch(), Recording()
        for node in self.graph.nodes:
            outs = [places[v] if v in places else self.values.array(v) for v in node.results]
            with recording() as recorded:
                recorded.scratch = self.scratch.take
                found = lower(node, self.arrays.__getitem__, outs, recorded)
            self.scratch.leave(found)
            whole.tasks += recorded.tasks
            whole.kept += recorded.kept
            self.arrays.update(zip(node.results, found, strict=True))
        for launches, some in groupby(whole.tasks, lambda task: isinstance(task, Task)):
            tasks: list[Any] = list(some)
            self.steps += [Native(tasks)] if launches else tasks
        self._kept = whole.kept
        self._moved = self._written_elsewhere()

    @property
    def nbytes(self) -> int:
        """The bytes of the plan's own memory: the arena, scratch, and copies of arguments."""
        own = (a.nbytes for a, b in zip(self.buffers, self.bound, strict=True) if b is None)
        return int(self.values.arena.size + sum(b.size for b in self.scratch.blocks) + sum(own))

    def scramble(self) -> None:
        """Overwrite all memory that a run must write before it reads it."""
        for block in (self.values.block, *self.scratch.blocks):
            block.fill(0xA5)

    def _in_place(self) -> dict[Value, Any]:
        """Return the values that may be computed where an input lies, because nothing reads the input after them."""
        last: dict[Value, int] = {}
        made: dict[Value, int] = {}
        for k, node in enumerate(self.graph.nodes):
            for value in node.inputs:
                last[value] = k
            for value in node.results:
                made[value] = k
        outputs = set(self.graph.outputs)
        found: dict[Value, Any] = {}
        aliased = self._aliased()
        for target, value in self.graph.writes:
            array, maker = self.arrays[target], value.node
            if (
                maker is not None and value in made and value not in found and target not in outputs
                and target not in aliased and last.get(target, -1) <= made[value] and array.flags.c_contiguous
                and self.bound[self.graph.inputs.index(target)] is not None
                and _is_elementwise(maker.op) and _reads_once(maker, target)
            ):  # fmt: skip
                found[value] = array
        return found

    def _written_elsewhere(self) -> set[Value]:
        """Return the values to be written that lie in the memory of an input, which may be written itself by then."""
        moved = set()
        for target, value in self.graph.writes:
            array = self.arrays[value]
            if array is not self.arrays[target] and any(np.may_share_memory(array, b) for b in self.buffers):
                moved.add(value)
        return moved

    def _aliased(self) -> set[Value]:
        """Return the inputs that some view looks at: they may be read through it later."""
        return {
            node.inputs[0] for node in self.graph.nodes if getattr(node.op, "view", False) and node.inputs
        }  # fmt: skip

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Whether the arrays that are to be the same at every call still are."""
        return all(arrays[i] is array for i, array in self._fixed)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on the arrays of the inputs, and return those of the outputs, then those of what is to be written.

        Inputs of no dimensions may come as numbers.
        """
        for place, held in self._changing:
            held[...] = arrays[place]
        for step in self.steps:
            step()
        held, moved = self.arrays, self._moved
        return [
            *(held[value].copy() for value in self.graph.outputs),
            *(held[value].copy() if value in moved else held[value] for _, value in self.graph.writes),
        ]


def _is_formulas(op: Any) -> bool:
    return isinstance(op, Fused) and op.kind == "formulas"


def _reads_once(node: Any, target: Value) -> bool:
    """Whether no more than one of the kernels of a node reads a value."""
    if not _is_formulas(node.op):
        return True
    inner = [i for i, outer in zip(node.op.body.inputs, node.arguments, strict=True) if outer is target]
    return sum(any(v in inner for v in n.inputs) for n in node.op.body.nodes) <= 1


def _is_elementwise(op: Any) -> bool:
    """Whether an operation reads an element of its arguments only where it writes the result's, so that they may be one."""
    if isinstance(op, Draw):
        return False
    if isinstance(op, Fused):
        return op.kind in ("pointwise", "formulas")
    return isinstance(op, Formula) or (op.batch == "broadcast" and op.single)
