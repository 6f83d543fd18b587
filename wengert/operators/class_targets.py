"""What the losses of classes take: floating-point scores, and class indices or probabilities; errors name the loss."""

from typing import Any

from wengert.array.dtype import FLOAT, INTEGER, int64
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import DTypeError

__all__ = ["check_scores", "class_targets"]


def check_scores(name: str, input: Any, what: str = "scores", argument: str = "input") -> None:
    """Refuse what cannot be scores of classes.

    Raises:
        TypeError: for what is no tensor. DTypeError: for a tensor that is not floating-point.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument '{argument}' must be a tensor, got {type(input).__name__}")
    if input.dtype.category != FLOAT:
        way = "take its real part, or abs()" if input.dtype.is_complex else "convert it with .float()"
        raise DTypeError(
            f"{name}(): {argument} must hold {what}, as floating-point numbers, got {input.dtype} of shape "
            f"{tuple(input.shape)}; {way}"
        )


def class_targets(name: str, target: Any, shape: Any = None) -> Any:
    """Return targets that are class indices, those without a sign as int64, which any ``ignore_index`` fits.

    Args:
        shape: of the scores, for a loss that takes probabilities of that shape as well; these are returned as they are.

    Raises:
        TypeError: for what is no tensor. DTypeError: for a tensor of any other dtype.
    """
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}(): argument 'target' must be a tensor, got {type(target).__name__}")
    dtype = target.dtype
    if shape is not None and shape and tuple(target.shape) == tuple(shape):
        if dtype.category != FLOAT:
            way = "convert it with .float()" if dtype.category < FLOAT else "take its real part, or abs()"
            raise DTypeError(
                f"{name}(): a target of the input's shape, {tuple(shape)}, holds probabilities, as floating-point numbers, got "
                f"{dtype}; {way}, or give class indices, without the dimension of the classes"
            )
        return target
    if dtype.category != INTEGER:
        way = "take its real part and convert that with .long()" if dtype.is_complex else "convert it with .long()"
        other = "" if shape is None else f", or give probabilities in the shape of the input, {tuple(shape)}"
        raise DTypeError(
            f"{name}(): target must hold class indices, as integers, got {dtype} of shape {tuple(target.shape)}; {way}{other}"
        )
    return target if dtype.is_signed else ops.cast(target, int64)
