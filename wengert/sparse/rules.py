"""What operators mean for sparse tensors: a function per operator, called with its arguments as the declaration names them.

Each is written with dense operators on entries, so that it is differentiated as they are. An operator that is not here has
no meaning for sparse tensors, and says so.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import promote_types
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.errors import ShapeError
from wengert.sparse import products
from wengert.sparse.convert import coalesce, to_sparse_csr
from wengert.sparse.movement import unsqueezed
from wengert.sparse.pattern import Coo, Csr
from wengert.sparse.payload import RULES, entries, is_sparse, made, read

__all__ = ["summed"]

# Functions of zero that are zero. Those that are additive act on entries one by one, the others on sums at one position.
ADDITIVE = ("clone", "conj", "neg", "positive", "real")
ZERO_AT_ZERO = (
    "abs", "arcsin", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv",
    "expm1", "floor", "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num",
    "rad2deg", "relu", "round", "sgn", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip


def _pattern(tensor: Any) -> Any:
    return tensor._payload.pattern


def _unique(tensor: Any) -> Any:
    """Return the tensor with each position occurring once."""
    return coalesce(tensor) if isinstance(_pattern(tensor), Coo) else tensor


def _mapped(name: str, *, additive: bool) -> Any:
    """Return the rule of an element-wise operator that gives zero for zero."""

    def rule(input: Any, *rest: Any) -> Any:
        given = input if additive else _unique(input)
        return made(getattr(ops, name).execute([entries(given), *rest]), _pattern(given))

    return rule


def _cast(input: Any, dtype: Any) -> Any:
    given = input if dtype.category >= input.dtype.category else _unique(input)
    return made(ops.cast(entries(given), dtype), _pattern(given))


def _clone(input: Any, memory_format: Any = None) -> Any:
    return made(ops.clone(entries(input)), _pattern(input))


def _copied(src: Any, size: Any, dtype: Any) -> Any:
    """To its own shape alone: sparse tensors do not broadcast."""
    return _cast(_clone(src), dtype) if tuple(size) == tuple(src.shape) else NotImplemented


def _expand(input: Any, size: Any) -> Any:
    """To its own shape alone: the tape and transforms ask for that."""
    return made(entries(input), _pattern(input)) if tuple(size) == tuple(input.shape) else NotImplemented


def _fill(input: Any, value: Any) -> Any:
    """Only zeros need no entries."""
    if isinstance(value, Tensor) or value != 0:
        return NotImplemented
    pattern = _pattern(input)
    return made(ops.zeros((0, *pattern.dense_shape), dtype=input.dtype), pattern.without_entries())


# ---- of two


def _same_shape(name: str, input: Any, other: Any) -> None:
    if tuple(input.shape) != tuple(other.shape):
        raise ShapeError(
            f"{name}(): sparse tensors do not broadcast, got shapes {tuple(input.shape)} and {tuple(other.shape)}"
        )


def _add(input: Any, other: Any, alpha: Any = 1) -> Any:
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return NotImplemented
    _same_shape("add", input, other)
    if not is_sparse(other):
        return _on_dense(other if alpha == 1 else other * alpha, input, 1)
    if not is_sparse(input):
        return _on_dense(input, other, alpha)
    one, two = _pattern(input), _pattern(other)
    if one.is_same(two):
        return made(ops.add(entries(input), entries(other), alpha=alpha), one)
    if one.sparse_dim != two.sparse_dim:
        raise ShapeError(f"add(): sparse tensors with {one.sparse_dim} and {two.sparse_dim} sparse dimensions")
    values = entries(other) if alpha == 1 else entries(other) * alpha
    joined = Coo(np.concatenate([one.coo.positions, two.coo.positions], 1), one.shape)
    found = made(ops.cat((entries(input), values), 0), joined)
    if isinstance(one, Csr) and isinstance(two, Csr):
        found = coalesce(found)
        return made(entries(found), found._payload.pattern.csr)
    return found


def _on_dense(dense: Any, sparse: Any, alpha: Any) -> Any:
    """Return a dense tensor with ``alpha`` times the entries of a sparse one added where they are."""
    pattern, values = _pattern(sparse), entries(sparse)
    dtype = promote_types(dense.dtype, values.dtype)
    flat = ops.reshape(dense.to(dtype), (pattern.places, *pattern.dense_shape))
    values = values.to(dtype)
    found = ops.index_add(flat, 0, from_array(pattern.coo.keys), values, alpha=alpha)
    return ops.reshape(found, pattern.shape)


def _sub(input: Any, other: Any, alpha: Any = 1) -> Any:
    return _add(input, other, -alpha)


def _factor(tensor: Any, pattern: Any) -> Any:
    """Return a factor, or divisor, of the entries of a pattern: a number, or what a tensor has there."""
    if not isinstance(tensor, Tensor) or not tensor.ndim:
        return tensor
    if not is_sparse(tensor) and tuple(tensor.shape) != pattern.shape:
        tensor = ops.expand(tensor, pattern.shape)
    return read(_unique(tensor) if is_sparse(tensor) else tensor, pattern)


def _mul(input: Any, other: Any) -> Any:
    if not (isinstance(input, Tensor) and is_sparse(input)):
        input, other = other, input
    if isinstance(other, Tensor) and is_sparse(other):
        _same_shape("mul", input, other)
    return made(ops.mul(entries(input), _factor(other, _pattern(input))), _pattern(input))


def _true_divide(input: Any, other: Any) -> Any:
    if not isinstance(input, Tensor) or not is_sparse(input) or (isinstance(other, Tensor) and is_sparse(other)):
        return NotImplemented
    return made(ops.true_divide(entries(input), _factor(other, _pattern(input))), _pattern(input))


def _pow(input: Any, other: Any) -> Any:
    if not isinstance(other, int | float) or other <= 0:
        return NotImplemented
    given = _unique(input)
    return made(ops.pow(entries(given), other), _pattern(given))


def _clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Between bounds that leave zero as it is."""
    numbers = [bound for bound in (min, max) if bound is not None]
    if not all(isinstance(bound, int | float) for bound in numbers):
        return NotImplemented
    if not ((min is None or min <= 0) and (max is None or max >= 0)):
        return NotImplemented
    given = _unique(input)
    return made(ops.clamp(entries(given), min, max), _pattern(given))


