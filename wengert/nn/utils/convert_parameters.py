"""All parameters as one vector, and back."""

from collections.abc import Iterable
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.tape.modes import no_grad

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all elements of all parameters, in order, as one vector; gradients flow back through it.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.parameters_to_vector([wg.ones(2), wg.zeros(1, 2)])
        tensor([1., 1., 0., 0.])
    """
    return ops.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Tensor]) -> None:
    """Copy the elements of a vector into the parameters, in order.

    Raises:
        TypeError: if ``vec`` is no tensor. ValueError: if its length is not the number of all elements.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.zeros(2))
        >>> wg.nn.utils.vector_to_parameters(wg.tensor([1.0, 2.0]), [p])
        >>> p.tolist()
        [1.0, 2.0]
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters() takes a Tensor, got {type(vec).__name__}")
    targets = list(parameters)
    total = sum(target.numel() for target in targets)
    if tuple(vec.shape) != (total,):
        raise ValueError(f"the parameters have {total} elements, the vector has shape {tuple(vec.shape)}")
    start = 0
    with no_grad():
        for target in targets:
            target.copy_(vec[start : start + target.numel()].reshape(target.shape))
            start += target.numel()
