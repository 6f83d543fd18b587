"""``custom_op``: an opaque Python function as an operator, with ``torch.library``'s meaning.

What the function does is not looked into: its shape rule, derivative and batching are registered beside it. It stands
in the same registry as the built-in operators.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wengert.amp.autocast_mode import is_autocast_available
from wengert.amp.lists import RULES
from wengert.array.dtype import DType, to_dtype
from wengert.core.inplace import check_writable
from wengert.core.interpret import watched
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators, ops, register, withdraw
from wengert.core.state import thread
from wengert.core.tensor import Tensor, alias, from_array, wrote
from wengert.errors import DeclarationError, MissingRuleError
from wengert.library.capturing import entered
from wengert.library.opaque import Opaque, grouped
from wengert.library.schema import checks_of, infer_schema, returns_of, with_markers

__all__ = [
    "CustomOpDef", "custom_op", "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_vmap",
]  # fmt: skip


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: str | Iterable[str], device_types: Any = None,
    schema: str | None = None,
) -> Any:  # fmt: skip
    """Make a Python function an operator: decorate it, or pass it.

    Args:
        name: ``"library::operator"``; the operator is then also ``wengert.ops.library.operator``.
        fn: takes tensors, numbers, strings and sequences of them, with type hints; returns tensors in memory of their own.
        mutates_args: names of the arguments it changes in place, ``()`` for none; ``"unknown"`` counts all tensors.
        device_types: for which devices ``fn`` is ("cpu" or None: all).
        schema: read from the type hints if None; if given, it must be the same.

    Returns:
        A :class:`CustomOpDef`, called like the function.

    Raises:
        DeclarationError: for a name without ``::`` or one that is taken, missing type hints, unknown mutated arguments.

    Example:
        >>> import numpy as np
        >>> import wengert as wg
        >>> from wengert import Tensor
        >>> @wg.library.custom_op("demo::cube", mutates_args=())
        ... def cube(x: Tensor) -> Tensor:
        ...     return wg.as_tensor(np.asarray(x) ** 3)
        >>> def setup_context(ctx, inputs, output):
        ...     ctx.save_for_backward(*inputs)
        >>> def backward(ctx, g):
        ...     x, = ctx.saved_tensors
        ...     return 3 * x ** 2 * g
        >>> cube.register_autograd(backward, setup_context=setup_context)
        >>> x = wg.tensor(2.0, requires_grad=True)
        >>> wg.ops.demo.cube(x).backward(); x.grad
        tensor(12.)
    """

    def declare(function: Callable[..., Any]) -> CustomOpDef:
        inferred = infer_schema(function, mutates_args=mutates_args, op_name=name)
        if schema is not None and schema.replace(" ", "") != inferred.replace(" ", ""):
            raise DeclarationError(
                f"custom_op '{name}': the schema {schema!r} differs from that of the hints, {inferred!r}"
            )
        return CustomOpDef(name, function, mutates_args, inferred)

    return declare if fn is None else declare(fn)


class Namespace:
    """The operators of one library, as attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"library '{self._name}' has no operator '{name}'; it has {sorted(vars(self).keys() - {'_name'})}"
        )


