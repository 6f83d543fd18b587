"""Forward mode: dual numbers, primal and tangent side by side.

A tensor of a :class:`DualLevel` holds a primal and its tangent (None: zero), tensors of the levels below. An operator
runs on the primals, and its declared forward rule pushes the tangents. Levels keep nested derivatives apart: what a
level sees of another's tensor is a constant.
"""

import weakref
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT
from wengert.core.apply import execute
from wengert.core.interpret import Level, Payload, given_back, lifted, wrapped
from wengert.core.operator import Op
from wengert.core.registry import operators, ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, alias, refresh, replay, version_of
from wengert.errors import DTypeError, InplaceError, MissingRuleError, ShapeError, TransformError
from wengert.tape.function import rebuilt
from wengert.transforms.forward import push

__all__ = ["Dual", "DualLevel", "parts", "unwrapped"]


class Dual(Payload):
    """A primal and its tangent.

    Attributes:
        primal, tangent: tensors of a level below; no tangent stands for zero.
        origin: of a view, the tangent of its base when its own was taken; another one now means that the base was
            written since.
    """

    __slots__ = ("origin", "primal", "tangent")

    level: "DualLevel"

    def __init__(self, primal: Any, tangent: Any, level: "DualLevel", origin: Any = None) -> None:
        self.primal, self.tangent, self.level, self.origin = primal, tangent, level, origin
        self.shape, self.dtype = primal._payload.shape, primal._payload.dtype

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.primal,) if self.tangent is None else (self.primal, self.tangent)

    @property
    def strides(self) -> Any:
        """The strides of the memory."""
        return self.primal._payload.strides

    def values(self, what: str) -> Any:
        """Return the array of the primal: control flow may depend on values, whatever ``what`` asks."""
        self.check_alive()
        held = self.primal._payload
        return held if isinstance(held, np.ndarray) else held.values(what)

    def exported(self, what: str) -> Any:
        """Return the array of a constant; refuse where there is a tangent."""
        self.check_alive()
        if self.tangent is not None:
            raise TransformError(self.level.refusal(what))
        return self.primal.numpy()

    def detached(self) -> "Dual":
        """Return the payload without tangent and history."""
        return Dual(ops.detach(self.primal), None, self.level)

    def __repr__(self) -> str:
        return f"Dual({self.primal!r}, tangent={self.tangent!r})"


class DualLevel(Level):
    """One run of forward mode.

    Args:
        transparent: constants from outside bring their history with them, so that backward inside the level reaches them
            (with gradients that have tangents). Forward mode under PyTorch's ``forward_ad`` is so.
    """

    title = "forward mode"

    def __init__(self, transparent: bool = False) -> None:
        super().__init__()
        self.transparent = transparent
        self.made: list[weakref.ref[Any]] = []

    def run(self, op: Op, values: list[Any]) -> tuple[Any, ...]:
        inputs = op.signature.inputs
        primals = [_primals(v) if i in inputs else v for i, v in enumerate(values)]
        found = execute(op, primals)
        results = (found,) if op.single else tuple(found)
        tangents = {i: t for i in inputs if (t := _tangents(values[i])) is not None}
        if not tangents or op.family == "nondifferentiable":
            return tuple(self.wrap(r, None) for r in results)
        if op.jvp is None:
            raise MissingRuleError(
                f"{op.name}() has no forward-mode derivative, and an argument has a tangent; detach it, or declare jvp"
            )
        pushed = push(op, primals, results, tangents)
        return tuple(self.wrap(r, _like(t, r), values) for r, t in zip(results, pushed, strict=True))

    def wrap(self, primal: Any, tangent: Any, values: Any = None) -> Any:
        """Return a tensor of this level; ``values`` are the arguments of the operator that made it."""
        out = wrapped(Dual(primal, tangent, self))
        if values is not None and primal._view is not None and isinstance(values[0], Tensor):
            source = values[0]
            base = source if source._view is None else source._view.base
            if isinstance(base._payload, Dual):
                out._payload.origin = base._payload.tangent
        if self.transparent:
            self.made.append(weakref.ref(out))
        return out

    def end(self) -> None:
        super().end()
        for reference in self.made:
            tensor = reference()
            if tensor is not None and isinstance(tensor._payload, Dual):
                given_back(tensor)
        self.made.clear()

    def lift(self, tensor: Any) -> Any:
        view = tensor._view
        if view is not None and isinstance(view.base._payload, Dual) and view.base._payload.level is self:
            return replay(view.chain, view.base)  # the base was written here since the view was taken
        out = self.wrap(tensor, None)
        if self.transparent:
            out._node = tensor._node if view is None else refresh(tensor)
        return out

    def write(self, name: str, tensor: Any, result: Any) -> None:
        ops.copy_(tensor._payload.primal, parts(result)[0])
        tangent = parts(result)[1]
        if tangent is None and parts(tensor)[1] is None:
            return
        if tangent is None:
            tangent = ops.zeros_like(result._payload.primal)
        if tangent.dtype is not tensor.dtype:
            tangent = ops.cast(tangent, tensor.dtype)
        view = tensor._view
        if view is None:
            tensor._payload = Dual(tensor._payload.primal, ops.clone(tangent), self)
            return
        base = view.base._payload
        before = ops.zeros_like(base.primal) if base.tangent is None else base.tangent
        after = execute(operators()["view_write"], [before, tangent, view.chain])
        view.base._payload = Dual(base.primal, after, self)

    def admit(self, name: str, tensor: Any, source: Any) -> None:
        view = tensor._view
        owner = tensor if view is None else view.base
        if type(owner._payload) is np.ndarray or owner._payload.level is not self:
            if thread.state.captures is not None:
                thread.state.captures.history.check_tangent(owner)
            node = owner._node
            if view is not None and node is not None:
                raise InplaceError(
                    f"{name}(): a value with a tangent is written into a view of a tensor with history that has none; "
                    "write into the base, or clone() it first"
                )
            primal = alias(owner, version=version_of(owner))
            primal._node, primal._view = node, owner._view
            owner._payload = Dual(primal, None, self)
            owner._node, owner._view = None, None
            self.adopted.append(owner)
        if view is not None:
            fresh = replay(view.chain, owner)
            tensor._payload, tensor._view, tensor._node = fresh._payload, fresh._view, fresh._node
            self.adopted.append(tensor)

    def enclose(self, tensor: Any) -> None:
        if not self.transparent:
            super().enclose(tensor)

    def call_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        primals = tuple(parts(a)[0] if isinstance(a, Tensor) else a for a in args)
        tangents = [parts(a)[1] if isinstance(a, Tensor) else None for a in args]
        output, context = function.call(primals)
        results = output if isinstance(output, tuple | list) else (output,)
        if all(t is None for t in tangents):
            pushed: Any = (None,) * len(results)
        else:
            pushed = pushed_through(function, context, primals, tangents, results)
        found = [self.wrap(r, t) if isinstance(r, Tensor) else r for r, t in zip(results, pushed, strict=True)]
        return rebuilt(output, found)

    def keep(self, gradient: Any, leaf: Any) -> None:
        self.adopted.append(gradient)

    def refusal(self, what: str) -> str:
        return (
            f"{what} of a tensor in {self.title} would lose its tangent; use the primal (detach() it), or an operator of "
            "wengert"
        )


