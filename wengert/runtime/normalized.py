"""Normalisation of large arrays; see :mod:`wengert.operators.normalized` for what it computes.

They are called like the operators of their names, and give NotImplemented where NumPy should do the work.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wengert.loops import normalization as loops
from wengert.loops.rows import arithmetic
from wengert.operators.normalized import BATCH, Layout
from wengert.runtime.calls import dtype_name, or_numpy
from wengert.runtime.eager import kernel
from wengert.runtime.launch import Launcher, number_bits, pointer
from wengert.runtime.pool import empty
from wengert.runtime.rows import GRAIN, Lined, contiguous, launcher, vector

__all__ = ["normalized", "normalized_backward"]

Array = NDArray[Any]


def _launch(run: Launcher, arrays: Sequence[Array], sizes: Sequence[int], eps: float, count: int, grain: int) -> None:
    """Run a kernel on contiguous arrays, whose strides but the last it is given."""
    slots: list[int] = []
    for array in arrays:
        slots += pointer(array), *array.strides[:-1]
    run([*slots, *sizes, number_bits(eps, "f64")], count, grain)


class _Seen:
    """An input in its layout, and how its kernels are chosen and run.

    Attributes:
        layout: (n, groups, channels, length). name: the dtype in kernels, None if they do not know it.
        columns: whether a group's elements lie apart, and those of the groups side by side.
    """

    def __init__(self, input: Array, layout: Layout, axes: tuple[int, ...], eps: float) -> None:
        n, groups, channels, length = layout
        if axes == BATCH and groups == 1:  # one group's elements lie as the positions of one sample do
            n, length = 1, n * length
        self.layout, self.axes, self.eps = (n, groups, channels, length), axes, float(eps)
        self.name, self.columns = dtype_name(input.dtype), axes == BATCH and length == 1 < groups
        if axes == BATCH:
            self.shape: tuple[int, ...] = (1, n, groups) if self.columns else (n, groups, length)
            self.moments: tuple[int, ...] = (1, groups) if self.columns else (groups,)
            self.weights: tuple[int, ...] = self.moments
        else:
            self.shape = layout if length > 1 else layout[:3]
            self.moments, self.weights = (n, groups), (groups, channels)

    def full(self, array: Array) -> Array:
        """Return an array with all elements as kernels read it."""
        return contiguous(array).reshape(self.shape)

    def given(self, array: Array | None) -> list[Array]:
        """Return weight or bias as kernels read it, if there is one."""
        return [] if array is None else [contiguous(array).reshape(self.weights)]

    def moment(self, array: Array | None = None) -> Array:
        """Return a moment as kernels read or write it; a new one, if none is given."""
        return empty(self.moments, np.float64) if array is None else contiguous(array, np.float64).reshape(self.moments)

    def run(self, kernel: Launcher, lanes: int, arrays: Sequence[Array], *more: int) -> None:
        """Run a kernel over groups."""
        n, groups, channels, length = self.layout
        if self.columns:
            Lined(1, n, groups).run(kernel, lanes, arrays, number_bits(self.eps, "f64"))
        elif self.axes == BATCH:
            _launch(kernel, arrays, (n, groups, length), self.eps, groups, max(1, GRAIN // (n * length)))
        else:
            sizes = (n, groups, channels) if length == 1 else self.layout
            _launch(kernel, arrays, (*sizes, *more), self.eps, n * groups, max(1, GRAIN // (channels * length)))


def _names(*arrays: Array | None) -> list[str | None] | None:
    """Return the dtypes of arrays that may be absent; None if one of them has a dtype that kernels do not know."""
    names = [None if a is None else dtype_name(a.dtype) for a in arrays]
    return None if any(n is None and a is not None for n, a in zip(names, arrays, strict=True)) else names


def _moment_shape(layout: Layout, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(layout))


@kernel("normalized")
@or_numpy
def normalized(
    input: Array, weight: Array | None, bias: Array | None, *, layout: Layout, axes: Any, eps: float, center: bool
) -> Any:
    """Return (out, mean, var)."""
    seen, names = _Seen(input, layout, axes, eps), _names(weight, bias)
    if seen.name is None or names is None or not input.size:
        return NotImplemented
    out = empty(input.shape, input.dtype)
    mean, var = seen.moment(), seen.moment()
    x, given = seen.full(input), [*seen.given(weight), *seen.given(bias)]
    results = [seen.full(out), mean, var]
    more: tuple[int, ...] = ()
    if seen.columns:
        lanes = Lined(1, *seen.shape[1:]).choices(seen.name)[1]
        run = launcher(loops.columns_norm, seen.name, *names, lanes)
    elif axes == BATCH:
        lanes = vector(seen.name)
        run = launcher(loops.batch_norm, seen.name, *names, lanes)
    elif layout[3] == 1:
        lanes = vector(seen.name)
        run = launcher(loops.layer_norm, seen.name, *names, center, lanes)
    else:
        lanes, more = vector(seen.name), (layout[2] * layout[3],)
        run = launcher(loops.group_norm, seen.name, *names, center, lanes)
        given = [x.reshape(*layout[:2], -1), *given]
    seen.run(run, lanes, [x, *given, *results], *more)
    shape = _moment_shape(layout, axes)
    return out, mean.reshape(shape), var.reshape(shape)


@kernel("normalized_backward")
@or_numpy
def normalized_backward(
    g: Array, g_mean: Array, g_var: Array, input: Array, mean: Array, var: Array, weight: Array | None, *,
    layout: Layout, axes: Any, eps: float, center: bool,
) -> Any:  # fmt: skip
    """Return the cotangents of input, weight and bias."""
    seen, names = _Seen(input, layout, axes, eps), _names(weight)
    if seen.name is None or names is None or g.dtype != input.dtype or not input.size:
        return NotImplemented
    dx = empty(input.shape, input.dtype)
    wide = np.dtype(np.float64 if arithmetic(seen.name) == "f64" else np.float32)
    given = [seen.full(g), seen.full(input), *seen.given(weight), *map(seen.moment, (mean, var, g_mean, g_var))]
    if axes == BATCH:
        columns = seen.columns
        lanes = Lined(1, *seen.shape[1:]).choices(seen.name)[1] if columns else vector(seen.name)
        run = launcher(loops.columns_norm_backward if columns else loops.batch_norm_backward, seen.name, *names, lanes)
        sums = [empty(seen.weights, wide) for _ in range(2)]
        seen.run(run, lanes, [*given, seen.full(dx), *sums])
    else:
        sums = _by_samples(seen, given, dx, names, center, wide)
    return dx, *(s.reshape(-1) for s in sums)


def _by_samples(
    seen: _Seen, given: list[Array], dx: Array, names: Sequence[str | None], center: bool, wide: Any
) -> list[Array]:
    """Run a kernel that leaves parts of the gradients of weight and bias, and return the sums of these."""
    n, groups, channels, length = seen.layout
    lanes = vector(seen.name or "")
    across = Lined(1, 0, groups * channels).choices("f32")[1]
    dtype = "f64" if length > 1 or wide == np.float64 else "f32"
    add = launcher(loops.column_sums, dtype, "f64" if wide == np.float64 else "f32", across)
    if length == 1:
        run = launcher(loops.layer_norm_backward, seen.name, *names, center, lanes)
        blocks = -(-n // loops.SAMPLES)
        parts = [empty((blocks, groups, channels), wide) for _ in range(2)]
        arrays = [*given, seen.full(dx), *parts]
        _launch(run, arrays, (n, groups, channels, blocks), seen.eps, blocks, 1)
    else:
        run = launcher(loops.group_norm_backward, seen.name, *names, center, lanes)
        parts = [empty((n, groups, channels), np.float64) for _ in range(2)]
        seen.run(run, lanes, [*given, seen.full(dx), *parts])
    if groups * channels == 1:  # one column lies as a row does, which is not what ``add`` reads
        return [part.sum(dtype=np.float64).astype(wide) for part in parts]
    sums = [empty((1, groups * channels), wide) for _ in range(2)]
    where = Lined(1, len(parts[0]), groups * channels)
    pairs = zip(parts, sums, strict=True)
    where.run(add, across, [a for part, total in pairs for a in (part.reshape(where), total)])
    return sums
