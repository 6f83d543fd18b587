"""Less memory for more work: values are given up, and computed again when they are next needed.

The graph is run in thought, node by node, within a budget. Where a node needs room, a value that is there is given up: the
one with the least *cost / (bytes · time until it is next needed)*, where the cost is that of computing it again from what is
there. When it is needed, it is, together with what that takes. This is dynamic tensor rematerialisation (M. Kirisame et al.,
"Dynamic tensor rematerialization", ICLR 2021, arXiv 2006.09616), whose staleness, the time since a value was last used,
stands in for the time until it is next used; of a graph that is known: L. A. Belady, "A study of replacement algorithms for
a virtual-storage computer", IBM Systems Journal 5, 1966. A chain of equal layers then keeps every k-th result, as in
T. Chen et al., "Training deep nets with sublinear memory cost", 2016, arXiv 1604.06174.

Candidates wait in a heap under what they cost at some time before, which mostly rises from then on. A few of the cheapest are
looked at again before one is taken. What is computed again for one value is O(√n) nodes, and so n nodes take O(n √n).
"""

import copy
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from wengert.core.operator import Op
from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.graph.operations import Fused
from wengert.passes.amounts import amount, duration
from wengert.passes.report import aligned, operators

__all__ = ["Again", "Model", "Recomputed", "recompute"]

LONGEST: Final = 4  # times the root of the number of nodes, and 64, may be computed again for one value
POWERS: Final = (1.0, 0.5, 0.0)  # of the time until a value is needed, in what it costs to keep it
LARGE: Final = 2000  # nodes of a graph for which only the first is tried
MOST: Final = 16  # times the nodes of the graph that may be run in all
LOOKED_AT: Final = 32  # candidates, before one is given up
SMALLEST: Final = 4096  # parts of the budget that are worth giving up


class Model(NamedTuple):
    """How a graph is run.

    Attributes:
        seconds: what a node takes; scratch: the bytes that it needs while it runs. nbytes: the memory of a value, as it is
            set aside.
        shares: whether the results of a node lie in the memory of its first argument.
        replaces: whether results of a node may take the place of arguments that end there and are as large.
        elsewhere: values that have memory which is not counted.
    """

    seconds: Callable[[Node], float]
    scratch: Callable[[Node], int]
    nbytes: Callable[[Value], int]
    shares: Callable[[Node], bool]
    replaces: Callable[[Node], bool]
    elsewhere: Collection[Value]


class Again(NamedTuple):
    """A node that is computed more than once: how often again, what that takes in all, and the bytes given up in between."""

    node: Node
    times: int
    seconds: float
    nbytes: int


class Recomputed(NamedTuple):
    """What came of it.

    Attributes:
        graph: the new graph, in the order in which it is to run. peak: the most bytes that are there at once.
        again: what is computed more than once, in order. seconds: what that takes in all; whole: what the graph given takes.
    """

    graph: Graph
    peak: int
    again: list[Again]
    seconds: float
    whole: float

    def __str__(self) -> str:
        rows = [("kernel", "operators", "times", "given up", "seconds")]
        for node, times, seconds, nbytes in self.again:
            kind = node.op.kind if isinstance(node.op, Fused) else node.op.name
            rows.append((kind, operators(node), str(times), amount(nbytes, "B"), duration(seconds)))
        number, share = sum(a.times for a in self.again), 100 * self.seconds / self.whole
        sums = f"computed again: {number} kernels, {share:.1f} % of the time"
        return "\n".join([*aligned(rows), sums])


def recompute(graph: Graph, budget: int, model: Model) -> Recomputed | None:
    """Return a graph that computes the same, bit for bit, with at most ``budget`` bytes at once; None if none is found.

    Nodes come more than once in it, and are called by the same kernels. Random draws, optimisers' formulas and operators
    of users are run once. Of several ways to weigh candidates, the one that comes out cheapest is taken.

    Args:
        graph: is not changed. budget: bytes, of the values that the graph's nodes make. model: how it is run.
    """
    known = _Known(graph, model)
    powers = POWERS if len(graph) <= LARGE else POWERS[:1]
    found = [run for power in powers if (run := _attempt(known, budget, power)) is not None]
    return min(found, key=lambda one: one.seconds, default=None)


