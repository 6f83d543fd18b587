"""A function is run once to be captured, and what it did becomes a program."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert.array.device import devices
from wengert.compiling.apart import Apart
from wengert.compiling.decisions import Decision, decide
from wengert.compiling.looks import look_at
from wengert.compiling.outer import of_memory
from wengert.compiling.outward import outward
from wengert.compiling.program import Program
from wengert.compiling.results import result_of, returned_gradients, share_memory, sparse_gradients
from wengert.compiling.sources import Argument, Gradient, Held, Source, form_of
from wengert.compiling.surroundings import PLAIN, Surroundings
from wengert.core.casting import afresh
from wengert.core.interpret import entered
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.errors import TransformError
from wengert.graph.capture import Capture
from wengert.graph.devices import placements
from wengert.graph.outside import unseen
from wengert.graph.refusals import NotCapturable, NotYet
from wengert.runtime.segments import overlapping
from wengert.settings import settings

__all__ = ["capture"]


def capture(function: Callable[..., Any], leaves: Sequence[Any], structure: Any) -> Program:
    """Run a function on a call's arguments and write down what it does; nothing outside changes.

    Raises:
        NeedsValues, NotCapturable, NotYet: where it cannot be captured; and whatever the function raises.
    """
    begun = time.perf_counter()
    args, kwargs = tree.unflatten(leaves, structure)
    around = Surroundings(function, [leaf for leaf in leaves if not isinstance(leaf, (Tensor, *PLAIN))])
    level = Capture(decide, [leaf for leaf in leaves if isinstance(leaf, Tensor)], around.enter)
    level.modules.reach(around.modules.values())
    level.lent.reached = around.arrays
    try:
        with unseen(), entered(level), afresh():
            modes = _modes()
            returned = function(*args, **kwargs)
            if _modes() != modes:
                _restore(modes)
                raise NotCapturable("it leaves the grad mode, autocast or the default dtype changed")
            if not _are_as_given(args, kwargs, leaves, structure):
                raise NotCapturable("it changes a list or dictionary that it is given; return what it makes")
            program = _program(level, leaves, returned)
        if (name := level.modules.changed()) is not None:  # perhaps only the first time
            raise NotYet(f"it changes attributes of a module ({name}); write into tensors that are there with copy_()")
        around.check()
        around.watch(level.lent.unreached())
    except TransformError:  # the function will be run as it is, from where it was
        level.modules.restore()
        around.restore()
        raise
    program.function, program.arguments = function, structure
    level.modules.settle()
    program.guards.identify(leaves, around.tensors, [tensor for tensor, _, _ in level.grads.values()])
    program.guards.surroundings = around
    program.seconds["capture"] = time.perf_counter() - begun
    return program


def _are_as_given(args: Any, kwargs: Any, leaves: Sequence[Any], structure: Any) -> bool:
    """Whether the lists and dictionaries among the arguments hold what they held."""
    found, now = tree.flatten((args, kwargs))
    return bool(now == structure) and all(a is b for a, b in zip(found, leaves, strict=True))


def _modes() -> tuple[Any, ...]:
    """Return the modes that a function may change for what comes after it."""
    return thread.state.grad, thread.state.casting, settings.default_dtype


def _restore(modes: tuple[Any, ...]) -> None:
    thread.state.grad, thread.state.casting, settings.default_dtype = modes


def _program(level: Capture, leaves: Sequence[Any], returned: Any) -> Program:
    """Return what a capture came to as a program; called while its level is alive."""
    level.check_arguments()
    program = Program(level.graph)
    finder = _Finder(level, leaves)
    found, program.structure = tree.flatten(returned)
    graph = level.graph
    gradients = list(level.gradients())
    program.sparse = sparse_gradients(level, finder.source, gradients)
    made = returned_gradients(finder.source, gradients, found)
    for leaf in found:
        if id(leaf) not in made:
            made[id(leaf)] = of_memory(level, leaf) or result_of(level, finder.source, leaf)
    share_memory(found, made)
    program.results = [made[id(leaf)] for leaf in found]
    for result in made.values():
        if result.kind == "value":
            graph.outputs.append(result.item)
            result.item = len(graph.outputs) - 1
    values = {made[id(leaf)].item: leaf for leaf in found if made[id(leaf)].kind == "value"}
    program.outward = outward(level, finder, list(values.items()))
    for tensor, grad in gradients:
        program.gradients.append((finder.source(tensor), None if grad is None else len(graph.outputs)))
        graph.outputs += [] if grad is None else [level.value_of(grad)]
    by_source = {id(level.sources[v]): v for v in graph.inputs if v in level.sources}
    for value, answer, place in level.decisions:
        program.decisions.append(Decision(len(graph.outputs), answer, place))
        graph.outputs.append(value)
    for tensor, value in level.written():
        program.writes.append((finder.source(tensor), len(graph.outputs) + len(graph.writes)))
        graph.writes.append((by_source[id(tensor)], value))
    program.sources = [finder.source(level.sources[v]) if v in level.sources else None for v in graph.inputs]
    program.hosts, program.effects = _hosts(level)
    program.places = [graph.inputs.index(host.values[0]) if host.values else 0 for host in program.hosts]
    guards = program.guards
    same = [(finder.source(one), finder.source(other), offset) for one, other, offset in level.same]
    same += finder.given_gradients()
    read = dict.fromkeys(
        s.held for s in (*program.sources, *(s for pair in same for s in pair[:2])) if isinstance(s, Held)
    )
    guards.forms = [(Held(tensor), form_of(level.original(tensor))) for tensor in read]
    written = [source for source, _ in program.writes]
    guards.apart = Apart([s for s in program.sources if s is not None], written, same) if written or same else None
    guards.grads = [(finder.source(t), before is not None) for t, before, read in level.grads.values() if read]
    guards.histories = frozenset(
        finder.source(t).key for t, before, _ in level.grads.values() if before is not None and before._node is not None
    )
    guards.questions = [(ask, answer, "an option of an optimiser") for ask, answer in level.guards]
    guards.looks = [look_at("the state or an option of an optimiser", *kept) for kept in level.containers]
    guards.modules = level.modules.questions
    if devices.several:
        program.devices, found_at = level.devices, placements(graph, level.devices)
        program.where = [found_at.get(value) for value in graph.results]
    _check_overlaps(level, finder)
    return program


def _hosts(level: Capture) -> tuple[list[Any], list[Any]]:
    """Return what Python does before the graph runs, and what only after it.

    Raises:
        NotCapturable: if numbers of an optimiser depend on something that would be done although another way is taken.
    """
    last = max((i for i, host in enumerate(level.hosts) if host.values), default=-1)
    before, after = level.hosts[: last + 1], level.hosts[last + 1 :]
    if level.decisions and not all(host.values for host in before):
        raise NotCapturable("it steps a scheduler before an optimiser, and depends on values")
    return before, [host.do for host in after]


class _Finder:
    """Says of a tensor from outside how it is found at a call."""

    def __init__(self, level: Capture, leaves: Sequence[Any]) -> None:
        self._arguments = {id(leaf): i for i, leaf in reversed(list(enumerate(leaves))) if isinstance(leaf, Tensor)}
        self._gradients = {id(before): tensor for tensor, before, _ in level.grads.values() if before is not None}

    def given_gradients(self) -> list[tuple[Source, Source, int]]:
        """Return the gradients that are arguments, too, and these, as pairs that lie in the same memory."""
        found = {key: tensor for key, tensor in self._gradients.items() if key in self._arguments}
        return [(Gradient(self.source(tensor)), Argument(self._arguments[key]), 0) for key, tensor in found.items()]

    def source(self, tensor: Any) -> Source:
        """Return where the tensor comes from."""
        if id(tensor) in self._arguments:
            return Argument(self._arguments[id(tensor)])
        if id(tensor) in self._gradients:
            return Gradient(self.source(self._gradients[id(tensor)]))
        return Held(tensor)


def _check_overlaps(level: Capture, finder: _Finder) -> None:
    """Refuse a program that writes into memory which another input of it shares in another layout."""
    tensors = [level.sources[v] for v in level.graph.inputs if v in level.sources]
    written = [level.array(t) for t, _ in level.written()]
    if (overlapping(written, [level.array(t) for t in tensors]) > 1).any():  # it is among them itself
        raise NotCapturable("it writes into memory that another of its tensors shares")
