"""``wengert.explain``: what a compiled function is, in words, tables and pictures."""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from wengert import tree
from wengert.compiling import api
from wengert.compiling.decisions import generators_of, rewound
from wengert.compiling.function import Compiled, reason
from wengert.compiling.program import Program
from wengert.compiling.report import predicted
from wengert.compiling.sources import Held
from wengert.core.interpret import Payload
from wengert.core.place import describe
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.errors import TransformError
from wengert.graph.ir import Graph
from wengert.graph.refusals import NotYet
from wengert.passes.amounts import amount, duration
from wengert.passes.report import lines, operators, report
from wengert.runtime.concurrent import Concurrent
from wengert.runtime.graph_picture import dot, svg
from wengert.runtime.parts import parts, timed
from wengert.runtime.plan import Plan
from wengert.runtime.timeline import Timeline

__all__ = ["Explanation", "ProgramExplanation", "explain"]


def explain(target: Any, /, *args: Any, **kwargs: Any) -> "Explanation":
    """Say what a function is when it is compiled: its graph, guards and decisions, its kernels, what Python does, its memory.

    Nothing is computed and nothing outside changes: where there is no program for the arguments yet, the function is
    captured once more, and the program forgotten. (Python's own effects, such as printing, happen while it is captured.)
    :meth:`Explanation.measure` takes the time of the kernels, in memory of its own.

    Args:
        target: a compiled function or module, or one that is to be compiled. args, kwargs: what it is called with.

    Raises:
        TypeError: if it cannot be called. TransformError: inside a transform or a compiled function. And what the function
            itself raises.

    Example:
        >>> import wengert as wg
        >>> said = wg.explain(lambda x: (x.sigmoid() * 2).relu(), wg.ones(1000))
        >>> said.kernels, len(said.programs[0].graph)
        (1, 3)
        >>> print(said)  # doctest: +ELLIPSIS
        <lambda> is captured as 1 program: 3 operators, 1 kernel
        <BLANKLINE>
        program 1
          guards
            argument 0 is float32[1000]
          kernel     operators           times    before    bytes    flops  predicted  lines
          pointwise  sigmoid, mul, relu      1  24.00 kB  8.00 kB  14.00 k      ...
          before: 3 kernels, 24.00 kB, 14.00 k flops
          after:  1 kernel, 8.00 kB, 14.00 k flops, predicted ...
          memory: ... kB (values ..., scratch 0 B, arguments and results ...)
          time: capture ..., passes ..., kernels ..., machine code ...
    """
    function, args = _compiled(target, args)
    leaves, structure = tree.flatten((args, kwargs))
    if thread.state.levels or any(isinstance(x, Tensor) and isinstance(x._payload, Payload) for x in leaves):
        raise TransformError(
            "explain() inside a transform or a compiled function; explain the whole of it from outside"
        )
    programs, fallback = function.known(leaves, structure), function.fallback
    if not programs and not fallback:
        try:
            programs = [function.program(leaves, structure)]
        except NotYet as error:
            fallback = f"this time only: {error}"
        except TransformError as error:
            fallback = reason(error)
    told = [ProgramExplanation(program, leaves) for program in programs]
    return Explanation(function.name, told, list(function.retraces), fallback)


def _compiled(target: Any, args: tuple[Any, ...]) -> tuple[Compiled, tuple[Any, ...]]:
    """Return what compiles a target, and the arguments that it is called with."""
    if isinstance(target, functools.partial) and isinstance(target.func, Compiled):  # a method
        return target.func, (*target.args, *args)
    made = getattr(target, "compiled", target)
    made = made if isinstance(made, Compiled) else api.compile(target)
    return getattr(made, "compiled", made), args


