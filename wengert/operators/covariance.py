"""Covariance and correlation of variables, of which each row of a matrix holds the observations."""

from typing import Any

from wengert.array.dtype import BOOL, INTEGER
from wengert.core.apply import as_tensor
from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError
from wengert.operators.checks import anywhere

__all__ = ["corrcoef", "cov"]


def _weights(name: str, weights: Any, count: int) -> Any:
    found = as_tensor(weights)
    if tuple(found.shape) != (count,):
        raise ShapeError(f"cov(): {name} must hold a weight for each of {count} observations, got {tuple(found.shape)}")
    if anywhere(ops.lt(found, 0)):
        raise ValueError(f"cov(): {name} must not be negative")
    return found


def _check(name: str, input: Any) -> None:
    if input.ndim > 2:
        raise ShapeError(f"{name}() takes a matrix or a vector, got shape {tuple(input.shape)}")
    if input.dtype.category == BOOL:
        raise DTypeError(f"{name}(): not defined for bool tensors; convert with .to(wengert.float32)")


@composite(
    method=True,
    samples=lambda s: [
        s((2, 4)), s((3,)), s((2, 4), correction=0), s((2, 3), kind="complex"), s((1, 4)),
        s((2, 3), fweights=s.array([1, 2, 1])), s((2, 3), aweights=s.tensor((3,), kind="positive")),
        s((2, 3), correction=2, fweights=s.array([1, 2, 4]), aweights=s.tensor((3,), kind="positive")),
        s.error(ValueError, "for each of 3", (2, 3), fweights=s.array([1])),
        s.error(ValueError, "matrix or a vector", (2, 3, 2)),
    ],
)  # fmt: skip
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Return the covariance matrix of the rows of ``input``, variables whose observations are its columns.

    Args:
        correction: subtracted from the number of observations. fweights: how often each observation was made, integers.
        aweights: how much each observation counts.

    Example:
        >>> import wengert as wg
        >>> wg.cov(wg.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    input = as_tensor(input)
    _check("cov", input)
    x = input if input.ndim == 2 else ops.reshape(input, (1, -1))
    count = x.shape[1]
    weights = None
    if fweights is not None:
        weights = _weights("fweights", fweights, count)
        if weights.dtype.category > INTEGER:
            raise DTypeError(f"cov(): fweights must be integers, got {weights.dtype}")
    if aweights is not None:
        importance = _weights("aweights", aweights, count)
        weights = importance if weights is None else weights * importance
    if weights is None:
        total, less = ops.scalar_tensor(count, dtype=ops.real(x).dtype), correction
    else:
        total = weights.sum()
        less = correction if aweights is None else correction * (weights * aweights).sum() / total
    weighted = x if weights is None else x * weights
    centred = x - ops.sum(weighted, 1, True) / total
    scaled = centred if weights is None else centred * weights
    product = ops.matmul(centred, ops.conj(ops.transpose(scaled, 0, 1)))
    return ops.squeeze(product / ops.clamp_min(total - less, 0))


@composite(method=True, samples=lambda s: [s((2, 4)), s((3,)), s((2, 3), kind="complex"), s((1, 4))])
def corrcoef(input: Any) -> Any:
    """Return the correlation coefficients of the rows of ``input``: covariances divided by both deviations."""
    _check("corrcoef", as_tensor(input))
    found = ops.cov(input)
    if not found.ndim:
        return found / found
    deviation = ops.sqrt(ops.real(ops.diagonal(found)))
    found = found / ops.unsqueeze(deviation, 1) / ops.unsqueeze(deviation, 0)
    if not found.is_complex():
        return ops.clamp(found, -1, 1)
    return ops.complex(ops.clamp(ops.real(found), -1, 1), ops.clamp(ops.imag(found), -1, 1))
