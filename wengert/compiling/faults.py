"""Which link is at fault where a program does something else than its function.

Three links hold a program and its function together; they are looked at one after the other:

1. each kernel, on the values that it got, beside the operators in it, computed in NumPy; and the plan, which runs the
   kernels, beside the kernels one by one;
2. the graph after each pass beside the graph as it was captured, both in NumPy;
3. the captured graph beside the function.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from wengert.compiling.closeness import (
    ALLOWED,
    Noise,
    apart,
    evaluated,
    greatest,
    moved,
    numpy_only,
    tolerance,
    tolerances,
)
from wengert.compiling.decisions import generators_of, rewound
from wengert.compiling.program import KINDS
from wengert.core.place import describe
from wengert.graph.evaluate import compute
from wengert.graph.ir import Graph, Node
from wengert.graph.operations import Draw, Fused
from wengert.passes.pipeline import PIPELINE, optimise
from wengert.passes.report import operators
from wengert.runtime.parts import by_node
from wengert.runtime.plan import Plan

__all__ = ["fault"]

MOST: Final = 4  # forms and lines that are named


def fault(
    graph: Graph, plan: Plan | None, given: Sequence[Any], found: Sequence[Any], *, in_place: bool,
    differs: Callable[[Sequence[Any], Callable[[int], float]], bool],
) -> str | None:  # fmt: skip
    """Return in words which link does not hold; None if all do, so that what differs is rounding.

    Args:
        graph: as it was captured. plan: what ran, if not the graph itself. given: the arrays of the inputs. found: of the
            results. in_place: as of the plan. differs: whether results of the captured graph are not what the function gives,
            by more than tolerances and what is allowed beyond them for a result.
    """
    if plan is not None:
        wrong = _wrong_kernel(plan, given, found, in_place=in_place) or _wrong_pass(graph, plan.graph, given)
        if wrong is not None:
            return wrong
    if differs(evaluated(graph, given), Noise(graph, given).of):
        return (
            "the kernels and passes are right, so that the graph that was captured is wrong: wengert.trace() shows it"
        )
    return None


def _wrong_kernel(plan: Plan, given: Sequence[Any], found: Sequence[Any], *, in_place: bool) -> str | None:
    """Return what the first kernel is whose results are not those of its operators, in words."""
    bound = [None if b is None else np.array(a, order="K") for a, b in zip(given, plan.bound, strict=True)]
    again = Plan(plan.graph, bound, in_place=in_place, large=math.inf)  # each value lies in memory of the plan's
    said: list[str] = []
    draws = _Draws(plan.graph)

    def visit(node: Node, run: Callable[[], None]) -> None:
        held = {value: np.array(again.arrays[value]) for value in node.inputs}
        run()
        if said:
            return
        found = [np.array(again.arrays[value]) for value in node.results]
        far = draws.off(node, held, found) if isinstance(node.op, Draw) else _off(node, held, found)
        if any(far):
            place = f"kernel {plan.graph.nodes.index(node) + 1} of {len(plan.graph)}"
            said.append(f"{place}, {operators(node)}, is the first that is wrong: {_told(node, far)}")

    with rewound(generators_of(plan.graph)):
        results = by_node(again, given, visit)
    if not said and any(map(apart, found, results, tolerances(plan.graph))):
        return "each kernel is right by itself, so that the plan is wrong: its memory, or its order"
    return said[0] if said else None


class _Draws:
    """The draws of a graph in NumPy, in their order; a plan may move a generator on for all of them at once."""

    def __init__(self, graph: Graph) -> None:
        self._states = [(generator, generator.get_state()) for generator in generators_of(graph)]

    def off(self, node: Node, held: dict[Any, Any], found: Sequence[Any]) -> list[float]:
        """Return how far the next draw of a graph is from what its generator gives."""
        with rewound([generator for generator, _ in self._states]):
            for generator, state in self._states:
                generator.set_state(state)
            want = _alone(node, held)
            self._states = [(generator, generator.get_state()) for generator, _ in self._states]
        return [apart(f, w, tolerance(node)) for f, w in zip(found, want, strict=True)]


def _off(node: Node, held: dict[Any, Any], found: Sequence[Any]) -> list[float]:
    """Return how far each result of a kernel is from that of its operators, beyond rounding."""
    relative, want = tolerance(node), _alone(node, held)
    if not any(apart(f, w, relative) for f, w in zip(found, want, strict=True)):
        return []
    other = _alone(node, dict(zip(held, moved(list(held.values())), strict=True)))
    return [apart(f, w, relative, ALLOWED * greatest(o, w)) for f, w, o in zip(found, want, other, strict=True)]


def _alone(node: Node, held: dict[Any, Any]) -> list[Any]:
    with numpy_only(), np.errstate(all="ignore"):
        return compute(node, held.__getitem__)


def _told(node: Node, far: Sequence[float]) -> str:
    """Return in words how far the worst result of a kernel is off, what it is computed from, and by which lines."""
    worst = max(range(len(far)), key=far.__getitem__)
    makers = [node]
    if isinstance(node.op, Fused):
        maker = node.op.body.outputs[worst].node
        makers = [*([] if maker is None else [maker]), *node.op.body.nodes]
    forms = Counter(f"{value.dtype.name}{list(value.shape)}" for value in node.inputs)
    given = [form if number == 1 else f"{number} {form}" for form, number in forms.items()]
    more = ["…"] if len(given) > MOST else []
    places = list(dict.fromkeys(describe(maker.place) for maker in makers))[:MOST]
    return (
        f"its result {worst}, of {makers[0].op.name}, by {far[worst]:.3g} at most; it is given "
        f"{', '.join([*given[:MOST], *more]) or 'nothing'}, and computes {'; '.join(places)}"
    )


def _wrong_pass(graph: Graph, planned: Graph, given: Sequence[Any]) -> str | None:
    """Return which pass changes what a graph computes, in words; None if none does on the way to the planned one."""
    want, noise, relative = evaluated(graph, given), Noise(graph, given), tolerances(graph)

    def changed(after: Graph) -> str:
        for k, (f, w) in enumerate(zip(evaluated(after, given), want, strict=True)):
            if apart(f, w, relative[k]) and (far := apart(f, w, relative[k], noise.of(k))):
                return f"changes result {k} of the graph by {far:.3g}"
        return ""

    whole = changed(planned)
    if not whole:
        return None
    names = iter([stage.name for stage in PIPELINE if not stage.kind or stage.kind in KINDS])
    said: list[str] = []

    def look(after: Graph) -> None:
        name = next(names)
        if not said and (how := changed(after)):
            said.append(f"the pass {name!r} {how}")

    optimise(graph, kinds=KINDS, verify=look)
    return said[0] if said else f"what was done with the graph after the passes {whole}"
