"""Contractions: matrix products and everything that reduces to them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, dtype_of
from wengert.array.shape import axis_of, broadcast_shapes
from wengert.core.apply import as_tensor, specs
from wengert.core.arguments import Number
from wengert.core.batch import Body, aligned, example_specs
from wengert.core.families import bilinear, composite, operator
from wengert.core.methods import attach
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import DTypeError, ShapeError

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "dot",
    "inner",
    "kron",
    "linear",
    "matmul",
    "mm",
    "mv",
    "outer",
    "rows_product",
    "tensordot",
    "vdot",
]


def _matmul_shape(a: tuple[int, ...], b: tuple[int, ...], name: str = "matmul") -> tuple[int, ...]:
    """Return the shape of a matrix product.

    Raises:
        ShapeError: naming both shapes and the sizes that differ.
    """
    if not a or not b:
        raise ShapeError(f"{name}(): both tensors need at least one dimension, got shapes {tuple(a)} and {tuple(b)}")
    inner_b = b[-2] if len(b) > 1 else b[0]
    if a[-1] != inner_b:
        raise ShapeError(
            f"{name}(): shapes {tuple(a)} and {tuple(b)} cannot be multiplied: the last size of the first, {a[-1]}, must "
            f"equal the {'second to last' if len(b) > 1 else 'only'} size of the second, {inner_b}"
        )
    batch = broadcast_shapes(name, tuple(a[:-2]), tuple(b[:-2]))
    return (*batch, *a[-2:-1], *b[len(b) - 1 :]) if len(b) > 1 else (*batch, *a[-2:-1])


def _same_dtype(name: str, *arrays: Any) -> None:
    dtypes = {dtype_of(np.dtype(a.dtype)) if not isinstance(a, Spec) else a.dtype for a in arrays if a is not None}
    if len(dtypes) > 1:
        listed = " and ".join(sorted(map(str, dtypes)))
        raise DTypeError(f"{name}(): the tensors must have the same dtype, got {listed}; convert one with .to(dtype)")


def _matmul_left(g: Any, other: Any, input_shape: tuple[int, ...]) -> Any:
    if len(input_shape) == 1 and other.ndim == 1:
        return g * other
    if len(input_shape) == 1:
        return ops.squeeze(ops.matmul(other, ops.unsqueeze(g, -1)), -1)
    if other.ndim == 1:
        return ops.unsqueeze(g, -1) * other
    return ops.matmul(g, ops.transpose(other, -1, -2))


def _matmul_right(g: Any, input: Any, other_shape: tuple[int, ...]) -> Any:
    if len(other_shape) == 1 and input.ndim == 1:
        return g * input
    if len(other_shape) == 1:
        return ops.squeeze(ops.matmul(ops.transpose(input, -1, -2), ops.unsqueeze(g, -1)), -1)
    if input.ndim == 1:
        return ops.unsqueeze(input, -1) * ops.unsqueeze(g, -2)
    if len(other_shape) == 2:
        return ops.rows_product(input, g)
    return ops.matmul(ops.transpose(input, -1, -2), g)


def _matmul_spec(input: Spec, other: Spec) -> Spec:
    _same_dtype("matmul", input, other)
    return Spec(_matmul_shape(input.shape, other.shape), input.dtype)


def _product(a: Any, b: Any) -> Any:
    """Return ``a @ b``; leading dimensions of ``a`` join its rows when ``b`` is one matrix, so that one GEMM runs."""
    if b.ndim == 2 and a.ndim > 2 and a.size and b.size:
        return np.matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)


def _matmul_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Batches of vectors become matrices of one row or column; what NumPy's product does with a batch as it is, it does."""
    op.infer(example_specs(values, batched))
    a, b = values
    n, m = a.ndim - bool(batched[0]), b.ndim - bool(batched[1])
    if (not batched[1] and m <= 2) or (not batched[0] and n == 1 and m >= 2):
        return ops.matmul(a, b)
    if not batched[0] and m == 1 and n <= 2:
        return ops.matmul(b, a if n == 1 else ops.transpose(a, 0, 1))
    ndim = max(n, m, 2)
    a = ops.unsqueeze(a, -2) if n == 1 else a
    b = ops.unsqueeze(b, -1) if m == 1 else b
    product = ops.matmul(aligned(a, ndim) if batched[0] else a, aligned(b, ndim) if batched[1] else b)
    return ops.squeeze(product, tuple(d for d, gone in ((-2, n == 1), (-1, m == 1)) if gone))


