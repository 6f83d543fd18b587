"""Gradients of convolutions as functions: with respect to the input, and to the weight."""

from collections.abc import Callable, Sequence
from typing import Any

from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.nn.sizes import per_dim

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]

Size = int | Sequence[int]


def _options(dims: int, stride: Size, padding: Size, dilation: Size) -> list[tuple[int, ...]]:
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    return [per_dim(value, dims, name) for name, value in given.items()]


def _checked(name: str, found: Any, wanted: Sequence[int]) -> Any:
    """Require that sizes given and sizes that follow are the same."""
    if tuple(found.shape) != tuple(wanted):
        raise ShapeError(f"{name}(): these arguments give shape {tuple(found.shape)}, not {tuple(wanted)}")
    return found


def _input(dims: int) -> Callable[..., Any]:
    def gradient(
        input_size: Sequence[int], weight: Any, grad_output: Any, stride: Size = 1, padding: Size = 0,
        dilation: Size = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        options = _options(dims, stride, padding, dilation)
        found = ops.conv_input(grad_output, weight, tuple(input_size[2:]), *options, groups)
        return _checked(f"conv{dims}d_input", found, input_size)

    return _named(gradient, f"conv{dims}d_input", f"""Return the gradient of conv{dims}d with respect to its input.

    Args:
        input_size: the shape of the input. weight: of the convolution. grad_output: the gradient of its result.
        stride, padding, dilation, groups: of the convolution.

    Raises:
        RuntimeError: for shapes that do not fit.

    Example:
        >>> import wengert as wg
        >>> ones = {(1,) * dims}
        >>> wg.nn.grad.conv{dims}d_input((1, 1, *ones), wg.ones(1, 1, *ones), wg.ones(1, 1, *ones)).item()
        1.0
    """)  # fmt: skip


def _weight(dims: int) -> Callable[..., Any]:
    def gradient(
        input: Any, weight_size: Sequence[int], grad_output: Any, stride: Size = 1, padding: Size = 0,
        dilation: Size = 1, groups: int = 1,
    ) -> Any:  # fmt: skip
        options = _options(dims, stride, padding, dilation)
        found = ops.conv_weight(grad_output, input, tuple(weight_size[2:]), *options, groups)
        return _checked(f"conv{dims}d_weight", found, weight_size)

    return _named(gradient, f"conv{dims}d_weight", f"""Return the gradient of conv{dims}d with respect to its weight.

    Args:
        input: of the convolution. weight_size: the shape of the weight. grad_output: the gradient of the result.
        stride, padding, dilation, groups: of the convolution.

    Raises:
        RuntimeError: for shapes that do not fit.

    Example:
        >>> import wengert as wg
        >>> ones = {(1,) * dims}
        >>> wg.nn.grad.conv{dims}d_weight(wg.ones(1, 1, *ones), (1, 1, *ones), wg.ones(1, 1, *ones)).item()
        1.0
    """)  # fmt: skip


def _named(function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


conv1d_input, conv2d_input, conv3d_input = (_input(dims) for dims in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_weight(dims) for dims in (1, 2, 3))
