"""A graph as something to run: memory for its values, and one table of native tasks that computes them.

Tasks that follow one another run in one native call. Between them stand *steps* of Python: operators without native code,
random draws, whatever a user declared.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import numpy as np

from wengert.core.native import native
from wengert.graph.ir import Graph, Node, Value
from wengert.runtime import placing
from wengert.runtime.concurrent import Concurrent, Expected, Unit
from wengert.runtime.dependencies import Access, ranges
from wengert.runtime.gantt import expected
from wengert.runtime.kept import Kept
from wengert.runtime.launch import pointer
from wengert.runtime.lowering import Step, lower
from wengert.runtime.machine import known
from wengert.runtime.plan_memory import Scratch, SeatedScratch, Values
from wengert.runtime.pool import empty
from wengert.runtime.recording import Check, Recording, Task, recording
from wengert.runtime.segments import Moving, Native, Within, bounds, moving, overlapping, words_of
from wengert.runtime.timeline import Timeline

__all__ = ["Plan"]

FEW: Final = 3  # products of one matrix up to which each of them packs it: what is packed for all takes memory


class Plan:
    """A graph, ready to run again and again, by one thread at a time.

    Memory of the results is the caller's: large ones are computed where he will have them, others copied. Large arguments
    are read where they lie. So these addresses differ from call to call, and stand in ``words`` as they are now.

    Args:
        graph: the program. bound: for each input the array that it is at every call, or None where it differs.
        in_place: whether what is written may be computed in the memory of an input, and small results where the last call had
            them. keep: such results, by their numbers among the outputs, and what says that nobody misses the last one; see
            :class:`wengert.runtime.kept.Kept`. large: bytes from which on arguments and results lie where the caller has them.
            sketch: whether the plan is made to be looked at only, and its memory is not
            taken from the pool, which may not have as much. expected: how nodes are expected to run beside one another, in
            the order in which they stand; None: one after the other.

    Attributes:
        steps: what is run, in order. arrays: where each value lies. values, scratch: the memory. words: the arguments of all
            native tasks. tasks, nodes: what is run, one by one, and the node that each belongs to. units: these by nodes, if
            nodes are expected to run beside one another. in_place: for each write whether it is computed where it belongs.
    """

    def __init__(
        self,
        graph: Graph,
        bound: Sequence[Any],
        *,
        in_place: bool = True,
        keep: Mapping[int, Callable[[], bool]] | None = None,
        large: float = placing.LARGE,
        sketch: bool = False,
        expected: Expected | None = None,
    ) -> None:
        native.loaded()
        self.graph, self.expected = graph, expected
        self.arrays: dict[Value, Any] = dict(graph.constants)
        self.bound, self._large, self._make = list(bound), large, np.empty if sketch else empty
        for value, array in zip(graph.inputs, bound, strict=True):
            if array is not None:
                self.arrays[value] = array
            elif value.nbytes < large:
                self.arrays[value] = empty(value.shape, value.dtype.numpy)
        self.arrays |= placing.reserved([v for v in graph.inputs if v not in self.arrays])
        self._fixed = [(i, array) for i, array in enumerate(bound) if array is not None]
        self.steps: list[Any] = []
        self.tasks: list[Any] = []
        self.nodes: list[Any] = []
        self.units: list[Unit] = []
        places, kept = (
            (placing.in_place(graph, bound), placing.kept(graph, keep or (), large)) if in_place else ({}, {})
        )
        places |= {v: self._make(v.shape, v.dtype.numpy) for v in kept}
        pinned = self._record(places)
        if (late := self._behind_failures(places)).keys() != places.keys():
            places, pinned = late, self._record(late)
        self._assemble()
        self._move(places, pinned, [(k, v, (keep or {})[k]) for v, k in kept.items() if v in places])

    def _record(self, places: dict[Value, Any]) -> list[Any]:
        """Record the tasks of all nodes; return the arrays that Python looks at, which must stay where they are."""
        apart = placing.reserved([v for v in placing.handed_out(self.graph, self._large) if v not in places])
        lives, seats = (None, None) if self.expected is None else (self.expected.lives, self.expected.seats)
        self.values = Values(self.graph, places.keys() | apart.keys(), placing.replaces, self._make, lives)
        self.scratch = Scratch(self.values) if seats is None else SeatedScratch(self.values, seats)
        whole, own, lasting = Recording(), places | apart, Within(self.graph.constants.values())
        whole.steady = often = _Often(Within([self.arrays[v] for v in _read_often(self.graph)]))
        written = {value for _, value in self.graph.writes}
        self.tasks, self.nodes, self.units = [], [], []
        pinned: list[Any] = []
        for number, node in enumerate(self.graph.nodes):
            self.scratch.begin(number)
            outs = [own[v] if v in own else self.values.array(v) for v in node.results]
            with recording() as recorded:
                recorded.scratch, recorded.checked = self.scratch.take, whole.checked
                recorded.streams, recorded.packs, recorded.steady = whole.streams, whole.packs, whole.steady
                recorded.keep, recorded.lasting, recorded.once = self.scratch.keep, lasting, self.scratch.once
                found = lower(node, self.arrays.__getitem__, outs, recorded)
            if isinstance(self.scratch, SeatedScratch) and recorded.tasks:
                reads = [*map(self.arrays.__getitem__, node.inputs), *recorded.read]
                writes = [*outs, *found, *self.scratch.taken, *(recorded.packs[key] for key in recorded.new)]
                first, access = len(self.tasks), Access(ranges(reads), ranges(writes))
                self.units.append(Unit(node, first, first + len(recorded.tasks), access))
            self.tasks += recorded.tasks
            self.nodes += [node] * len(recorded.tasks)
            whole.kept += recorded.kept
            self.arrays.update(zip(node.results, found, strict=True))
            if any(v in places and v in written for v in node.results):  # an input holds other values from here on
                whole.packs.clear()
                often.forget()
            pinned += recorded.pinned
            pinned += [self.arrays[v] for v in _looked_at(node, recorded.tasks)]
        self._alive = whole.kept
        return pinned

    def _behind_failures(self, places: dict[Value, Any]) -> dict[Value, Any]:
        """Return the values in place that are computed behind all that may raise an error: all is written, or none."""
        failing = {node for task, node in zip(self.tasks, self.nodes, strict=True) if not isinstance(task, Task)}
        last = max((k for k, node in enumerate(self.graph.nodes) if node in failing), default=-1)
        late = {v for node in self.graph.nodes[last + 1 :] for v in node.results}
        return {value: array for value, array in places.items() if value in late}

    def _assemble(self) -> None:
        """Make steps of the tasks: those that follow one another without Python are one."""
        self.words, starts = words_of(self.tasks)
        serial = {node for task, node in zip(self.tasks, self.nodes, strict=True) if not isinstance(task, Task)}
        apart = set() if self.expected is None else serial
        runs = groupby(
            range(len(self.tasks)), lambda k: (isinstance(self.tasks[k], Task | Check), self.nodes[k] in apart)
        )
        for (launches, _), numbers in runs:
            some = list(numbers)
            self.steps += [self._native(some, starts)] if launches else [self.tasks[k] for k in some]

    def _native(self, numbers: Sequence[int], starts: Sequence[int]) -> Native:
        """Return the step of native tasks that follow one another."""
        first, end = numbers[0], numbers[-1] + 1
        tasks, nodes = self.tasks[first:end], self.nodes[first:end]
        units = [u.behind(first) for u in self.units if first <= u.first and u.end <= end]
        if self.expected is None or len(units) < 2 or not all(isinstance(task, Task) for task in tasks):
            return Native(tasks, self.words, starts[first:end], nodes)
        return Concurrent(tasks, self.words, starts[first:end], nodes, units, self.expected)

    def _move(self, places: dict[Value, Any], pinned: list[Any], keep: Sequence[tuple[int, Value, Any]]) -> None:
        """Find out which arguments and results may lie elsewhere at each call, and what is copied."""
        graph, arrays = self.graph, self.arrays
        results, apart = dict.fromkeys(graph.results), set(placing.handed_out(self.graph, self._large))
        changing = [(i, v) for i, (v, b) in enumerate(zip(graph.inputs, self.bound, strict=True)) if b is None]
        given = [(i, v) for i, v in changing if v.nbytes >= self._large and v not in results]
        handed = [(k, v) for k, v in enumerate(graph.outputs) if v in apart] + [(k, v) for k, v, _ in keep]
        known = overlapping([arrays[v] for _, v in (*given, *handed)], [*pinned, *(arrays[v] for v in results)])
        given = [at for at, number in zip(given, known, strict=False) if number == 0]
        handed = [
            at for at, number in zip(handed, known[len(known) - len(handed) :], strict=True) if number == 1
        ]  # itself
        found = moving([arrays[v] for _, v in (*given, *handed)], self.words)
        self._given = [(i, m) for (i, _), m in zip(given, found, strict=False)]
        moves = {k: m for (k, _), m in zip(handed, found[len(given) :], strict=True)}
        self._kept = [Kept(k, v, places[v], moves.pop(k), unshared) for k, v, unshared in keep if k in moves]
        self._handed = list(moves.items())
        elsewhere = {v for _, v in given} | {graph.outputs[k] for k in moves}
        self._copied_in = [(i, arrays[v]) for i, v in changing if v not in elsewhere]
        self._lasting: list[Any] = [None] * len(graph.outputs)
        for kept in self._kept:
            self._lasting[kept.number] = kept.array
        self._copied = [
            (k, arrays[v]) for k, v in enumerate(graph.outputs) if self._lasting[k] is None and v not in elsewhere
        ]
        moved = self._written_elsewhere()
        self._writes = [arrays[value] for _, value in graph.writes]
        copied = [value in moved for _, value in graph.writes]
        self.in_place = [arrays[target] is arrays[value] and value not in moved for target, value in graph.writes]
        self._moved: Callable[[], list[Any]] | None = partial(_copies, self._writes, copied) if moved else None
        self._written = bounds([array for value, array in places.items() if value not in {v for _, v, _ in keep}])
        self._forget(elsewhere)

    def _forget(self, elsewhere: Collection[Value]) -> None:
        """Give back the memory that values had while they were recorded, which lie elsewhere at each call, or may."""
        alive = [k for k in self._alive if isinstance(k, np.ndarray)]
        lost = overlapping(alive, [*(self.arrays[v] for v in elsewhere), *(kept.array for kept in self._kept)])
        left = [k for k in self._alive if not isinstance(k, np.ndarray)]
        self._alive = left + [array for array, number in zip(alive, lost, strict=True) if not number]
        self.arrays.update({v: _Elsewhere(v) for v in elsewhere})

    @property
    def nbytes(self) -> int:
        """The bytes of the plan's own memory: the arena, scratch, what is made once, and copies of arguments."""
        own = sum(held.nbytes for _, held in self._copied_in)
        return int(self.values.arena.size + sum(b.size for b in (*self.scratch.blocks, *self.scratch.lasting)) + own)

    @property
    def peak(self) -> int:
        """The most bytes that a call has at once: the plan's own, its results, and what a step of Python makes."""
        results = sum(v.nbytes for v in self.graph.outputs)
        steps = [sum(v.nbytes for v in step.node.results) for step in self.steps if isinstance(step, Step)]
        return self.nbytes + results + max(steps, default=0)

    def timeline(self) -> Timeline:
        """Return what is expected to run when, and on which thread; :func:`wengert.runtime.parts.timed` measures it.

        Its ``svg()`` is a Gantt chart, ``chrome_trace()`` what chrome://tracing shows.
        """
        return expected(self.steps, known() if self.expected is None else self.expected.machine)

    def memory(self, width: int = 72, most: int = 40) -> str:
        """Return as text what memory a call takes, and when the largest buffers of the arena live, time to the right."""
        scratch, results = sum(b.size for b in self.scratch.blocks), sum(v.nbytes for v in self.graph.outputs)
        once = sum(b.size for b in self.scratch.lasting)
        head = f"{self.peak:,} bytes at once: {scratch:,} of scratch beside the arena, {results:,} of results"
        head += f", {once:,} of what is made of constants once" if once else ""
        return f"{head}\n{self.values.arena.report(width, most)}"

    def scramble(self) -> None:
        """Overwrite all memory that a run must write before it reads it."""
        for block in (self.values.block, *self.scratch.blocks):
            block.fill(0xA5)

    def _written_elsewhere(self) -> set[Value]:
        """Return the values to be written that lie in the memory of an input, which may be written itself by then."""
        moved = set()
        for target, value in self.graph.writes:
            array = self.arrays[value]
            if array is not self.arrays[target] and any(
                np.may_share_memory(array, self.arrays[v]) for v in self.graph.inputs
            ):
                moved.add(value)
        return moved

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Whether the arrays that are to be the same at every call still are."""
        return all(arrays[i] is array for i, array in self._fixed)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run on the arrays of the inputs, and return those of the outputs, then those of what is to be written.

        Inputs of no dimensions may come as numbers.
        """
        for place, held in self._copied_in:
            held[...] = arrays[place]
        for kept in self._kept:
            if not kept.take():
                self._renew(kept)
        if self._given or self._handed:
            found = self._run_elsewhere(arrays)
        else:
            for step in self.steps:
                step()
            found = self._lasting.copy()
        for place, held in self._copied:
            found[place] = held.copy()
        return found + (self._writes if self._moved is None else self._moved())

    def _renew(self, kept: Kept) -> None:
        """Let a result lie in new memory, as somebody still has what the last call returned."""
        number = kept.number
        self._lasting[number] = self.arrays[kept.value] = None  # so that the plan holds it no more often than before
        self._lasting[number] = self.arrays[kept.value] = kept.renew()
        kept.settle()

    def _run_elsewhere(self, arrays: Sequence[Any]) -> list[Any]:
        """Run with large arguments and results where the caller has them; return those of the results that are not copied."""
        lent = [self._lent(move, arrays[place]) for place, move in self._given]
        handed = [empty(move.shape, move.dtype) for _, move in self._handed]
        for (_, move), array in zip(self._handed, handed, strict=True):
            move.to(array)
        for step in self.steps:
            step()
        del lent
        found = self._lasting.copy()
        for (place, _), array in zip(self._handed, handed, strict=True):
            found[place] = array
        return found

    def _lent(self, move: Moving, array: Any) -> Any:
        """Let the tasks read an argument where it lies, or else a copy of it; return what is read."""
        if array.shape != move.shape or array.dtype != move.dtype or not array.flags.carray or self._is_written(array):
            array, given = empty(move.shape, move.dtype), array
            array[...] = given
        move.to(array)
        return array

    def _is_written(self, array: Any) -> bool:
        """Whether an array lies in memory that is written before all has been read."""
        starts, ends = self._written
        if not len(starts):
            return False
        (first,), (end,) = bounds([array])
        return bool(((starts < end) & (first < ends)).any())


