"""``backward`` and ``grad``: PyTorch's functions on the tape."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT
from wengert.core.methods import attach
from wengert.core.node import Leaf, Node, Output
from wengert.core.place import here
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, node_of
from wengert.errors import DTypeError, ShapeError
from wengert.tape import hooks
from wengert.tape.walk import Walk

__all__ = ["GradientEdge", "backward", "get_gradient_edge", "grad"]


class GradientEdge:
    """A place in the graph where a gradient arrives, without the tensor: usable as an output or input of :func:`grad`.

    Attributes:
        node: the record of the operator. output_nr: which of its results.
    """

    __slots__ = ("node", "output_nr", "point")

    def __init__(self, point: Node) -> None:
        self.point = point
        self.node = point.inputs[0] if isinstance(point, Output) else point
        self.output_nr = point.index if isinstance(point, Output) else 0


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Return the place where the gradient of ``tensor`` arrives.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(3.0, requires_grad=True)
        >>> y = x * x
        >>> edge = wg.autograd.graph.get_gradient_edge(y)
        >>> z = y.sin()
        >>> (grad,) = wg.autograd.grad(z, edge)
        >>> bool(wg.allclose(grad, y.detach().cos()))
        True
    """
    return GradientEdge(hooks.required_node(tensor, "get the gradient edge of"))


def _sequence(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Tensor | GradientEdge):
        return [value]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, Sequence):
        return list(value)
    return list(value) if hasattr(value, "__iter__") else [value]


def _point(value: Any, what: str) -> Node:
    if isinstance(value, GradientEdge):
        return value.point
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} must be tensors, got {type(value).__name__}")
    node = node_of(value)
    if node is None:
        hint = "an integer tensor carries none" if value.dtype.category < FLOAT else (
            "no operator that made it was recorded: was it computed under no_grad(), from detached tensors or from inputs "
            "that do not require grad?"
        )  # fmt: skip
        raise RuntimeError(
            f"{what}: a tensor of shape {tuple(value.shape)} does not require grad and has no grad_fn; {hint}"
        )
    return node


def _cotangents(outputs: list[Any], given: Any, name: str) -> list[Any]:
    """Return one checked cotangent per output; a scalar output may leave it out."""
    listed = [None] * len(outputs) if given is None else [given] if isinstance(given, Tensor) else list(given)
    if len(listed) != len(outputs):
        raise RuntimeError(
            f"got {len(outputs)} outputs but {len(listed)} {name}; give one per output (None for scalars)"
        )
    found = []
    for output, g in zip(outputs, listed, strict=True):
        node = _point(output, "backward")
        shape, dtype = node.shape, node.dtype
        if g is None:
            if math.prod(shape) != 1:
                raise RuntimeError(
                    f"grad can be created implicitly only for scalar outputs; this one has shape {tuple(shape)}: "
                    f"reduce it (for instance .sum()) or give {name}"
                )
            if dtype.kind == "c":
                raise RuntimeError(f"grad can be created implicitly only for real scalar outputs; give {name}")
            g = from_array(np.ones(shape, dtype))
        elif not isinstance(g, Tensor):
            raise TypeError(f"{name} must be tensors or None, got {type(g).__name__}")
        elif g._payload.shape != shape:
            raise ShapeError(f"{name}: a cotangent has shape {tuple(g.shape)}, its output has shape {tuple(shape)}")
        elif g._payload.dtype != dtype:
            if (g._payload.dtype.kind == "c") != (dtype.kind == "c"):
                raise DTypeError(f"{name}: a cotangent has dtype {g.dtype}, its output is {dtype}")
            g = ops.cast(g, dtype)
        found.append(g)
    return found


