"""Softmax, its logarithm and the cross-entropy of large arrays, by kernels that take each line while it is in cache.

They are called like the operators of their names, and give NotImplemented where NumPy should do the work.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.array.dtype import FLOAT, dtype_of
from wengert.array.shape import reduced
from wengert.codegen.target import host
from wengert.loops import softmax as loops
from wengert.loops.ir import Kernel
from wengert.loops.rows import arithmetic
from wengert.loops.scalar import is_float, size_of
from wengert.operators.cross_entropy import class_dim, safe_targets
from wengert.runtime.ahead import Ahead
from wengert.runtime.calls import Absent, dtype_name, or_numpy
from wengert.runtime.checking import in_range
from wengert.runtime.eager import kernel
from wengert.runtime.launch import Launcher, pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import active, ascontiguous, current

__all__ = ["GRAIN", "Lined", "contiguous", "launcher", "lined", "vector"]

Array = NDArray[Any]

GRAIN: Final = 16384  # elements that a thread takes at a time
LINES: Final = 128  # bytes: what lies side by side is read two lines of the cache at a time


@functools.lru_cache(maxsize=1024)
def _made(build: Callable[..., Kernel], *choices: Any) -> Ahead[Launcher]:
    key = " ".join([build.__module__, build.__name__, *map(str, choices)])
    return Ahead(lambda: Launcher(key, lambda: build(*choices)))


def launcher(build: Callable[..., Kernel], *choices: Any) -> Launcher:
    """Return the kernel ``build(*choices)``, ready to be called.

    Raises:
        Absent: while it is being made.
    """
    found = _made(build, *choices).get()
    if found is None:
        raise Absent
    return found


def vector(dtype: str) -> int:
    """Return how many elements, as they are computed in, fill a vector."""
    return host().vector_bytes // size_of(arithmetic(dtype))


def contiguous(array: Array, dtype: Any = None) -> Array:
    """Return an array as one block of memory in C order; a copy, if it is needed, is pooled."""
    if array.flags.c_contiguous and array.flags.aligned and (dtype is None or array.dtype == dtype):
        return array
    if active[0] and current() is not None:
        return ascontiguous(array, dtype)
    copy = empty(array.shape, array.dtype if dtype is None else dtype)
    np.copyto(copy, array, casting="unsafe")
    return copy


class Lined(NamedTuple):
    """The lines of an array along a dimension: it is seen as (n, size, m), and as (n, size) where m is 1."""

    n: int
    size: int
    m: int

    @property
    def across(self) -> bool:
        """Whether neighbours in memory belong to different lines."""
        return self.m > 1

    def elements(self, array: Array) -> Array:
        """Return an array with all elements as kernels read it."""
        if not self.across and array.ndim == 2 and array.strides[1] == array.itemsize and array.flags.aligned:
            return array
        return contiguous(array).reshape(tuple(self) if self.across else (self.n, self.size))

    def single(self, array: Array, dtype: Any) -> Array:
        """Return an array with one element per line as kernels read it."""
        return contiguous(array, dtype).reshape((self.n, self.m) if self.across else (self.n,))

    def choices(self, dtype: str) -> tuple[bool, int]:
        """Return what the kernels of :mod:`wengert.loops.softmax` are shaped by: (across, lanes)."""
        if not self.across:
            return False, vector(dtype)
        return True, min(self.m, LINES // size_of(arithmetic(dtype)))

    def run(self, kernel: Launcher, lanes: int, arrays: Sequence[Array], *params: int) -> None:
        """Run a kernel on arrays as :meth:`elements` and :meth:`single` return them."""
        slots: list[int] = []
        for array in arrays:
            slots += pointer(array), *(array.strides[:-1] or array.strides)
        slots += tuple(self) if self.across else (self.n, self.size)
        strips = -(-self.m // lanes) if self.across else 1
        per = max(1, self.size * (lanes if self.across else 1))
        kernel([*slots, *params], self.n * strips, max(1, GRAIN // per))


def lined(shape: tuple[int, ...], dim: int) -> Lined:
    """Return the lines of a shape along a dimension.

    >>> lined((2, 3, 4, 5), 1)
    Lined(n=2, size=3, m=20)
    """
    shape = shape or (1,)
    return Lined(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]))


# ---- softmax


def _forward(build: Callable[..., Kernel], input: Array, dim: int, dtype: Any) -> Any:
    """Run a kernel with one input and a result of its shape."""
    target = input.dtype if dtype is None else dtype.numpy
    x, y = dtype_name(input.dtype), dtype_name(target)
    if x is None or y is None or not input.size or dtype_of(target).category != FLOAT:
        return NotImplemented
    where = lined(input.shape, dim)
    across, lanes = where.choices(y)
    run = launcher(build, x, y, across, lanes)
    out = empty(input.shape, target)
    where.run(run, lanes, [where.elements(input), where.elements(out)])
    return out


def _backward(build: Callable[..., Kernel], g: Array, result: Array, dim: int) -> Any:
    """Run a kernel with a cotangent and a result of the forward kernel."""
    name = dtype_name(g.dtype)
    if name is None or not g.size or g.dtype != result.dtype or g.shape != result.shape:
        return NotImplemented
    where = lined(g.shape, dim)
    across, lanes = where.choices(name)
    run = launcher(build, name, across, lanes)
    out = empty(g.shape, g.dtype)
    where.run(run, lanes, [where.elements(a) for a in (g, result, out)])
    return out


@kernel("softmax")
@or_numpy
def softmax(input: Array, dim: int, dtype: Any = None) -> Any:
    """Return exp(x) / Σ exp(x)."""
    return _forward(loops.softmax, input, dim, dtype)


@kernel("log_softmax")
@or_numpy
def log_softmax(input: Array, dim: int, dtype: Any = None) -> Any:
    """Return x - log Σ exp(x)."""
    return _forward(loops.log_softmax, input, dim, dtype)


@kernel("softmax_backward")
@or_numpy
def softmax_backward(g: Array, result: Array, dim: int) -> Any:
    """Return result · (g - Σ g · result)."""
    return _backward(loops.softmax_backward, g, result, dim)


@kernel("log_softmax_backward")
@or_numpy
def log_softmax_backward(g: Array, result: Array, dim: int) -> Any:
    """Return g - exp(result) · Σ g."""
    return _backward(loops.log_softmax_backward, g, result, dim)


@kernel("logsumexp")
@or_numpy
def logsumexp(input: Array, dim: tuple[int, ...], keepdim: bool = False) -> Any:
    """Return log Σ exp(x) along dimensions that follow one another."""
    name, axes = dtype_name(input.dtype), tuple(sorted(dim))
    if name is None or not is_float(name) or not input.size or not axes or axes[-1] - axes[0] != len(axes) - 1:
        return NotImplemented
    shape = (*input.shape[: axes[0]], math.prod(input.shape[axes[0] : axes[-1] + 1]), *input.shape[axes[-1] + 1 :])
    where = lined(shape, axes[0])
    across, lanes = where.choices(name)
    run = launcher(loops.logsumexp, name, across, lanes)
    out = empty(reduced(input.shape, axes, keepdim), input.dtype)
    where.run(run, lanes, [where.elements(input), where.single(out, out.dtype)])
    return out


# ---- cross-entropy


def _checked(input: Array, target: Array, ignore_index: int) -> tuple[Lined, str | None]:
    """Return the lines and the dtype of logits; targets that are no classes are refused as the operator does."""
    dim = class_dim(input.shape)
    in_range(target, input.shape[dim], ignore_index, lambda: safe_targets(target, input.shape[dim], ignore_index))
    return lined(input.shape, dim), dtype_name(input.dtype)


@kernel("class_loss")
@or_numpy
def class_loss(input: Array, target: Array, ignore_index: int) -> Any:
    """Return the loss of each line, and its logsumexp."""
    dim = class_dim(input.shape)
    if not input.size or target.shape != (*input.shape[:dim], *input.shape[dim + 1 :]):
        return NotImplemented
    where, name = _checked(input, target, ignore_index)
    if name is None:
        return NotImplemented
    across, lanes = where.choices(name)
    run = launcher(loops.class_loss, name, across, lanes)
    loss, lse = empty(target.shape, input.dtype), empty(target.shape, np.float64)
    singles = [where.single(a, d) for a, d in ((target, np.int64), (loss, loss.dtype), (lse, np.float64))]
    where.run(run, lanes, [where.elements(input), *singles], ignore_index)
    return loss, lse


@kernel("class_loss_backward")
@or_numpy
def class_loss_backward(
    g: Array, g_lse: Array, input: Array, target: Array, loss: Array, lse: Array, ignore_index: int
) -> Any:
    """Return p (g + g_lse), but expm1(-loss) g + exp(-loss) g_lse at the class."""
    where, name = _checked(input, target, ignore_index)
    if name is None or not input.size:
        return NotImplemented
    across, lanes = where.choices(name)
    run = launcher(loops.class_loss_backward, name, across, lanes)
    out = empty(input.shape, input.dtype)
    given = ((target, np.int64), (g, input.dtype), (g_lse, np.float64), (loss, input.dtype), (lse, np.float64))
    singles = [where.single(a, d) for a, d in given]
    where.run(run, lanes, [where.elements(input), where.elements(out), *singles], ignore_index)
    return out
