"""One captured run of a function: its graph, where inputs come from, and what is done with the results."""

from collections.abc import Callable, Sequence
from math import inf
from operator import is_
from typing import Any

import numpy as np

from wengert import tree
from wengert.array.device import devices, placed, unplaced
from wengert.compiling.decisions import Decision, Different, check_way, generators_of, same
from wengert.compiling.outward import Outward
from wengert.compiling.phases import Phases
from wengert.compiling.results import KeptGradient, Result, SparseGradient
from wengert.compiling.sources import Gradient, Guards, Held, Source
from wengert.core.place import here
from wengert.core.tensor import alias, from_array, replay, version_of
from wengert.graph.control import let_run
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph, Value
from wengert.passes.pipeline import optimise
from wengert.runtime.ahead import Ahead, put_off
from wengert.runtime.budget import Bounded, Budget, bounded
from wengert.runtime.overlap import planned
from wengert.runtime.placing import LARGE
from wengert.runtime.plan import Plan
from wengert.runtime.policies import Policy
from wengert.tape.modes import enable_grad

__all__ = ["KINDS", "Program"]

KINDS = frozenset({"pointwise", "product", "formulas"})

Runner = Callable[[Sequence[Any]], list[Any]]


class Program:
    """A graph with the way in and out of it.

    Attributes:
        graph: what is computed. sources: of its inputs, in order (None for host inputs). guards: when it may be used.
        hosts: what Python does first; places: which inputs its numbers begin at; effects: what it does when the graph has
            run. results: of the function's tensors, and ``structure`` of what it returns.
        writes, gradients: sources, and which of the graph's results becomes their memory, or their ``.grad``. sparse: such
            gradients that are sparse.
        first: whether the next run is that of the call it was captured for, whose decisions come out as they did, to rounding.
        run: computes the values from the arrays of the inputs. seconds: what the phases of making it took.
        budget: of memory, and bounded: what came of it. policy: how the nodes of the plan are scheduled.
        devices: of inputs and constants, where there are several, by their numbers; where: those of the graph's results.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sources: list[Source | None] = []
        self.guards = Guards()
        self.hosts: list[Any] = []
        self.places: list[int] = []
        self.results: list[Result] = []
        self.structure: Any = None
        self.writes: list[tuple[Source, int]] = []
        self.gradients: list[tuple[Source, int | None]] = []
        self.sparse: list[SparseGradient] = []
        self.run: Runner
        self.outward: Outward | None = None
        self.decisions: list[Decision] = []
        self.effects: list[Callable[[], Any]] = []
        self.function: Callable[..., Any]
        self.arguments: Any = None
        self.plan: Plan | None = None
        self.optimised: Graph | None = None
        self.seconds = Phases()
        self.verified = self.first = False
        self.budget: Budget | None = None
        self.bounded: Bounded | None = None
        self.policy: str | Policy = "priority"
        self.devices: dict[Value, int] = {}
        self.where: list[int | None] = []
        self._ahead: Ahead[bool | Exception] | None = None
        self._moved = -1
        self._payloads: list[Any] = []  # of the tensors that the function holds
        self._held: list[Any] = []  # their arrays
        self._coming: list[tuple[int, Source]] = []
        self._replaced: list[Source] = []
        self._kept: dict[int, KeptGradient] = {}  # small gradients that may be the same tensors again, by their outputs
        self._anew: list[tuple[Source, int | None]] = []  # the other ones
        self._there: list[Any] = []  # tensors that are written where they lie, and the other writes
        self._elsewhere: list[tuple[Source, int]] = []
        self._single: int | None = None  # the result that is all that is returned, and a new tensor

    @property
    def acts(self) -> bool:
        """Whether a call does more than to return something: it writes, steps, or draws random numbers."""
        written = self.writes or self.gradients or self.sparse
        return bool(written or self.hosts or self.effects or generators_of(self.graph))

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Run on the leaves of a call's arguments, and return what the function returns."""
        found = self.compute(leaves)
        self.check_decisions(found)
        for effect in self.effects:
            effect()
        recorded = {} if self.outward is None else self.outward.record(self, leaves, found)
        return self.finish(found, leaves, recorded)

    def check_decisions(self, found: Sequence[Any]) -> None:
        """Compare the values that decided for this way with what the graph has found.

        Raises:
            Different: where one is another. In the run of the call that was captured, a number is as the kernels round it.
        """
        for number, decision in enumerate(self.decisions):
            answer = found[decision.position]
            if not same(answer, decision.answer):
                if not self.first or answer.dtype.kind not in "fc":
                    raise Different(number, answer)
                self.decisions[number] = decision._replace(answer=answer.copy())
        self.first = False

    def compute(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the graph on the leaves of a call's arguments."""
        arrays = self.gather(leaves)  # which may make another plan
        for source in self._replaced:  # so that one set of them is in memory, and not two
            source.tensor(leaves)._grad = None
        try:
            found = self.run(arrays)
        except BaseException as error:
            for kept in self._kept.values():
                kept.put_back()
            if self.decisions and isinstance(error, Exception):
                check_way(self.graph, self.decisions, arrays)
            if self._replaced:
                error.add_note(
                    "this compiled call has written nothing, but gradients that it was to replace are None now"
                )
            raise
        return [placed(a, i) for a, i in zip(found, self.where, strict=True)] if self.where else found

    def _held_payloads(self) -> list[Any]:
        """Return what the tensors that the function holds have for memory, at their places among the inputs."""
        return [source.held._payload if isinstance(source, Held) else None for source in self.sources]

    def _held_arrays(self) -> list[Any]:
        """Return the arrays of these."""
        return [unplaced(array) for array in self._payloads] if devices.several else self._payloads

    def gather(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the arrays of the inputs for a call, and do what Python does before the graph runs."""
        if self._moved != self.guards.moved:
            self._moved = self.guards.moved
            before, self._payloads = self._payloads, self._held_payloads()
            if not all(map(is_, before, self._payloads)):
                self._held = self._held_arrays()
                if self.plan is not None and not self.plan.fits(self._held):
                    self._build()
        arrays = self._held.copy()
        for place, source in self._coming:
            arrays[place] = source.tensor(leaves)._payload
        for host, first in zip(self.hosts, self.places, strict=True):
            found = host.do()
            if host.values:
                arrays[first : first + len(found)] = found
        return [unplaced(array) for array in arrays] if devices.several else arrays

    @property
    def ready(self) -> bool:
        """Whether what runs the graph has been made.

        Raises:
            Exception: whatever went wrong with it in the background.
        """
        if self._ahead is not None:
            came_to = self._ahead.get()
            if came_to is None:
                return False
            self._ahead = None
            if isinstance(came_to, Exception):
                raise came_to
        return True

    def prepare_behind(self, backend: str) -> None:
        """Make what runs the graph in the background; :attr:`ready` says when."""

        def make() -> bool | Exception:
            try:
                self.prepare(backend)
            except Exception as error:
                return error
            return True

        self._ahead = Ahead(make)

    def prepare(self, backend: str) -> None:
        """Make what runs the graph."""
        self._coming = [
            (k, source) for k, source in enumerate(self.sources) if source is not None and not isinstance(source, Held)
        ]
        self._replaced, self._kept = self._replaced_gradients(), self._kept_gradients()
        self._anew = [(source, given) for source, given in self.gradients if given not in self._kept]
        self._payloads = self._held_payloads()
        self._held = self._held_arrays()
        only = self.results[0] if self.outward is None and self.structure.kind is None else None
        self._single = only.item if only is not None and only.kind == "value" else None
        self._elsewhere = list(self.writes)
        if backend == "reference":
            self.run = self._evaluated
        else:
            self._build()

    def _replaced_gradients(self) -> list[Source]:
        """Return the sources with large gradients that each call makes anew, and nothing reads as they were before."""
        if self.decisions:  # perhaps another way will read them
            return []
        read = {source.of.key for source in self.sources if isinstance(source, Gradient)}
        outputs = self.graph.outputs
        return [
            source for source, given in self.gradients
            if given is not None and outputs[given].nbytes >= LARGE and source.key not in read
        ]  # fmt: skip

    def _kept_gradients(self) -> dict[int, KeptGradient]:
        """Return the small gradients whose memory each call may write again, if nobody else has them."""
        if self.decisions or devices.several:
            return {}
        return {
            given: KeptGradient(source.held) for source, given in self.gradients
            if given is not None and isinstance(source, Held) and self.graph.outputs[given].nbytes < LARGE
        }  # fmt: skip

    def _evaluated(self, arrays: Sequence[Any]) -> list[Any]:
        given = [np.asarray(a, v.spec.dtype.numpy) for a, v in zip(arrays, self.graph.inputs, strict=True)]
        found = evaluate(self.graph, given)
        return [found[value] for value in self.graph.results]

    def runner(self, graph: Graph) -> Runner:
        """Return what computes another graph in the way of this one, from arrays that differ each time."""
        if self.plan is None:
            return lambda arrays: [found[v] for found in [evaluate(graph, arrays)] for v in graph.results]
        let_run(graph, self.runner)
        return Plan(optimise(graph, kinds=KINDS), [None] * len(graph.inputs))

    def _build(self) -> None:
        """Make the plan, for the arrays that the function holds."""
        let_run(self.graph, self.runner)
        if self.optimised is None:
            with self.seconds.of("passes"):
                self.optimised = optimise(self.graph, kinds=KINDS)
            if self.budget is not None:
                with self.seconds.of("memory budget"):
                    self.bounded = bounded(self.optimised, self.budget, self._held, **self._own)
                self.optimised = self.bounded.graph
        with put_off(), self.seconds.of("kernels", code="machine code"):
            self.run = self.plan = self.planned(self._held)
        writes = list(zip(self.writes, self.plan.in_place, strict=True))
        self._there = [s.held for (s, _), there in writes if there and isinstance(s, Held)]
        self._elsewhere = [write for write, there in writes if not (there and isinstance(write[0], Held))]

    def planned(self, bound: Sequence[Any]) -> Plan:
        """Return a plan, for arrays that inputs are at every call, or None where they differ."""
        policy = self.policy if self.budget is None else "topological"  # whose memory is least
        return planned(self.optimised or self.graph, bound, policy=policy, devices=self.devices, **self._own)

    @property
    def _own(self) -> dict[str, Any]:
        """What a plan may write where it lies; see :class:`wengert.runtime.plan.Plan`."""
        return {"in_place": not self.decisions, "keep": {number: kept.take for number, kept in self._kept.items()}}

    def scramble(self) -> None:
        """Overwrite what the last call left in the memory of the plan, which no call may look at: for tests."""
        if self.plan is not None:
            self.plan.scramble()

    def called(self, leaves: Sequence[Any]) -> dict[int, Any]:
        """Call the function itself; return the tensors that stand where results of the graph do."""
        args, kwargs = tree.unflatten(leaves, self.arguments)
        returned = tree.leaves(self.function(*args, **kwargs))
        return {r.item: leaf for r, leaf in zip(self.results, returned, strict=True) if r.kind == "value"}

    def finish(self, found: Sequence[Any], leaves: Sequence[Any], recorded: dict[int, Any]) -> Any:
        """Write what is to be written, and return what the function returns."""
        if self.writes:  # of any number, the last is the only one that is remembered
            note = ((inf, "a compiled function", here(1)),)
            for tensor in self._there:
                cell = tensor._cell or version_of(tensor)
                cell.count += 1
                cell.writes = note
            for source, position in self._elsewhere:
                tensor, array = source.tensor(leaves), found[position]
                if array is not tensor._payload:
                    np.copyto(tensor._payload, array)
                cell = tensor._cell or version_of(tensor)
                cell.count += 1
                cell.writes = note
        for number, kept in self._kept.items():
            kept.set(found[number])
        for source, given in self._anew:
            source.tensor(leaves)._grad = None if given is None else from_array(found[given])
        for gradient in self.sparse:
            gradient.set(found, leaves)
        if self._single is not None:
            return from_array(found[self._single])
        made: dict[Result, Any] = {}
        for result in self.results:
            if result not in made:
                made[result] = self._made(result, found, leaves, recorded, made)
        if self.structure.kind is None:
            return made[self.results[0]]
        return tree.unflatten([made[r] for r in self.results], self.structure)

    def _made(
        self,
        result: Result,
        found: Sequence[Any],
        leaves: Sequence[Any],
        recorded: dict[int, Any],
        made: dict[Result, Any],
    ) -> Any:
        item = result.item
        if result.kind == "value":
            return recorded[item] if item in recorded else from_array(found[item])
        if result.kind == "same":
            return item
        if result.kind == "gradient":
            return item.tensor(leaves)._grad
        if result.kind == "source":
            tensor = item.tensor(leaves)
        else:
            if item not in made:
                made[item] = self._made(item, found, leaves, recorded, made)
            tensor = made[item]
        if result.detached:
            tensor = alias(tensor)
        if not result.chain:
            return tensor
        with enable_grad():  # as when the function took the view; where it did so without a history, it is detached
            return replay(result.chain, tensor)
