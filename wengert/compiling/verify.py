"""``compile(verify=...)``: a program beside the function that it was captured from.

The program runs first, and everything it has changed is put back. Then the function itself runs, in NumPy, and what it
returns and leaves behind is compared: results, tensors that it wrote, ``.grad``, random numbers, and the gradients that go
on outside. Where they differ by more than rounding, :mod:`wengert.compiling.faults` finds the kernel, the pass or whatever is
at fault, everything is put back once more, and VerifyError says it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from wengert import tree
from wengert.compiling.closeness import apart, numpy_only, tolerances
from wengert.compiling.decisions import generators_of
from wengert.compiling.faults import fault
from wengert.compiling.program import Program
from wengert.compiling.snapshot import Snapshot, equal
from wengert.compiling.sources import Held
from wengert.compiling.surroundings import PLAIN
from wengert.core.tensor import Tensor, from_array, replay
from wengert.errors import VerifyError
from wengert.runtime.plan import Plan
from wengert.sparse.payload import is_sparse
from wengert.tape.api import grad

__all__ = ["verified"]

Allowed = Callable[[int], float]  # by how much a result of the graph may be off, beyond tolerances


class Difference(NamedTuple):
    """Something that is not what it should be: in words, and whether it is a matter of numbers."""

    words: str
    numbers: bool = False


def verified(program: Program, leaves: Sequence[Any], name: str) -> Any:
    """Run a program and its function, and return what the function returns.

    Raises:
        VerifyError: if they differ, with everything as it was before. Different: as a call of the program does. And what the
            function raises.
    """
    before = Snapshot(program, leaves)
    given, found, states = _computed(program, leaves, before)
    program.check_decisions(found)
    args, kwargs = tree.unflatten(leaves, program.arguments)
    with numpy_only():
        returned = program.function(*args, **kwargs)
    outcome = _Outcome(program, leaves, before, returned)
    wrong = outcome.fault(given, found, states) or _outward_fault(program, leaves, returned, found)
    if wrong is not None:
        before.restore()
        raise VerifyError(f"{name}: {wrong}")
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


class _Outcome:
    """What a call of the function itself came to.

    Args:
        before: how things were. returned: what it returned.
    """

    def __init__(self, program: Program, leaves: Sequence[Any], before: Snapshot, returned: Any) -> None:
        self.program, self.leaves, self.before, self.returned = program, leaves, before, returned
        self.relative = tolerances(program.graph)

    def fault(self, given: Sequence[Any], found: Sequence[Any], states: Sequence[Any]) -> str | None:
        """Return in words what is wrong with what a program found, and why; None if nothing is."""
        program = self.program
        difference = next(self.differences(found, states), None)
        if difference is None or not difference.numbers:
            return None if difference is None else f"{difference.words}; the graph that was captured is wrong"
        with self.before.drawing_again():
            why = fault(
                program.graph, program.plan, given, found, in_place=not program.decisions,
                differs=lambda results, allowed: any(self._numbers(results, allowed)),
            )  # fmt: skip
        return None if why is None else f"{difference.words}; {why}"

    def differences(self, found: Sequence[Any], states: Sequence[Any]) -> Iterator[Difference]:
        """Yield what the function has returned and left behind that is not what was found."""
        if tree.structure(self.returned) != self.program.structure:
            yield Difference(f"it returns {tree.structure(self.returned)} instead of {self.program.structure}")
            return
        for generator, state in zip(generators_of(self.program.graph), states, strict=True):
            if not np.array_equal(generator.get_state().numpy(), state.numpy()):
                yield Difference("the program draws other random numbers than the function")
        yield from self._left_alone()
        yield from self._numbers(found)

    def _left_alone(self) -> Iterator[Difference]:
        """Yield tensors that the function has written, or whose ``.grad`` it has set, and the program has not."""
        program, before = self.program, self.before
        written = [before.of(source)._payload for source, _ in program.writes]
        given = [*(source for source, _ in program.gradients), *(gradient.source for gradient in program.sparse)]
        granted = {id(before.of(source)) for source in given}
        held = [before.of(source) for source in program.sources if isinstance(source, Held)]
        for tensor in [*held, *(leaf for leaf in self.leaves if isinstance(leaf, Tensor))]:
            form, state = f"{tensor.dtype.name}{list(tensor.shape)}", before.state(tensor)
            alone = not any(np.may_share_memory(tensor._payload, array) for array in written)
            if alone and not equal(tensor._payload, state.content):
                yield Difference(f"the function writes into a {form}, and the program does not")
            if id(tensor) not in granted and tensor._grad is not state.grad:
                yield Difference(f"the function sets .grad of a {form}, and the program does not")

    def _numbers(self, found: Sequence[Any], allowed: Allowed | None = None) -> Iterator[Difference]:
        """Yield results, tensors that were written and gradients that are not what was found, within what is allowed."""
        for k, (result, leaf) in enumerate(zip(self.program.results, tree.leaves(self.returned), strict=True)):
            if (at := _position(result)) is not None:
                yield from _compared(f"result {k}", _array(result, found), leaf, self.relative[at], at, allowed)
            elif result.kind == "same" and isinstance(leaf, PLAIN) and leaf != result.item and leaf == leaf:
                yield Difference(f"result {k} is {result.item!r}, and {leaf!r} from the function itself")
        for source, at in self.program.writes:
            what, target = f"what {source!r} is to hold", self.before.of(source)
            yield from _compared(what, found[at], target, self.relative[at], at, allowed)
        for source, at in self.program.gradients:
            own = self.before.of(source)._grad
            if at is not None:
                yield from _compared(f".grad of {source!r}", found[at], own, self.relative[at], at, allowed)
            elif own is not None:
                yield Difference(f".grad of {source!r} is None after the program, and not after the function")
        for gradient in self.program.sparse:
            own, at, what = self.before.of(gradient.source)._grad, gradient.at, f".grad of {gradient.source!r}"
            if own is None or not is_sparse(own) or not np.array_equal(own._payload.pattern.coo.keys, found[at]):
                yield Difference(f"{what} has other rows after the program than after the function")
            else:
                values = own._payload.entries
                yield from _compared(what, found[at + 1], values, self.relative[at + 1], at + 1, allowed)


def _compared(
    what: str, found: Any, tensor: Any, relative: float, position: int, allowed: Allowed | None
) -> Iterator[Difference]:
    """Yield how an array that was found differs from a tensor, if it does."""
    if not isinstance(tensor, Tensor):
        yield Difference(f"{what} is a tensor, and {tensor!r} from the function itself")
    elif far := apart(found, tensor._payload, relative, 0.0 if allowed is None else allowed(position)):
        yield Difference(f"{what} differs by {far:.3g} from what the function itself gives", numbers=True)


def _position(result: Any) -> int | None:
    """Return the number of the graph's result that a tensor is, or is a view of; None for one that came in."""
    while result.kind == "view":
        result = result.item
    if result.kind == "gradient":  # which are compared by themselves
        return None
    return result.item if result.kind == "value" else None


