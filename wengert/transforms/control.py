"""Branches and loops as functions: ``cond`` and ``while_loop``.

Run eagerly they are Python's ``if`` and ``while`` on bodies that only compute, so that gradients of any order follow
from the operators in the bodies. What they add: the bodies are held to what a compiler needs of them, and a
predicate with one value per lane of :func:`wengert.func.vmap` is possible.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wengert import tree
from wengert.array.dtype import FLOAT
from wengert.core.apply import as_tensor
from wengert.core.interpret import Payload
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.transforms.batching import Batched
from wengert.transforms.control_check import Pattern, Watch, check_callable, watch

__all__ = ["cond", "while_loop"]

PREDICATE = "while_loop(): what cond_fn returns"
CARRY = "while_loop(): the carry that body_fn returns"


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """Return ``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``.

    Args:
        pred: a bool, a number, or a tensor with one element. true_fn, false_fn: functions of the operands that return
            trees of the same structure, shapes and dtypes. operands: a tuple or list of trees.

    Only the chosen function runs, and a gradient goes through it alone. Under :func:`wengert.func.vmap` a predicate with
    one value per lane runs both and selects: a lane's result and gradient come from its own branch, and a nan or inf of
    the other branch reaches neither the result nor the gradients of the operands. It can reach those of tensors that
    a branch refers to without having them as operands: pass as operands what must be safe from that.

    Raises:
        TypeError: if a branch is no function, operands are no tuple or list, or (where both branches run) the branches
            return different structures; ShapeError, DTypeError: or different leaves. RuntimeError: if ``pred`` has not
            exactly one element. InplaceError: if a branch changes in place a tensor that it was given or refers to.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(-4.0, requires_grad=True)
        >>> y = wg.cond(x > 0, lambda x: x.sqrt(), lambda x: -x, (x,))
        >>> y.backward(); y.item(), x.grad
        (4.0, tensor(-1.))
    """
    check_callable("cond", true_fn=true_fn, false_fn=false_fn)
    if not isinstance(operands, tuple | list):
        raise TypeError(f"cond(): operands must be a tuple or list, got {type(operands).__name__}; write (operand,)")
    if _lanes(pred):
        return _both(_flag(pred, "cond(): pred"), true_fn, false_fn, operands)
    captures = _capturing(pred)
    if captures is not None:
        found = captures.branches(
            _single(pred, "cond(): pred"),
            [partial(_branch, *pair, tuple(operands)) for pair in (("true_fn", true_fn), ("false_fn", false_fn))],
        )
        if found is not NotImplemented:
            return found
    chosen = _truth(pred, "cond(): pred")
    return _branch("true_fn" if chosen else "false_fn", true_fn if chosen else false_fn, tuple(operands))


def _branch(name: str, branch: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    guard = watch([branch], {"operands": operands})
    result = branch(*operands)
    guard.check(f"cond(): {name}")
    return result


def _both(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any) -> Any:
    """Run both branches, each on operands whose other lanes pass no gradient, and select lane by lane."""
    given, negated = tuple(operands), ops.logical_not(pred)
    chosen = _branch("true_fn", true_fn, tree.map(lambda v: _shielded(pred, v), given))
    other = _branch("false_fn", false_fn, tree.map(lambda v: _shielded(negated, v), given))
    leaves, spec = tree.flatten(chosen)
    leaves = [_lifted(v) for v in leaves]
    what, like = "cond(): what false_fn returns", "what true_fn returns"
    others = Pattern(leaves, spec).match(other, what, like, _lifted)
    return tree.unflatten([_select(pred, a, b, what) for a, b in zip(leaves, others, strict=True)], spec)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> tuple[Any, ...]:
    """Run ``carry = body_fn(*carry)`` as long as ``cond_fn(*carry)`` holds, and return the last carry.

    Args:
        cond_fn: returns a bool, a number, or a tensor with one element. body_fn: returns a tuple (or list) of the structure,
            shapes and dtypes of the carry; a Python number stays a Python number of its type.
        carried_inputs: a tuple or list of trees, the first carry.

    Differentiable in both modes to any order; reverse mode keeps what every step saved. Under :func:`wengert.func.vmap` a
    predicate with one value per lane runs the loop until it is false in all lanes; the carry of a finished lane stays as
    it was, and no gradient goes through the steps that it did not take.

    Raises:
        TypeError: for arguments of the wrong kind, or if the carry's structure changes; ShapeError, DTypeError: or a
            leaf of it. RuntimeError: if the predicate has not exactly one element. InplaceError: if a body changes in
            place a tensor that it was given or refers to.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(1.5, requires_grad=True)
        >>> n, y = wg.func.while_loop(lambda n, y: y < 10, lambda n, y: (n + 1, y * x), (0, x))
        >>> n, y
        (5, tensor(11.3906, grad_fn=<MulBackward0>))
        >>> y.backward(); x.grad  # y is x**6
        tensor(45.5625)
    """
    check_callable("while_loop", cond_fn=cond_fn, body_fn=body_fn)
    if not isinstance(carried_inputs, tuple | list):
        given = type(carried_inputs).__name__
        raise TypeError(f"while_loop(): carried_inputs must be a tuple or list, got {given}; write (value,)")
    carry = tuple(carried_inputs)
    loop = _Loop(cond_fn, body_fn, carry)
    pred = loop.test(carry)
    captures = _capturing(pred)
    if captures is not None and all(isinstance(leaf, Tensor) for leaf in tree.leaves(carry)):
        found = captures.loop(loop.test_leaves, loop.step_leaves, tree.leaves(carry))
        if found is not NotImplemented:
            return tuple(tree.unflatten(found, loop.pattern.spec))
    while not _lanes(pred) and _truth(pred, PREDICATE):
        carry = loop.step(carry)
        pred = loop.test(carry)
    return _lane_loop(cond_fn, body_fn, carry, pred) if _lanes(pred) else carry


class _Loop:
    """The two bodies of a loop and what they are held to.

    Attributes:
        pattern: of the carry. names: of its leaves. held: watches the tensors that the bodies refer to.
        prepare: applied to each leaf of what the body returns.
    """

    def __init__(
        self,
        cond_fn: Callable[..., Any],
        body_fn: Callable[..., Any],
        carry: tuple[Any, ...],
        prepare: Callable[[Any], Any] | None = None,
    ) -> None:
        self.cond_fn, self.body_fn, self.prepare = cond_fn, body_fn, prepare
        self.pattern = Pattern(*tree.flatten(carry))
        self.names = ["the carry" + path for path in tree.paths(carry)]
        self.held = watch([cond_fn, body_fn], {})

    def test(self, carry: tuple[Any, ...]) -> Any:
        """Return the predicate of a carry."""
        return self._call("cond_fn", self.cond_fn, carry)

    def step(self, carry: tuple[Any, ...]) -> Any:
        """Return the next carry."""
        result = self._call("body_fn", self.body_fn, carry)
        if not isinstance(result, tuple | list):
            given = type(result).__name__
            raise TypeError(f"while_loop(): body_fn must return a tuple, got {given}; write return (value,)")
        leaves = self.pattern.match(tuple(result), CARRY, "the carry before", self.prepare)
        return tree.unflatten(leaves, self.pattern.spec)

    def test_leaves(self, leaves: list[Any]) -> Any:
        """Return the predicate of a carry, of which these are the leaves, as a tensor."""
        return _flag(self.test(tree.unflatten(leaves, self.pattern.spec)), PREDICATE)

    def step_leaves(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves of the next carry."""
        return tree.leaves(self.step(tree.unflatten(leaves, self.pattern.spec)))

    def _call(self, name: str, function: Callable[..., Any], carry: tuple[Any, ...]) -> Any:
        guard = Watch(self.names, tree.leaves(carry))
        result = function(*carry)
        for seen in (guard, self.held):
            seen.check(f"while_loop(): {name}")
        return result