def _read_often(graph: Graph) -> list[Value]:
    """Return the inputs that more than :data:`FEW` nodes read, also through views."""
    root: dict[Value, Value] = {}
    readers: Counter[Value] = Counter()
    for node in graph.nodes:
        inputs = {root.get(v, v) for v in node.inputs}
        if getattr(node.op, "view", False) and node.inputs:
            root.update(dict.fromkeys(node.results, root.get(node.inputs[0], node.inputs[0])))
        else:
            readers.update(inputs)
    return [value for value in graph.inputs if readers[value] > FEW]


class _Often:
    """Says of arrays, each time that one is to be read, whether it lies in others, and was read before more than once.

    Args:
        within: whether it lies in them.
    """

    def __init__(self, within: Within) -> None:
        self._within = within
        self._counts: Counter[Any] = Counter()

    def __call__(self, array: Any) -> bool:
        """Whether it does, and was."""
        if not array.size or not self._within(array):
            return False
        key = pointer(array), array.shape, array.strides
        self._counts[key] += 1
        return self._counts[key] >= FEW

    def forget(self) -> None:
        """Forget what was read."""
        self._counts.clear()


def _copies(arrays: Sequence[Any], copied: Sequence[bool]) -> list[Any]:
    """Return arrays, copies of some of them."""
    return [array.copy() if copy else array for array, copy in zip(arrays, copied, strict=True)]


class _Elsewhere:
    """Stands for the memory of a value that lies elsewhere at each call."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"memory of the caller's for {self.value}"


def _looked_at(node: Node, tasks: Sequence[Any]) -> Iterable[Value]:
    """Return the values of a node whose memory Python looks at, where it is now: all, or those that checks complain of."""
    if all(isinstance(task, Task) for task in tasks):
        return ()
    if all(isinstance(task, Task | Check) for task in tasks):
        return [v for v in node.inputs if v.dtype.numpy.kind != "f"]
    return [*node.inputs, *node.results]
