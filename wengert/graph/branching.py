"""How branches and loops become nodes of a program that is being captured, and what the tape knows of them.

The derivative of a node is a node, too: of a branch, the same branch run again and walked back; of a loop, the loop run
again with its states kept, and then its body walked back from the last step to the first.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wengert import tree
from wengert.array.device import devices
from wengert.array.dtype import FLOAT, dtype_of
from wengert.core.casting import bound
from wengert.core.node import Leaf
from wengert.core.place import here
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import node_of
from wengert.graph.bodies import Body, Impure, Regions
from wengert.graph.control import Branches, Loop, LoopBackward
from wengert.graph.refusals import NotCapturable
from wengert.tape.function import Function
from wengert.tape.modes import enable_grad
from wengert.tape.walk import Walk

__all__ = ["branches", "loop"]


def branches(level: Any, pred: Any, thunks: Sequence[Callable[[], Any]], *, shared: bool = True) -> Any:
    """Enter a node that does what one of two functions does, and return its results as a tree.

    Args:
        level: the capture. pred: a tensor with one element. thunks: the functions, of which the first is for true.
        shared: whether somebody may write into what they return.

    Returns:
        What the functions return; NotImplemented if these do more than to compute, raise, or return what does not fit
        together.
    """
    thunks = [bound(thunk) for thunk in thunks]
    try:
        bodies = [level.regions.body(thunk) for thunk in thunks]
    except Exception:  # Impure, or whatever the branch raises that a call may not come to
        return NotImplemented
    one, other = bodies
    if devices.several or one.spec != other.spec or one.specs != other.specs:
        return NotImplemented
    arguments = [level.value_of(pred), *dict.fromkeys(v for body in bodies for v in body.kept)]
    op = Branches("cond", bodies, arguments, one.specs)
    results = level.call(op, tuple(arguments), [(s, None) for s in one.specs], here(1))
    for body in bodies if shared else ():
        level.regions.share(body.leaves, results)
    boundary = list(dict.fromkeys(n for body in bodies for n in body.boundary))
    if boundary and thread.state.grad:
        with_history = [any(node_of(b.leaves[k]) is not None for b in bodies) for k in range(len(results))]
        call = _Call(level, results, with_history, boundary)
        call.again = lambda gradient: branches(level, pred, [partial(gradient, t) for t in thunks], shared=False)
        results = Branching.apply(call, *map(level.regions.of_node, boundary))
    return tree.unflatten(list(results), one.spec)


class _Call:
    """One node of control flow, as its derivative needs it.

    Attributes:
        again: enters the same branches, of the gradient of each.
    """

    again: Callable[[Any], Any]

    def __init__(self, level: Any, results: Sequence[Any], with_history: list[bool], boundary: list[Any]) -> None:
        self.level, self.results, self.with_history, self.boundary = level, results, with_history, boundary


class Branching(Function):
    """What the tape knows of :class:`Branches`."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *outside: Any) -> Any:
        """Return the results."""
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(r for r, h in zip(call.results, call.with_history, strict=True) if not h))
        return call.results

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Enter the branches again, walked back from their results."""
        call, create = ctx.call, thread.state.grad

        def gradient(thunk: Callable[[], Any]) -> list[Any]:
            with enable_grad():
                leaves = tree.leaves(thunk())
            return walked_back(leaves, cotangents, call.boundary, create)

        found = call.again(gradient)
        if found is NotImplemented:
            raise NotCapturable("the gradient of a branch does more than to compute")
        return (None, *found)


def walked_back(leaves: Sequence[Any], cotangents: Sequence[Any], targets: Sequence[Any], create: bool) -> list[Any]:
    """Return the gradients at nodes of the tape, zeros where none comes; what lies behind them is not looked at."""
    roots = [
        (node, g) for t, g in zip(leaves, cotangents, strict=True) if g is not None and (node := node_of(t)) is not None
    ]
    before = [(node, node.extra, node.inputs) for node in targets]
    for node in targets:
        node.extra = None
        node.inputs = (None,) * len(node.inputs)
    try:
        walk = Walk(keep=False, create=create, place=here(1), targets=set(targets), into_leaves=False)
        found = walk.run(roots) if roots else {}
    finally:
        for node, extra, inputs in before:
            node.extra, node.inputs = extra, inputs
    return [found[n] if n in found else ops.zeros(n.shape, dtype=dtype_of(n.dtype)) for n in targets]


def loop(level: Any, test: Callable[..., Any], step: Callable[..., Any], carry: Sequence[Any]) -> Any:
    """Enter a node that does what a loop does, and return the leaves of its last state.

    Args:
        level: the capture. test: of a state, whether to go on, a tensor. step: of a state, the next one. Both take leaves.
        carry: the first state: tensors.

    Returns:
        The last one; NotImplemented if the functions do more than to compute.
    """
    regions, differentiated = level.regions, thread.state.grad
    test, step = bound(test), bound(step)
    floating = [k for k, t in enumerate(carry) if t.dtype.category >= FLOAT and differentiated]
    try:
        given = _given(regions, carry, floating)
        bodies = [regions.body(lambda: [test(given)], given), regions.body(lambda: step(given), given)]
    except Exception:  # Impure, or what a call may not come to
        return NotImplemented
    if devices.several:
        return NotImplemented
    begun = [level.value_of(t) for t in carry]
    arguments = [*begun, *dict.fromkeys(v for body in bodies for v in body.kept)]
    op = Loop("while_loop", bodies, arguments, bodies[1].specs)
    op.carried = len(carry)
    results = level.call(op, tuple(arguments), [(s, None) for s in op.specs], here(1))
    regions.share(carry, results)
    boundary = bodies[1].boundary
    if floating and (boundary or any(node_of(t) is not None for t in carry)):
        call = _Call(level, results, [k in floating for k in range(len(carry))], boundary)
        call.again = lambda cotangents: _loop_backward(level, bodies, step, carry, floating, boundary, cotangents)
        results = Looping.apply(call, *(carry[k] for k in floating), *map(regions.of_node, boundary))
    return list(results)


def _given(regions: Regions, carry: Sequence[Any], floating: Sequence[int]) -> list[Any]:
    """Return what stands for a state; what may have a gradient wants one."""
    given = [regions.placeholder(t) for t in carry]
    for k in floating:
        given[k]._node = Leaf(given[k])
    return given


class Looping(Function):
    """What the tape knows of :class:`Loop`."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *outside: Any) -> Any:
        """Return the results."""
        ctx.call = call
        ctx.mark_non_differentiable(*(r for r, h in zip(call.results, call.with_history, strict=True) if not h))
        return tuple(call.results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Enter the walk back through the loop."""
        if thread.state.grad:
            raise NotCapturable("second derivatives of while_loop() in a compiled function")
        call = ctx.call
        return (None, *call.again([g for g, h in zip(cotangents, call.with_history, strict=True) if h]))


def _loop_backward(
    level: Any, bodies: list[Body], step: Callable[..., Any], carry: Sequence[Any], floating: list[int],
    boundary: list[Any], cotangents: Sequence[Any],
) -> Any:  # fmt: skip
    """Enter the walk back through a loop, and return the gradients of its first state and of what its body reads."""
    regions = level.regions
    given = _given(regions, carry, floating)
    coming = [regions.placeholder(g) for g in cotangents]

    def gradient() -> list[Any]:
        with enable_grad():
            leaves = tree.leaves(step(given))
        return walked_back(
            [leaves[k] for k in floating], coming, [*(given[k]._node for k in floating), *boundary], False
        )

    try:
        walk = regions.body(gradient, [*given, *coming])
    except Impure as error:
        raise NotCapturable("the gradient of a loop does more than to compute") from error
    begun = [level.value_of(t) for t in (*carry, *cotangents)]
    arguments = [*begun, *dict.fromkeys(v for body in (*bodies, walk) for v in body.kept)]
    op = LoopBackward("while_loop_backward", [*bodies, walk], arguments, walk.specs)
    op.carried, op.floating = len(carry), floating
    return level.call(op, tuple(arguments), [(s, None) for s in walk.specs], here(1))