class CustomOpDef:
    """An operator made by :func:`custom_op`: call it like the function it was made of.

    Attributes:
        op: its declaration in the registry. schema: its signature in PyTorch's notation.
        mutated: positions of the arguments that it changes in place.
    """

    def __init__(self, name: str, fn: Callable[..., Any], mutates_args: Any, schema: str) -> None:
        library, found, short = name.partition("::")
        if not (found and library.isidentifier() and short.isidentifier()):
            raise DeclarationError(f"custom_op: the name must be 'library::operator', got {name!r}")
        self.name, self.schema, self.__name__, self.__doc__ = name, schema, short, fn.__doc__ or f"{name}{schema}"
        self._kernels: dict[str, Callable[..., Any]] = {"cpu": fn}
        self._fake: Callable[..., Any] | None = None
        self._returns, self._checks = returns_of(fn, name), checks_of(fn, name)
        kernel = with_markers(fn, name.replace("::", "_"))
        kernel.__doc__ = self.__doc__
        self.op = Op(kernel, "opaque", name=name, composite=True, samples=lambda s: [], home=(), spec=self._infer)
        self.op.kernel = self
        self.mutated = self._positions(mutates_args)
        self._function: Any = type(short, (Opaque,), {"owner": self})
        self.op.function = self
        self._publish(library, short)

    def _publish(self, library: str, short: str) -> None:
        """Enter the operator in the registry; a custom operator of the same name is replaced, as in PyTorch."""
        namespace = ops.__dict__.setdefault(library, Namespace(library))
        if not isinstance(namespace, Namespace):
            raise DeclarationError(f"custom_op '{self.name}': '{library}' is an operator, so it cannot name a library")
        if self.name in operators():
            withdraw(self.name)
            RULES.pop(self.name, None)
        register(self.name, self.op, self)
        setattr(namespace, short, self)

    def __reduce__(self) -> Any:
        """Copied and pickled by name: there is one of each operator."""
        return _definition, (self.name,)

    def _positions(self, mutates_args: Any) -> tuple[int, ...]:
        index = self.op.signature.index
        if mutates_args == "unknown":
            return self.op.signature.inputs
        if isinstance(mutates_args, str):
            raise DeclarationError(f"custom_op '{self.name}': mutates_args must be a sequence of names or 'unknown'")
        for argument in mutates_args:
            if index.get(argument) not in self.op.signature.inputs:
                raise DeclarationError(
                    f"custom_op '{self.name}': mutates_args names '{argument}', which is no tensor argument"
                )
        return tuple(index[a] for a in mutates_args)

    # ---- registration

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register the function for a device ("cpu"); usable as a decorator.

        Raises:
            ValueError: for a device that does not exist here.
        """
        devices = (device_types,) if isinstance(device_types, str) or device_types is None else tuple(device_types)

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            for device in devices:
                if device not in (None, "cpu"):
                    raise ValueError(f"register_kernel: there is no device '{device}'; there is 'cpu'")
                self._kernels["cpu"] = function
            return function

        return add if fn is None else add(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the shape rule: called with tensors whose values do not matter, returns tensors like the results.

        Usable as a decorator; the last one registered counts.
        """
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        """Register the derivative.

        Args:
            backward: ``(ctx, *grads) -> gradients``, one per positional argument (of a sequence a list), None where there
                is none. ``ctx.needs_input_grad`` says which are wanted.
            setup_context: ``(ctx, inputs, output)`` saves what backward needs; where there are keyword-only arguments,
                ``(ctx, inputs, keyword_only_inputs, output)``, called with keywords.
            jvp: ``(ctx, *tangents) -> tangents``, by what ``setup_context`` saved.

        Raises:
            DeclarationError: for an operator that changes its arguments.
        """
        if self.mutated:
            raise DeclarationError(f"'{self.name}' changes its arguments in place, so it cannot have a derivative")
        self._function.rule = staticmethod(backward)
        self._function.context_rule = None if setup_context is None else staticmethod(setup_context)
        self._function.push_rule = None if jvp is None else staticmethod(jvp)

    def register_vmap(self, func: Callable[..., Any] | None = None, /) -> Any:
        """Register the batching rule ``(info, in_dims, *args, **kwargs) -> (results, out_dims)``; usable as a decorator.

        ``info`` has batch_size and randomness; ``in_dims`` has a dimension for each positional argument with a batch, and
        None for the others. Without one, vmap runs one example after the other and warns once.
        """

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self._function.batch_rule = staticmethod(function)
            return function

        return add if func is None else add(func)

    def register_autocast(self, device_type: str, cast_inputs: DType) -> None:
        """Register the dtype that :class:`wengert.autocast` casts floating-point arguments to (float64 is not cast).

        Whatever the function calls inside is cast no more. Without one, it gets its arguments as they are.

        Raises:
            ValueError: for a device that does not exist here.
        """
        if not is_autocast_available(device_type):
            raise ValueError(f"register_autocast: there is no device '{device_type}'; there is 'cpu'")
        RULES[self.name] = to_dtype(cast_inputs)

    # ---- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = self.op.signature
        values = signature.bind(args, kwargs)
        for slot, value, check in zip(signature.slots, values, self._checks, strict=True):
            check(self.name, slot, value)
        casting = thread.state.casting
        return self._called(self.op, values) if casting is None else casting.run(self.op, values, self._called)

    def _called(self, op: Op, values: list[Any]) -> Any:
        state = thread.state
        return watched(op, values, self._run, state) if state.watchers else self._run(values)

    def _run(self, values: list[Any]) -> Any:
        counts = tuple(len(v) if isinstance(v, list | tuple) and i in self.op.signature.inputs else None
                       for i, v in enumerate(values))  # fmt: skip
        flat = [x for v, n in zip(values, counts, strict=True) for x in (v if n is not None else (v,))]
        for t in self.changed(values):
            check_writable(self.name, t)
        at, names = self.op.signature.positional, self.op.signature.names
        for name, value in zip(names[at:], values[at:], strict=True):
            if isinstance(value, Tensor) and value.requires_grad and thread.state.grad:
                raise MissingRuleError(
                    f"{self.name}(): '{name}' requires a gradient, but keyword-only arguments have none; detach() it"
                )
        wanted = thread.state.grad and any(isinstance(v, Tensor) and v.requires_grad for v in flat)
        if wanted and self._function.rule is None and not self.mutated:
            raise MissingRuleError(
                f"{self.name} has no derivative, and an argument requires one; give it one with register_autograd, or detach() "
                "its arguments"
            )
        found = self._function.apply(counts, *flat)
        return None if self._returns == "none" else list(found) if self._returns == "list" else found

    def changed(self, values: list[Any]) -> list[Any]:
        """Return the tensors among the arguments of a call that it changes in place."""
        found = [values[i] for i in self.mutated]
        return [t for v in found for t in (v if isinstance(v, list | tuple) else (v,)) if t is not None]

    def invoke(self, counts: tuple[Any, ...], flat: tuple[Any, ...]) -> Any:
        """Run the function on tensors without history and check what it returns; enter it in a program that is captured."""
        captures = thread.state.captures
        if captures is not None:
            return entered(self, captures, counts, flat)
        flat = tuple(alias(v) if isinstance(v, Tensor) else v for v in flat)
        values = grouped(counts, flat)
        at, names = self.op.signature.positional, self.op.signature.names
        result = self._kernels["cpu"](*values[:at], **dict(zip(names[at:], values[at:], strict=True)))
        for t in self.changed(values):
            wrote(t, self.name)
        return self._checked(result, flat)

    def _checked(self, result: Any, flat: tuple[Any, ...]) -> Any:
        if self._returns == "none":
            if result is not None:
                raise TypeError(f"{self.name}() is declared to return None, but returned {type(result).__name__}")
            return ()
        results = (result,) if self._returns == "tensor" else result
        expected = int(self._returns[5:]) if self._returns.startswith("tuple") else None
        wrong = not isinstance(results, tuple | list) or not all(isinstance(r, Tensor) for r in results)
        if wrong or (expected is not None and len(results) != expected):
            raise TypeError(
                f"{self.name}() is declared to return {self.schema.partition('-> ')[2]}, but returned {result!r}"
            )
        held = [v for v in flat if isinstance(v, Tensor)]
        for k, r in enumerate(results):
            if any(r is v or np.may_share_memory(r._payload, v._payload) for v in (*held, *results[:k])):
                raise RuntimeError(
                    f"{self.name}(): a result shares memory with an argument or another result; clone() it"
                )
        return tuple(results) if isinstance(results, list) else result

    def registered(self) -> dict[str, str]:
        """Return in words what is registered of each kind of rule, and how to register what is not."""
        rules = {
            "shape rule": (self._fake, "register_fake"),
            "derivative": (self._function.rule, "register_autograd"),
            "forward mode": (self._function.push_rule, "register_autograd(jvp=...)"),
            "batching": (self._function.batch_rule, "register_vmap"),
        }
        return {kind: f"none; {how} gives one" if rule is None else f"by {how}" for kind, (rule, how) in rules.items()}

    @property
    def returns_nothing(self) -> bool:
        """True if the function returns None."""
        return self._returns == "none"

    @property
    def returns_list(self) -> bool:
        """True if the function returns a list of tensors of any length."""
        return self._returns == "list"

    @property
    def forward_rule(self) -> Any:
        """The registered forward-mode rule, or None."""
        return self._function.push_rule

    @property
    def has_fake(self) -> bool:
        """True if a shape rule is registered."""
        return self._fake is not None

    @property
    def has_vmap(self) -> bool:
        """True if a batching rule is registered."""
        return self._function.batch_rule is not None

    def _infer(self, *args: Any, **kwargs: Any) -> Any:
        """The shape and dtype rule of the registry, from the registered fake function."""
        if self._fake is None:
            raise MissingRuleError(f"{self.name} has no shape rule; give it one with register_fake")
        found = self._fake(*[_unset(v) for v in args], **{k: _unset(v) for k, v in kwargs.items()})
        if found is None:
            return ()
        specs = tuple(Spec(tuple(t.shape), t.dtype) for t in ((found,) if isinstance(found, Tensor) else found))
        return specs[0] if isinstance(found, Tensor) else specs

    def __repr__(self) -> str:
        return f"<operator {self.name}{self.schema}>"


