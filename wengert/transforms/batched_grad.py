"""``autograd.grad`` with ``is_grads_batched``: the walk of the tape under vmap."""

from typing import Any

from wengert.core.tensor import Tensor
from wengert.tape import api
from wengert.transforms.vmap import vmap

__all__ = ["grad"]


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    allow_unused: bool | None = None, is_grads_batched: bool = False, materialize_grads: bool = False,
) -> Any:  # fmt: skip
    """Return the gradients of ``outputs`` with respect to ``inputs``; ``.grad`` of no tensor changes.

    Args:
        outputs: tensors (or gradient edges). inputs: the tensors to differentiate by; a dictionary gives a dictionary.
        grad_outputs: the cotangents of the outputs; scalars may leave theirs out (then 1).
        retain_graph, create_graph: as in :func:`wengert.autograd.backward`.
        is_grads_batched: the cotangents have a batch in dimension 0; so have the gradients then.
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
    options: Any = (retain_graph, create_graph, allow_unused, materialize_grads)
    if not is_grads_batched:
        return api.grad(outputs, inputs, grad_outputs, *options)
    listed = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or ())
    given = [g for g in listed if g is not None]
    if not given:
        raise ValueError("grad(is_grads_batched=True) needs grad_outputs with the batch in dimension 0")
    missing: list[bool] = []

    def one(*cotangents: Any) -> Any:
        rest = iter(cotangents)
        full = [None if g is None else next(rest) for g in listed]
        found = api.grad(outputs, inputs, full, True if retain_graph is None else retain_graph, *options[1:])
        values = tuple(found.values()) if isinstance(found, dict) else found
        missing[:] = [g is None for g in values]
        return tuple(g for g in values if g is not None)

    rows = iter(vmap(one, randomness="different")(*given))
    found = tuple(None if gone else next(rows) for gone in missing)
    return dict(zip(inputs, found, strict=True)) if isinstance(inputs, dict) else found