def _attempt(known: "_Known", budget: int, power: float) -> Recomputed | None:
    run = _Run(known, budget, power)
    try:
        run.all()
    except _FullError:
        return None
    return run.result()


class _FullError(Exception):
    """Nothing more can be given up."""


class _Known:
    """A graph, with what does not change.

    Attributes:
        place: of each node. longest: how many nodes may be computed again for one value. seconds: of each node; clock: when
            each begins, if none is computed again.
        memory: for each value that nodes make the number of the memory that it lies in; None: one that is always there.
        size, maker, members, uses: of each memory: its bytes, the node that fills it, the values that lie in it, and
            where it is read, in order; outputs are read at the end.
    """

    def __init__(self, graph: Graph, model: Model) -> None:
        self.graph, self.model = graph, model
        self.place = {node: k for k, node in enumerate(graph.nodes)}
        self.longest = 64 + int(LONGEST * len(graph.nodes) ** 0.5)
        self.seconds = [model.seconds(node) for node in graph.nodes]
        self.clock = [0.0, *itertools.accumulate(self.seconds)]
        self.memory: dict[Value, int | None] = {}
        self.size: list[int] = []
        self.maker: list[int] = []
        self.members: list[list[Value]] = []
        self.uses: list[list[int]] = []
        elsewhere = set(model.elsewhere)
        for k, node in enumerate(graph.nodes):
            for at in dict.fromkeys(self.memories(node.inputs)):
                self.uses[at].append(k)
            shared = self.memory.get(node.inputs[0]) if model.shares(node) else None
            for value in node.results:
                if not model.shares(node):
                    self.memory[value] = len(self.size)
                    self.size.append(0 if value in elsewhere else model.nbytes(value))
                    self.maker.append(k)
                    self.members.append([value])
                    self.uses.append([])
                else:
                    self.memory[value] = shared
                    if shared is not None:
                        self.members[shared].append(value)
        for at in dict.fromkeys(self.memories(graph.results)):
            self.uses[at].append(len(graph.nodes))

    def memories(self, values: Iterable[Value]) -> list[int]:
        """Return the numbers of the memories that values lie in, but for those that are always there."""
        found = (self.memory.get(value) for value in values)
        return [at for at in found if at is not None]

    def repeats(self, node: Node) -> bool:
        """Whether a node may be run twice: it has no effect, and what it writes is memory of its own."""
        op = node.op
        if isinstance(op, Fused):
            return op.kind != "formulas"
        return isinstance(op, Op) and op.family != "opaque"


