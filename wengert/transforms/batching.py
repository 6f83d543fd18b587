"""Batching: a tensor of a :class:`BatchLevel` is one example, its payload all of them.

The payload's tensor, of a level below, has the batch in front as dimension 0; a constant has none. An operator's batching
rule (see :mod:`wengert.core.batch`) runs it on the whole batch.
"""

from typing import Any

from wengert.core.apply import execute
from wengert.core.batch import RULES, Body, expanded, of_nothing
from wengert.core.interpret import Level, Payload, lifted, owned_like, wrapped
from wengert.core.operator import Op
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import MissingRuleError, ShapeError, TransformError
from wengert.tape.function import Function, rebuilt
from wengert.transforms.batched_function import batched_call, given_rule

__all__ = ["BatchLevel", "Batched"]


class Batched(Payload):
    """All examples of a tensor.

    Attributes:
        tensor: of a level below; ``batched`` says whether its dimension 0 is the batch or whether all examples share it.
    """

    __slots__ = ("batched", "tensor")

    level: "BatchLevel"

    def __init__(self, tensor: Any, batched: bool, level: "BatchLevel") -> None:
        self.tensor, self.batched, self.level = tensor, batched, level
        held = tensor._payload
        self.shape, self.dtype = held.shape[1:] if batched else held.shape, held.dtype

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.tensor,)

    @property
    def whole(self) -> Any:
        """The tensor of all examples with the batch in front, also where they share it."""
        return self.tensor if self.batched else expanded(self.tensor, self.level.size)

    @property
    def strides(self) -> Any:
        """The strides of one example's memory."""
        strides = self.tensor._payload.strides
        return strides[1:] if self.batched else strides

    def values(self, what: str) -> Any:
        """Return the array of a constant; refuse for a batch.

        Raises:
            TransformError: for a batch: one example has no values of its own.
        """
        self.check_alive()
        if self.batched:
            raise TransformError(self.level.refusal(what))
        held = self.tensor._payload
        return held.values(what) if isinstance(held, Payload) else held

    def exported(self, what: str) -> Any:
        """Return the array of a constant; refuse for a batch."""
        self.check_alive()
        if self.batched:
            raise TransformError(self.level.refusal(what))
        return self.tensor.numpy()

    def detached(self) -> "Batched":
        """Return the payload without history."""
        return Batched(ops.detach(self.tensor), self.batched, self.level)

    def __repr__(self) -> str:
        if not self.batched:
            return f"Batched(no batch, {self.tensor!r})"
        return f"Batched({self.level.size} examples of shape {tuple(self.shape)}, {self.tensor!r})"


