"""Derivative rules of the user's own for any function of trees: ``custom_vjp``, ``custom_jvp`` and ready-made ones.

They are :class:`wengert.autograd.Function` with trees for arguments, and have its transforms: any of them nests.
"""

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from wengert import tree
from wengert.array.dtype import FLOAT
from wengert.core.interpret import highest
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, alias
from wengert.errors import DeclarationError, MissingRuleError
from wengert.tape.function import Function
from wengert.transforms.dual import DualLevel
from wengert.transforms.pushforward import jvp
from wengert.transforms.reverse import vjp

__all__ = ["custom_jvp", "custom_vjp", "gradient_reversal", "stop_gradient", "straight_through"]


def stop_gradient(value: Any) -> Any:
    """Return a tree whose tensors are constants for every derivative, in both modes.

    Example:
        >>> import wengert as wg
        >>> wg.func.grad(lambda x: x * wg.func.stop_gradient(x))(wg.tensor(3.0))
        tensor(3.)
    """
    return tree.map(lambda t: t.detach() if isinstance(t, Tensor) else t, value)


class Structured:
    """A function of trees with a rule of its own.

    Attributes:
        fun: the function. nondiff_argnums: positions of arguments that are no tensors and go to the rules as they are.
        name: its name. function: the Function that stands for it on the tape, of that name.
    """

    base: type[Function]

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: tuple[int, ...] = ()) -> None:
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)
        update_wrapper(self, fun)  # type: ignore[arg-type]
        self.name = getattr(fun, "__name__", type(fun).__name__)
        self.function: Any = type(self.name, (self.base,), {})

    def split(self, args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        """Return (arguments that are not differentiated, the others)."""
        static = [a for i, a in enumerate(args) if i in self.nondiff_argnums]
        return static, [a for i, a in enumerate(args) if i not in self.nondiff_argnums]

    def joined(self, static: list[Any], others: Any) -> tuple[Any, ...]:
        """Return all arguments in order."""
        left, right = iter(static), iter(others)
        total = len(static) + len(others)
        return tuple(next(left) if i in self.nondiff_argnums else next(right) for i in range(total))


class _Call:
    """One call of a :class:`custom_vjp`: what is no tensor of it.

    Attributes:
        recorded: whether it is differentiated in reverse; then a tangent that reaches it goes through ``fwd``, as that of
            the code which reverse mode runs in its place. outputs, residuals: the structures of what ``fwd`` returned.
        plain: of each residual that is no tensor, a tuple of it, else None.
    """

    outputs: Any
    residuals: Any
    plain: list[Any]

    def __init__(self, rule: Any, static: list[Any], spec: Any, recorded: bool) -> None:
        self.rule, self.static, self.spec, self.recorded = rule, static, spec, recorded

    def forward(self, leaves: Any) -> tuple[list[Any], list[Any]]:
        """Return the leaves of the output and of the residuals."""
        running = self.rule.running
        before, running.fwd = getattr(running, "fwd", False), True
        try:
            found = self.rule.fwd(*self.rule.joined(self.static, tree.unflatten(leaves, self.spec)))
        finally:
            running.fwd = before
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(
                f"custom_vjp: fwd of {self.rule.name} must return a pair (output, residuals), got {type(found).__name__}"
            )
        output, residuals = found
        outputs, self.outputs = tree.flatten(output)
        kept, self.residuals = tree.flatten(residuals)
        self.plain = [None if isinstance(k, Tensor) else (k,) for k in kept]
        return outputs, kept

    def flat(self, leaves: Any) -> tuple[Any, ...]:
        """Return the output's leaves, then the residuals that are tensors, each a tensor of its own."""
        outputs, kept = self.forward(leaves)
        return (*outputs, *[alias(k) for k in kept if isinstance(k, Tensor)])


class _ReverseRule(Function):
    """A :class:`custom_vjp` on flat tensors; its results are the outputs, then the tensors among the residuals."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: Any, *leaves: Any) -> Any:
        return call.flat(leaves)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        ctx.call, *leaves = inputs
        ctx.inputs = [None if isinstance(v, Tensor) else (v,) for v in leaves]
        residuals = output[ctx.call.outputs.count :]
        ctx.save_for_backward(*[v for v in leaves if isinstance(v, Tensor)], *residuals)
        ctx.save_for_forward(*[v for v in leaves if isinstance(v, Tensor)])
        ctx.mark_non_differentiable(*residuals)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        call = ctx.call
        leaves, residuals = _split(ctx)
        if thread.state.grad:  # the residuals are functions of the arguments, and may be differentiated as such
            kept = call.forward(leaves)[1]
        else:
            tensors = iter(residuals)
            kept = [next(tensors) if p is None else p[0] for p in call.plain]
        cotangent = tree.unflatten(grad_outputs[: call.outputs.count], call.outputs)
        found = call.rule.bwd(*call.static, tree.unflatten(kept, call.residuals), cotangent)
        return (None, *_flat_cotangents(call.rule, found, call.spec))

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        call = ctx.call
        if not call.recorded:
            raise MissingRuleError(
                f"custom_vjp: {call.rule.name} has a reverse rule alone, so it cannot be used in forward mode; give "
                "it a custom_jvp, which serves both"
            )
        leaves, _ = _split(ctx)
        places = [i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.dtype.category >= FLOAT]

        def moved(*floats: Any) -> tuple[Any, ...]:
            full = list(leaves)
            for i, v in zip(places, floats, strict=True):
                full[i] = v
            return call.flat(full)

        return jvp(moved, tuple(leaves[i] for i in places), tuple(grad_inputs[1 + i] for i in places))[1]


def _is_pushed(leaves: list[Any]) -> bool:
    """True if arguments are dual numbers of the innermost level."""
    return isinstance(highest(v for v in leaves if isinstance(v, Tensor)), DualLevel)


def _split(ctx: Any) -> tuple[list[Any], list[Any]]:
    """Return (the arguments, the tensors saved besides)."""
    saved = list(ctx.saved_tensors)
    count = sum(p is None for p in ctx.inputs)
    tensors = iter(saved[:count])
    return [next(tensors) if p is None else p[0] for p in ctx.inputs], saved[count:]


def _flat_cotangents(rule: Any, found: Any, spec: Any) -> list[Any]:
    name = rule.name
    if not isinstance(found, tuple | list) or len(found) != len(spec.children):
        got = f"{len(found)} cotangents" if isinstance(found, tuple | list) else type(found).__name__
        raise TypeError(f"custom_vjp: bwd of {name} must return a tuple of {len(spec.children)} cotangents, got {got}")
    flat: list[Any] = []
    for value, child in zip(found, spec.children, strict=True):
        flat.extend(
            [None] * child.count if value is None else tree.flatten_up_to(child, value, f"custom_vjp: bwd of {name}")
        )
    return flat


class custom_vjp(Structured):  # noqa: N801 - a decorator
    """Decorate a function with a reverse rule of its own.

    ``defvjp(fwd, bwd)`` gives the rule: ``fwd(*args)`` returns (output, residuals), ``bwd(residuals, cotangent)`` a tuple
    with one cotangent per argument (a tree like it, or None for zero). With ``nondiff_argnums`` these arguments come first
    in ``bwd``. Forward mode through it is refused: give ``custom_jvp`` for both.

    Raises:
        DeclarationError: if it is differentiated before a rule was given.

    Example:
        >>> import wengert as wg
        >>> @wg.func.custom_vjp
        ... def clipped(x):
        ...     return x * 1
        >>> clipped.defvjp(lambda x: (x * 1, None), lambda _, g: (g.clamp(-1, 1),))
        >>> wg.func.grad(lambda x: clipped(x) * 5)(wg.tensor(2.0))
        tensor(1.)
    """

    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None
    base = _ReverseRule

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: tuple[int, ...] = ()) -> None:
        super().__init__(fun, nondiff_argnums)
        self.running = threading.local()  # whether this thread is inside fwd

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Give the rule."""
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any) -> Any:
        if self.fwd is None:
            raise DeclarationError(f"custom_vjp: {self.name} was called before defvjp(fwd, bwd) gave its rule")
        static, others = self.split(args)
        leaves, spec = tree.flatten(others)
        if getattr(self.running, "fwd", False) and (not thread.state.grad or _is_pushed(leaves)):
            return self.fun(*args)  # fwd calls the function it belongs to
        call = _Call(self, static, spec, any(isinstance(v, Tensor) and v.requires_grad for v in leaves))
        found = self.function.apply(call, *leaves)
        return tree.unflatten(found[: call.outputs.count], call.outputs)


