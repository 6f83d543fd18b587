"""``Function``: an operation of the user's own, with a forward and a backward."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from wengert.array.dtype import FLOAT
from wengert.core.inplace import check_writable, rehistory
from wengert.core.interpret import Level, highest, lifted
from wengert.core.node import Output, next_sequence
from wengert.core.place import Place, here
from wengert.core.record import pack
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, View, from_array, refresh, version_of
from wengert.errors import InplaceError, MissingRuleError, TransformError
from wengert.tape.function_node import Context, FunctionNode

__all__ = ["Function", "once_differentiable", "rebuilt"]


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

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return the tangents of the results from those of the arguments of forward (None for those that have none)."""
        raise MissingRuleError("a Function must define jvp to be used in forward mode")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Return (results, where their batch dimension is) of arguments with a batch dimension, or set
        ``generate_vmap_rule = True`` to have forward and backward batched themselves."""
        raise MissingRuleError("a Function must define vmap, or set generate_vmap_rule = True, to be used under vmap")

    generate_vmap_rule = False

    @classmethod
    def reverse_rule(cls) -> Callable[..., Any]:
        """The reverse rule under either of its names.

        Raises:
            RuntimeError: if there is none.
        """
        if cls.backward is not Function.backward:
            return cls.backward
        if cls.vjp is Function.vjp:
            raise RuntimeError(
                f"{cls.__name__} has no backward(ctx, *grads), so it cannot be differentiated; define it"
            )
        return cls.vjp

    @classmethod
    def forward_rule(cls) -> Callable[..., Any]:
        """The forward rule.

        Raises:
            MissingRuleError: if there is none.
        """
        if cls.jvp is Function.jvp:
            raise MissingRuleError(
                f"{cls.__name__} has no jvp(ctx, *tangents), so it cannot be used in forward mode; define it"
            )
        return cls.jvp

    @classmethod
    def has_setup_context(cls) -> bool:
        """True for the newer style: forward takes no ctx."""
        return cls.setup_context is not Function.setup_context

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the operation and record it."""
        return cls.call(args)[0]

    @classmethod
    def call(cls, args: tuple[Any, ...]) -> tuple[Any, Context | None]:
        """Call the operation and record it; return its result and its context (None if a transform ran it without one)."""
        if thread.state.levels:
            level = highest(a for a in args if isinstance(a, Tensor))
            if level is not None and not level.takes_plain:
                return _call_at_level(cls, level, args)
            if thread.state.captures is not None:
                thread.state.captures.lift_all(args)
        if cls.forward is Function.forward:
            raise RuntimeError(f"{cls.__name__} has no forward; define it")
        context = Context(cls, args)
        with no_recording():
            if cls.has_setup_context():
                output = cls.forward(*args)
                cls.setup_context(context, args, output)
            else:
                try:
                    output = cls.forward(context, *args)
                except TypeError as error:
                    _hint_at_style(cls, error, context, args)
                    raise
        return _recorded(context, output, args), context


class no_recording:  # noqa: N801 - a context manager is called like a function
    """Record nothing inside the block."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        state = thread.state
        self.before, state.grad = state.grad, False

    def __exit__(self, *error: Any) -> None:
        thread.state.grad = self.before


def _hint_at_style(cls: type[Function], error: TypeError, context: Context, args: tuple[Any, ...]) -> None:
    """Add a note to an error of a forward that does not take ctx."""
    try:
        inspect.signature(cls.forward).bind(context, *args)
    except TypeError:
        error.add_note(
            f"{cls.__name__} has no setup_context(ctx, inputs, output), so its forward is called with ctx first: define "
            "setup_context, or forward(ctx, *args)"
        )


def _recorded(context: Context, output: Any, args: tuple[Any, ...]) -> Any:
    """Return what forward gave, recorded if an argument needs a gradient."""
    results = output if isinstance(output, tuple | list) else (output,)
    _check_dirty(context, results)
    results = tuple(_separate(context, r, args) for r in results)
    if thread.state.grad and any(context.needs_input_grad):
        edges = tuple((a._node if a._view is None else refresh(a)) for a in args if isinstance(a, Tensor))
        _attach(context, results, args, edges, here(1))
    return rebuilt(output, results)


def rebuilt(output: Any, results: Sequence[Any]) -> Any:
    """Return results in the container of a Function's ``output``: tuple, named tuple, list, or none for a single one."""
    if not isinstance(output, tuple | list):
        return results[0]
    return type(output)(*results) if hasattr(output, "_fields") else type(output)(results)


