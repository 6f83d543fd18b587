"""``compile(verify=...)``: a program beside the function that it was captured from, and which kernel is at fault.

The program runs first, and everything it has changed is put back. Then the function itself runs, in NumPy, and what it
returns and leaves behind is compared: results, tensors that it wrote, ``.grad``, random numbers, and the gradients that go
on outside. Where they differ, three links are looked at, one after the other, until one is found that does not hold:

1. each kernel, on the values that it got, beside the operators in it, computed in NumPy;
2. the graph after each pass beside the graph as it was captured, both in NumPy;
3. the captured graph beside the function.

Numbers may differ by rounding, and a function may make much of that. So where tolerances do not suffice, the same is computed
again from inputs that are moved by a tenth of them, and what that changes is allowed 16 times over. (In the manner of
stochastic arithmetic: J. Vignes, "A stochastic arithmetic for reliable scientific computation", Mathematics and Computers
in Simulation 35, 1993.)
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from wengert import tree
from wengert.compiling.decisions import Different, generators_of, rewound, same
from wengert.compiling.program import KINDS, Program
from wengert.compiling.snapshot import Snapshot, equal
from wengert.compiling.sources import Held
from wengert.compiling.surroundings import PLAIN
from wengert.core.native import OFF, native
from wengert.core.place import describe
from wengert.core.tensor import Tensor, from_array, replay
from wengert.errors import VerifyError
from wengert.graph.evaluate import compute, evaluate
from wengert.graph.ir import Graph, Node
from wengert.graph.operations import Draw, Fused
from wengert.passes.pipeline import PIPELINE, optimise
from wengert.passes.report import operators
from wengert.runtime.parts import by_node
from wengert.runtime.plan import Plan
from wengert.tape.api import grad

__all__ = ["verified"]

RELATIVE: Final = {2: 3e-2, 4: 1e-4, 8: 1e-9, 16: 1e-9}  # by the bytes of a number
MOVED, ALLOWED = 0.1, 16  # the part of this that inputs are moved by, and how often what comes of it is allowed
MOST: Final = 4  # forms and lines that are named


class Difference(NamedTuple):
    """Something that is not what it should be: by how much at most, and in words."""

    greatest: float
    words: str


def verified(program: Program, leaves: Sequence[Any], name: str) -> Any:
    """Run a program and its function, and return what the function returns.

    Raises:
        VerifyError: if they differ, with everything as it was before. Different: as a call of the program does. And what the
            function raises.
    """
    before = Snapshot(program, leaves)
    given, found, states = _computed(program, leaves, before)
    for number, decision in enumerate(program.decisions):
        if not same(found[decision.position], decision.answer):
            raise Different(number, found[decision.position])
    args, kwargs = tree.unflatten(leaves, program.arguments)
    with _numpy():
        returned = program.function(*args, **kwargs)
    noise = _Noise(program.graph, given)
    difference = next(_differences(program, leaves, before, returned, found, noise, states), None)
    if difference is not None:
        before.restore()
        raise VerifyError(f"{name}: {difference.words}; {_culprit(program, given, found)}")
    if program.outward is not None and (fault := _outward_fault(program, leaves, returned, found)) is not None:
        before.restore()
        raise VerifyError(f"{name}: {fault}")
    program.verified = True
    return returned


def _computed(program: Program, leaves: Sequence[Any], before: Snapshot) -> tuple[list[Any], list[Any], list[Any]]:
    """Run a program and put back what that changed; return the arrays it ran on, what it found, and where generators were."""
    try:
        arrays = program.gather(leaves)
        given = [np.array(a, v.dtype.numpy) for a, v in zip(arrays, program.graph.inputs, strict=True)]
        found = [np.array(a) for a in program.run(arrays)]
        return given, found, [g.get_state() for g in generators_of(program.graph)]
    finally:
        before.restore()


@contextmanager
def _numpy() -> Iterator[None]:
    """Leave native code out in a block."""
    smallest, native.smallest = native.smallest, OFF
    try:
        yield
    finally:
        native.smallest = smallest


# ---- what a call comes to


def _differences(
    program: Program, leaves: Sequence[Any], before: Snapshot, returned: Any, found: Sequence[Any], noise: "_Noise",
    states: Sequence[Any],
) -> Iterator[Difference]:  # fmt: skip
    """Yield what a function has returned and left behind that is not what its program found."""
    if tree.structure(returned) != program.structure:
        yield Difference(math.inf, f"it returns {tree.structure(returned)} instead of {program.structure}")
        return
    for k, (result, leaf) in enumerate(zip(program.results, tree.leaves(returned), strict=True)):
        if (number := _number(result)) is not None:
            yield from noise.compared(f"result {k}", _array(result, found), number, leaf)
        elif result.kind == "same" and isinstance(leaf, PLAIN) and leaf != result.item and leaf == leaf:
            yield Difference(math.inf, f"result {k} is {result.item!r}, and {leaf!r} from the function itself")
    for source, position in program.writes:
        yield from noise.compared(f"what {source!r} is to hold", found[position], position, before.of(source))
    for source, position in program.gradients:
        grad = before.of(source)._grad
        if position is not None:
            yield from noise.compared(f".grad of {source!r}", found[position], position, grad)
        elif grad is not None:
            yield Difference(math.inf, f".grad of {source!r} is None after the program, and not after the function")
    yield from _left_alone(program, leaves, before)
    for generator, state in zip(generators_of(program.graph), states, strict=True):
        if not np.array_equal(generator.get_state().numpy(), state.numpy()):
            yield Difference(math.inf, "the program draws other random numbers than the function")


def _number(result: Any) -> int | None:
    """Return the number of the graph's result that a tensor is, or is a view of; None for one that came in."""
    while result.kind == "view":
        result = result.item
    return result.item if result.kind == "value" else None


