"""Keeping gradients within bounds, by their joint norm or element by element."""

import math
from collections.abc import Iterable
from typing import Any

from wengert.array.dtype import float32
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.tape.modes import no_grad

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

Tensors = Tensor | Iterable[Tensor]


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Tensors) -> list[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Return the norm of all elements of all tensors, seen as one vector.

    Squares that would overflow or vanish are avoided, so the norm is finite whenever it can be represented; halves
    are accumulated in float32.

    Args:
        norm_type: p of the p-norm; ``inf`` for the largest absolute value.
        error_if_nonfinite: refuse a norm that is NaN or infinite. foreach: accepted for PyTorch's sake.

    Raises:
        RuntimeError: for a norm that is not finite, if ``error_if_nonfinite``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.get_total_norm([wg.tensor([3.0]), wg.tensor([4.0])])
        tensor(5.)
    """
    found = _listed(tensors)
    if not found:
        return ops.tensor(0.0)
    p = float(norm_type)
    with no_grad():
        total = _norm(found, p)
        if p != math.inf and not _is_usual(total):
            total = _scaled_norm(found, p, total)
    if error_if_nonfinite and not bool(ops.isfinite(total)):
        raise RuntimeError(
            f"the total norm of order {norm_type} of the gradients is {total.item()}, so they cannot be clipped; find "
            "the operator with wengert.autograd.detect_anomaly(), or pass error_if_nonfinite=False to go on anyway"
        )
    return total


def _is_usual(norm: Any) -> bool:
    """Whether a norm is positive and finite. A program that is captured asks for no more than that."""
    if thread.state.captures is None:
        return bool(0 < norm.item() < math.inf)
    return bool(ops.logical_and(norm > 0, norm < math.inf))


def _norm(tensors: list[Any], p: float) -> Any:
    norms = [ops.linalg_vector_norm(t, p, dtype=float32 if t.dtype.itemsize == 2 else None) for t in tensors]
    if len(norms) == 1:
        return norms[0]
    widest = max((n.dtype for n in norms), key=lambda dtype: dtype.itemsize)
    return ops.linalg_vector_norm(ops.stack([n.to(widest) for n in norms]), p)


def _scaled_norm(tensors: list[Any], p: float, plain: Any) -> Any:
    """The norm computed from elements divided by the largest one; ``plain`` if that is 0 or not finite."""
    largest = _norm(tensors, math.inf)
    if not _is_usual(largest):
        return plain
    return largest * _norm([t / largest.to(t.dtype) for t in tensors], p)


def clip_grads_with_norm_(parameters: Tensors, max_norm: float, total_norm: Any, foreach: bool | None = None) -> None:
    """Scale the gradients of ``parameters`` by max_norm / (total_norm + 1e-6), if that is below 1, in place.

    Example:
        >>> import wengert as wg
        >>> w = wg.ones(2, requires_grad=True)
        >>> w.grad = wg.tensor([3.0, 4.0])
        >>> wg.nn.utils.clip_grads_with_norm_([w], 1.0, wg.nn.utils.get_total_norm([w.grad]))
        >>> w.grad
        tensor([0.6000, 0.8000])
    """
    with no_grad():
        factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in _grads(parameters):
            grad.mul_(factor.to(grad.dtype))


def clip_grad_norm_(
    parameters: Tensors, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale all gradients down together, in place, so that their joint norm is at most ``max_norm``.

    Args:
        parameters: a tensor or tensors; those without gradient are left out.
        max_norm: the bound. norm_type, error_if_nonfinite, foreach: as :func:`get_total_norm`.

    Returns:
        The norm before clipping.

    Raises:
        RuntimeError: if the norm is not finite and ``error_if_nonfinite``; the gradients are then unchanged.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.zeros(2))
        >>> p.grad = wg.tensor([3.0, 4.0])
        >>> wg.nn.utils.clip_grad_norm_(p, 1.0)
        tensor(5.)
        >>> p.grad
        tensor([0.6000, 0.8000])
    """
    found = _listed(parameters)
    total = get_total_norm(_grads(found), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(found, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clip each element of the gradients to [-clip_value, clip_value], in place.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.zeros(2))
        >>> p.grad = wg.tensor([3.0, -0.5])
        >>> wg.nn.utils.clip_grad_value_(p, 1.0)
        >>> p.grad
        tensor([ 1.0000, -0.5000])
    """
    bound: Any = float(clip_value)
    with no_grad():
        for grad in _grads(parameters):
            grad.clamp_(-bound, bound)