def _call_at_level(cls: type[Function], level: Level, args: tuple[Any, ...]) -> tuple[Any, Context | None]:
    """Let a running transform call the operation, and record it at the transform's level."""
    given = tuple(lifted(level, a) if isinstance(a, Tensor) else a for a in args)
    output = _apart(level.call_function(cls, given), given)
    context = Context(cls, given)
    if not cls.has_setup_context():
        if thread.state.grad and any(context.needs_input_grad):
            raise TransformError(
                f"{cls.__name__}: to be differentiated inside {level.title}, an autograd.Function must define "
                "setup_context(ctx, inputs, output), with forward(*args) without ctx"
            )
        return output, None
    with no_recording():
        cls.setup_context(context, given, output)
    if context.dirty:
        raise TransformError(f"{cls.__name__}: mark_dirty() is not possible inside {level.title}; return a new tensor")
    return _recorded(context, output, given), context


def _apart(output: Any, args: tuple[Any, ...]) -> Any:
    """Return results in memory of their own where they are views of arguments, so that no write to these can reach them."""
    cells = [a._cell for a in args if isinstance(a, Tensor)]
    results = output if isinstance(output, tuple | list) else (output,)
    return rebuilt(
        output, [ops.clone(r) if isinstance(r, Tensor) and any(r._cell is c for c in cells) else r for r in results]
    )


def _check_dirty(context: Context, results: Sequence[Any]) -> None:
    for t in context.dirty:
        if not any(r is t for r in results):
            raise RuntimeError(f"{context.function.__name__} marked a tensor as dirty that it does not return")
        check_writable(context.function.__name__, t)


def _separate(context: Context, result: Any, args: tuple[Any, ...]) -> Any:
    """Return a result that is an argument itself (and was not changed) as a view of it."""
    if isinstance(result, Tensor) and any(result is a for a in args) and not any(result is t for t in context.dirty):
        with no_recording():
            return ops.expand(result, tuple(result.shape))
    return result


class _LostStep:
    """Stands in a view's chain for a user's Function, which cannot be run again on a base that was written since."""

    def __init__(self, name: str) -> None:
        self.name, self.function = name, self

    def execute(self, values: Any) -> Any:
        """Refuse to take the view again."""
        raise InplaceError(
            f"a result of {self.name} is a view of an argument that was changed in place since, which its backward knows "
            f"nothing of; change it out of place, or let {self.name} return a clone()"
        )


def _own_view(view: View | None, name: str) -> View | None:
    """Return the view that a Function's result is as one that must not be written, nor taken again without the Function."""
    if view is None:
        return None
    problem = f"{name} returned it as a view of an argument, and its backward would be lost"
    return View(view.base, ((_LostStep(name), (None,), None),), problem)


def _attach(
    context: Context, results: Sequence[Any], args: tuple[Any, ...], edges: tuple[Any, ...], place: Place
) -> None:
    carriers = [i for i, r in enumerate(results) if isinstance(r, Tensor) and r.dtype.category >= FLOAT
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
            carrier._node, carrier._view = owners[id(carrier)], _own_view(carrier._view, context.function.__name__)


def _kept(tensor: Any, owners: dict[int, Any], args: tuple[Any, ...]) -> Any:
    """Return (what is held, its version cell, the version, its node, whether it is an argument or result, which others see).

    A result is held without the tensor itself; what a pack hook made of a tensor has no version.
    """
    node = owners.get(id(tensor), tensor._node)
    if thread.state.saved_hooks:
        return pack(tensor, thread.state), None, 0, node, False
    cell = version_of(tensor)
    if id(tensor) in owners:
        return tensor._payload, cell, cell.count, node, True
    return tensor, cell, cell.count, node, any(a is tensor for a in args)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that must not be differentiated: doing so raises instead of giving a wrong number."""

    def wrapped(ctx: Any, *cotangents: Any) -> Any:
        recording = thread.state.grad and any(isinstance(g, Tensor) and g.requires_grad for g in cotangents)
        with no_recording():
            found = backward(ctx, *cotangents)
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