def _lane_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carry: tuple[Any, ...], pred: Any
) -> tuple[Any, ...]:
    """Go on with a loop whose predicate differs from lane to lane."""
    leaves, spec = tree.flatten(tree.map(_lifted, carry))
    loop = _Loop(cond_fn, body_fn, tree.unflatten(leaves, spec), _lifted)
    running = _flag(pred, PREDICATE)
    while _any_lane(running):
        found = tree.leaves(loop.step(tree.unflatten([_shielded(running, v) for v in leaves], spec)))
        leaves = [_select(running, new, old, CARRY) for new, old in zip(found, leaves, strict=True)]
        running = ops.logical_and(running, _flag(loop.test(tree.unflatten(leaves, spec)), PREDICATE))
    return tuple(tree.unflatten(leaves, spec))


def _lanes(pred: Any) -> bool:
    """Return whether a predicate has one value per lane of a vmap: then no Python branch can be taken on it."""
    held = pred._payload if isinstance(pred, Tensor) else None
    while isinstance(held, Payload) and not held.level.takes_plain:  # below that there are no transforms
        if isinstance(held, Batched) and held.batched:
            return True
        held = held.carrier._payload
    return False


def _capturing(pred: Any) -> Any:
    """Return the capture that is to write a predicate down, if there is one and the predicate is not known; else None."""
    state = thread.state
    captures = state.captures
    if captures is None or not isinstance(pred, Tensor) or state.levels[-1] is not captures:
        return None
    return captures if captures.constant(pred) is None else None


