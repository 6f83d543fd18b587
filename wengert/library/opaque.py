"""How the tape and the transforms see an operator made by ``custom_op``: as an ``autograd.Function`` of its own."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from wengert.core.batch import example
from wengert.core.place import stacklevel
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import MissingRuleError, ShapeError
from wengert.tape.function import Function

__all__ = ["Opaque", "grouped"]


def grouped(counts: tuple[Any, ...], flat: Any) -> list[Any]:
    """Return the arguments of a call, sequences put together again."""
    rest = iter(flat)
    return [next(rest) if n is None else [next(rest) for _ in range(n)] for n in counts]


class Opaque(Function):
    """How the tape sees a custom operator; each has a subclass of its own.

    It is applied to the lengths of the sequences among the arguments, then the arguments, sequences spread out.
    """

    owner: Any  # the CustomOpDef
    rule: Any = None
    context_rule: Any = None
    push_rule: Any = None
    batch_rule: Any = None
    warned = False

    @classmethod
    def forward(cls, counts: tuple[Any, ...], *flat: Any) -> Any:
        """Run the operator's function."""
        return cls.owner.invoke(counts, flat)

    @classmethod
    def split(cls, counts: tuple[Any, ...], flat: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return (positional, keyword-only) arguments of a call."""
        signature, values = cls.owner.op.signature, grouped(counts, flat)
        at = signature.positional
        return tuple(values[:at]), dict(zip(signature.names[at:], values[at:], strict=True))

    @classmethod
    @contextmanager
    def as_user_sees(cls, ctx: Any) -> Iterator[None]:
        """Give the context's ``needs_input_grad`` the structure of the positional arguments for a while."""
        before = ctx.needs_input_grad
        ctx.needs_input_grad = cls.split(ctx.counts, before[1:])[0]
        try:
            yield
        finally:
            ctx.needs_input_grad = before

    @classmethod
    def results(cls, found: Any) -> Any:
        """Return results (or their gradients) as the user's function returns them: of a list, a list."""
        return list(found) if cls.owner.returns_list else found

    @classmethod
    def setup_context(cls, ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Let the registered ``setup_context`` save what backward needs."""
        ctx.counts = inputs[0]
        if cls.context_rule is None:
            return
        args, kwargs = cls.split(inputs[0], inputs[1:])
        with cls.as_user_sees(ctx):
            if kwargs:
                cls.context_rule(ctx=ctx, inputs=args, keyword_only_inputs=kwargs, output=cls.results(output))
            else:
                cls.context_rule(ctx, args, cls.results(output))

    @classmethod
    def backward(cls, ctx: Any, *grad_outputs: Any) -> Any:
        """Run the registered backward; return one gradient per tensor.

        Raises:
            RuntimeError: if it returns something else than one gradient per argument.
        """
        with cls.as_user_sees(ctx):
            found = cls.rule(ctx, list(grad_outputs)) if cls.owner.returns_list else cls.rule(ctx, *grad_outputs)
        listed = found if isinstance(found, tuple) else (found,)
        expected = cls.owner.op.signature.positional
        if len(listed) != expected:
            raise RuntimeError(
                f"the backward of {cls.owner.name} returned {len(listed)} gradients for {expected} positional arguments; "
                "return one for each, None for those without"
            )
        flat: list[Any] = [None]
        for i, (g, n) in enumerate(zip((*listed, *(None,) * len(ctx.counts)), ctx.counts, strict=False)):
            flat.extend([g] if n is None else cls._spread(i, g, n))
        return tuple(flat)

    @classmethod
    def _spread(cls, place: int, g: Any, count: int) -> Any:
        """Return the gradients of a sequence of tensors one by one."""
        if g is None:
            return [None] * count
        if not isinstance(g, list | tuple) or len(g) != count:
            what = f"{len(g)} gradients" if isinstance(g, list | tuple) else type(g).__name__
            raise RuntimeError(
                f"the backward of {cls.owner.name} returned {what} for '{cls.owner.op.signature.names[place]}', which is a "
                f"sequence of {count} tensors; return a list of {count}"
            )
        return g

    @classmethod
    def jvp(cls, ctx: Any, *grad_inputs: Any) -> Any:
        """Run the registered forward-mode rule.

        Raises:
            MissingRuleError: if there is none.
        """
        if cls.push_rule is None:
            raise MissingRuleError(
                f"{cls.owner.name} has no forward-mode derivative; register_autograd(backward, jvp=...)"
            )
        with cls.as_user_sees(ctx):
            found = cls.push_rule(ctx, *cls.split(ctx.counts, grad_inputs[1:])[0])
        return tuple(found) if isinstance(found, list) else found

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], counts: Any, *flat: Any) -> Any:
        """Run the registered batching rule, or one example after the other."""
        if cls.batch_rule is None:
            return cls._loop(info, in_dims[1:], counts, flat)
        args, kwargs = cls.split(counts, flat)
        dims, named = cls.split(counts, in_dims[1:])
        for name, dim in named.items():
            if dim is not None:
                raise ValueError(f"{cls.owner.name}(): keyword-only argument '{name}' cannot have a batch under vmap")
        found = cls.batch_rule(info, dims, *args, **kwargs)
        cls._check_batch(info, found)
        return tuple(found[0]) if isinstance(found[0], list) else found[0], found[1]

    @classmethod
    def _check_batch(cls, info: Any, found: Any) -> None:
        """Refuse what a batching rule must not return: no pair, or results without the batch where it says."""
        name = f"the register_vmap rule of {cls.owner.name}"
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"{name} must return a pair (results, out_dims), got {type(found).__name__}")
        results = found[0] if isinstance(found[0], tuple | list) else (found[0],)
        dims = found[1] if isinstance(found[1], tuple | list) else (found[1],) * len(results)
        if len(dims) != len(results):
            raise ValueError(f"{name} returned {len(results)} results and {len(dims)} out_dims")
        for r, d in zip(results, dims, strict=True):
            if not isinstance(r, Tensor):
                raise TypeError(f"{name} must return tensors, got {type(r).__name__}")
            if d is not None and not (-r.ndim <= d < r.ndim and r.shape[d] == info.batch_size):
                raise ShapeError(
                    f"{name} says that dimension {d} of a result counts the {info.batch_size} examples; the result has shape "
                    f"{tuple(r.shape)}"
                )

    @classmethod
    def _loop(cls, info: Any, dims: tuple[Any, ...], counts: Any, flat: tuple[Any, ...]) -> Any:
        if not cls.warned:
            cls.warned = True
            warnings.warn(
                f"{cls.owner.name} has no batching rule: vmap runs it {info.batch_size} times, one example after the other; "
                "give it one with register_vmap",
                stacklevel=stacklevel(),
            )
        if not info.batch_size:
            raise ShapeError(f"{cls.owner.name}() runs one example at a time under vmap, and the batch is empty")
        found = [cls.apply(counts, *[example(v, d is not None, k) for v, d in zip(flat, dims, strict=True)])
                 for k in range(info.batch_size)]  # fmt: skip
        if isinstance(found[0], Tensor):
            return ops.stack(found), 0
        return tuple(ops.stack(list(column)) for column in zip(*found, strict=True)), (0,) * len(found[0])
