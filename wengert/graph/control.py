"""Operations of a graph that run graphs of their own: branches and loops that values of a program decide."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wengert.core.operator import Spec
from wengert.graph.bodies import Body
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph, Value

__all__ = ["Branches", "Control", "Loop", "LoopBackward", "let_run"]

Runner = Callable[[Sequence[Any]], list[Any]]


class Control:
    """A node that runs graphs of its own.

    Attributes:
        name: for people. specs: of its results.
        bodies: the graphs. reads: for each, which of the node's arguments are its inputs, behind those that it is given.
        runner: makes what computes a graph from arrays; :func:`~wengert.graph.evaluate.evaluate` if it is None.
    """

    __slots__ = ("_runs", "bodies", "name", "reads", "runner", "specs")
    single = False
    effect = False

    def __init__(self, name: str, bodies: Sequence["Body"], arguments: Sequence[Value], specs: Sequence[Spec]) -> None:
        self.name, self.specs = name, tuple(specs)
        places = {value: k for k, value in enumerate(arguments)}
        self.bodies = [body.graph for body in bodies]
        self.reads = [[places[value] for value in body.kept] for body in bodies]
        self.runner: Callable[[Graph], Runner] | None = None
        self._runs: dict[int, Runner] = {}

    def run(self, number: int, given: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Run a body on arrays that it is given, and on those that it reads among the node's arguments."""
        graph = self.bodies[number]
        arrays = [*given, *(arguments[k] for k in self.reads[number])]
        if self.runner is None:
            found = evaluate(graph, [np.asarray(a) for a in arrays])
            return [found[value] for value in graph.outputs]
        if number not in self._runs:
            self._runs[number] = self.runner(graph)
        return self._runs[number](arrays)


class Branches(Control):
    """One of two graphs: the first where its first argument is true."""

    __slots__ = ()

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Run it."""
        return self.run(0 if np.asarray(arguments[0]).item() else 1, (), arguments)


class Loop(Control):
    """A graph that is run again on its own results, as long as another one holds.

    Attributes:
        carried: how many of its first arguments are the state that it begins with.
    """

    __slots__ = ("carried",)

    carried: int

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the last state."""
        *_, last = self.states(arguments)
        return last

    def states(self, arguments: Sequence[Any]) -> Iterator[list[Any]]:
        """Yield the states, the first one included."""
        state = [np.array(a) for a in arguments[: self.carried]]
        yield state
        while self.run(0, state, arguments)[0].item():
            state = [np.array(a) for a in self.run(1, state, arguments)]
            yield state


class LoopBackward(Loop):
    """The walk back through a loop: from cotangents of the last state to gradients of the first, and of what bodies read.

    Attributes:
        floating: which of the carried tensors have gradients.
    """

    __slots__ = ("floating",)

    floating: Sequence[int]

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Run it."""
        count = len(self.floating)
        gradients = [np.array(a) for a in arguments[self.carried : self.carried + count]]
        totals: list[Any] = [np.zeros(s.shape, s.dtype.numpy) for s in self.specs[count:]]
        for state in reversed(list(self.states(arguments))[:-1]):
            found = [np.array(a) for a in self.run(2, [*state, *gradients], arguments)]
            gradients = found[:count]
            totals = [total + g for total, g in zip(totals, found[count:], strict=True)]
        return [*gradients, *totals]


def let_run(graph: Graph, runner: Callable[[Graph], Runner]) -> None:
    """Let the nodes of control flow in a graph run their bodies by what ``runner`` makes of them."""
    for node in graph.nodes:
        if isinstance(node.op, Control):
            node.op.runner = runner