def _any_lane(pred: Any) -> bool:
    """Return whether a predicate holds in any lane of any vmap."""
    held = pred._payload
    while isinstance(held, Payload):
        held = held.carrier._payload
    return bool(held.any())


def _truth(pred: Any, what: str) -> bool:
    """Return a predicate as a bool.

    Raises:
        TypeError: if it is neither a number nor a tensor. RuntimeError: if it has not exactly one element.
    """
    if isinstance(pred, bool | int | float | np.generic):
        return bool(pred)
    return bool(_single(pred, what).item())


def _flag(pred: Any, what: str) -> Any:
    """Return a predicate as a bool tensor without dimensions."""
    flag = _single(as_tensor(pred) if isinstance(pred, bool | int | float | np.generic) else pred, what)
    return ops.reshape(flag if flag.dtype.category == 0 else flag != 0, ())


def _single(pred: Any, what: str) -> Any:
    if not isinstance(pred, Tensor):
        raise TypeError(f"{what} must be a bool or a tensor with one element, got {type(pred).__name__}")
    if pred.numel() != 1:
        raise RuntimeError(f"{what} must have exactly one element, its shape is {tuple(pred.shape)}; "
                           f"reduce it with .any() or .all(), or map over it with wengert.func.vmap")  # fmt: skip
    return pred


def _lifted(leaf: Any) -> Any:
    return as_tensor(leaf) if isinstance(leaf, bool | int | float | complex | np.generic | np.ndarray) else leaf


def _shielded(lanes: Any, value: Any) -> Any:
    """Return a value through which no gradient passes outside of some lanes.

    A derivative that is nan or inf where a lane is not chosen would, times the zero gradient that comes from the
    selection, be nan; selecting on the way in as well stops it here.
    """
    if not isinstance(value, Tensor) or value.dtype.category < FLOAT:
        return value
    return ops.where(lanes, value, value.detach())


def _select(lanes: Any, chosen: Any, other: Any, what: str) -> Any:
    if isinstance(chosen, Tensor):
        return ops.where(lanes, chosen, other)
    if chosen is not other and chosen != other:
        raise TypeError(
            f"{what}: values of type {type(chosen).__name__} cannot be selected lane by lane; return tensors"
        )
    return chosen
