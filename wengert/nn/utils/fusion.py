"""Batch normalisation folded into the layer before it: in evaluation both are one linear map."""

import copy
from typing import Any

from wengert.core.registry import ops
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tape.modes import no_grad

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _scale(mean: Any, var: Any, eps: float, weight: Any, bias: Any) -> tuple[Any, Any]:
    """Return the factor, and the offset after it, of batch normalisation."""
    factor = ops.rsqrt(var + eps) if weight is None else weight * ops.rsqrt(var + eps)
    shift = -mean * factor
    return factor, shift if bias is None else shift + bias


def _fused(weight: Any, bias: Any, shape: list[int], factor: Any, shift: Any) -> tuple[Parameter, Parameter]:
    kept = weight if bias is None else bias
    fused = shift if bias is None else bias * factor + shift
    return (
        Parameter((weight * ops.reshape(factor, shape)).to(weight.dtype), weight.requires_grad),
        Parameter(fused.to(kept.dtype), bias is not None and bias.requires_grad),
    )


def fuse_conv_bn_weights(
    conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any, transpose: bool = False
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a convolution followed by batch normalisation.

    Args:
        conv_w, conv_b: of the convolution; the bias may be None. bn_rm, bn_rv, bn_eps, bn_w, bn_b: running mean and
            variance, eps, weight and bias of the normalisation; the last two may be None.
        transpose: whether the convolution is transposed, so that its output channels are the second dimension.

    Example:
        >>> import wengert as wg
        >>> one, zero = wg.ones(1), wg.zeros(1)
        >>> weight, bias = wg.nn.utils.fuse_conv_bn_weights(wg.ones(1, 1, 3), None, one, one, 0.0, 2 * one, zero)
        >>> weight.flatten().tolist(), bias.item()
        ([2.0, 2.0, 2.0], -2.0)
    """
    with no_grad():
        shape = [1, -1] if transpose else [-1, 1]
        shape += [1] * (conv_w.ndim - 2)
        return _fused(conv_w, conv_b, shape, *_scale(bn_rm, bn_rv, bn_eps, bn_w, bn_b))


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a linear layer followed by batch normalisation; as :func:`fuse_conv_bn_weights`.

    Example:
        >>> import wengert as wg
        >>> one, zero = wg.ones(1), wg.zeros(1)
        >>> weight, bias = wg.nn.utils.fuse_linear_bn_weights(wg.ones(1, 1), zero, one, one, 0.0, 2 * one, zero)
        >>> weight.item(), bias.item()  # 2 * (x - 1)
        (2.0, -2.0)
    """
    with no_grad():
        return _fused(linear_w, linear_b, [-1, 1], *_scale(bn_rm, bn_rv, bn_eps, bn_w, bn_b))


def _check(layer: Module, bn: Any) -> None:
    """Require what makes both layers one linear map."""
    if layer.training or bn.training:
        raise ValueError("layers are fused for evaluation only; call .eval() first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError("the batch normalisation has no running statistics, so it is no fixed map")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a copy of a convolution that does what it and the batch normalisation after it do, in evaluation.

    Args:
        transpose: whether ``conv`` is a transposed convolution.

    Raises:
        ValueError: if one of them is in training mode, or ``bn`` has no running statistics.

    Example:
        >>> import wengert as wg
        >>> conv, bn = wg.nn.Conv2d(1, 2, 3, bias=False).eval(), wg.nn.BatchNorm2d(2).eval()
        >>> x = wg.ones(1, 1, 3, 3)
        >>> bool(wg.allclose(wg.nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x))))
        True
    """
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a copy of a linear layer that does what it and the batch normalisation after it do, in evaluation.

    Raises:
        ValueError: if one of them is in training mode, ``bn`` has no running statistics, or their features differ.

    Example:
        >>> import wengert as wg
        >>> linear, bn = wg.nn.Linear(3, 2).eval(), wg.nn.BatchNorm1d(2).eval()
        >>> bool(wg.allclose(wg.nn.utils.fuse_linear_bn_eval(linear, bn)(wg.ones(1, 3)), bn(linear(wg.ones(1, 3)))))
        True
    """
    _check(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise ValueError(
            f"a linear layer with {linear.out_features} outputs cannot be fused with a batch normalisation of "
            f"{bn.num_features} features"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