def _array(result: Any, found: Sequence[Any]) -> Any:
    """Return what a returned tensor holds after the program."""
    if result.kind == "value":
        return found[result.item]
    return replay(result.chain, from_array(_array(result.item, found)))._payload


def _left_alone(program: Program, leaves: Sequence[Any], before: Snapshot) -> Iterator[Difference]:
    """Complain of tensors that the function has written, or whose ``.grad`` it has set, and the program has not."""
    written = [before.of(source)._payload for source, _ in program.writes]
    granted = {id(before.of(source)) for source, _ in program.gradients}
    held = [before.of(source) for source in program.sources if isinstance(source, Held)]
    for tensor in [*held, *(leaf for leaf in leaves if isinstance(leaf, Tensor))]:
        state = before.state(tensor)
        alone = not any(np.may_share_memory(tensor._payload, array) for array in written)
        if alone and not equal(tensor._payload, state.content):
            yield Difference(math.inf, f"the function writes into a {_form(tensor)}, and the program does not")
        if id(tensor) not in granted and tensor._grad is not state.grad:
            yield Difference(math.inf, f"the function sets .grad of a {_form(tensor)}, and the program does not")


def _form(tensor: Any) -> str:
    return f"{tensor.dtype.name}{list(tensor.shape)}"


class _Noise:
    """How far rounding alone moves the results of a graph, found out when it is asked for."""

    def __init__(self, graph: Graph, given: Sequence[Any]) -> None:
        self._graph, self._given = graph, given
        self._moved: list[Any] | None = None
        self._relative = max((_relative(v.dtype.numpy) for n in graph.nodes for v in n.results), default=0.0)

    def compared(self, what: str, found: Any, position: int, tensor: Any) -> Iterator[Difference]:
        """Yield how an array, which is result ``position`` of the graph or a view of it, differs from a tensor, if it does."""
        if not isinstance(tensor, Tensor):
            yield Difference(math.inf, f"{what} is a tensor, and {tensor!r} from the function itself")
            return
        want = tensor._payload
        if _apart(found, want, self._relative) and (far := _apart(found, want, self._relative, self._of(position))):
            yield Difference(far, f"{what} differs by {far:.3g} from what the function itself gives")

    def _of(self, position: int) -> float:
        if self._moved is None:
            plain, moved = (_evaluated(self._graph, arrays) for arrays in (self._given, _moved(self._given)))
            self._moved = [_greatest(a, b) for a, b in zip(plain, moved, strict=True)]
        return ALLOWED * float(self._moved[position])