class Explanation:
    """What a compiled function is; ``str()`` of it says all.

    Attributes:
        name: of the function. programs: those for arguments like the given ones, the latest first; one for each way through
            the function. retraces: why programs were made where there was one already, in order.
        fallback: why the function is run as it is, with the line; "" if it is compiled.
    """

    def __init__(
        self, name: str, programs: Sequence["ProgramExplanation"], retraces: Sequence[str], fallback: str
    ) -> None:
        self.name, self.programs, self.retraces, self.fallback = name, programs, retraces, fallback

    @property
    def kernels(self) -> int:
        """The number of kernels of machine code in the programs."""
        return sum(program.kernels for program in self.programs)

    def measure(self, times: int = 5) -> "Explanation":
        """Run copies of the programs, in memory of their own, and keep the shortest time of each kernel; return this object.

        Args:
            times: how often. Operators of the user's own are called as well.
        """
        for program in self.programs:
            program.measure(times)
        return self

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<{next(self._lines())}>"

    def _lines(self) -> Iterator[str]:
        if self.programs:
            found = f"{_count(sum(len(p.graph) for p in self.programs), 'operator')}, {_count(self.kernels, 'kernel')}"
            steps = sum(len(p.steps) for p in self.programs)
            calls = f", {_count(steps, 'step')} of Python" if steps else ""
            yield f"{self.name} is captured as {_count(len(self.programs), 'program')}: {found}{calls}"
        if self.fallback:
            yield f"{self.name} is run as it is: {self.fallback}"
        for number, program in enumerate(self.programs, start=1):
            yield from ("", f"program {number}", *(f"  {line}" for line in program.lines()))
        if self.retraces:
            yield from ("", "programs were made again because", *(f"  {why}" for why in self.retraces))


class ProgramExplanation:
    """One program of a compiled function.

    Attributes:
        graph: as it was captured. optimised: what the passes made of it. outward: the graph of gradients that go on outside, or
            None. guards: what must hold for it to be right, in words. decisions: the lines that asked for values, and the
            answers. steps: what Python computes at each call, and why. stepped: the optimisers and schedulers whose numbers and
            steps are Python's at each call. kernels: how many nodes are machine code.
        overlap: which of them run beside one another, and what that is expected to take. memory: bytes, by what they are for.
        seconds: by phase. times: the seconds of each node of ``optimised``, and timeline: when what ran; empty, and None,
            until they are measured.
    """

    def __init__(self, program: Program, leaves: Sequence[Any]) -> None:
        self._program, self._leaves = program, leaves
        self.graph, self.seconds = program.graph, program.seconds
        self.optimised: Graph = program.optimised or program.graph
        self.outward = None if program.outward is None else program.outward.graph
        self.guards = list(_guards(program, leaves))
        self.decisions = [f"{describe(d.place).removesuffix(':')}: {_answer(d.answer)}" for d in program.decisions]
        self.times: dict[Any, float] = {}
        self.timeline: Timeline | None = None
        found = [] if program.plan is None else list(parts(program.plan))
        self.kernels = len({part.node for part in found if part.kernels})
        self.steps = [f"{operators(p.node)} ({lines([p.node])}): {p.why}" for p in found if p.why]
        self.stepped = [_owner(do) for do in (*(host.do for host in program.hosts), *program.effects)]
        self.overlap = [] if program.plan is None else list(_overlap(program.plan))
        self.memory = {} if program.plan is None else _memory(program.plan)

    def report(self) -> str:
        """Return the table of kernels; see :func:`wengert.passes.report.report`."""
        times = {"predicted": predicted(self.optimised)} | ({"measured": self.times} if self.times else {})
        return report(self.graph, self.optimised, places=True, **times)

    def svg(self) -> str:
        """Return a picture of the kernels and how they depend on one another."""
        return svg(self.optimised)

    def dot(self) -> str:
        """Return the same in Graphviz's language."""
        return dot(self.optimised)

    def measure(self, times: int) -> None:
        """Take the time of the kernels: see :meth:`Explanation.measure`."""
        program = self._program
        if program.plan is None:
            return
        given = [np.array(a) for a in _given(program, self._leaves)]
        bound = [None if b is None else np.array(a) for a, b in zip(given, program.plan.bound, strict=True)]
        plan = program.planned(bound)
        for _ in range(times):
            for held, array in zip(bound, given, strict=True):
                if held is not None:
                    np.copyto(held, array)
            with rewound(generators_of(program.graph)):
                arrays = [a if b is None else b for a, b in zip(given, bound, strict=True)]
                taken, timeline = timed(plan, arrays, getattr(program.function, "__qualname__", "a program"))
            self.times |= {node: min(s, self.times.get(node, s)) for node, s in taken.items()}
            if self.timeline is None or timeline.makespan < self.timeline.makespan:
                self.timeline = timeline

    def lines(self) -> Iterator[str]:
        """Yield all of it in words."""
        yield from _listed("guards", self.guards)
        yield from _listed("decisions", self.decisions)
        yield from self.report().splitlines()
        yield from _listed("Python computes", self.steps)
        yield from _listed("Python steps at each call", self.stepped)
        yield from _listed("overlap", self.overlap)
        if self.outward is not None:
            yield f"gradients go on outside: a second program of {_count(len(self.outward), 'operator')}"
        if self.memory:
            yield f"memory: {amount(sum(self.memory.values()), 'B')} ({_named(self.memory, lambda b: amount(b, 'B'))})"
        if self._program.bounded is not None:
            yield from str(self._program.bounded).splitlines()
        yield f"time: {_named(self.seconds, duration)}"