# ---- of dimensions


def summed(input: Any, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Any:
    """Return the sum over all elements or, as a sparse tensor, over dimensions."""
    values, pattern = entries(input), _pattern(input)
    if dtype is not None:
        values = ops.cast(values, dtype)
    if dim is None or len(dim) == input.ndim:
        found = ops.sum(values)
        return ops.reshape(found, (1,) * input.ndim) if keepdim else found
    found = _summed_over(values, pattern.coo, dim)
    if keepdim:
        for d in sorted(dim):
            found = unsqueezed(found, d) if is_sparse(found) else ops.unsqueeze(found, d)
    return to_sparse_csr(found) if keepdim and isinstance(pattern, Csr) else found


def _summed_over(values: Any, pattern: Coo, dim: Any) -> Any:
    """Return the sum over some dimensions; it is dense once no indexed dimension is left."""
    inner = tuple(d - pattern.sparse_dim + 1 for d in dim if d >= pattern.sparse_dim)
    kept = [d for d in range(pattern.sparse_dim) if d not in dim]
    values = ops.sum(values, inner) if inner else values
    if not kept:
        return ops.sum(values, 0)
    if len(kept) == pattern.sparse_dim:
        shape = (*pattern.shape[: pattern.sparse_dim], *values.shape[1:])
        return made(values, Coo(pattern.positions, shape, pattern.coalesced))
    shape = (*(pattern.shape[d] for d in kept), *values.shape[1:])
    return coalesce(made(values, Coo(pattern.positions[kept], shape)))


def _vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Any:
    if (dim is not None and len(dim) < x.ndim) or keepdim or not ord > 0:
        return NotImplemented
    return ops.linalg_vector_norm(entries(_unique(x)), ord, dtype=dtype)


RULES.update({name: _mapped(name, additive=True) for name in ADDITIVE if name != "clone"})
RULES.update({name: _mapped(name, additive=False) for name in ZERO_AT_ZERO})
RULES.update({
    "add": _add, "addmm": products.addmm, "cast": _cast, "clamp": _clamp,
    "clone": _clone, "copied": _copied, "expand": _expand, "fill": _fill,
    "linalg_vector_norm": _vector_norm, "sum_to_size": _expand,
    "linear": products.linear, "matmul": products.matmul, "mul": _mul, "pow": _pow, "sub": _sub, "sum": summed,
    "true_divide": _true_divide,
})  # fmt: skip
