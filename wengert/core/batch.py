"""Batching rules: how an operator runs on a whole batch at once.

A rule is called as ``rule(op, values, batched, size)``. ``values`` are the bound arguments; the tensor arguments whose
position is marked in ``batched`` have the batch in front, as dimension 0, of length ``size``; all else is as the operator
was called for one example. It returns the operator's result with the batch in front (of several results a tuple). What
most operators need has a name, which the declaration gives as ``batch=``:

* ``"broadcast"``: tensors are matched element by element; implied by the element-wise families.
* ``"front"``: a dimension in front changes nothing once axes given as arguments are counted one further.
* :func:`front`: the same, with sizes and other arguments that need more than that.
* :func:`folded`: the batch joins the first dimension of the tensors, which examples share anyway.
* :class:`Body`: the operator as a function of other operators, which have rules of their own.
* ``"refuse"``: the result of one example is no array of a shape known beforehand.
* ``"loop"``: one example after the other. A declaration that means it must say so.

Rules call operators, so that they can be differentiated, nested and captured.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wengert.array.dtype import FLOAT
from wengert.core.apply import common_dtype, execute
from wengert.core.operator import Op, Spec
from wengert.core.registry import ops
from wengert.core.signature import AXES, AXIS, AXIS_OR_NONE, DIMS
from wengert.core.tensor import Tensor
from wengert.errors import TransformError

__all__ = [
    "RULES", "Body", "broadcast", "example_specs", "expanded", "folded", "front", "loop", "of_nothing", "prepended", "shifted",
]  # fmt: skip

Batched = Sequence[Any]


def aligned(tensor: Any, ndim: int) -> Any:
    """Return a batched tensor with dimensions of size 1 after the batch, so that an example has ``ndim`` of them."""
    missing = ndim + 1 - tensor.ndim
    if missing <= 0:
        return tensor
    shape = tensor.shape
    return ops.reshape(tensor, (shape[0], *(1,) * missing, *shape[1:]))


def expanded(tensor: Any, size: int) -> Any:
    """Return a tensor that all examples share with the batch in front, without a copy."""
    return ops.expand(ops.unsqueeze(tensor, 0), (size, *tensor.shape))


def broadcast(op: Op, values: list[Any], batched: Batched, size: int) -> Any:
    """Run an operator that matches its tensors element by element."""
    inputs = op.signature.inputs
    ndim = max((values[i].ndim - bool(batched[i]) for i in inputs if isinstance(values[i], Tensor)), default=0)
    dtype = None if op.promote is None else _dtype(op, values, batched)
    given = list(values)
    for i in inputs:
        if isinstance(given[i], Tensor):
            if dtype is not None and given[i].dtype is not dtype:
                given[i] = ops.cast(given[i], dtype)
            if batched[i]:
                given[i] = aligned(given[i], ndim)
    return execute(op, given)


def _dtype(op: Op, values: list[Any], batched: Batched) -> Any:
    """Return the common dtype of one example's tensors (a batch of numbers must not count as a vector); None: they agree."""
    tensors = [values[i] for i in op.signature.inputs if isinstance(values[i], Tensor)]
    if len({t.dtype for t in tensors}) == 1 and len(tensors) == len(op.signature.inputs):
        return None
    return common_dtype(op, example_specs(values, batched))


def in_front(op: Op, values: list[Any], batched: Batched, size: int) -> list[Any]:
    """Return the arguments with every tensor batched and every axis counted one further.

    Raises:
        Exception: what the operator raises for one example, which the batch in front must not make acceptable.
    """
    op.infer(example_specs(values, batched))
    given = list(values)
    for i, slot in enumerate(op.signature.slots):
        value = given[i]
        if slot.input is not None:
            given[i] = _front_tensor(value, batched[i], size)
        elif slot.param in (AXIS, AXIS_OR_NONE):
            given[i] = None if value is None else value + 1
        elif slot.param in (AXES, DIMS):
            given[i] = tuple(d + 1 for d in value)
    return given


def _front_tensor(value: Any, batched: Any, size: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_front_tensor(v, b, size) for v, b in zip(value, batched, strict=True))
    return value if batched or not isinstance(value, Tensor) else expanded(value, size)


def plain_front(op: Op, values: list[Any], batched: Batched, size: int) -> Any:
    """Run an operator for which a dimension in front changes nothing."""
    return run_in_front(op, in_front(op, values, batched, size), size)


def run_in_front(op: Op, given: list[Any], size: int) -> Any:
    """Run an operator on arguments with the batch in front; numbers that are to have an axis get one for the time."""
    tensors = [given[i] for i in op.signature.inputs if isinstance(given[i], Tensor)]
    if not any(slot.param in (AXIS, AXIS_OR_NONE, AXES) for slot in op.signature.slots) or any(
        t.ndim > 1 for t in tensors
    ):
        return execute(op, given)
    given = [ops.unsqueeze(v, 1) if isinstance(v, Tensor) else v for v in given]
    found = execute(op, given)
    flat = [ops.reshape(t, (size,)) for t in ((found,) if op.single else found)]
    return flat[0] if op.single else tuple(flat)