class _ForwardRule(Function):
    """A :class:`custom_jvp` on flat tensors."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rule: Any, static: Any, spec: Any, holder: Any, *leaves: Any) -> Any:
        outputs, holder["outputs"] = tree.flatten(rule.fun(*rule.joined(static, tree.unflatten(leaves, spec))))
        return tuple(outputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        ctx.rule, ctx.static, ctx.spec, ctx.holder = inputs[:4]
        leaves = inputs[4:]
        ctx.inputs = [None if isinstance(v, Tensor) else (v,) for v in leaves]
        tensors = [v for v in leaves if isinstance(v, Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        leaves, _ = _split(ctx)
        return _pushed(ctx.rule, ctx.static, ctx.spec, leaves, grad_inputs[4:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        leaves, _ = _split(ctx)
        places = [i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.dtype.category >= FLOAT]

        def linear(*tangents: Any) -> tuple[Any, ...]:
            full: list[Any] = [None] * len(leaves)
            for i, t in zip(places, tangents, strict=True):
                full[i] = t
            return _pushed(ctx.rule, ctx.static, ctx.spec, leaves, full)

        _, pull = vjp(linear, *[ops.zeros_like(leaves[i]) for i in places])
        found: list[Any] = [None] * len(leaves)
        for i, g in zip(places, pull(tuple(grad_outputs)), strict=True):
            found[i] = g
        return (None, None, None, None, *found)


def _pushed(rule: Any, static: Any, spec: Any, leaves: list[Any], tangents: Any) -> tuple[Any, ...]:
    """Return the output tangents by the user's rule."""
    filled = [
        ops.zeros_like(v) if t is None and isinstance(v, Tensor) else t for v, t in zip(leaves, tangents, strict=True)
    ]
    primals = tuple(tree.unflatten(leaves, spec))
    found = rule.rule(*static, primals, tuple(tree.unflatten(filled, spec)))
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(f"custom_jvp: the rule of {rule.name} must return a pair (output, tangent)")
    outputs, out_spec = tree.flatten(found[0])
    pushed = tree.flatten_up_to(out_spec, found[1], f"custom_jvp: the tangent of {rule.name}")
    for t in pushed:
        if t is not None and not isinstance(t, Tensor):
            raise TypeError(
                f"custom_jvp: the rule of {rule.name} must give tensors as tangents, got {type(t).__name__}"
            )
    return tuple(ops.zeros_like(o) if t is None else t for o, t in zip(outputs, pushed, strict=True))