class BatchLevel(Level):
    """One run of vmap.

    Args:
        size: the number of examples. randomness: "error", "different" or "same": what random operators do.
    """

    title = "vmap"

    def __init__(self, size: int, randomness: str = "error") -> None:
        super().__init__()
        self.size, self.randomness = size, randomness

    def run(self, op: Op, values: list[Any]) -> tuple[Any, ...]:
        inputs = op.signature.inputs
        below = [_below(v) if i in inputs else v for i, v in enumerate(values)]
        batched = [_is_batched(v) if i in inputs else False for i, v in enumerate(values)]
        if not any(any(b) if isinstance(b, tuple) else b for b in batched):
            found = execute(op, below)
            return tuple(self.wrap(t, False) for t in ((found,) if op.single else found))
        if not self.size and op.batch != "refuse":
            return tuple(self.wrap(t, True) for t in of_nothing(op, below, batched))
        if isinstance(op.batch, Body):
            return self._run_body(op, below, batched)
        rule = RULES.get(op.batch, op.batch)
        if rule is None:
            raise MissingRuleError(
                f"{op.name}() has no batching rule, so vmap cannot run it; declare batch= (batch='loop' runs one example at "
                "a time)"
            )
        found = rule(op, below, batched, self.size)
        return tuple(self.wrap(t, True) for t in ((found,) if op.single else found))

    def _run_body(self, op: Op, below: list[Any], batched: list[Any]) -> tuple[Any, ...]:
        given = [self._rewrapped(v, b) for v, b in zip(below, batched, strict=True)]
        found = op.batch.function(*given)
        return tuple(self._rewrapped(lifted(self, t)._payload.tensor, lifted(self, t)._payload.batched)
                     for t in ((found,) if op.single else found))  # fmt: skip

    def _rewrapped(self, value: Any, batched: Any) -> Any:
        """Return an argument as a tensor of this level without history of this level."""
        if isinstance(value, tuple):
            flags = batched if isinstance(batched, tuple) else (False,) * len(value)
            return tuple(self._rewrapped(v, b) for v, b in zip(value, flags, strict=True))
        return self.wrap(value, batched) if isinstance(value, Tensor) else value

    def call_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        batched = tuple(a._payload.batched if isinstance(a, Tensor) else None for a in args)
        below = tuple(_below(a) if isinstance(a, Tensor) else a for a in args)
        if not any(batched):
            output, dims = function.apply(*below), None
        elif function.generate_vmap_rule:
            _check_generated(function)
            output, dims = batched_call(self, function, below, batched)
        elif function.vmap is not Function.vmap:
            output, dims = given_rule(self, function, below, tuple(0 if b else None for b in batched))
        else:
            raise MissingRuleError(
                f"{function.__name__} has no vmap(info, in_dims, *args), so it cannot be used under vmap; define it, or set "
                "generate_vmap_rule = True to have its forward and backward batched themselves"
            )
        results = output if isinstance(output, tuple | list) else (output,)
        listed = dims if isinstance(dims, tuple | list) else (dims,) * len(results)
        name = function.__name__
        return rebuilt(output, [self._placed(t, d, name) for t, d in zip(results, listed, strict=True)])

    def _placed(self, value: Any, dim: Any, name: str) -> Any:
        if not isinstance(value, Tensor):
            return value
        if dim is not None and not (
            type(dim) is int and -value.ndim <= dim < value.ndim and value.shape[dim] == self.size
        ):
            raise ShapeError(
                f"{name}.vmap: out_dims says {dim!r} for a result of shape {tuple(value.shape)}, which is no dimension of "
                f"{self.size} examples"
            )
        return self.wrap(value if not dim else ops.movedim(value, dim, 0), dim is not None)

    def wrap(self, tensor: Any, batched: bool) -> Any:
        """Return a tensor of this level."""
        return wrapped(Batched(tensor, batched, self))

    def lift(self, tensor: Any) -> Any:
        return self.wrap(tensor, False)

    def stacked(self, tensor: Any) -> Any:
        return self.wrap(tensor, True)

    def drawing(self, name: str) -> int | None:
        if self.randomness == "error":
            raise TransformError(
                f"{name}() draws random numbers under vmap, which was not told what the examples get: pass "
                "randomness='different' to vmap for numbers of their own, or randomness='same' for the same ones"
            )
        return self.size if self.randomness == "different" else None

    def owned(self, tensor: Any, source: Any) -> Any:
        held = source._payload
        below = owned_like(tensor, held.tensor)
        if not held.batched:
            return below
        return self.wrap(ops.clone(expanded(below, self.size)), True)

    def write(self, name: str, tensor: Any, result: Any) -> None:
        target, source = tensor._payload, result._payload
        if source.batched and not target.batched:
            raise TransformError(self._cannot_write(name, target))
        ops.copy_(target.tensor, source.tensor)

    def admit(self, name: str, tensor: Any, source: Any) -> None:
        raise TransformError(self._cannot_write(name, tensor._payload))

    def _cannot_write(self, name: str, target: Any) -> str:
        return (
            f"{name}(): under vmap, values of {self.size} examples cannot be written into a tensor of shape "
            f"{tuple(target.shape)} that all examples share. Make it from a tensor of the example, such as "
            "x.new_zeros(...) or wengert.zeros_like(x), or compute out of place"
        )

    def refusal(self, what: str) -> str:
        return (
            f"{what} needs one value, but under vmap the tensor stands for {self.size} examples at once. Use an operator in "
            "its place: where or func.cond for a branch, func.while_loop for a loop, a masked operator for a selection"
        )


def _check_generated(function: Any) -> None:
    """Refuse to batch a Function whose rules cannot be.

    Raises:
        RuntimeError: if it has a ``vmap`` of its own besides. MissingRuleError: if it has no ``setup_context``.
    """
    if function.vmap is not Function.vmap:
        raise RuntimeError(f"{function.__name__} defines vmap and sets generate_vmap_rule = True; keep one of them")
    if not function.has_setup_context():
        raise MissingRuleError(
            f"{function.__name__} sets generate_vmap_rule = True, for which it must define setup_context(ctx, inputs, "
            "output), with forward(*args) without ctx"
        )


def _below(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_below(v) for v in value)
    return value._payload.tensor if isinstance(value, Tensor) else value


def _is_batched(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_is_batched(v) for v in value)
    return value._payload.batched if isinstance(value, Tensor) else False