def _array(result: Any, found: Sequence[Any]) -> Any:
    """Return what a returned tensor holds after the program."""
    if result.kind == "value":
        return found[result.item]
    return replay(result.chain, from_array(_array(result.item, found)))._payload


def _outward_fault(program: Program, leaves: Sequence[Any], returned: Any, found: Sequence[Any]) -> str | None:
    """Return in words how the gradients of results by tensors from outside differ, and why; None if they do not."""
    outward = program.outward
    if outward is None:
        return None
    tensors = {r.item: t for r, t in zip(program.results, tree.leaves(returned), strict=True) if r.kind == "value"}
    chosen, entries = [tensors[i] for i in outward.results], [entry.tensor(leaves) for entry in outward.entries]
    if not all(t.requires_grad for t in (*chosen, *entries)):
        return None  # the function has used its history up itself
    cotangents = [_cotangent(t) for t in chosen]
    with numpy_only():
        want = grad(chosen, entries, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True)
    given = [*(c._payload for c in cotangents), *(found[k] for k in outward.kept)]
    with outward.lock:
        run = outward.run = outward.run or program.runner(outward.graph)
        got = run(given)
    relative = tolerances(outward.graph)

    def differences(results: Sequence[Any], allowed: Allowed | None = None) -> Iterator[Difference]:
        for k, (entry, result, wanted) in enumerate(zip(outward.entries, results, want, strict=True)):
            yield from _compared(f"the gradient by {entry!r}", result, wanted, relative[k], k, allowed)

    difference = next(differences(got), None)
    if difference is None:
        return None
    plan = run if isinstance(run, Plan) else None
    why = fault(outward.graph, plan, given, got, in_place=True, differs=lambda *args: any(differences(*args)))
    return None if why is None else f"{difference.words}; {why}"


def _cotangent(tensor: Any) -> Any:
    """Return a tensor of numbers between -1 and 1 that are not alike."""
    numbers = np.cos(1.0 + 1.7 * np.arange(tensor.numel())).reshape(tuple(tensor.shape))
    return from_array(numbers.astype(tensor._payload.dtype))