def _unset(value: Any) -> Any:
    """Return a tensor of a spec's shape and dtype that takes no memory."""
    if isinstance(value, tuple) and not isinstance(value, Spec):
        return tuple(map(_unset, value))
    return (
        from_array(np.broadcast_to(np.zeros((), value.dtype.numpy), value.shape)) if isinstance(value, Spec) else value
    )


# ---- the same as functions, as in torch.library


def _definition(op: Any) -> CustomOpDef:
    """Return a custom operator given itself or its name."""
    if isinstance(op, CustomOpDef):
        return op
    found = operators().get(op) if isinstance(op, str) else None
    kernel = getattr(found, "kernel", None)
    if not isinstance(kernel, CustomOpDef):
        raise ValueError(f"{op!r} is no operator made by custom_op")
    return kernel


def register_fake(op: Any, func: Callable[..., Any] | None = None, /) -> Any:
    """Register the shape rule of a custom operator; see :meth:`CustomOpDef.register_fake`."""
    definition = _definition(op)
    return definition.register_fake if func is None else definition.register_fake(func)


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /) -> Any:
    """Register a function for a device; see :meth:`CustomOpDef.register_kernel`."""
    return _definition(op).register_kernel(device_types, func)


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, jvp: Any = None) -> None:
    """Register the derivative of a custom operator; see :meth:`CustomOpDef.register_autograd`."""
    _definition(op).register_autograd(backward, setup_context=setup_context, jvp=jvp)


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /) -> Any:
    """Register the batching rule of a custom operator; see :meth:`CustomOpDef.register_vmap`."""
    return _definition(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: DType, /) -> None:
    """Register what autocast casts the arguments of a custom operator to; see :meth:`CustomOpDef.register_autocast`."""
    _definition(op).register_autocast(device_type, cast_inputs)
