"""Small functions that are captured: views, writes through views, aliases, dtypes, several results, empty shapes, gradients."""

from typing import Any

import numpy as np

import wengert as wg
from wengert import nn

F = nn.functional
HELD = wg.arange(6.0).reshape(2, 3)
BASE = wg.arange(12.0).reshape(3, 4)
VIEW = BASE[1]


def values(*shape: int, dtype: str = "float64") -> Any:
    """Return a tensor of distinct numbers around zero."""
    count = int(np.prod(shape))
    return wg.from_numpy((np.arange(count) * 5 % 13 - 4.5).reshape(shape).astype(dtype))


def integers(*shape: int, dtype: str = "int64") -> Any:
    """Return a tensor of small integers of both signs."""
    return wg.from_numpy((np.arange(int(np.prod(shape))) * 5 % 11 - 5).reshape(shape).astype(dtype))


def add_to_row(x: Any) -> Any:
    y = x * 1
    y[1] += 10
    return y


def write_through_chain(x: Any) -> Any:
    y = x.clone()
    y.t()[0][1:].mul_(3)
    return y, y.sum()


def write_into_argument(x: Any) -> Any:
    x[0].zero_()
    return x * 2


def write_into_held(x: Any) -> Any:
    HELD.add_(x)
    return HELD * 2


def read_view_after_write(x: Any) -> Any:
    y = x.clone()
    row = y[0]
    before = row * 1
    y.mul_(2)
    return before, row, row + 1


def detached_alias(x: Any) -> Any:
    y = x.clone()
    alias = y.detach()
    alias.add_(5)
    return y - alias, y


def diagonal_write(x: Any) -> Any:
    y = x.clone()
    y.diagonal().fill_(0)
    return y


def reshape_is_copy(x: Any) -> Any:
    y = x.clone()
    flat = y.t().reshape(-1)
    flat.add_(1)
    return y, flat


def swap_rows(x: Any) -> Any:
    y = x.clone()
    first = y[0].clone()
    y[0] = y[1]
    y[1] = first
    return y


def masked(x: Any) -> Any:
    y = x.clone()
    y.masked_fill_(x > 0, -1)
    return wg.where(y < 0, y, 0.5)


def indexed_write(x: Any) -> Any:
    y = x.clone()
    y[wg.tensor([0, 2]), 1:] = 9
    return y


def split_write(x: Any) -> Any:
    y = x.clone()
    left, right = y.split(2, dim=1)
    left.copy_(right)
    right.zero_()
    return y


def unbound_write(x: Any) -> Any:
    y = x.clone()
    rows = y.unbind()
    rows[1].neg_()
    return y, rows[1]


def complex_parts(x: Any) -> Any:
    z = wg.complex(x, x * 2)
    z.real.add_(1)
    return z, z.imag, z.abs(), wg.view_as_real(z)