@bilinear(
    transpose={"input": _matmul_left, "other": _matmul_right},
    batch=_matmul_batch,
    spec=_matmul_spec,
    cost=lambda input, other: 2 * math.prod(_matmul_shape(input.shape, other.shape)) * input.shape[-1],
    samples=lambda s: [
        s((2, 3), (3, 4)),
        s((3,), (3,)),
        s((2, 3), (3,)),
        s((3,), (3, 2)),
        s((2, 2, 3), (3, 2)),
        s((2, 1, 2, 3), (3, 3, 1)),
        s((3,), (2, 3, 2)),
        s((2, 2, 3), (3,)),
        s((2, 0), (0, 3)),
        s((0, 2), (2, 3)),
        s((2, 2), (2, 2), kind="complex"),
        s.error(RuntimeError, r"cannot be multiplied.*3.*must equal", (2, 3), (2, 3)),
    ],
)
def matmul(input: Number, other: Number) -> Any:
    """Matrix product with PyTorch's rules for vectors and batches: ``(…, m, k) @ (…, k, n) → (…, m, n)``."""
    _same_dtype("matmul", input, other)
    return _product(input, other)


attach("__matmul__", matmul)
attach("__rmatmul__", lambda self, other: ops.matmul(as_tensor(other), self))


def _ranked(name: str, *pairs: tuple[Any, int]) -> None:
    """Refuse tensors whose number of dimensions is not the one an operator is defined for."""
    for tensor, ndim in pairs:
        if tensor.ndim != ndim:
            raise ShapeError(f"{name}(): expected a tensor of {ndim} dimensions, got shape {tuple(tensor.shape)}")


@composite(
    samples=lambda s: [s((2, 3), (3, 4)), s((0, 3), (3, 2)), s.error(RuntimeError, "2 dimensions", (3,), (3, 2))],
    method=True,
)
def mm(input: Any, mat2: Any) -> Any:
    """Product of two matrices, ``(m, k) @ (k, n) → (m, n)``."""
    _ranked("mm", (input, 2), (mat2, 2))
    return ops.matmul(input, mat2)


