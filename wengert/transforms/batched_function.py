"""User-defined ``autograd.Function`` on a batch: by its own rule, or by batching its forward, backward and jvp."""

from typing import Any, NamedTuple

from wengert.core.interpret import Level, entered, lifted
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, alias
from wengert.tape.function import Function, rebuilt
from wengert.tape.function_node import Context

__all__ = ["VmapInfo", "batched_call", "given_rule"]


class VmapInfo(NamedTuple):
    """What a Function's ``vmap`` is told: the number of examples, and what random operators do."""

    batch_size: int
    randomness: str


def given_rule(level: Any, function: Any, args: tuple[Any, ...], in_dims: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return (results, their batch dimensions) by the Function's own ``vmap``.

    Raises:
        TypeError: if it returns no such pair.
    """
    found = function.vmap(VmapInfo(level.size, level.randomness), in_dims, *args)
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(f"{function.__name__}.vmap must return a pair (results, out_dims), got {type(found).__name__}")
    output, dims = found
    many = isinstance(output, tuple | list)
    if isinstance(dims, tuple | list) and (not many or len(dims) != len(output)):
        raise ValueError(f"{function.__name__}.vmap: out_dims {dims!r} do not fit the results")
    return output, dims


def batched_call(level: Any, function: Any, args: tuple[Any, ...], batched: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return (results with the batch in front, their batch dimensions) of a Function whose rules are batched themselves."""
    generated = _Generated(type(level), level.size, level.randomness, function, batched)
    made: Any = type(function.__name__, (_Batched,), {"generated": generated})
    output = made.apply(*args)
    return rebuilt(made.output, output), 0


class _Generated:
    """How a Function is run on a batch.

    Args:
        kind, size, randomness: of the level to run at. function: the user's. batched: which arguments have a batch.
    """

    def __init__(self, kind: Any, size: int, randomness: str, function: Any, batched: tuple[Any, ...]) -> None:
        self.kind, self.size, self.randomness = kind, size, randomness
        self.function, self.batched = function, batched

    def level(self) -> Level:
        """Return a new level of the same kind."""
        return self.kind(self.size, self.randomness)


def _wrapped(level: Any, value: Any, batched: Any) -> Any:
    return level.wrap(value, bool(batched)) if isinstance(value, Tensor) else value


def _with_batch(level: Any, value: Any) -> Any:
    """Return a result of the level as a tensor with the batch in front."""
    return lifted(level, value)._payload.whole if isinstance(value, Tensor) else value


def distinct(results: list[Any]) -> tuple[Any, ...]:
    """Return results with a tensor of its own for each: one may be marked non-differentiable, and not its double."""
    found: list[Any] = []
    for t in results:
        found.append(alias(t) if isinstance(t, Tensor) and any(t is f for f in found) else t)
    return tuple(found)


class _Batched(Function):
    """A user's Function on a batch, recorded below the level that batches it; results have the batch in front."""

    generated: _Generated
    output: Any  # what the forward returned last, with None for each result

    @classmethod
    def forward(cls, *args: Any) -> Any:
        made = cls.generated
        level = made.level()
        with entered(level):
            given = [_wrapped(level, a, b) for a, b in zip(args, made.batched, strict=True)]
            output = made.function.forward(*given)
            results = output if isinstance(output, tuple | list) else (output,)
            cls.output = rebuilt(output, [None] * len(results))
            return distinct([_with_batch(level, t) for t in results])

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        made = cls.generated
        level = made.level()
        with entered(level):
            given = tuple(_wrapped(level, a, b) for a, b in zip(inputs, made.batched, strict=True))
            results = tuple(_wrapped(level, t, True) for t in output)
            inner = Context(made.function, given)
            inner.needs_input_grad = ctx.needs_input_grad
            made.function.setup_context(inner, given, rebuilt(cls.output, results))
            ctx.flags = [t is not None and lifted(level, t)._payload.batched for t in inner.to_save]
            ctx.save_for_backward(*[None if t is None else lifted(level, t)._payload.tensor for t in inner.to_save])
            if inner.for_forward is not None:
                ctx.forward_flags = [t is not None and lifted(level, t)._payload.batched for t in inner.for_forward]
                ctx.save_for_forward(
                    *[None if t is None else lifted(level, t)._payload.tensor for t in inner.for_forward]
                )
            ctx.mark_non_differentiable(
                *[o for o, r in zip(output, results, strict=True) if any(r is t for t in inner.non_differentiable)]
            )
            inner.to_save = inner.non_differentiable = ()
            inner.for_forward = None
            ctx.inner = inner
        ctx.set_materialize_grads(inner.materialize)

    @classmethod
    def backward(cls, ctx: Any, *grad_outputs: Any) -> Any:
        made, level = cls.generated, cls.generated.level()
        with entered(level):
            inner = ctx.inner
            inner.to_save = tuple(_wrapped(level, t, b) for t, b in zip(ctx.saved_tensors, ctx.flags, strict=True))
            found = made.function.reverse_rule()(inner, *[_wrapped(level, g, True) for g in grad_outputs])
            listed = found if isinstance(found, tuple | list) else (found,)
            return tuple(_summed(level, g, b) for g, b in zip(listed, made.batched, strict=False))

    @classmethod
    def jvp(cls, ctx: Any, *grad_inputs: Any) -> Any:
        made, level = cls.generated, cls.generated.level()
        with entered(level):
            inner = ctx.inner
            flags = ctx.flags if ctx.for_forward is None else ctx.forward_flags
            inner.to_save = tuple(_wrapped(level, t, b) for t, b in zip(ctx.saved_tensors, flags, strict=True))
            tangents = [_wrapped(level, t, b) for t, b in zip(grad_inputs, made.batched, strict=True)]
            found = made.function.forward_rule()(inner, *tangents)
            return tuple(_with_batch(level, t) for t in (found if isinstance(found, tuple | list) else (found,)))

    generate_vmap_rule = True


def _summed(level: Any, g: Any, batched: Any) -> Any:
    """Return the gradient of an argument: with the batch, or summed over it if the examples share the argument."""
    if not isinstance(g, Tensor):
        return g
    full = _with_batch(level, g)
    return full if batched else ops.sum(full, 0)
