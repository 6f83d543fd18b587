"""Random programs of element-wise operators, broadcasts, reductions, views, products and draws, as functions of tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg

__all__ = ["inputs", "program"]

SHAPES = ((4, 3), (3,), (4, 1), (), (1, 3), (3, 3))


def _product(x: Any) -> Any:
    return x.relu() @ wg.ones(3, 2, dtype=x.dtype) + wg.ones(2, dtype=x.dtype) if x.shape[-1:] == (3,) else x


def _fit(a: Any, b: Any) -> bool:
    return all(n == m or 1 in (n, m) for n, m in zip(reversed(a), reversed(b), strict=False))


UNARY = (
    lambda x: x.relu(), lambda x: x.sigmoid(), lambda x: -x, lambda x: x * 1.5, lambda x: x + 0.0, lambda x: x * 1,
    lambda x: x.clone(), lambda x: x.contiguous(), lambda x: x.abs(),
    lambda x: x.exp().clamp(max=50.0), lambda x: x.neg().neg(),
    lambda x: x.double().float() if x.dtype == wg.float32 else x.float().double(), lambda x: x.masked_fill(x > 1, 0.5),
    lambda x: wg.where(x > 0, x, -0.0), lambda x: x.tanh(), lambda x: wg.zeros_like(x) + x, lambda x: x - 0.0,
    lambda x: _as(x.half(), x), lambda x: _as((x * 3).nan_to_num(0, 9, -9).int(), x), lambda x: x + _as(wg.rand(x.shape), x),
    lambda x: x.transpose(-1, 0).clone().transpose(-1, 0) if x.ndim > 1 else x, lambda x: x.sum(),
    lambda x: x.unsqueeze(0).squeeze(0),
    lambda x: x.sum(-1, keepdim=True) if x.ndim else x, lambda x: x.mean(0, keepdim=True) if x.ndim else x,
    lambda x: x.expand(4, 3) if x.shape in SHAPES[:5] else x, _product, lambda x: x.reshape(-1).reshape(x.shape),
)  # fmt: skip
BINARY = (
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: wg.maximum(a, b), lambda a, b: a / (b.abs() + 1),
    lambda a, b: wg.where(a > b, a, b), lambda a, b: (a > 0) * b, lambda a, b: wg.add(a, b, alpha=2),
)  # fmt: skip


def _as(x: Any, like: Any) -> Any:
    return x.double() if like.dtype == wg.float64 else x.float()


def inputs(seed: int) -> list[Any]:
    """Return tensors of several shapes and dtypes, with infinities, NaN and both zeros among the elements."""
    rng = np.random.default_rng(seed)
    found = []
    for k, shape in enumerate(SHAPES):
        array = rng.normal(size=shape).astype(np.float32 if (seed + k) % 3 else np.float64)
        for special in (np.nan, np.inf, -np.inf, -0.0, 0.0):
            if array.size and rng.random() < 0.2:
                array.reshape(-1)[rng.integers(array.size)] = special
        found.append(wg.tensor(array))
    return found


def program(seed: int, steps: int = 25) -> Callable[..., Any]:
    """Return a function of the tensors of :func:`inputs` that computes at random; the same at each call."""

    def run(*tensors: Any) -> Any:
        rng = np.random.default_rng(seed)
        pool = list(tensors)
        for _ in range(steps):
            a, b = (pool[-1 - min(int(rng.geometric(0.25)) - 1, len(pool) - 1)] for _ in range(2))
            if rng.random() < 0.5:
                made = UNARY[rng.integers(len(UNARY))](a)
            elif _fit(a.shape, b.shape):
                made = BINARY[rng.integers(len(BINARY))](a, b)
            else:
                continue
            pool.append(made)
        return [pool[-1], *(pool[int(k)] for k in rng.integers(len(pool), size=6))]

    return run