@composite(
    samples=lambda s: [s((2, 2, 3), (2, 3, 2)), s.error(RuntimeError, "same batch", (2, 2, 3), (1, 3, 2))], method=True
)
def bmm(input: Any, mat2: Any) -> Any:
    """Products of two batches of matrices, ``(b, m, k) @ (b, k, n) → (b, m, n)``."""
    _ranked("bmm", (input, 3), (mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(
            f"bmm(): the tensors need the same batch size, got {tuple(input.shape)} and {tuple(mat2.shape)}"
        )
    return ops.matmul(input, mat2)


@composite(samples=lambda s: [s((2, 3), (3,))], method=True)
def mv(input: Any, vec: Any) -> Any:
    """Product of a matrix and a vector, ``(m, k) @ (k,) → (m,)``."""
    _ranked("mv", (input, 2), (vec, 1))
    return ops.matmul(input, vec)


@composite(samples=lambda s: [s((3,), (3,)), s((0,), (0,)), s.error(RuntimeError, "1 dim", (2, 2), (2,))], method=True)
def dot(input: Any, tensor: Any) -> Any:
    """Sum of the products of the elements of two vectors (neither is conjugated)."""
    _ranked("dot", (input, 1), (tensor, 1))
    return ops.matmul(input, tensor)


@composite(samples=lambda s: [s((3,), (3,)), s((3,), (3,), kind="complex")], method=True)
def vdot(input: Any, other: Any) -> Any:
    """Sum of the products of the elements of two vectors, the first conjugated."""
    _ranked("vdot", (input, 1), (other, 1))
    return ops.matmul(ops.conj(input), other)


@composite(samples=lambda s: [s((2, 3), (4, 3)), s((3,), (3,)), s((), (2,))], method=True)
def inner(input: Any, other: Any) -> Any:
    """Sums of products over the last dimension: ``(…, k), (…, k) → (…, …)``; with a 0-d tensor, the plain product."""
    if not input.ndim or not other.ndim:
        return input * other
    return ops.tensordot(input, other, ([-1], [-1]))


@composite(samples=lambda s: [s((2,), (3,)), s((0,), (2,))], method=True, aliases=("ger",))
def outer(input: Any, vec2: Any) -> Any:
    """Products of all pairs of elements of two vectors: ``(n,), (m,) → (n, m)``."""
    _ranked("outer", (input, 1), (vec2, 1))
    return ops.unsqueeze(input, 1) * vec2


def _linear_spec(input: Spec, weight: Spec, bias: Spec | None = None) -> Spec:
    if len(weight.shape) not in (1, 2):
        raise ShapeError(f"linear(): weight must have 1 or 2 dimensions, got shape {tuple(weight.shape)}")
    _same_dtype("linear", input, weight, bias)
    if not input.shape or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear(): input of shape {tuple(input.shape)} does not fit weight of shape {tuple(weight.shape)}: the last "
            f"size of input must be in_features={weight.shape[-1]}"
        )
    shape = (*input.shape[:-1], *weight.shape[:-1])
    if bias is not None and broadcast_shapes("linear", shape, tuple(bias.shape)) != shape:
        raise ShapeError(f"linear(): bias of shape {tuple(bias.shape)} does not fit the result of shape {shape}")
    return Spec(shape, input.dtype)


def _as_rows(x: Any) -> Any:
    return ops.reshape(x, (-1, x.shape[-1])) if x.numel() else ops.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _linear_body(input: Any, weight: Any, bias: Any) -> Any:
    _linear_spec(*specs([input, weight, bias]))
    product = ops.matmul(input, ops.transpose(weight, 0, 1) if weight.ndim == 2 else weight)
    return product if bias is None else product + bias


def _linear_input(g: Any, weight: Any) -> Any:
    return ops.matmul(g, weight) if weight.ndim == 2 else ops.unsqueeze(g, -1) * weight


@bilinear(
    transpose={
        "left": lambda g, right: ops.matmul(right, ops.transpose(g, 0, 1)),
        "right": lambda g, left: ops.matmul(left, g),
    },
    spec=lambda left, right: Spec((left.shape[-1], right.shape[-1]), left.dtype),
    cost=lambda left, right: 2 * math.prod(left.shape) * right.shape[-1],
    batch=Body(lambda left, right: ops.matmul(ops.transpose(_as_rows(left), 0, 1), _as_rows(right))),
    home=(),
    samples=lambda s: [
        s((4, 2), (4, 3)),
        s((2, 2, 1), (2, 2, 3)),
        s((2, 0), (2, 3)),
        s((2,), (3,)),
        s((0, 2), (0, 3)),
        s((2, 2), (2, 1), kind="complex"),
    ],
)
def rows_product(left: Number, right: Number) -> Any:
    """Return the sum over all rows of their outer products, ``(…, n), (…, m) → (n, m)``: what a weight's gradient is."""
    rows = math.prod(left.shape[:-1])
    return np.matmul(left.reshape(rows, left.shape[-1]).T, right.reshape(rows, right.shape[-1]))


def _linear_weight(g: Any, input: Any, weight_shape: tuple[int, ...]) -> Any:
    if len(weight_shape) == 1:
        return ops.matmul(ops.reshape(g, (-1,)), ops.reshape(input, (-1, input.shape[-1])))
    return ops.rows_product(g, input)


@operator(
    vjp={"input": _linear_input, "weight": _linear_weight, "bias": lambda g: g},
    jvp={
        "input": lambda t, weight: ops.linear(t, weight),
        "weight": lambda t, input: ops.linear(input, t),
        "bias": lambda t: t,
    },
    holomorphic=True,
    home="nn.functional",
    spec=_linear_spec,
    batch=Body(_linear_body),
    cost=lambda input, weight, bias=None: 2 * math.prod(input.shape) * weight.shape[0],
    samples=lambda s: [
        s((4, 3), (2, 3), (2,)),
        s((3,), (2, 3), (2,)),
        s((2, 2, 3), (4, 3)),
        s((2, 3), (3,)),
        s((0, 3), (2, 3), (2,)),
        s((2, 2), (2, 2), (2,), kind="complex"),
        s.error(RuntimeError, "in_features=4", (2, 3), (2, 4)),
        s.error(RuntimeError, "1 or 2 dimensions", (4, 3), (4, 3, 3)),
    ],
)
def linear(input: Number, weight: Number, bias: Number = None) -> Any:
    """``input @ weight.T + bias``: ``(…, in) → (…, out)`` with weight ``(out, in)`` and bias ``(out,)``."""
    _same_dtype("linear", input, weight, bias)
    if weight.ndim > 2:
        raise ValueError("weight has more than 2 dimensions")
    out = _product(input, weight.T)
    if bias is not None and bias.ndim > out.ndim:
        raise ValueError("bias does not fit the result")
    return out if bias is None else np.add(out, bias, out=out if out.ndim else None)


def _added_spec(name: str) -> Any:
    def spec(input: Spec, mat1: Spec, mat2: Spec, *, beta: Any = 1, alpha: Any = 1) -> Spec:
        if len(mat1.shape) != 2 or len(mat2.shape) != 2:
            raise ShapeError(
                f"{name}(): mat1 and mat2 must be matrices, got {tuple(mat1.shape)} and {tuple(mat2.shape)}"
            )
        _same_dtype(name, input, mat1, mat2)
        shape = _matmul_shape(mat1.shape, mat2.shape, name)
        if broadcast_shapes(name, shape, tuple(input.shape)) != shape:
            raise ShapeError(
                f"{name}(): input of shape {tuple(input.shape)} does not broadcast to the product's shape {shape}"
            )
        return Spec(shape, mat1.dtype)

    return spec


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * factor


def _check_factors(name: str, dtype: Any, beta: Any, alpha: Any) -> None:
    """Refuse fractions of integer tensors, as PyTorch does."""
    if dtype.category < FLOAT and not (isinstance(beta, int) and isinstance(alpha, int)):
        raise DTypeError(f"{name}(): beta and alpha of {dtype} tensors must be ints, got {beta!r} and {alpha!r}")


def _addmm_body(input: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    _added_spec("addmm")(*specs([input, mat1, mat2]))
    return _combined("addmm", input, ops.matmul(mat1, mat2), beta, alpha)


@operator(
    vjp={
        "input": lambda g, beta: _scaled(g, beta),
        "mat1": lambda g, mat2, alpha: _scaled(ops.matmul(g, ops.transpose(mat2, 0, 1)), alpha),
        "mat2": lambda g, mat1, alpha: _scaled(ops.matmul(ops.transpose(mat1, 0, 1), g), alpha),
    },
    jvp={
        "input": lambda t, beta: _scaled(t, beta),
        "mat1": lambda t, mat2, alpha: _scaled(ops.matmul(t, mat2), alpha),
        "mat2": lambda t, mat1, alpha: _scaled(ops.matmul(mat1, t), alpha),
    },
    holomorphic=True,
    inplace=True,
    spec=_added_spec("addmm"),
    batch=Body(_addmm_body),
    samples=lambda s: [
        s((2, 4), (2, 3), (3, 4)),
        s((4,), (2, 3), (3, 4), beta=0.5, alpha=-2),
        s((1, 1), (2, 0), (0, 2)),
        s((2, 2), (2, 2), (2, 2), kind="complex"),
        s((2, 2), (2, 1), (1, 2), beta=0),
    ],
)
def addmm(input: Number, mat1: Number, mat2: Number, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * input + alpha * (mat1 @ mat2)``; with ``beta=0`` NaN in ``input`` is ignored."""
    _same_dtype("addmm", input, mat1, mat2)
    _check_factors("addmm", dtype_of(mat1.dtype), beta, alpha)
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise ValueError("mat1 and mat2 must be matrices")
    out = np.matmul(mat1, mat2)
    if alpha != 1:
        out = np.multiply(out, alpha, dtype=out.dtype)
    return out if beta == 0 else np.add(out, input if beta == 1 else np.multiply(input, beta, dtype=out.dtype), out=out)


def _combined(name: str, input: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """Return ``beta * input + alpha * product`` in the shape of the product."""
    _check_factors(name, product.dtype, beta, alpha)
    scaled, shape = _scaled(product, alpha), tuple(product.shape)
    if broadcast_shapes(name, shape, tuple(input.shape)) != shape:
        raise ShapeError(
            f"{name}(): input of shape {tuple(input.shape)} does not broadcast to the product's shape {shape}"
        )
    return scaled if beta == 0 else _scaled(input, beta) + scaled


@composite(
    samples=lambda s: [s((2,), (2, 3), (3,)), s((2,), (2, 3), (3,), beta=2, alpha=0.5)], method=True, inplace=True
)
def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * input + alpha * (mat @ vec)``."""
    return _combined("addmv", input, ops.mv(mat, vec), beta, alpha)


@composite(
    samples=lambda s: [s((2, 3), (2,), (3,)), s((2, 3), (2,), (3,), beta=2, alpha=0.5)], method=True, inplace=True
)
def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    return _combined("addr", input, ops.outer(vec1, vec2), beta, alpha)


@composite(
    samples=lambda s: [s((2, 3), (2, 2, 2), (2, 2, 3)), s((2, 3), (2, 2, 1), (2, 1, 3), beta=2, alpha=0.5)],
    method=True,
    inplace=True,
)
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * input + alpha * Σᵢ batch1[i] @ batch2[i]``."""
    return _combined("addbmm", input, ops.sum(ops.bmm(batch1, batch2), 0), beta, alpha)


@composite(
    samples=lambda s: [s((2, 2, 3), (2, 2, 2), (2, 2, 3)), s((3,), (2, 2, 1), (2, 1, 3), beta=2, alpha=0.5)],
    method=True,
    inplace=True,
)
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    return _combined("baddbmm", input, ops.bmm(batch1, batch2), beta, alpha)


@composite(
    samples=lambda s: [
        s((2, 3), (3, 2), dims=1),
        s((2, 3, 2), (3, 2, 2), dims=([1, 2], [0, 2])),
        s((2,), (3,), dims=0),
        s((2, 3), (2, 3)),
        s((1, 3), (2, 2), dims=([0], [1])),
        s.error(RuntimeError, "sizes", (2, 3), (2, 3), dims=1),
    ],
)
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """Sum of products over pairs of dimensions: the last ``dims`` of ``a`` with the first of ``b``, or two lists of them."""
    if out is not None:
        raise TypeError("tensordot(out=…) is not supported; assign the result")
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot(): dims={dims} is out of range for shapes {tuple(a.shape)} and {tuple(b.shape)}"
            )
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        pairs = [[int(d) for d in (group if isinstance(group, Sequence) else [group])] for group in dims]
        left, right = [axis_of(d, a.ndim) for d in pairs[0]], [axis_of(d, b.ndim) for d in pairs[1]]
    for i, j in zip(left, right, strict=True):  # a dimension of size 1 is repeated: the sum over the other's is enough
        if a.shape[i] != b.shape[j] and 1 in (a.shape[i], b.shape[j]):
            a, b = (ops.sum(a, i, True), b) if b.shape[j] == 1 else (a, ops.sum(b, j, True))
    sizes = [a.shape[i] for i in left]
    if sizes != [b.shape[i] for i in right]:
        raise ShapeError(
            f"tensordot(): the contracted sizes differ: {sizes} of {tuple(a.shape)}, "
            f"{[b.shape[i] for i in right]} of {tuple(b.shape)}"
        )
    rows, columns = [i for i in range(a.ndim) if i not in left], [i for i in range(b.ndim) if i not in right]
    shape = (*[a.shape[i] for i in rows], *[b.shape[i] for i in columns])
    k = math.prod(sizes)
    flat_a = ops.reshape(ops.permute(a, (*rows, *left)), (math.prod(a.shape[i] for i in rows), k))
    flat_b = ops.reshape(ops.permute(b, (*right, *columns)), (k, math.prod(b.shape[i] for i in columns)))
    return ops.reshape(ops.matmul(flat_a, flat_b), shape)


@composite(samples=lambda s: [s((2, 2), (1, 3)), s((2,), (2, 2)), s((), (2,))], method=True)
def kron(input: Any, other: Any) -> Any:
    """Kronecker product: every element of ``input`` times the whole of ``other``, in blocks."""
    ndim = max(input.ndim, other.ndim)
    a = ops.reshape(input, (*(1,) * (ndim - input.ndim), *input.shape))
    b = ops.reshape(other, (*(1,) * (ndim - other.ndim), *other.shape))
    spread_a = ops.reshape(a, tuple(n for size in a.shape for n in (size, 1)))
    spread_b = ops.reshape(b, tuple(n for size in b.shape for n in (1, size)))
    return ops.reshape(spread_a * spread_b, tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@composite(samples=lambda s: [s((2, 3), (3, 2), (2, 2))])
def chain_matmul(*matrices: Any) -> Any:
    """Product of several matrices, multiplied in the cheapest order (see :func:`wengert.linalg.multi_dot`)."""
    return ops.linalg_multi_dot(matrices)