def parts(tensor: Any) -> tuple[Any, Any]:
    """Return (primal, tangent) of a tensor of a dual level; a view's tangent is taken from its base again if need be."""
    held, view = tensor._payload, tensor._view
    if view is not None and isinstance(view.base._payload, Dual) and view.base._payload.level is held.level:
        now = view.base._payload.tangent
        if held.origin is not now:
            tangent = None if now is None else replay(view.chain, now)
            held = tensor._payload = Dual(held.primal, tangent, held.level, now)
    return held.primal, held.tangent


def pushed_through(function: Any, context: Any, primals: Any, tangents: list[Any], results: Any) -> tuple[Any, ...]:
    """Return the tangents that the user's ``jvp`` gives, checked.

    Raises:
        MissingRuleError: if there is none, or it would need ``setup_context``. RuntimeError, TypeError, ShapeError: if it
            returns something else than one tangent per result.
    """
    name = function.__name__
    if context is None:
        raise MissingRuleError(f"{name}: inside several transforms, an autograd.Function must define setup_context")
    if context.materialize:
        tangents = [ops.zeros_like(p) if t is None and isinstance(p, Tensor) and p.dtype.category >= FLOAT else t
                    for p, t in zip(primals, tangents, strict=True)]  # fmt: skip
    rule = function.forward_rule()
    context.in_forward = True
    try:
        found = rule(context, *tangents)
    finally:
        context.in_forward = False
    listed = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(listed) != len(results):
        raise RuntimeError(
            f"the jvp of {name} returned {len(listed)} tangents, its forward returns {len(results)} results"
        )
    for t, r in zip(listed, results, strict=True):
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(f"the jvp of {name} must return tensors or None, got {type(t).__name__}")
        if t is not None and isinstance(r, Tensor) and t.dtype.is_complex and not r.dtype.is_complex:
            raise DTypeError(f"the jvp of {name} returned a complex tangent for a result of dtype {r.dtype}")
        if t is not None and (not isinstance(r, Tensor) or tuple(t.shape) != tuple(r.shape)):
            shape = tuple(r.shape) if isinstance(r, Tensor) else type(r).__name__
            raise ShapeError(
                f"the jvp of {name} returned a tangent of shape {tuple(t.shape)} for a result of shape {shape}"
            )
    return tuple(_like(t, r) for t, r in zip(listed, results, strict=True))


def _primals(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_primals(v) for v in value)
    return parts(value)[0] if isinstance(value, Tensor) else value


def _tangents(value: Any) -> Any:
    """Return the tangent of an argument; of a sequence a tuple with zeros filled in, or None if none has one."""
    if isinstance(value, Tensor):
        return parts(value)[1]
    if not isinstance(value, tuple):
        return None
    found = [parts(v)[1] if isinstance(v, Tensor) else None for v in value]
    if all(t is None for t in found):
        return None
    return tuple(
        ops.zeros_like(parts(v)[0]) if t is None and isinstance(v, Tensor) else t
        for v, t in zip(value, found, strict=True)
    )


def _like(tangent: Any, primal: Any) -> Any:
    """Return a tangent in the dtype of its primal; whole numbers do not move, and have none."""
    if primal.dtype.category < FLOAT:
        return None
    return tangent if tangent is None or tangent.dtype is primal.dtype else ops.cast(tangent, primal.dtype)


def unwrapped(level: DualLevel, tensor: Any) -> tuple[Any, Any]:
    """Return (primal, tangent or None) of a tensor at a dual level; of a constant from below, itself and None."""
    return parts(lifted(level, tensor))