class custom_jvp(Structured):  # noqa: N801 - a decorator
    """Decorate a function with a forward rule of its own; reverse mode follows, as the transpose of the rule.

    ``defjvp(rule)`` gives it: ``rule(primals, tangents)`` returns (output, output tangent) and must be linear in the
    tangents (tuples like the arguments). With ``nondiff_argnums`` these arguments come first.

    Raises:
        DeclarationError: if it is called before a rule was given.

    Example:
        >>> import wengert as wg
        >>> @wg.func.custom_jvp
        ... def f(x):
        ...     return x.log1p()
        >>> @f.defjvp
        ... def rule(primals, tangents):
        ...     (x,), (t,) = primals, tangents
        ...     return f(x), t / (1 + x)
        >>> wg.func.grad(f)(wg.tensor(1.0))
        tensor(0.5000)
    """

    rule: Callable[..., Any] | None = None
    base = _ForwardRule

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the rule; return it, so that this decorates."""
        self.rule = rule
        return rule

    def __call__(self, *args: Any) -> Any:
        if self.rule is None:
            raise DeclarationError(f"custom_jvp: {self.name} was called before defjvp gave its rule")
        static, others = self.split(args)
        leaves, spec = tree.flatten(others)
        holder: dict[str, Any] = {}
        found = self.function.apply(self, static, spec, holder, *leaves)
        return tree.unflatten(found, holder["outputs"])


def straight_through(forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that computes ``forward(x)`` and passes derivatives on as if it were the identity.

    Bengio, Léonard, Courville, arXiv:1308.3432, §2: what is done through rounding and sampling.

    Example:
        >>> import wengert as wg
        >>> wg.func.grad(lambda x: wg.func.straight_through(wg.round)(x) * 3)(wg.tensor(1.4))
        tensor(3.)
    """

    def passed(x: Any) -> Any:
        return x + (forward(x) - x).detach()

    return passed


def gradient_reversal(x: Any, scale: float = 1.0) -> Any:
    """Return ``x``; its derivative is ``-scale`` (Ganin, Lempitsky, arXiv:1409.7495: domain-adversarial training).

    Example:
        >>> import wengert as wg
        >>> wg.func.grad(lambda x: wg.func.gradient_reversal(x) * 3)(wg.tensor(1.0))
        tensor(-3.)
    """
    reversed_part = -scale * x
    return reversed_part + (x - reversed_part).detach()
