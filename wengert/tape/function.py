"""``Function``: an operation of the user's own, with a forward and a backward."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.inplace import check_writable, rehistory
from wengert.core.node import Freed, Node, Output, next_sequence
from wengert.core.place import Place, describe, here
from wengert.core.record import Packed, pack
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, alias, from_array, refresh, version_of
from wengert.errors import GraphFreedError, InplaceError

__all__ = ["Function", "FunctionNode", "once_differentiable"]


class FunctionNode(Node):
    """The record of one call of a :class:`Function`: it holds the context and asks it for the backward."""

    __slots__ = ("code", "context", "lasti", "outputs", "shapes")

    code: Any
    context: Any
    lasti: int
    outputs: int
    shapes: list[Any]

    @property
    def title(self) -> str:
        """The name of the Function, for messages."""
        return str(self.context.function.__name__)

    def name(self) -> str:
        """The name of the record."""
        return f"{self.title}Backward"

    def argument(self, index: int) -> str:
        """The tensor argument with this index, for messages."""
        return f"tensor argument {index}"

    @property
    def place(self) -> Place:
        """The user's line that called it."""
        return self.code, self.lasti

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes the gradient goes on to."""
        return tuple((n.inputs[0], n.index) if isinstance(n, Output) else (n, 0) for n in self.inputs)

    def free(self, freed: Freed) -> None:
        """Drop what the Function saved."""
        if self.context.kept:
            self.context.kept = freed

    def differentiate(self, cotangents: list[Any]) -> list[Any]:
        """Run the user's backward and return one checked gradient (or None) per tensor argument."""
        context = self.context
        if context.materialize:
            cotangents = [from_array(np.zeros(*s)) if g is None and s is not None else g
                          for g, s in zip(cotangents, self.shapes, strict=True)]  # fmt: skip
        function = context.function
        rule = function.vjp if function.backward is Function.backward else function.backward
        try:
            found = rule(context, *cotangents)
        except Exception as error:
            error.add_note(f"in the backward of {self.title}, called at {describe(self.place)}")
            raise
        return self._checked(found if isinstance(found, tuple | list) else (found,))

    def _checked(self, found: Sequence[Any]) -> list[Any]:
        are_tensors = self.context.are_tensors
        extra = found[len(are_tensors) :]
        if len(found) < len(are_tensors) or any(g is not None for g in extra):
            raise RuntimeError(f"the backward of {self.title} returned {len(found)} gradients, its forward takes "
                               f"{len(are_tensors)} arguments; return one per argument, None for those without")  # fmt: skip
        gradients = []
        for i, (g, is_tensor) in enumerate(zip(found, are_tensors, strict=False)):
            if g is not None and not isinstance(g, Tensor):
                raise TypeError(
                    f"the backward of {self.title} returned {type(g).__name__} for argument {i}, expected a tensor or None"
                )
            if g is not None and not is_tensor:
                raise RuntimeError(
                    f"the backward of {self.title} returned a gradient for argument {i}, which is not a tensor"
                )
            if is_tensor:
                gradients.append(g)
        return gradients


