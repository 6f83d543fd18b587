"""How the normalisation runs on a batch.

The examples become groups: each then has moments, a weight and a bias of its own, and sums over samples stay apart.
Where the samples are independent and share weight and bias, the examples become samples instead, without a copy.
"""

from typing import Any

from wengert.core.apply import execute
from wengert.core.batch import expanded, in_front
from wengert.core.registry import ops
from wengert.operators.fold_batch import merged, parted

__all__ = ["normalized_backward_batch", "normalized_batch"]


def _merged(tensor: Any, layout: Any, size: int) -> Any:
    """Return tensors in a layout as one in which all examples' groups stand beside one another."""
    return merged(ops.reshape(tensor, (size, *layout)), 1)


def _flat(values: Any, batched: Any, size: int) -> Any:
    """Return the weights of all examples as those of the channels beside one another."""
    return None if values is None else ops.reshape(values if batched else expanded(values, size), (-1,))


def _wide(layout: Any, size: int) -> tuple[int, ...]:
    return (layout[0], size * layout[1], *layout[2:])


def normalized_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Normalise each example."""
    input, weight, bias, layout, axes, eps, center = values
    if not batched[1] and not batched[2] and 0 not in axes:
        rows = (size * layout[0], *layout[1:])
        found = execute(op, [ops.reshape(input, rows), weight, bias, rows, axes, eps, center])
        out, mean, var = (ops.reshape(t, (size, layout[0], *t.shape[1:])) for t in found)
        return ops.reshape(out, tuple(input.shape)), mean, var
    x = input if batched[0] else expanded(input, size)
    w, b = _flat(weight, batched[1], size), _flat(bias, batched[2], size)
    found = execute(op, [_merged(x, layout, size), w, b, _wide(layout, size), axes, eps, center])
    out, mean, var = (parted(t, 1, size) for t in found)
    return ops.reshape(out, tuple(x.shape)), mean, var


def normalized_backward_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Return the cotangents of each example's input, weight and bias."""
    g, g_mean, g_var, input, mean, var, weight, layout, axes, eps, center = in_front(op, values, batched, size)
    one = tuple(mean.shape[1:])
    wide = [_merged(g, layout, size), _merged(g_mean, one, size), _merged(g_var, one, size),
            _merged(input, layout, size), _merged(mean, one, size), _merged(var, one, size)]  # fmt: skip
    found = execute(op, [*wide, _flat(weight, True, size), _wide(layout, size), axes, eps, center])
    dx = ops.reshape(parted(found[0], 1, size), tuple(input.shape))
    return dx, *(ops.reshape(t, (size, layout[1] * layout[2])) for t in found[1:])
