"""A plan within a budget: what is to be computed again, so that a call takes no more memory than it may.

What is counted is :attr:`wengert.runtime.plan.Plan.peak`: the arena, scratch beside it, copies of arguments, and results. The
tensors that a function holds or is given are not.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from wengert.environment import bytes_of
from wengert.graph.ir import Graph, Node, Value
from wengert.passes.amounts import amount
from wengert.passes.recompute import Model, Recomputed, recompute
from wengert.runtime import placing
from wengert.runtime.arena import ALIGNMENT
from wengert.runtime.machine import measured
from wengert.runtime.plan import Plan
from wengert.runtime.plan_memory import arena_of
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
        graph: it. recomputed: what is computed again; None: nothing has to be. budget: in bytes. before: what a call takes
            at least without (scratch is not in it), after: what it takes.
    """

    graph: Graph
    recomputed: Recomputed | None
    budget: int
    before: int
    after: int

    def __str__(self) -> str:
        head = f"memory budget {amount(self.budget, 'B')}: {amount(self.before, 'B')} without, {amount(self.after, 'B')} with it"
        return head if self.recomputed is None else f"{head}\n{self.recomputed}"


def bounded(graph: Graph, budget: Budget, bound: Sequence[Any], *, in_place: bool = True) -> Bounded:
    """Return a graph that computes the same, whose plan takes at most ``budget``; the cheapest that is found.

    Args:
        budget: bytes, or (a float) a fraction of what the plan takes without. The rest is as for
            :class:`wengert.runtime.plan.Plan`.

    Raises:
        ValueError: if there is none; the message says the least that was found.
    """
    whole = _Whole(graph, bound, in_place)
    size = int(budget * whole.peak(graph)) if isinstance(budget, float) else budget
    before = whole.arena + whole.results
    target = size - whole.results
    if whole.arena <= target and (after := whole.peak(graph)) <= size:
        return Bounded(graph, None, size, before, after)
    for _ in range(TRIES):
        found = recompute(graph, target, whole.model) if target > 0 else None
        if found is None:
            break
        after = whole.peak(found.graph)
        if after <= size:
            return Bounded(found.graph, found, size, before, after)
        target -= after - size
    least = whole.peak(whole.least())
    raise ValueError(
        f"a memory_budget of {amount(size, 'B')} cannot be met: without one, {amount(before, 'B')} are needed (of them "
        f"{amount(whole.results, 'B')} for results, such as gradients); with all computed again that can be, {amount(least, 'B')}"
    )


class _Whole:
    """A graph without a budget.

    Attributes:
        arena, results: bytes of its values, and of its results. model: how it is run.
    """

    def __init__(self, graph: Graph, bound: Sequence[Any], in_place: bool) -> None:
        self._graph, self._bound, self._in_place = graph, bound, in_place
        elsewhere = {*placing.handed_out(graph), *(placing.in_place(graph, bound) if in_place else ())}
        arena, machine = arena_of(graph, elsewhere, placing.replaces), measured()
        self.arena, self._top = arena.size, arena.lower_bound
        self.results = sum(v.nbytes for v in graph.outputs)
        self.model = Model(lambda node: roof(node, machine), _set_aside, _is_view, placing.replaces, elsewhere)

    def peak(self, graph: Graph) -> int:
        """Return what the plan of a graph takes."""
        return Plan(graph, self._bound, in_place=self._in_place).peak

    def least(self) -> Graph:
        """Return the graph that takes the least memory of those that are found."""
        found, low, high = self._graph, 0, self._top
        for _ in range(STEPS):
            middle = (low + high) // 2
            now = recompute(self._graph, middle, self.model)
            if now is None:
                low = middle
            else:
                found, high = now.graph, now.peak
        return found


def _set_aside(value: Value) -> int:
    return -(-value.nbytes // ALIGNMENT) * ALIGNMENT


def _is_view(node: Node) -> bool:
    return bool(getattr(node.op, "view", False))