def gradient(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    y = (leaf.tanh() * leaf).sum()
    return wg.autograd.grad(y, leaf)[0], y.detach()


def gradient_through_write(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    y = leaf * 2
    y[0] = y[1] * 3
    return wg.autograd.grad(y.sum(), leaf)[0]


def double_gradient(x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    (g,) = wg.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    return wg.autograd.grad((g * g).sum(), leaf)[0]


def batched(x: Any) -> Any:
    return wg.func.vmap(lambda row: row.softmax(0) * row)(x)


def jacobian(x: Any) -> Any:
    return wg.func.jacfwd(lambda v: v.sin() * v.sum())(x)


def nested_results(x: Any) -> Any:
    return {"a": [x + 1, (x, None)], "b": 3, "c": {"d": x.sum()}}


def loop(x: Any) -> Any:
    for _ in range(3):
        x = x * 2 - x.mean()
    return x


def constants(x: Any) -> Any:
    return x * wg.arange(3.0, dtype=wg.float64) + wg.ones(2, 1, dtype=wg.float64) @ wg.zeros(1, 3, dtype=wg.float64)


def integer_arithmetic(x: Any) -> Any:
    return x // 3, x % 3, x << 2, x & 6, ~x, x.sum(), x / 2, -x


def promotion(x: Any, y: Any) -> Any:
    return x + y, x * 2, y * 2.5, x > y, wg.cat([x, y]), wg.stack([x, x]).float().mean()


def several_results(x: Any) -> Any:
    top, where = x.topk(2, dim=1)
    low, high = wg.aminmax(x)
    return top, where, low, high, x.sort(dim=0), x.max(dim=1)


def reductions(x: Any) -> Any:
    return x.sum(0), x.mean(-1, keepdim=True), x.var(), x.argmax(), x.prod(1), x.cumsum(0), x.norm(), x.amax((0, 1))


def empties(x: Any) -> Any:
    return x.sum(), x.sum(0), x.t() @ x, x + 1, wg.cat([x, x]), x.reshape(0), x[1:]


def expanded(x: Any) -> Any:
    wide = x[:, None].expand(-1, 2, -1)
    return wide, wide.contiguous(), wide.sum(1), wide.permute(2, 0, 1) * 2


def strides(x: Any) -> Any:
    return x.t() + 1, x[:, ::2] * x[:, 1::2], x.flip(0), x.roll(1, 1), x.as_strided((2, 2), (1, 2), 1)


def assigned_twice(x: Any) -> Any:
    y = wg.zeros(2, 3, dtype=x.dtype)
    y[:] = x
    y[:, 0] = y[:, 1]
    y += 1
    return y


def network(x: Any) -> Any:
    weight = wg.arange(12.0, dtype=x.dtype).reshape(4, 3) / 10
    return F.cross_entropy(F.linear(x, weight).relu(), wg.tensor([1, 3])), F.layer_norm(x, (3,))


def convolution(x: Any) -> Any:
    weight = wg.arange(8.0, dtype=x.dtype).reshape(2, 1, 2, 2)
    return F.max_pool2d(F.conv2d(x, weight, padding=1), 2)


PROGRAMS: dict[str, tuple[Any, Any]] = {
    f.__name__: (f, make)
    for f, make in [
        (add_to_row, lambda: (values(2, 3),)), (write_through_chain, lambda: (values(3, 3),)),
        (write_into_argument, lambda: (values(2, 3),)), (write_into_held, lambda: (values(2, 3, dtype="float32"),)),
        (read_view_after_write, lambda: (values(2, 3),)), (detached_alias, lambda: (values(2, 3),)),
        (diagonal_write, lambda: (values(3, 3),)), (reshape_is_copy, lambda: (values(2, 3),)),
        (swap_rows, lambda: (values(2, 3),)), (masked, lambda: (values(2, 3),)), (indexed_write, lambda: (values(3, 3),)),
        (split_write, lambda: (values(2, 4),)), (unbound_write, lambda: (values(2, 3),)),
        (complex_parts, lambda: (values(2, 3),)), (gradient, lambda: (values(2, 3),)),
        (gradient_through_write, lambda: (values(2, 3),)), (double_gradient, lambda: (values(2, 3),)),
        (batched, lambda: (values(2, 3),)), (jacobian, lambda: (values(3),)), (nested_results, lambda: (values(2, 3),)),
        (loop, lambda: (values(2, 3),)), (constants, lambda: (values(2, 3),)),
        (integer_arithmetic, lambda: (integers(2, 3),)), (several_results, lambda: (values(2, 3),)),
        (promotion, lambda: (integers(2, 3, dtype="int32"), values(2, 3, dtype="float16"))),
        (reductions, lambda: (values(2, 3),)), (empties, lambda: (values(0, 3),)), (expanded, lambda: (values(2, 3),)),
        (strides, lambda: (values(3, 4),)), (assigned_twice, lambda: (values(2, 3),)),
        (network, lambda: (values(2, 3),)),
        (convolution, lambda: (values(1, 1, 5, 5),)),
    ]
} | {
    "scalar": (lambda x: (x.exp(), x + 1), lambda: (values(),)),
    "booleans": (lambda x: (x > 0, (x > 0) & (x < 2), (x > 0).sum(), (x > 0).any(1)), lambda: (values(2, 3),)),
    "bytes": (lambda x: (x + 200, x * x, x.float()), lambda: (integers(5, dtype="uint8"),)),
    "bfloat16": (lambda x: (x.bfloat16() * 2).float(), lambda: (values(2, 3, dtype="float32"),)),
    "transposed argument": (lambda x: (x * 2, x @ x.t(), x.sum(1)), lambda: (values(3, 2).t(),)),
    "reversed argument": (lambda x: x + 1, lambda: (wg.from_numpy(np.arange(6.0)[::-1].copy()[::-2]),)),
    "argument twice": (lambda x, y: x.add_(1) + y, lambda: (lambda t: (t, t))(values(2, 3))),
    "keywords": (lambda x, *, scale: x * scale["by"], lambda: (values(2, 3), {"scale": {"by": values(3)}})),
    "held view": (lambda x: VIEW + x, lambda: (wg.arange(4.0),)),
    "argument returned": (lambda x: x, lambda: (values(2, 3),)),
    "view returned": (lambda x: x[0], lambda: (values(2, 3),)),
    "nothing returned": (lambda x: None, lambda: (values(2, 3),)),
    "no tensor": (lambda n: wg.arange(n) * 2, lambda: (4,)),
    "data": (lambda x: x.data.add_(1), lambda: (values(2, 3),)),
    "alias written after read": (lambda x: (x.view(-1), x.add_(1))[0] * 2, lambda: (values(2, 3),)),
}  # fmt: skip


def arguments(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return new arguments of a program; its last one, if it is a dictionary, holds the keywords."""
    made = PROGRAMS[name][1]()
    return (made[:-1], made[-1]) if isinstance(made[-1], dict) else (made, {})