class _Run:
    """A run within a budget.

    Attributes:
        now: the place of the node whose turn it is. current: the values that are there, and what they are in the new graph.
    """

    def __init__(self, known: _Known, budget: int, power: float) -> None:
        self.known, self.budget, self.power = known, budget, power
        number = len(known.size)
        self.now, self.total, self.peak = 0, 0, 0
        self.current: dict[Value, Value] = {}
        self.nodes: list[Node] = []
        self.again: dict[int, int] = {}  # how often a node is run again
        self.given_up: dict[int, int] = {}  # bytes of its results
        self._there = [False] * number
        self._read = [0] * number  # how many of the uses lie behind
        self._until = [-1] * number  # kept for others that were given up, as what they are computed from
        self._ending: dict[int, list[int]] = {}
        self._pins = [0] * number
        self._heap: list[tuple[float, int, int]] = []
        self._entry = [0] * number
        self._entries = itertools.count(1)

    # ---- in order

    def all(self) -> None:
        """Run all nodes.

        Raises:
            _FullError: if there is no room.
        """
        for place, node in enumerate(self.known.graph.nodes):
            self.now = place
            self._restore(node.inputs)
            self._execute(node, again=False)
            self.now = place + 1
            self._settle(node)
            self._end(self._ending.pop(place, ()))
        self._restore(self.known.graph.results)

    def result(self) -> Recomputed:
        """Return the new graph."""
        known, source = self.known, self.known.graph
        graph = copy.copy(source)
        graph.inputs, graph.constants, graph.nodes = list(source.inputs), dict(source.constants), self.nodes
        graph.outputs = [self._of(v) for v in source.outputs]
        graph.writes = [(target, self._of(v)) for target, v in source.writes]
        table = [
            Again(source.nodes[k], times, times * known.seconds[k], self.given_up.get(k, 0))
            for k, times in sorted(self.again.items()) if times and not known.model.shares(source.nodes[k])
        ]  # fmt: skip
        return Recomputed(graph, self.peak, table, sum(a.seconds for a in table), known.clock[-1])

    def _of(self, value: Value) -> Value:
        return self.current.get(value, value)

    def _restore(self, values: Sequence[Value]) -> None:
        """Compute what is not there of some values, and hold them all; :meth:`_execute` of their reader lets go of them."""
        lost = self._lost([v for v in values if self._is_lost(v)])
        if lost is None:
            raise _FullError
        nodes = [self.known.graph.nodes[k] for k in sorted(lost)]
        for node in nodes:
            self._hold(node.inputs, 1)
        self._hold(values, 1)
        for node in nodes:
            self._execute(node, again=True)
            self._settle(node)

    def _execute(self, node: Node, *, again: bool) -> None:
        """Run a node whose arguments are there and held."""
        known, place = self.known, self.known.place[node]
        if len(self.nodes) > MOST * len(known.graph.nodes) + 64:
            raise _FullError
        made = Node(node.op, replaced(node.arguments, self._of), node.place)
        self.again[place] = times = self.again.get(place, -1) + 1
        suffix = f".again{times}" if times else ""
        made.results = tuple(Value(v.spec, v.strides, v.name + suffix, made, v.index) for v in node.results)
        if known.model.shares(node):
            self._hold(node.inputs, -1)
        else:
            self._set_aside(node, again)
        self.nodes.append(made)
        for value, new in zip(node.results, made.results, strict=True):
            at = known.memory[value]
            if value not in self.current and (at is None or self._there[at]):
                self.current[value] = new

    def _set_aside(self, node: Node, again: bool) -> None:
        """Make room for the results of a node, and let go of its arguments."""
        known = self.known
        new = [at for at in known.memories(node.results) if not self._there[at]]
        double = sum(known.size[at] for at in known.memories(node.results) if self._there[at])
        self._hold(node.inputs, -1)
        taken = self._taken(node, new, again) if known.model.replaces(node) else 0
        self._hold(node.inputs, 1)
        size = sum(known.size[at] for at in new)
        needed = size + double - taken + known.model.scratch(node)
        self._make_room(needed)
        self._hold(node.inputs, -1)
        self.peak = max(self.peak, self.total + needed)
        self.total += size
        for at in new:
            self._there[at] = True

    def _taken(self, node: Node, new: Sequence[int], again: bool) -> int:
        """Return the bytes of results that take the place of arguments which end here."""
        known, after = self.known, self.now if again else self.now + 1
        ending = [at for at in dict.fromkeys(known.memories(node.inputs)) if self._next(at, after) is None]
        ending = [at for at in ending if not self._pins[at]]
        taken = 0
        for at in new:
            same = next((e for e in ending if known.size[e] == known.size[at]), None)
            if same is not None:
                ending.remove(same)
                taken += known.size[at]
        return taken

    # ---- what is there, and until when

    def _is_lost(self, value: Value) -> bool:
        return value in self.known.memory and value not in self.current

    def _hold(self, values: Iterable[Value], number: int) -> None:
        for at in self.known.memories(values):
            self._pins[at] += number

    def _next(self, at: int, now: int) -> int | None:
        """Return where a memory is next needed, ``now`` or later; None if nowhere."""
        uses, read = self.known.uses[at], self._read[at]
        while read < len(uses) and uses[read] < self.now:
            read += 1
        self._read[at] = read
        while read < len(uses) and uses[read] < now:
            read += 1
        if read < len(uses):
            return min(uses[read], self._until[at]) if self._until[at] >= now else uses[read]
        return self._until[at] if self._until[at] >= now else None

    def _settle(self, node: Node) -> None:
        """Forget what nothing needs after a node, and let the rest be given up."""
        touched = list(dict.fromkeys(self.known.memories((*node.inputs, *node.results))))
        self._end(touched)
        for at in touched:
            if self._there[at]:
                self._offer(at)

    def _end(self, memories: Iterable[int]) -> None:
        """Forget those of some memories that nothing needs any more."""
        for at in memories:
            if self._there[at] and not self._pins[at] and self._next(at, self.now) is None:
                self._forget(at)

    def _forget(self, at: int) -> None:
        self._there[at] = False
        self.total -= self.known.size[at]
        for value in self.known.members[at]:
            self.current.pop(value, None)

    # ---- what is given up

    def _offer(self, at: int) -> None:
        """Let a memory be a candidate, under the least that it can cost."""
        following = self._next(at, self.now)
        if following is None or self.known.size[at] * SMALLEST < self.budget:
            return
        self._entry[at] = next(self._entries)
        least = self._price(at, self.known.seconds[self.known.maker[at]], following)
        heapq.heappush(self._heap, (least, self._entry[at], at))

    def _make_room(self, size: int) -> None:
        """Give up what is cheapest until so many bytes fit.

        Raises:
            _FullError: if nothing is left to be given up.
        """
        aside: list[int] = []
        while self.total + size > self.budget:
            found = self._cheapest(aside)
            if found is None:
                raise _FullError
            self._give_up(found)
        for at in aside:
            self._offer(at)

    def _cheapest(self, aside: list[int]) -> int | None:
        """Take the best out of some candidates that were the cheapest when last looked at; None if there is none.

        Args:
            aside: takes those that are held now.
        """
        looked: list[tuple[float, int, int]] = []
        while self._heap and len(looked) < LOOKED_AT:
            if looked and self._heap[0][0] >= min(looked)[0]:
                break
            _, entry, at = heapq.heappop(self._heap)
            if entry != self._entry[at] or not self._there[at]:
                continue
            if self._pins[at]:
                aside.append(at)
            elif (score := self._score(at)) is not None:
                looked.append((score, entry, at))
        if not looked:
            return None
        best = min(looked)
        for one in looked:
            if one is not best:
                heapq.heappush(self._heap, one)
        return best[2]

    def _score(self, at: int) -> float | None:
        """Return what a byte costs for each second that it is given up for; None if it cannot be."""
        following = self._next(at, self.now)
        if following is None:
            return 0.0
        lost = self._lost_with(at)
        return None if lost is None else self._price(at, sum(self.known.seconds[k] for k in lost), following)

    def _price(self, at: int, cost: float, following: int) -> float:
        away = self.known.clock[following] - self.known.clock[self.now] + 1e-9
        return float(cost / (self.known.size[at] * away**self.power))

    def _give_up(self, at: int) -> None:
        """Forget a memory that will be needed; what it is computed from is kept until then."""
        following, maker = self._next(at, self.now), self.known.maker[at]
        if following is not None:
            lost = self._lost_with(at)
            assert lost is not None
            for source in dict.fromkeys(m for k in lost for m in self.known.memories(self.known.graph.nodes[k].inputs)):
                if self._there[source] and source != at and self._until[source] < following:
                    self._until[source] = following
                    self._ending.setdefault(following, []).append(source)
            self.given_up[maker] = self.given_up.get(maker, 0) + self.known.size[at]
        self._forget(at)

    def _lost_with(self, at: int) -> set[int] | None:
        """Return the nodes that give a memory back once it is given up; None if they cannot."""
        there, values = self._there[at], self.known.members[at]
        held = [(v, self.current.pop(v)) for v in values if v in self.current]
        self._there[at] = False
        try:
            return self._lost(values[:1])
        finally:
            self._there[at] = there
            self.current.update(held)

    def _lost(self, values: Sequence[Value]) -> set[int] | None:
        """Return the nodes that must run again for values that are not there; None if one of them must not."""
        known, found = self.known, set[int]()
        todo = [v for v in values if v.node is not None]
        while todo:
            node = todo.pop().node
            assert node is not None
            place = known.place[node]
            if place in found:
                continue
            if not known.repeats(node) or len(found) == known.longest:
                return None
            found.add(place)
            todo += [v for v in node.inputs if self._is_lost(v)]
        return found