def _refuse_inference() -> None:
    if thread.state.inference:
        raise RuntimeError("backward inside inference_mode() is not possible: nothing is recorded there; use no_grad()")


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate into ``.grad`` of the leaves the gradient of ``tensors``.

    Args:
        tensors: one tensor or several. grad_tensors: their cotangents; a scalar may leave it out (then 1).
        retain_graph: keep the graph for another backward (default: the value of ``create_graph``).
        create_graph: record the gradients, so that they can be differentiated again.
        inputs: accumulate into these tensors only.

    Raises:
        RuntimeError: if a tensor has no graph, is no scalar and has no cotangent, or its graph was freed.
        InplaceError: if a saved tensor was changed in place since.
    """
    _refuse_inference()
    outputs = _sequence(tensors)
    cotangents = _cotangents(outputs, grad_tensors, "grad_tensors")
    targets: dict[Node, Any] | None = None
    if inputs is not None:
        listed = _sequence(inputs)
        if not listed:
            raise RuntimeError("backward(inputs=…) needs at least one tensor, got an empty sequence")
        targets = {_point(t, "inputs"): t for t in listed}
    walk = Walk(
        keep=create_graph if retain_graph is None else retain_graph, create=create_graph, place=here(1),
        targets=None if targets is None else set(targets), into_leaves=True,
    )  # fmt: skip
    captured = walk.run([(_point(o, "backward"), g) for o, g in zip(outputs, cotangents, strict=True)])
    for node, g in captured.items():
        tensor = targets[node] if targets is not None else None
        if isinstance(tensor, Tensor) and not isinstance(node, Leaf):
            tensor._grad = ops.clone(g) if tensor._grad is None else ops.add(tensor._grad, g)


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    allow_unused: bool | None = None, materialize_grads: bool = False,
) -> Any:  # fmt: skip
    """Return the gradients of ``outputs`` with respect to ``inputs``; ``.grad`` of no tensor changes.

    Args:
        outputs: tensors (or gradient edges). inputs: the tensors to differentiate by; a dictionary gives a dictionary.
        grad_outputs: the cotangents of the outputs; scalars may leave theirs out (then 1).
        retain_graph, create_graph: as in :func:`backward`.
        allow_unused: give None for an input that no output depends on, instead of an error.
        materialize_grads: give zeros for such an input.

    Returns:
        A tuple, one gradient per input.

    Raises:
        RuntimeError: for an input that does not require grad, or that is unused and not allowed to be.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor(3.0, requires_grad=True)
        >>> wg.autograd.grad(x * x, x)
        (tensor(6.),)
    """
    _refuse_inference()
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads=True gives zeros for unused inputs, so allow_unused cannot be False")
    allow = bool(materialize_grads if allow_unused is None else allow_unused)
    listed = _sequence(inputs)
    roots = _sequence(outputs)
    points = [_point(t, "inputs") for t in listed]
    cotangents = _cotangents(roots, grad_outputs, "grad_outputs")
    walk = Walk(
        keep=create_graph if retain_graph is None else retain_graph, create=create_graph, place=here(1),
        targets=set(points), into_leaves=False,
    )  # fmt: skip
    captured = walk.run([(_point(o, "outputs"), g) for o, g in zip(roots, cotangents, strict=True)])
    found = [_result(captured.get(point), t, i, allow, materialize_grads)
             for i, (point, t) in enumerate(zip(points, listed, strict=True))]  # fmt: skip
    return dict(zip(inputs, found, strict=True)) if isinstance(inputs, dict) else tuple(found)


def _result(g: Any, tensor: Any, index: int, allow: bool, materialize: bool) -> Any:
    if g is not None:
        return g
    if materialize and isinstance(tensor, Tensor):
        return from_array(np.zeros(tensor._payload.shape, tensor._payload.dtype))
    if not allow:
        raise RuntimeError(
            f"input {index} of grad() was not used to compute the outputs; leave it out, or pass allow_unused=True to get "
            "None (materialize_grads=True to get zeros)"
        )
    return None


def tensor_backward(
    self: Any, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Accumulate into ``.grad`` of the leaves the gradient of this tensor. See :func:`wengert.autograd.backward`."""
    backward([self], None if gradient is None else [gradient], retain_graph, create_graph, inputs)


def install() -> None:
    """Attach what the tape adds to tensors and nodes."""
    attach("backward", tensor_backward)
    attach("register_hook", hooks.register_hook)
    attach("register_post_accumulate_grad_hook", hooks.register_post_accumulate_grad_hook)
    attach("retain_grad", hooks.retain_grad)
    attach("retains_grad", property(hooks.retains_grad))
    Node.register_hook = hooks.node_register_hook  # type: ignore[attr-defined]
    Node.register_prehook = hooks.node_register_prehook  # type: ignore[attr-defined]


install()
