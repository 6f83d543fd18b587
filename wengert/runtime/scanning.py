"""Running sums, products, extremes and log-sum-exps of arrays by native kernels, each called like its operator.

They give NotImplemented where NumPy should do the work: for products of complex numbers, and while a kernel is being
made. Half precision is widened to float32 before and narrowed after.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wengert.array.dtype import DType
from wengert.array.order import memory_order, places_of
from wengert.codegen import scanning
from wengert.runtime.calls import dtype_name, kernels, or_numpy, slots
from wengert.runtime.eager import kernel
from wengert.runtime.pool import empty
from wengert.runtime.recording import ascontiguous, current
from wengert.runtime.threads import get_num_threads

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]

Array = NDArray[Any]

GRAIN: Final = 16384  # elements of a chunk
COLUMNS: Final = 64  # a part of columns is a multiple of so many: a few cache lines of each row


def _target(source: np.dtype[Any], dtype: DType | None) -> np.dtype[Any]:
    """Return the dtype of a running sum or product."""
    if dtype is not None:
        return dtype.numpy
    return source if source.kind in "fV" else np.dtype(np.int64)


def _scanned(operation: str, x: Array, dim: int, target: np.dtype[Any]) -> Any:
    """Return the results and, for extremes, the places; NotImplemented where kernels cannot."""
    source, result = dtype_name(x.dtype), dtype_name(target)
    if source is None or result is None or not x.size or not x.ndim:
        return NotImplemented
    if "16" in source and source[0] not in "iu":
        return _through_float32(operation, x, dim, target)
    if result in ("f16", "bf16"):
        return NotImplemented
    if operation in ("cumsum", "cumprod") and result not in ("f32", "f64", "i64"):
        return NotImplemented
    if source[0] == "f" and result[0] != "f":
        return NotImplemented  # what a float that no integer equals becomes is NumPy's to say
    extreme = operation in ("cummax", "cummin")
    order = memory_order(x)
    given, dim = ascontiguous(x.transpose(order)), order.index(dim)
    shape = given.shape
    outer, length, inner = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    results = empty(shape, target)
    places = empty(shape, np.int64) if extreme else None
    if inner > 1:
        _columns(operation, source, result, given, results, places, outer, length, inner)
    elif operation == "cumsum":
        _sums(source, result, given, results, outer, length)
    else:
        arguments = slots(given, results, results if places is None else places, length)
        found = kernels("scan_rows", scanning.scan_rows, operation, source, result)
        found.run("scan_rows", arguments, outer, max(GRAIN // length, 1))
    back = places_of(order)
    return results.transpose(back) if places is None else (results.transpose(back), places.transpose(back))


def _through_float32(operation: str, x: Array, dim: int, target: np.dtype[Any]) -> Any:
    wide = np.dtype(np.float32)
    if current() is not None:
        return NotImplemented
    found = _scanned(operation, x.astype(wide), dim, wide if target == x.dtype else target)
    if found is NotImplemented or target != x.dtype:
        return found
    return (found[0].astype(target), found[1]) if type(found) is tuple else found.astype(target)


def _columns(
    operation: str, source: str, result: str, x: Array, results: Array, places: Any, outer: int, length: int, inner: int
) -> None:
    share = max(COLUMNS, -(-inner // (4 * get_num_threads() * COLUMNS)) * COLUMNS)
    parts = -(-inner // share)
    arguments = slots(x, results, results if places is None else places, length, inner, share, parts)
    found = kernels("scan_columns", scanning.scan_columns, operation, source, result)
    found.run("scan_columns", arguments, outer * parts, max(GRAIN // (length * min(share, inner)), 1))


def _sums(source: str, result: str, x: Array, results: Array, rows: int, length: int) -> None:
    """Scan rows; few long ones by blocks that run at the same time. Both ways give the same bits."""
    found = kernels("rows totals blocks", scanning.sum_rows, source, result)
    blocks = -(-length // scanning.BLOCK)
    threads = get_num_threads()
    if rows < threads and blocks >= 2 * threads and current() is None:
        table = np.empty((rows, blocks), np.float64 if result[0] == "f" else np.int64)
        arguments = slots(x, results, length, blocks, table)
        grain = max(GRAIN // scanning.BLOCK, 1)
        found.run("totals", arguments, rows * blocks, grain)
        with np.errstate(all="ignore"):
            np.cumsum(table, axis=1, out=table)
        if np.isfinite(table).all():  # if not, sums depend on where they overflow
            table[:, 1:] = table[:, :-1].copy()
            table[:, 0] = -0.0  # what changes nothing, not even a zero's sign
            found.run("blocks", arguments, rows * blocks, grain)
            return
    found.run("rows", slots(x, results, length), rows, max(GRAIN // length, 1))


@kernel("cumsum")
@or_numpy
def cumsum(input: Array, dim: int, *, dtype: DType | None = None) -> Any:
    """Return the running sum along ``dim``."""
    if input.dtype.kind == "c" and dtype is None and input.ndim:
        order = memory_order(input)
        parts = ascontiguous(input.transpose(order))
        found = cumsum(parts.view(parts.real.dtype).reshape(*parts.shape, 2), order.index(dim % input.ndim))
        if found is NotImplemented:
            return NotImplemented
        return found.view(input.dtype).reshape(parts.shape).transpose(places_of(order))
    return _scanned("cumsum", input, dim % max(input.ndim, 1), _target(input.dtype, dtype))


@kernel("cumprod")
@or_numpy
def cumprod(input: Array, dim: int, *, dtype: DType | None = None) -> Any:
    """Return the running product along ``dim``."""
    return _scanned("cumprod", input, dim % max(input.ndim, 1), _target(input.dtype, dtype))


@kernel("logcumsumexp")
@or_numpy
def logcumsumexp(input: Array, dim: int) -> Any:
    """Return log(Σ_{j≤k} exp(x_j)) along ``dim``."""
    return _scanned("logcumsumexp", input, dim % max(input.ndim, 1), input.dtype)


@kernel("cummax")
@or_numpy
def cummax(input: Array, dim: int) -> Any:
    """Return (values, indices): the running maximum along ``dim``, and where it was last reached (NaN reaches it)."""
    return _scanned("cummax", input, dim % max(input.ndim, 1), input.dtype)


@kernel("cummin")
@or_numpy
def cummin(input: Array, dim: int) -> Any:
    """Return (values, indices): the running minimum along ``dim``, and where it was last reached (NaN reaches it)."""
    return _scanned("cummin", input, dim % max(input.ndim, 1), input.dtype)
