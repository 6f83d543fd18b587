"""A plan within a budget: what is to be computed again, so that a call takes no more memory than it may.

What is counted is :attr:`wengert.runtime.plan.Plan.peak`: the arena, scratch beside it, copies of arguments, and results. The
tensors that a function holds or is given are not.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from wengert.environment import bytes_of
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.amounts import amount
from wengert.passes.recompute import Model, Recomputed, recompute
from wengert.runtime import placing
from wengert.runtime.arena import ALIGNMENT
from wengert.runtime.machine import measured
from wengert.runtime.plan import Plan
from wengert.runtime.roof import roof

__all__ = ["Bounded", "Budget", "bounded", "budget_of"]

TRIES: Final = 8  # to find an arena that fits: buffers do not fill one up to the last byte
STEPS: Final = 10  # halvings, to find the least

Budget = int | float  # bytes, or a fraction of what is needed without


def budget_of(given: Any) -> Budget | None:
    """Return a budget as it is given to ``compile``: bytes, text such as ``"200M"``, a fraction in (0, 1], or None.

    Raises:
        ValueError: for anything else.

    Example:
        >>> budget_of("1.5K"), budget_of(0.5), budget_of(4096)
        (1536, 0.5, 4096)
    """
    if given is None:
        return None
    if isinstance(given, str) or (isinstance(given, int) and not isinstance(given, bool) and given > 1):
        return bytes_of(given)
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= 1:
        return float(given)
    raise ValueError(
        f"memory_budget is bytes, text such as '200M', or a fraction in (0, 1] of what is needed without, got {given!r}"
    )


class Bounded(NamedTuple):
    """A graph whose plan fits into a budget.

    Attributes:
        graph: it. recomputed: what is computed again; None: nothing has to be. budget, before, after: bytes that a call may
            take, takes without it, and takes.
    """

    graph: Graph
    recomputed: Recomputed | None
    budget: int
    before: int
    after: int

    def __str__(self) -> str:
        budget, before, after = (amount(size, "B") for size in (self.budget, self.before, self.after))
        head = f"memory budget {budget}: {before} without, {after} with it"
        return head if self.recomputed is None else f"{head}\n{self.recomputed}"


def bounded(
    graph: Graph, budget: Budget, bound: Sequence[Any], *, in_place: bool = True, keep: Mapping[int, Any] | None = None
) -> Bounded:
    """Return a graph that computes the same, whose plan takes at most ``budget``; the cheapest that is found.

    Args:
        budget: bytes, or (a float) a fraction of what the plan takes without. The rest is as for
            :class:`wengert.runtime.plan.Plan`.

    Raises:
        ValueError: if there is none; the message says the least that was found.
    """
    whole = _Whole(graph, bound, in_place, keep or {})
    size = int(budget * whole.peak) if isinstance(budget, float) else budget
    if whole.peak <= size:
        return Bounded(graph, None, size, whole.peak, whole.peak)
    if (found := whole.within(size)) is not None:
        return found
    least = whole.least()
    if (after := whole.peak_of(least.graph)) <= size:
        return Bounded(least.graph, least, size, whole.peak, after)
    raise ValueError(
        f"a memory_budget of {amount(size, 'B')} cannot be met: without one, {amount(whole.peak, 'B')} are needed (of them "
        f"{amount(whole.rest, 'B')} for {whole.what}); with all computed again that can be, {amount(after, 'B')}"
    )


class _Whole:
    """A graph without a budget.

    Attributes:
        peak: what its plan takes; rest: the part that does not depend on which values are kept; what: what that is for.
        model: how it is run.
    """

    def __init__(self, graph: Graph, bound: Sequence[Any], in_place: bool, keep: Mapping[int, Any]) -> None:
        self._graph, self._bound, self._in_place, self._keep, machine = graph, bound, in_place, keep, measured()
        plan = self._sketch(graph)
        self.peak = plan.peak
        shared = sum(block.size for block in plan.scratch.blocks) - plan.scratch.kept
        self.rest = plan.peak - plan.values.arena.size - shared
        once = ", and what is made of constants once" if plan.scratch.lasting else ""
        self.what = f"results, such as gradients{once}"
        scratch = dict(zip(graph.nodes, plan.scratch.needed, strict=True))
        self._top = plan.values.arena.size + max(scratch.values(), default=0)
        own = (*placing.in_place(graph, bound), *placing.kept(graph, keep)) if in_place else ()
        elsewhere = {*placing.handed_out(graph), *own}
        self.model = Model(
            lambda node: roof(node, machine), scratch.__getitem__, _set_aside, _is_view, placing.replaces, elsewhere
        )

    def peak_of(self, graph: Graph) -> int:
        """Return what the plan of a graph takes."""
        return self._sketch(graph).peak

    def _sketch(self, graph: Graph) -> Plan:
        return Plan(graph, self._bound, in_place=self._in_place, keep=self._keep, sketch=True)

    def within(self, size: int) -> Bounded | None:
        """Return what takes at most so many bytes; None if nothing is found."""
        low, high, target = 0, self._top, size - self.rest
        for _ in range(TRIES):
            found = recompute(self._graph, target, self.model) if target > low else None
            if found is None:
                low = target
                target = (low + high) // 2
                continue
            after = self.peak_of(found.graph)
            if after <= size:
                return Bounded(found.graph, found, size, self.peak, after)
            high = target
            target = max(target - (after - size), (low + high) // 2)
        return None

    def least(self) -> Recomputed:
        """Return the graph that takes the least memory of those that are found."""
        low, high, found = 0, self._top, recompute(self._graph, self._top, self.model)
        assert found is not None  # nothing has to be computed again
        for _ in range(STEPS):
            middle = (low + high) // 2
            now = recompute(self._graph, middle, self.model)
            if now is None:
                low = middle
            else:
                found, high = now, now.peak
        return found


def _set_aside(value: Value) -> int:
    return -(-value.nbytes // ALIGNMENT) * ALIGNMENT


def _is_view(node: Node) -> bool:
    return bool(getattr(node.op, "view", False))