def _guards(program: Program, leaves: Sequence[Any]) -> Iterator[str]:
    """Yield what must hold for a program to be right, equal sentences once."""
    guards = program.guards
    known = dict(guards.known)
    for i, leaf in enumerate(leaves):
        first = next(k for k, other in enumerate(leaves) if other is leaf)
        if isinstance(leaf, Tensor):
            wants = ", requires a gradient" if leaf.requires_grad else ""
            same = f", the same tensor as argument {first}" if first < i else ""
            held = ", which the function holds as well" if i in known else ""
            yield f"argument {i} is {leaf.dtype.name}{list(leaf.shape)}{wants}{same}{held}"
        else:
            yield f"argument {i} is {leaf!r}"
    told = Counter(f"{source!r} keeps shape, layout, dtype and requires_grad" for source, _ in guards.forms)
    told.update(f"{Held(tensor)!r}, which is frozen, is not written" for tensor, *_ in guards.frozen)
    told.update(f".grad of {source!r} is {'there' if present else 'None'}" for source, present in guards.grads)
    around = () if guards.surroundings is None else guards.surroundings.named()
    looks = dict.fromkeys(name for look in guards.looks for name in look.names())
    asked = [*looks, *(name for _, _, name in guards.questions), *around, *(name for _, _, name in guards.modules)]
    told.update(f"{name} is unchanged" for name in asked)
    for sentence, number in told.items():
        yield f"{sentence} ({number} of these)" if number > 1 else sentence


def _given(program: Program, leaves: Sequence[Any]) -> list[Any]:
    """Return the arrays that a call would run on; nothing steps."""
    arrays = [None if source is None else source.tensor(leaves)._payload for source in program.sources]
    for host, first in zip(program.hosts, program.places, strict=True):
        if host.values:
            found = host.do.peek()
            arrays[first : first + len(found)] = found
    return arrays


def _memory(plan: Plan) -> dict[str, int]:
    values, scratch = int(plan.values.arena.size), sum(block.size for block in plan.scratch.blocks)
    return {"values": values, "scratch": scratch, "arguments and results": plan.nbytes - values - scratch}


def _owner(do: Any) -> str:
    """Return the class of the optimiser or scheduler that something Python does at each call is for."""
    owner = do.args[0] if isinstance(do, functools.partial) else getattr(do, "owner", do)
    return type(owner).__name__


def _overlap(plan: Plan) -> Iterator[str]:
    """Yield what runs beside one another."""
    for step in plan.steps:
        if isinstance(step, Concurrent):
            together, apart = duration(step.schedule.makespan), duration(step.in_order)
            yield f"{_count(len(step.units), 'node')} beside one another: {together} expected, {apart} one by one"


def _answer(answer: Any) -> str:
    return str(np.asarray(answer).tolist())


def _listed(title: str, items: Iterable[str]) -> Iterator[str]:
    found = Counter(items)
    if found:
        yield title
        yield from (f"  {item}" if number == 1 else f"  {item} ({number} times)" for item, number in found.items())


def _named(numbers: dict[str, Any], said: Any) -> str:
    return ", ".join(f"{name} {said(number)}" for name, number in numbers.items())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