def front(**changes: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule ``"front"`` in which named arguments are changed as well.

    Args:
        changes: by argument name, a function of (the value, the batch size) that returns the value for the whole batch:
            ``front(size=lambda size, n: (n, *size))``.
    """

    def rule(op: Op, values: list[Any], batched: Batched, size: int) -> Any:
        given = in_front(op, values, batched, size)
        for name, change in changes.items():
            i = op.signature.index[name]
            given[i] = change(given[i], size)
        return run_in_front(op, given, size)

    return rule


def prepended(size: Any, n: int) -> Any:
    """Return a size with the batch in front."""
    return None if size is None else (n, *size)


def shifted(axes: Any, n: int) -> Any:
    """Return axes (one or several, counted from the front) counted one further."""
    return axes + 1 if isinstance(axes, int) else tuple(d + 1 for d in axes)


def folded(*names: str, sizes: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Return the rule of an operator whose tensors ``names`` have a first dimension of independent examples.

    The batch is folded into that dimension, and unfolded in the results. The other tensors must be shared by the
    examples; where they are batched, the rule falls back to ``"loop"``.

    Args:
        names: the tensor arguments with such a dimension. sizes: arguments that are sizes and begin with it.
    """

    def rule(op: Op, values: list[Any], batched: Batched, size: int) -> Any:
        index = op.signature.index
        op.infer(example_specs(values, batched))
        given = list(values)
        for i in op.signature.inputs:
            if op.signature.names[i] not in names and batched[i]:
                return loop(op, values, batched, size)
        for name in names:
            value = given[index[name]]
            if isinstance(value, Tensor):
                value = value if batched[index[name]] else expanded(value, size)
                given[index[name]] = ops.reshape(value, (value.shape[0] * value.shape[1], *value.shape[2:]))
        for name in sizes:
            held = given[index[name]]
            given[index[name]] = (held[0] * size, *held[1:])
        found = execute(op, given)
        unfolded = [
            ops.reshape(t, (size, t.shape[0] // size, *t.shape[1:])) for t in ((found,) if op.single else found)
        ]
        return unfolded[0] if op.single else tuple(unfolded)

    return rule


class Body:
    """The rule of an operator that is run as other operators: a function of its arguments for one example."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def loop(op: Op, values: list[Any], batched: Batched, size: int) -> Any:
    """Run the operator on one example after the other and stack the results."""
    if not size:
        raise ValueError(f"{op.name}() runs one example at a time under vmap, and the batch is empty")
    found = [execute(op, [example(v, b, k) for v, b in zip(values, batched, strict=True)]) for k in range(size)]
    if op.single:
        return ops.stack(found)
    return tuple(ops.stack(list(column)) for column in zip(*found, strict=True))


def example_specs(values: Sequence[Any], batched: Batched) -> list[Any]:
    """Return the arguments as one example has them, with every tensor replaced by its Spec."""

    def one(value: Any, batched: Any) -> Any:
        if isinstance(value, Tensor):
            return Spec(tuple(value.shape)[bool(batched) :], value.dtype)
        if isinstance(value, tuple) and isinstance(batched, tuple):
            return tuple(one(v, b) for v, b in zip(value, batched, strict=True))
        return value

    return [one(v, b) for v, b in zip(values, batched, strict=True)]


def example(value: Any, batched: Any, number: int) -> Any:
    """Return what one example has of an argument."""
    if isinstance(value, tuple) and isinstance(batched, tuple):
        return tuple(example(v, b, number) for v, b in zip(value, batched, strict=True))
    return ops.select(value, 0, number) if batched else value


def of_nothing(op: Op, values: Sequence[Any], batched: Batched) -> tuple[Any, ...]:
    """Return what an operator gives for a batch of no examples: nothing, in the shapes that its spec says.

    Sums of no elements of its arguments are added, so that gradients (zeros) find their way to them.
    """
    specs = op.infer(example_specs(values, batched))
    found = [ops.zeros((0, *s.shape), dtype=s.dtype) for s in ([specs] if op.single else specs)]
    if op.family == "nondifferentiable":
        return tuple(found)
    for i in op.signature.inputs:
        for value in values[i] if isinstance(values[i], tuple) else (values[i],):
            if isinstance(value, Tensor) and value.dtype.category >= FLOAT:
                zero = ops.sum(ops.narrow(ops.reshape(value, (value.numel(),)), 0, 0, 0))
                found = [f + ops.cast(zero, f.dtype) if f.dtype.category >= FLOAT else f for f in found]
    return tuple(found)


def refuse(op: Op, values: list[Any], batched: Batched, size: int) -> Any:
    """Refuse to run on a batch.

    Raises:
        TransformError: always.
    """
    raise TransformError(
        f"{op.name}() cannot run under vmap: the shape of its result depends on the values, so that examples may differ; use "
        "where() or a masked operator"
    )


RULES: dict[str, Callable[..., Any]] = {"broadcast": broadcast, "front": plain_front, "loop": loop, "refuse": refuse}
