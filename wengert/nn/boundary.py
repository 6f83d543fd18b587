"""The boundary of a module on the tape: where the gradients of its inputs and outputs pass, for backward hooks.

Inputs and outputs go through identity Functions whose backward calls the hooks. An input is handed to ``forward`` as
another tensor on the same memory, so that only what the module itself does with it counts. An output stays the object
it is and is given a new node. Neither is a view, so both may be changed in place: if forward changes an input, the
caller's tensor takes over the new history.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from wengert.core.inplace import rehistory
from wengert.core.node import Leaf
from wengert.core.state import thread
from wengert.core.tensor import Tensor, View, alias
from wengert.tape.function import Function

__all__ = ["Boundary"]

Hook = Callable[..., Any]
Grads = tuple[Any, ...]


class ModuleInput(Function):
    """The identity on the inputs; its backward calls the backward hooks."""

    @staticmethod
    def forward(ctx: Any, boundary: "Boundary", *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors, each on a node of its own."""
        ctx.boundary = boundary
        ctx.set_materialize_grads(False)
        return tuple(map(alias, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Grads:
        """Pass on what the hooks leave of the gradients."""
        return (None, *ctx.boundary.reached_inputs(grads))


class ModuleOutput(Function):
    """The identity on the outputs; its backward calls the backward pre-hooks."""

    @staticmethod
    def forward(ctx: Any, boundary: "Boundary", *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors, each on a node of its own."""
        ctx.boundary = boundary
        ctx.set_materialize_grads(False)
        return tuple(map(alias, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Grads:
        """Pass on what the pre-hooks leave of the gradients."""
        return (None, *ctx.boundary.reached_outputs(grads))


class Boundary:
    """The two sides of one call of a module, and the hooks to call when backward passes them."""

    def __init__(self, module: Any, pre_hooks: dict[int, Hook], hooks: dict[int, Hook]) -> None:
        self.module, self.pre_hooks, self.hooks = module, tuple(pre_hooks.values()), tuple(hooks.values())
        self.inputs: list[int] = []  # the positions of the wrapped tensors among all inputs, and how many there are
        self.input_count = 0
        self.outputs: list[int] = []
        self.output_count = 0
        self.grad_outputs: Grads | None = None

    @staticmethod
    def around(module: Any, pre_hooks: dict[int, Hook], hooks: dict[int, Hook]) -> "Boundary | None":
        """Return a boundary if there is a hook and the call is recorded."""
        return Boundary(module, pre_hooks, hooks) if (pre_hooks or hooks) and thread.state.grad else None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """Run forward behind the boundary; return the arguments it saw and its result."""
        names = [name for name, value in kwargs.items() if isinstance(value, Tensor)]
        given = [*args, *(kwargs[name] for name in names)]
        self.input_count = len(given)
        self.inputs = _tracked(given) if self.hooks else []
        originals = [given[i] for i in self.inputs]
        if originals:
            inside = ModuleInput.apply(self, *originals)
            nodes = [tensor._node for tensor in inside]
            for position, original, tensor in zip(self.inputs, originals, inside, strict=True):
                given[position] = _guarded(tensor, original)
        kwargs = {**kwargs, **dict(zip(names, given[len(args) :], strict=True))}
        args = tuple(given[: len(args)])
        result = self.module.forward(*args, **kwargs)
        if originals:
            for original, tensor, node in zip(originals, inside, nodes, strict=True):
                if tensor._node is not node:
                    rehistory(original, tensor)  # forward changed the input in place
        return args, kwargs, result

    def leave(self, result: Any) -> Any:
        """Put the boundary behind the tensors of a result: a tensor, or a tuple, list or dictionary of them."""
        values = [*result.values()] if isinstance(result, dict) else result
        listed = [values] if isinstance(values, Tensor) else list(values) if isinstance(values, tuple | list) else []
        if not any(isinstance(value, Tensor) for value in listed):
            warnings.warn(
                f"the backward hooks of {type(self.module).__name__} cannot be called: its output, a "
                f"{type(result).__name__}, is neither a tensor nor a tuple, list or dictionary with tensors",
                stacklevel=4,
            )
            return result
        self.output_count = len(listed)
        self.outputs = _tracked(listed)
        if self.outputs:
            outside = ModuleOutput.apply(self, *(listed[i] for i in self.outputs))
            for position, tensor in zip(self.outputs, outside, strict=True):
                listed[position] = _spliced(listed[position], tensor)
        return _rebuilt(result, listed)

    def reached_outputs(self, grads: Grads) -> Grads:
        """Call the pre-hooks with the gradients of the outputs; without inputs to wait for, the hooks too."""
        grad_outputs = _spread(grads, self.outputs, self.output_count)
        for hook in self.pre_hooks:
            grad_outputs = _replaced(hook(self.module, grad_outputs), grad_outputs, "backward pre-hook", "outputs")
        if self.inputs:
            self.grad_outputs = grad_outputs
        else:
            for hook in self.hooks:
                if hook(self.module, (None,) * self.input_count, grad_outputs) is not None:
                    raise RuntimeError(
                        f"a backward hook of {type(self.module).__name__} returned gradients, but no input requires one"
                    )
        return tuple(grad_outputs[i] for i in self.outputs)

    def reached_inputs(self, grads: Grads) -> Grads:
        """Call the hooks with the gradients of the inputs and return what they leave."""
        if self.grad_outputs is None:  # backward began inside the module
            return grads
        grad_inputs = _spread(grads, self.inputs, self.input_count)
        for hook in self.hooks:
            new = hook(self.module, grad_inputs, self.grad_outputs)
            grad_inputs = _replaced(new, grad_inputs, "backward hook", "inputs")
        self.grad_outputs = None
        return tuple(grad_inputs[i] for i in self.inputs)


def _tracked(values: Sequence[Any]) -> list[int]:
    """The positions of the tensors whose gradient is wanted."""
    return [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]


def _guarded(tensor: Any, original: Any) -> Any:
    """Return the inner tensor of an input; one on a leaf is a view of it, so that writing to it is refused."""
    if isinstance(original._node, Leaf):
        tensor._view = View(original, (), None)
    return tensor


def _spliced(output: Any, outside: Any) -> Any:
    """Return the output on its new node; a leaf keeps its own node and is replaced by a view of it."""
    if isinstance(output._node, Leaf):
        return _guarded(outside, output)
    output._node = outside._node
    return output


def _rebuilt(result: Any, values: list[Any]) -> Any:
    if isinstance(result, Tensor):
        return values[0]
    if isinstance(result, dict):
        return type(result)(zip(result, values, strict=True))
    return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)


def _spread(grads: Grads, positions: Sequence[int], count: int) -> Grads:
    """The gradients at their positions among ``count`` values, None elsewhere."""
    full: list[Any] = [None] * count
    for position, grad in zip(positions, grads, strict=True):
        full[position] = grad
    return tuple(full)


def _replaced(new: Any, old: Grads, what: str, side: str) -> Grads:
    """What a hook gave in place of ``old``; None keeps it."""
    if new is None:
        return old
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != len(old):
        raise RuntimeError(f"a {what} returned {len(new)} gradients; the module has {len(old)} {side}")
    return new