# ---- which link does not hold


def _culprit(program: Program, given: Sequence[Any], found: Sequence[Any]) -> str:
    """Return in words what is at fault."""
    if program.plan is not None:
        fault = _wrong_kernel(program.plan, given, in_place=not program.decisions) or _wrong_pass(program.graph, given)
        if fault is not None:
            return fault
        noise, want = _Noise(program.graph, given), _evaluated(program.graph, given)
        if any(any(noise.compared("", f, k, from_array(w))) for k, (f, w) in enumerate(zip(found, want, strict=True))):
            return "each kernel and each pass is right by itself, so that the plan is wrong: its memory, or its order"
    return "the kernels and passes are right, so that the graph that was captured is wrong: wengert.trace() shows it"


def _wrong_kernel(plan: Plan, given: Sequence[Any], *, in_place: bool) -> str | None:
    """Return what the first kernel is whose results are not those of its operators, in words."""
    again = _again(plan, given, in_place)
    said: list[str] = []

    def visit(node: Node, run: Callable[[], None]) -> None:
        if said or isinstance(node.op, Draw):
            run()
            return
        held = {value: np.array(again.arrays[value]) for value in node.inputs}
        run()
        far = _wrong(node, held, [np.array(again.arrays[value]) for value in node.results])
        if any(far):
            number = plan.graph.nodes.index(node) + 1
            said.append(
                f"kernel {number} of {len(plan.graph)}, {operators(node)}, is the first that is wrong: {_told(node, far)}"
            )

    with rewound(generators_of(plan.graph)):
        by_node(again, given, visit)
    return said[0] if said else None


def _again(plan: Plan, given: Sequence[Any], in_place: bool) -> Plan:
    """Return the same plan once more, in memory of its own."""
    bound = [None if b is None else np.array(a, order="K") for a, b in zip(given, plan.bound, strict=True)]
    return Plan(plan.graph, bound, in_place=in_place, large=math.inf)


def _wrong(node: Node, held: dict[Any, Any], found: Sequence[Any]) -> list[float]:
    """Return how far each result of a kernel is from that of its operators, beyond rounding."""
    relative = max((_relative(value.dtype.numpy) for value in (*node.inputs, *node.results)), default=0.0)
    want = _alone(node, held)
    if not any(_apart(f, w, relative) for f, w in zip(found, want, strict=True)):
        return []
    moved = _alone(node, dict(zip(held, _moved(list(held.values())), strict=True)))
    return [_apart(f, w, relative, ALLOWED * _greatest(m, w)) for f, w, m in zip(found, want, moved, strict=True)]


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


def _alone(node: Node, held: dict[Any, Any]) -> list[Any]:
    with _numpy(), np.errstate(all="ignore"):
        return compute(node, held.__getitem__)


def _wrong_pass(graph: Graph, given: Sequence[Any]) -> str | None:
    """Return which pass changes what a graph computes, in words."""
    want, noise = _evaluated(graph, given), _Noise(graph, given)
    names = iter([stage.name for stage in PIPELINE if not stage.kind or stage.kind in KINDS])
    said: list[str] = []

    def look(after: Graph) -> None:
        name = next(names)
        if said:
            return
        for k, (found, wanted) in enumerate(zip(_evaluated(after, given), want, strict=True)):
            for difference in noise.compared("", found, k, from_array(wanted)):
                said.append(f"the pass {name!r} changes result {k} of the graph by {difference.greatest:.3g}")

    optimise(graph, kinds=KINDS, verify=look)
    return said[0] if said else None


