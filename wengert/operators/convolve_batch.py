"""How convolutions run on a batch.

Examples that share the kernels become rows. Examples with kernels of their own become groups: one grouped convolution
runs all of them. So do the gradients of the kernels, one for each example.
"""

from typing import Any

from wengert.core.apply import execute
from wengert.core.batch import example_specs, expanded
from wengert.core.registry import ops
from wengert.operators.fold_batch import folded_rows, merged, parted, unfolded_rows

__all__ = ["conv_batch", "conv_input_batch", "conv_weight_batch"]


def conv_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Correlate inputs with kernels; a bias that differs between examples is added afterwards."""
    input, weight, bias, *geometry, groups = values
    apart = bias is not None and (batched[1] or batched[2])
    kept = None if apart else bias
    if apart:
        op.infer(example_specs(values, batched))  # a bias that one example refuses must not be broadcast
    if batched[1] and batched[0]:
        out = execute(op, [merged(input, 1), merged(weight, 0), kept, *geometry, groups * size])
        found = parted(out, 1, size)
    elif batched[1]:
        out = execute(op, [input, merged(weight, 0, groups), kept, *geometry, groups])
        found = parted(out, 1, size, groups)
    elif batched[0]:
        out = execute(op, [folded_rows(input), weight, kept, *geometry, groups])
        found = unfolded_rows(out, size, input.shape[1])
    else:
        found = ops.unsqueeze(execute(op, [input, weight, kept, *geometry, groups]), 0)
    if not apart:
        return found
    return found + ops.reshape(bias, (size if batched[2] else 1, 1, -1, *(1,) * (found.ndim - 3)))


def conv_input_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Transpose of the convolution in its input."""
    g, weight, *geometry, groups = values
    if not batched[1]:
        return unfolded_rows(execute(op, [folded_rows(g), weight, *geometry, groups]), size, g.shape[1])
    g = g if batched[0] else expanded(g, size)
    return parted(execute(op, [merged(g, 1), merged(weight, 0), *geometry, groups * size]), 1, size)


def conv_weight_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Transpose of the convolution in its kernels."""
    g, input, *geometry, groups = values
    if not batched[1]:
        return parted(execute(op, [merged(g, 1, groups), input, *geometry, groups]), 0, size, groups)
    g = g if batched[0] else expanded(g, size)
    return parted(execute(op, [merged(g, 1), merged(input, 1), *geometry, groups * size]), 0, size)
