"""NumPy's functions on tensors, where their arguments or meaning differ from the operator of the same name.

Each is written with NumPy's own signature, so that arguments given by position mean what they mean there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.apply import as_tensor
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.settings import settings

__all__ = ["FUNCTIONS", "RENAMED", "UNSUPPORTED"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}

# Operators with NumPy's meaning under another name.
RENAMED = {"array_split": "tensor_split", "cross": "linalg_cross", "expand_dims": "unsqueeze"}

# NumPy functions that share an operator's name and nothing else.
UNSUPPORTED = frozenset({"choose", "histogram", "put", "select"})


def like_numpy(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function under NumPy's names for it; wrong arguments are reported under the first."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        function.__qualname__ = f"np.{names[0]}"
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return enter


def _lines(a: Any, axis: int | None) -> tuple[Any, int]:
    """Return a tensor and the axis along which a function runs: None means over all elements in order."""
    return (ops.reshape(a, (-1,)), 0) if axis is None else (a, axis)


def _floating(a: Any) -> Any:
    return a if a.dtype.is_floating_point else ops.cast(a, settings.default_dtype)


def _tensor(value: Any) -> Any:
    """Return a tensor, array, number or list of numbers as a tensor."""
    return value if isinstance(value, Tensor) else as_tensor(np.asarray(value))


# ---- reductions


@like_numpy("amax", "max")
def _amax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.amax(a, dim=() if axis is None else axis, keepdim=keepdims)


@like_numpy("amin", "min")
def _amin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.amin(a, dim=() if axis is None else axis, keepdim=keepdims)


@like_numpy("ptp")
def _ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _amax(a, axis, keepdims=keepdims) - _amin(a, axis, keepdims=keepdims)


@like_numpy("std")
def _std(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return ops.std(as_tensor(a), dim=axis, correction=ddof, keepdim=keepdims)


@like_numpy("var")
def _var(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return ops.var(as_tensor(a), dim=axis, correction=ddof, keepdim=keepdims)


@like_numpy("quantile")
def _quantile(a: Any, q: Any, axis: int | None = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    a = _floating(a)
    return ops.quantile(a, ops.cast(_tensor(q), a.dtype), dim=axis, keepdim=keepdims, interpolation=method)


@like_numpy("percentile")
def _percentile(a: Any, q: Any, axis: int | None = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    share = q / 100 if isinstance(q, Tensor) else np.asarray(q, np.float64) / 100
    return _quantile(a, share, axis, method=method, keepdims=keepdims)


@like_numpy("median")
def _median(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    return _quantile(a, 0.5, axis, keepdims=keepdims)  # the mean of the two middle elements, not the lower


@like_numpy("nanmedian")
def _nanmedian(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    return ops.nanquantile(_floating(a), 0.5, dim=axis, keepdim=keepdims)


@like_numpy("average")
def _average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return ops.mean(a, axis, keepdims)
    weights = _tensor(weights)
    return ops.sum(a * weights, axis, keepdims) / ops.sum(weights + ops.zeros_like(a), axis, keepdims)


@like_numpy("count_nonzero")
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.sum(a != 0, axis, keepdims)


@like_numpy("trace")
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops.sum(ops.diagonal(a, offset, axis1, axis2), -1)


@like_numpy("array_equal")
def _array_equal(a1: Any, a2: Any) -> bool:
    first, second = _tensor(a1), _tensor(a2)
    return first.shape == second.shape and bool(ops.all(first == second))


# ---- along an axis


@like_numpy("cumsum")
def _cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    return ops.cumsum(*_lines(a, axis), dtype=dtype)


@like_numpy("cumprod")
def _cumprod(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    return ops.cumprod(*_lines(a, axis), dtype=dtype)


@like_numpy("sort")
def _sort(a: Any, axis: int | None = -1, kind: Any = None, order: None = None, *, stable: Any = None) -> Any:
    return ops.sort(*_lines(a, axis), stable=True)[0]


@like_numpy("argsort")
def _argsort(a: Any, axis: int | None = -1, kind: Any = None, order: None = None, *, stable: Any = None) -> Any:
    return ops.argsort(*_lines(a, axis), stable=True)


@like_numpy("take_along_axis")
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    return ops.take_along_dim(*_lines(arr, axis)[:1], _tensor(indices), 0 if axis is None else axis)


@like_numpy("take")
def _take(a: Any, indices: Any, axis: int | None = None) -> Any:
    places = _tensor(indices)
    if axis is None:
        return ops.take(a, places)
    taken = ops.index_select(a, axis, ops.reshape(places, (-1,)))
    axis = axis % a.ndim
    return ops.reshape(taken, (*a.shape[:axis], *places.shape, *a.shape[axis + 1 :]))


@like_numpy("repeat")
def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    return ops.repeat_interleave(a, repeats if isinstance(repeats, int) else _tensor(repeats), axis)


@like_numpy("roll")
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return ops.roll(a, shift, axis)


@like_numpy("flip")
def _flip(m: Any, axis: Any = None) -> Any:
    return ops.flip(m, tuple(range(m.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis)


@like_numpy("gradient")
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    spacing = 1 if not varargs else varargs[0] if len(varargs) == 1 and np.ndim(varargs[0]) == 0 else varargs
    found = ops.gradient(f, spacing=spacing, dim=axis, edge_order=edge_order)
    return found[0] if len(found) == 1 else found


@like_numpy("searchsorted")
def _searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    return ops.searchsorted(_tensor(a), v if isinstance(v, int | float) else _tensor(v), side=side, sorter=sorter)


# ---- joining, cutting, filling


@like_numpy("concatenate", "concat")
def _concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Any:
    parts = [_tensor(a) for a in arrays]
    return ops.cat(parts, axis) if axis is not None else ops.cat([ops.reshape(a, (-1,)) for a in parts], 0)


@like_numpy("append")
def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return _concatenate((arr, values), axis)


@like_numpy("split")
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if isinstance(indices_or_sections, int) and ary.shape[axis] % indices_or_sections:
        raise ValueError(f"np.split(): {ary.shape[axis]} elements do not divide into {indices_or_sections} equal parts")
    return ops.tensor_split(ary, indices_or_sections, axis)


@like_numpy("pad")
def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    if mode != "constant":
        raise TypeError(f"np.pad(mode={mode!r}) has no operator on tensors; use wengert.nn.functional.pad")
    values = np.unique(np.asarray(constant_values))
    if values.size != 1:
        raise TypeError(f"np.pad(constant_values={constant_values!r}) on tensors takes one number for all sides")
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    return ops.pad(array, [n for pair in reversed(widths) for n in pair], value=values.item())


@like_numpy("meshgrid")
def _meshgrid(*xi: Any, indexing: str = "xy") -> Any:
    return ops.meshgrid(*[_tensor(x) for x in xi], indexing=indexing)


# ---- products


@like_numpy("dot")
def _dot(a: Any, b: Any) -> Any:
    a, b = _tensor(a), _tensor(b)
    if not a.ndim or not b.ndim:
        return a * b
    if a.ndim <= 2 and b.ndim <= 2:
        return ops.matmul(a, b)
    return ops.tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


@like_numpy("tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    return ops.tensordot(_tensor(a), _tensor(b), axes)


@like_numpy("einsum")
def _einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Any:
    return ops.einsum(subscripts, *[as_tensor(x) for x in operands])


# ---- elements, shapes, dtypes


@like_numpy("clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return ops.clamp(a, a_min if min is None else min, a_max if max is None else max)


@like_numpy("where")
def _where(condition: Any, *args: Any) -> Any:
    return ops.where(_tensor(condition), *[as_tensor(a) if isinstance(a, np.ndarray) else a for a in args])


@like_numpy("nonzero")
def _nonzero(a: Any) -> Any:
    return tuple(ops.unbind(ops.nonzero(a), 1))


@like_numpy("isin")
def _isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    return ops.isin(_tensor(element), _tensor(test_elements), invert=invert)


@like_numpy("round", "around")
def _round(a: Any, decimals: int = 0) -> Any:
    return ops.round(a, decimals=decimals)


@like_numpy("nan_to_num")
def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    return ops.nan_to_num(x, nan, posinf, neginf)


@like_numpy("transpose", "permute_dims")
def _transpose(a: Any, axes: Any = None) -> Any:
    return ops.permute(a, tuple(range(a.ndim))[::-1] if axes is None else axes)


@like_numpy("matrix_transpose")
def _matrix_transpose(x: Any) -> Any:
    return ops.transpose(x, -1, -2)


@like_numpy("rot90")
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    return ops.rot90(m, k, axes)


@like_numpy("astype")
def _astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    return x.to(dtype, copy=copy)


@like_numpy("copy")
def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return ops.clone(a)


@like_numpy("real")
def _real(val: Any) -> Any:
    return ops.real(val)


@like_numpy("imag")
def _imag(val: Any) -> Any:
    return ops.imag(val) if val.is_complex() else ops.zeros_like(val)


@like_numpy("iscomplexobj")
def _iscomplexobj(x: Any) -> bool:
    return bool(x.is_complex())


@like_numpy("shape")
def _shape(a: Any) -> tuple[int, ...]:
    return tuple(a.shape)


@like_numpy("ndim")
def _ndim(a: Any) -> int:
    return int(a.ndim)


@like_numpy("size")
def _size(a: Any, axis: int | None = None) -> int:
    return int(a.numel() if axis is None else a.shape[axis])