def _outward_fault(program: Program, leaves: Sequence[Any], returned: Any, found: Sequence[Any]) -> str | None:
    """Return in words how the gradients of results by tensors from outside differ; None if they do not."""
    outward = program.outward
    assert outward is not None
    tensors = {r.item: t for r, t in zip(program.results, tree.leaves(returned), strict=True) if r.kind == "value"}
    chosen, entries = [tensors[i] for i in outward.results], [entry.tensor(leaves) for entry in outward.entries]
    if not all(t.requires_grad for t in (*chosen, *entries)):
        return None  # the function has used its history up itself
    cotangents = [_cotangent(t) for t in chosen]
    with _numpy():
        want = grad(chosen, entries, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True)
    given = [*(c._payload for c in cotangents), *(found[k] for k in outward.kept)]
    with outward.lock:
        run = outward.run = outward.run or program.runner(outward.graph)
        got = run(given)
    noise = _Noise(outward.graph, given)
    for k, (entry, wanted) in enumerate(zip(outward.entries, want, strict=True)):
        for difference in noise.compared(f"the gradient by {entry!r}", got[k], k, wanted):
            fault = None
            if isinstance(run, Plan):
                fault = _wrong_kernel(run, given, in_place=True) or _wrong_pass(outward.graph, given)
            return f"{difference.words}; {fault or 'the graph of the gradients that was captured is wrong'}"
    return None


def _cotangent(tensor: Any) -> Any:
    """Return a tensor of numbers between -1 and 1 that are not alike."""
    numbers = np.cos(1.0 + 1.7 * np.arange(tensor.numel())).reshape(tuple(tensor.shape))
    return from_array(numbers.astype(tensor._payload.dtype))


# ---- numbers


def _evaluated(graph: Graph, given: Sequence[Any]) -> list[Any]:
    """Return the results of a graph, computed in NumPy; generators stay where they are."""
    with _numpy(), np.errstate(all="ignore"), rewound(generators_of(graph)):
        found = evaluate(graph, given)
    return [found[value] for value in graph.results]


def _relative(dtype: Any) -> float:
    """Return how far numbers may be apart, in relation to their size; whole ones not at all."""
    if not _is_inexact(dtype):
        return 0.0
    return RELATIVE[dtype.itemsize // (2 if dtype.kind == "c" else 1)]


def _is_inexact(dtype: Any) -> bool:
    return dtype.kind in "fcV"  # bfloat16 is a V


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _greatest(one: Any, other: Any) -> float:
    """Return the greatest distance of two arrays; where both are the same, or no numbers, there is none."""
    one, other = _wide(one), _wide(other)
    with np.errstate(all="ignore"):
        far = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.abs(one - other))
    return float(np.max(np.where(np.isnan(far), np.inf, far), initial=0.0))


def _apart(found: Any, want: Any, relative: float, allowed: float = 0.0) -> float:
    """Return how far two arrays are apart at most, or 0 if that is within tolerances."""
    if found.shape != want.shape or found.dtype != want.dtype:
        return math.inf
    if not _is_inexact(want.dtype):
        far = 0.0 if np.array_equal(found, want) else max(1.0, _greatest(found, want))
        return far if far > allowed else 0.0
    size = np.abs(_wide(want))
    scale = float(np.max(size, initial=0.0, where=np.isfinite(size)))
    if np.all(np.isclose(_wide(found), _wide(want), relative, relative * 0.1 * scale + allowed, equal_nan=True)):
        return 0.0
    return _greatest(found, want)


def _moved(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays whose numbers are moved by a part of what they may differ by, up or down at random."""
    draws, found = np.random.default_rng(0), []
    for array in arrays:
        by = MOVED * _relative(array.dtype) * draws.choice([-1.0, 1.0], size=array.shape)
        found.append((_wide(array) * (1 + by)).astype(array.dtype) if _is_inexact(array.dtype) else array)
    return found
