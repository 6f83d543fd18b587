"""Values that decide what a function does: found out while it is captured, and compared at each call.

A function that asks for the truth or the value of a tensor takes one of several ways. Its program is that of the way it took
when it was captured, and holds what was asked and the answer. At a call the answers are computed first of all that can
be seen from outside: where one differs, nothing has been written, and another program, of another way, takes over.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from wengert.core.interpret import Payload
from wengert.core.place import Place, here
from wengert.graph.capture import Capture
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph, Node, Value
from wengert.graph.operations import Draw
from wengert.graph.outside import outside

__all__ = ["Decision", "Different", "check_way", "decide", "generators_of", "rewound", "rewound_unless_done", "same"]

LARGEST = 64  # elements that a decision may depend on; more is data, and not a way


class Decision(NamedTuple):
    """One question to a value: which result of the graph it is, what it was, and the line that asked."""

    position: int
    answer: Any
    place: Place


class Different(Exception):  # noqa: N818 - not an error: another program takes over
    """A decision came out otherwise: the number of the decision, and the answer."""

    def __init__(self, number: int, answer: Any) -> None:
        super().__init__(number, answer)
        self.number, self.answer = number, answer


def decide(level: Capture, value: Value, what: str) -> Any:
    """Return the array of a value of the program that is being captured, and take note that the program depends on it."""
    for asked, answer, _ in level.decisions:
        if asked is value:
            return answer
    if value.node is None and not value.shape and value not in level.sources:
        return None
    if np.prod(value.shape, dtype=np.int64) > LARGEST:
        return None
    part = _leading_to(level.graph, value)
    with outside():
        arrays = [_array(level, v) for v in part.inputs]
        if any(array is None for array in arrays):
            return None
        with rewound(generators_of(part)):
            answer = np.array(evaluate(part, arrays)[value])
    level.decisions.append((value, answer, here(1)))
    return answer


def check_way(graph: Graph, decisions: Sequence[Decision], arrays: Sequence[Any]) -> None:
    """Look at the values that decide, after an error that may be of a way that is not to be taken.

    Args:
        graph: as it was captured. arrays: of all its inputs.

    Raises:
        Different: if it is not.
    """
    for number, decision in enumerate(decisions):
        try:
            answer = _decided(graph, graph.outputs[decision.position], arrays)
        except Exception:
            return
        rounded = answer.dtype.kind in "fc" and np.allclose(answer, decision.answer, equal_nan=True)
        if not rounded and not same(answer, decision.answer):
            raise Different(number, answer) from None


def _decided(graph: Graph, value: Value, arrays: Sequence[Any]) -> Any:
    """Return the array of a value that decides; nothing else is computed."""
    part = _leading_to(graph, value)
    given = dict(zip(graph.inputs, arrays, strict=True))
    with rewound(generators_of(part)):
        return np.array(evaluate(part, [np.asarray(given[v], v.spec.dtype.numpy) for v in part.inputs])[value])


def _leading_to(graph: Graph, value: Value) -> Graph:
    """Return the part of a graph that computes a value; draws before it are in it, since they come in order."""
    last = -1 if value.node is None else graph.nodes.index(value.node)
    wanted, nodes = {value}, list[Node]()
    for node in reversed(graph.nodes[: last + 1]):
        if isinstance(node.op, Draw) or not wanted.isdisjoint(node.results):
            nodes.append(node)
            wanted.update(node.inputs)
    part = Graph()
    part.nodes = nodes[::-1]
    part.inputs = [v for v in graph.inputs if v in wanted]
    part.constants = {v: a for v, a in graph.constants.items() if v in wanted}
    part.outputs = [value]
    return part


def _array(level: Capture, value: Value) -> Any:
    """Return what an input of the graph holds now; None for a gradient that will come from outside."""
    if value in level.sources:
        held = level.array(level.sources[value])
        assert not isinstance(held, Payload)
        return held
    for host in level.hosts:
        if value in host.values:
            return np.asarray(host.numbers[host.values.index(value)], value.spec.dtype.numpy)
    return None


def generators_of(graph: Any) -> list[Any]:
    """Return the generators that a graph draws from."""
    return list({id(n.op.generator): n.op.generator for n in graph.nodes if isinstance(n.op, Draw)}.values())


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, a NaN to itself."""
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


@contextmanager
def rewound_unless_done(program: Any) -> Iterator[Callable[[], None]]:
    """Put the generators that a program draws from back after a block, unless the function that is yielded was called."""
    finished: list[bool] = []
    state = rewound(generators_of(program.graph))
    try:
        yield lambda: finished.append(True)
    finally:
        if not finished:
            state.back()


class rewound:  # noqa: N801 - a context manager is called like a function
    """Put generators back to where they were before a block."""

    def __init__(self, generators: Sequence[Any]) -> None:
        self._generators = generators
        self._states = [g.get_state() for g in generators]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        self.back()

    def back(self) -> None:
        """Put them back."""
        for generator, state in zip(self._generators, self._states, strict=True):
            generator.set_state(state)
