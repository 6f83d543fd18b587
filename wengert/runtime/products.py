"""Matrix products of large arrays by wengert's own kernels: matmul, linear layers and their gradients, addmm."""

import math
from typing import Any

import numpy as np

from wengert.runtime.ahead import Ahead
from wengert.runtime.contraction import again
from wengert.runtime.contraction import matmul as product
from wengert.runtime.eager import kernel
from wengert.runtime.recording import active, current, reshaped

__all__ = ["linear", "matmul", "rows_product"]

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)

_ready: dict[Any, Ahead[bool]] = {}


def _is_ready(array: Any, *others: Any, bias: str = "", addend: bool = False) -> bool:
    """Whether the kernels for a dtype and what is added are made, or may be waited for; the first question has them made."""
    dtype = array.dtype
    if (dtype is not F32 and dtype is not F64) or not array.size:
        return False
    for other in others:
        if other.dtype is not dtype or not other.size:
            return False
    if active[0] and current() is not None:  # whoever records waits, for the kernels of this product alone
        return True
    found = _ready.get((dtype, bias, addend))
    if found is None:
        found = _ready[dtype, bias, addend] = Ahead(lambda: _prepare(dtype, bias, addend))
    return bool(found.get())


def _prepare(dtype: Any, bias: str, addend: bool) -> bool:
    """Have every kernel made that such products may call, by one product of each form."""
    for m, k, n in ((200, 300, 100), (1, 300, 100), (200, 300, 1), (20, 30, 20)):
        for a in (np.zeros((m, k), dtype), np.zeros((k, m), dtype).T):
            for b in (np.zeros((k, n), dtype), np.zeros((n, k), dtype).T):
                product(
                    a, b, bias=np.zeros(n, dtype) if bias else None, addend=np.zeros((m, n), dtype) if addend else None
                )
    return True


@kernel("matmul")
def matmul(input: Any, other: Any) -> Any:
    """Return ``input @ other``; NotImplemented for shapes that do not fit, which the NumPy kernel complains about."""
    if input.dtype is F32 or input.dtype is F64:
        known = again(input, other)
        if known is not None:
            return known
    if not _is_ready(input, other) or not input.ndim or not other.ndim:
        return NotImplemented
    a = input if input.ndim > 1 else input[None]
    b = other if other.ndim > 1 else other[:, None]
    if a.shape[-1] != b.shape[-2]:
        return NotImplemented
    if b.ndim == 2 and a.ndim > 2:  # one matrix for all: leading dimensions are rows
        found = product(reshaped(a, -1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    else:
        try:
            found = product(a, b)
        except ValueError:
            return NotImplemented
    found = found if input.ndim > 1 else found[..., 0, :]
    return found if other.ndim > 1 else found[..., 0]


@kernel("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Return ``input @ weight.T + bias``."""
    added = () if bias is None else (bias,)
    vector = bias is not None and bias.ndim == 1
    if weight.ndim != 2 or not input.ndim or (bias is not None and not vector):
        return NotImplemented
    if input.shape[-1] != weight.shape[1] or (vector and bias.shape[0] != weight.shape[0]):
        return NotImplemented
    if not _is_ready(input, weight, *added, bias="column" if vector else ""):
        return NotImplemented
    found = product(reshaped(input, -1, input.shape[-1]), weight.T, bias=bias)
    return found.reshape(*input.shape[:-1], weight.shape[0])


@kernel("rows_product")
def rows_product(left: Any, right: Any) -> Any:
    """Return the sum over all rows of their outer products."""
    if not _is_ready(left, right) or not left.ndim or left.shape[:-1] != right.shape[:-1]:
        return NotImplemented
    rows = math.prod(left.shape[:-1])
    return product(reshaped(left, rows, left.shape[-1]).T, reshaped(right, rows, right.shape[-1]))


def _added(input: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * input + alpha * (first @ second)``."""
    if beta == 0 or not _is_ready(first, second, input, addend=True):
        return NotImplemented
    try:
        return product(first, second, alpha=float(alpha), beta=float(beta), addend=input)
    except ValueError:
        return NotImplemented


kernel("addmm")(_added)
kernel("baddbmm")(_added)