class Context:
    """What a Function's forward hands to its backward; it may carry any attribute.

    Attributes:
        needs_input_grad: for each argument of forward, whether its gradient is wanted.
    """

    def __init__(self, function: type[Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.are_tensors = tuple(isinstance(a, Tensor) for a in args)
        self.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        self.materialize = True
        self.to_save: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.kept: Any = ()
        self.place: Place | None = None

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (or None) for backward, where they are :attr:`saved_tensors`; changes to them are noticed."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(f"save_for_backward() keeps tensors and None, got {type(t).__name__}; "
                                "keep other values as attributes of ctx")  # fmt: skip
        self.to_save = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: Any) -> None:
        """Say which arguments forward changed in place; they must be among what it returns."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which results carry no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether backward gets zeros (True, the default) or None for results that received no gradient."""
        self.materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors kept by :meth:`save_for_backward`.

        Raises:
            GraphFreedError: after a backward that freed them. InplaceError: if one was changed in place.
        """
        if isinstance(self.kept, Freed):
            raise GraphFreedError(
                f"backward a second time through {self.function.__name__}: what it saved was freed by the first backward, "
                f"at {describe(self.kept.place)}; pass retain_graph=True to the first"
            )
        return tuple(self._unpacked(item) for item in self.kept) if self.kept else self.to_save

    def _unpacked(self, item: Any) -> Any:
        if item is None:
            return None
        held, version, count, node = item
        if isinstance(held, Packed):
            held = held.unpack(held.packed)
        elif version is not None and version.count != count:
            raise InplaceError(
                f"a tensor saved by {self.function.__name__} (shape {tuple(held.shape)}, version {count}, at "
                f"{describe(self.place)}) was changed in place by {version.first_write_after(count)}, now version "
                f"{version.count}; change it out of place or save a clone()"
            )
        if isinstance(held, Tensor) and held._node is node:
            return held
        out = from_array(held._payload if isinstance(held, Tensor) else held)
        out._cell, out._node = version, node
        return out


class Function:
    """An operation with a derivative of its own. Subclass it, define ``forward`` and ``backward``, call ``apply``.

    ``forward(ctx, *args)`` computes; or, in the newer style, ``forward(*args)`` computes and
    ``setup_context(ctx, inputs, output)`` saves. ``backward(ctx, *grads)`` returns one gradient per argument of forward.

    Example:
        >>> import wengert as wg
        >>> class Cube(wg.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x ** 3
        ...     @staticmethod
        ...     def backward(ctx, g):
        ...         x, = ctx.saved_tensors
        ...         return 3 * x ** 2 * g
        >>> x = wg.tensor(2.0, requires_grad=True)
        >>> Cube.apply(x).backward(); x.grad
        tensor(12.)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{type(self).__name__} is not to be instantiated: call {type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results. To be defined."""
        raise RuntimeError("a Function must define forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, where forward takes no ctx."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Return the gradients of the arguments of forward. To be defined."""
        raise RuntimeError("a Function must define backward (or vjp) to be differentiated")

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name of :meth:`backward`."""
        raise RuntimeError("a Function must define backward (or vjp) to be differentiated")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the operation and record it."""
        context = Context(cls, args)
        state = thread.state
        recording = state.grad and any(context.needs_input_grad)
        edges = tuple((a._node if a._view is None else refresh(a)) for a in args if isinstance(a, Tensor))
        grad, state.grad = state.grad, False
        try:
            if cls.setup_context is Function.setup_context:
                output = cls.forward(context, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(context, args, output)
        finally:
            state.grad = grad
        results = output if isinstance(output, tuple | list) else (output,)
        _check_dirty(context, results)
        results = tuple(_separate(context, r, args) for r in results)
        if recording:
            _attach(context, results, args, edges, here(1))
        return results[0] if output is not results and not isinstance(output, tuple | list) else type(output)(results)


def _check_dirty(context: Context, results: Sequence[Any]) -> None:
    for t in context.dirty:
        if not any(r is t for r in results):
            raise RuntimeError(f"{context.function.__name__} marked a tensor as dirty that it does not return")
        check_writable(context.function.__name__, t)


def _separate(context: Context, result: Any, args: tuple[Any, ...]) -> Any:
    """Return a result that is an argument itself (and was not changed) as a tensor of its own."""
    if isinstance(result, Tensor) and any(result is a for a in args) and not any(result is t for t in context.dirty):
        return alias(result)
    return result


def _attach(
    context: Context, results: Sequence[Any], args: tuple[Any, ...], edges: tuple[Any, ...], place: Place
) -> None:
    carriers = [i for i, r in enumerate(results) if isinstance(r, Tensor) and r.dtype.category >= 2
                and not any(r is t for t in context.non_differentiable)]  # fmt: skip
    if not carriers:
        return
    node = FunctionNode()
    node.context, node.inputs, node.extra, node.outputs = context, edges, None, len(results)
    node.code, node.lasti = place
    node.sequence = next_sequence()
    node.shapes = [(r._payload.shape, r._payload.dtype) if i in carriers else None for i, r in enumerate(results)]
    first = results[carriers[0]]._payload
    node.shape, node.dtype = first.shape, first.dtype
    context.place = place
    owners: dict[int, Any] = {}
    for i in carriers:
        owner: Any = node if len(results) == 1 else Output(node, i, results[i]._payload)  # type: ignore[arg-type]
        owners[id(results[i])] = owner
    context.kept = tuple(None if t is None else _kept(t, owners, args) for t in context.to_save)
    dirty = context.dirty
    context.to_save = context.dirty = context.non_differentiable = ()
    for i in carriers:
        carrier = results[i]
        if any(carrier is t for t in dirty):
            carrier = from_array(results[i]._payload)
            carrier._node = owners[id(results[i])]
            rehistory(results[i], carrier)
        else:
            carrier._node = owners[id(carrier)]


def _kept(tensor: Any, owners: dict[int, Any], args: tuple[Any, ...]) -> Any:
    """Return (what is held, its version cell, the version, its node); a result is held without the tensor itself."""
    node = owners.get(id(tensor), tensor._node)
    if thread.state.saved_hooks:
        return pack(tensor, thread.state), None, 0, node
    cell = version_of(tensor)
    return (tensor._payload if id(tensor) in owners else tensor), cell, cell.count, node


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that must not be differentiated: doing so raises instead of giving a wrong number."""

    def wrapped(ctx: Any, *cotangents: Any) -> Any:
        state = thread.state
        recording = state.grad and any(isinstance(g, Tensor) and g.requires_grad for g in cotangents)
        grad, state.grad = state.grad, False
        try:
            found = backward(ctx, *cotangents)
        finally:
            state.grad = grad
        if not recording:
            return found
        listed = found if isinstance(found, tuple) else (found,)
        refused = tuple(g if g is None else _Refuse.apply(ctx.function.__name__, g, *cotangents) for g in listed)
        return refused if isinstance(found, tuple) else refused[0]

    return wrapped


class _Refuse(Function):
    """Passes a gradient on and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, name: str, g: Any, *cotangents: Any) -> Any:
        ctx.owner = name
        return ops.clone(g)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise RuntimeError(
            f"the backward of {ctx.owner} is marked once_differentiable and was differentiated a second time"
        )
