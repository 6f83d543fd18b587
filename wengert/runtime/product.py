"""One matrix product on kernels: packing, loops over what does not fit the caches, and the calls.

A :class:`Plan` is what is known from shapes, strides and dtypes alone. Where operands are read in place and k is not cut,
calling it is one native call; else loops over batches, columns, k and rows go around the kernel.
"""

import ctypes
import math
import struct
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.cache import library
from wengert.codegen.contraction import Epilogue, emit_product, masked_reads
from wengert.codegen.microkernel import arithmetic, tile_of
from wengert.codegen.panels import emit_panels
from wengert.codegen.target import host
from wengert.loops.scalar import size_of
from wengert.runtime.blocking import SHARES, WORKSPACE, Problem, cut, parts
from wengert.runtime.calls import dtype_name
from wengert.runtime.pool import empty
from wengert.runtime.threads import get_num_threads
from wengert.runtime.workers import launch, parallel_for

__all__ = ["Call", "Plan", "address"]

Array = NDArray[Any]

_DATA: Final = object.__basicsize__  # where NumPy's array object has its data pointer: after the header of every object
_NUMBER: Final = {"f32": "f4x", "f64": "d", "i32": "q"}  # struct's format of a slot with a number


def address(array: Any) -> int:
    """Return where an array's first element lies (a fifth of the time that NumPy's own attribute takes)."""
    return ctypes.c_int64.from_address(id(array) + _DATA).value


class _Kernels:
    """The kernels of products of a dtype with an epilogue; those that pack are compiled when they are needed."""

    def __init__(self, dtype: str, epilogue: Epilogue) -> None:
        self.dtype, target = dtype, host()
        self.how = arithmetic(dtype, target, packed=True)
        self.tile = tile_of(self.how, target)
        self.convert = self.how.operand != dtype or self.how.group > 1
        self.masks = masked_reads(target.vector_bytes)
        key = f"product {self.how} {self.tile} {epilogue}"
        self._library = library(key, ["product"], lambda: emit_product(self.how, self.tile, epilogue))
        self.product = self._library.addresses["product"]

    def panels(self, width: int) -> int:
        """Return the address of the kernel that packs panels of a width."""
        return int(_panels(self.dtype, width).addresses["panels"])


@cache
def _kernels(dtype: str, epilogue: Epilogue) -> _Kernels:
    return _Kernels(dtype, epilogue)


@cache
def _panels(dtype: str, width: int) -> Any:
    how = arithmetic(dtype, host(), packed=True)
    lanes = tile_of(how, host()).lanes
    return library(f"panels {dtype} {how} {width} {lanes}", ["panels"], lambda: emit_panels(dtype, how, width, lanes))


class Call(NamedTuple):
    """The arrays and numbers of a product; ``addend`` and ``bias`` may be None."""

    a: Any
    b: Any
    out: Any
    addend: Any
    bias: Any
    alpha: Any
    beta: Any


class _Part(NamedTuple):
    """A piece of a product that one loop over blocks computes.

    Attributes:
        rows, columns, k: its size. first, last: whether it is the first, the last along k. left, right: strides of the operands
            as they are read now (row, k and panel; k and panel). partial_row: the stride of the sums that are kept.
    """

    rows: int
    columns: int
    k: int
    first: bool
    last: bool
    left: tuple[int, int, int]
    right: tuple[int, int]
    partial_row: int


class Plan:
    """What is known of a product before its arrays are: the kernels, how it is cut, and most slots of the call."""

    def __init__(self, call: Call, epilogue: Epilogue) -> None:
        a, b, out = call.a, call.b, call.out
        self.kernels = kernels = _kernels(dtype_name(a.dtype) or str(a.dtype), epilogue)
        self.shape, self.dtype, self.batch = out.shape, out.dtype, out.shape[:-2]
        self.problem = problem = Problem(
            math.prod(self.batch), out.shape[-2], out.shape[-1], a.shape[-1], a.strides[-2:], b.strides[-2:],
            a.itemsize, kernels.convert,
        )  # fmt: skip
        self.blocks = blocks = cut(problem, kernels.tile, kernels.how.size, get_num_threads(), masks=kernels.masks)
        number = _NUMBER[kernels.how.total]
        self._tail = struct.Struct(f"<{number}{number}6q").pack
        cuts = parts(problem.k, blocks.k)
        self.partial = cuts > 1 and (epilogue.dtype != kernels.how.total or epilogue.addend)
        self._head = b""
        if problem.batches == 1 and cuts <= 1 and not (blocks.pack_left or blocks.pack_right):
            left, right = self.in_place(call)
            self._head = self.head(call, _Part(*problem[1:4], True, True, left, right, out.strides[-2]), 1, 0)

    def in_place(self, call: Call) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """Return the strides of operands that are not packed."""
        (row, along), (down, _), tile = call.a.strides[-2:], call.b.strides[-2:], self.kernels.tile
        return (row, along, tile.rows * row), (down, tile.columns * self.problem.unit)

    def head(self, call: Call, part: _Part, batches: int, table: int) -> bytes:
        """Return the bytes of a call up to ``alpha``: what :func:`launch` wants to know, and the slots."""
        tile, blocks = self.kernels.tile, self.blocks
        row_blocks, column_blocks = parts(part.rows, blocks.rows), parts(part.columns, blocks.columns)
        addend_row = 0 if call.addend is None else call.addend.strides[-2]
        return struct.pack(
            "<21q", self.kernels.product, batches * row_blocks * column_blocks, 1,
            table, *part.left, *part.right, part.partial_row, call.out.strides[-2], addend_row,
            part.rows, part.columns, parts(part.k, self.kernels.how.group), row_blocks, column_blocks,
            blocks.rows // tile.rows, blocks.columns // tile.columns, part.first, part.last,
        )  # fmt: skip

    def __call__(self, call: Call) -> None:
        """Compute the product into ``call.out``."""
        if not self._head:
            _Run(self, call).all()
            return
        out = address(call.out)
        addend = 0 if call.addend is None else address(call.addend)
        bias = 0 if call.bias is None else address(call.bias)
        self.launch(self._head, call, (address(call.a), address(call.b), out, out, addend, bias))

    def launch(self, head: bytes, call: Call, batch: tuple[int, ...] = (0,) * 6) -> None:
        """Run the kernel."""
        launch(head + self._tail(call.alpha, call.beta, *batch))


def _addresses(array: Any, batch: tuple[int, ...]) -> Array:
    """Return the addresses of the matrices of a batch, those of broadcast dimensions again and again."""
    found = np.full(batch, address(array), np.int64)
    for axis, size in enumerate(array.shape[:-2], len(batch) - array.ndim + 2):
        if size > 1:
            steps = np.arange(size) * array.strides[axis - len(batch) - 2]
            found += steps.reshape(size, *[1] * (len(batch) - axis - 1))
    return found.ravel()


class _Run:
    """One product that is packed, batched or cut along k: loops over batches, columns, k and rows, around the kernel."""

    def __init__(self, plan: Plan, call: Call) -> None:
        self.plan, self.call, self.problem, self.blocks = plan, call, plan.problem, plan.blocks
        self.tile, self.unit = plan.kernels.tile, plan.kernels.how.size
        self.group = plan.kernels.how.group
        nothing = np.zeros(self.problem.batches, np.int64)
        self.left, self.right = _addresses(call.a, plan.batch), _addresses(call.b, plan.batch)
        self.out = _addresses(call.out, plan.batch)
        self.addend = nothing if call.addend is None else _addresses(call.addend, plan.batch)
        self.bias = nothing if call.bias is None else nothing + address(call.bias)

    def all(self) -> None:
        """Compute everything, in pieces whose packed operands fit the workspace."""
        problem, blocks = self.problem, self.blocks
        width = _fitting(problem.columns, self.tile.columns, blocks.k * self.unit)
        batches = max(1, WORKSPACE // (blocks.k * self.unit * max(width, problem.rows))) if self._packs else problem.batches
        for start in range(0, problem.batches, batches):
            some = slice(start, min(start + batches, problem.batches))
            for column in range(0, problem.columns, width):
                self._columns(some, column, min(width, problem.columns - column))

    @property
    def _packs(self) -> bool:
        return self.blocks.pack_left or self.blocks.pack_right

    def _columns(self, some: slice, column: int, columns: int) -> None:
        """Compute some columns of some batches: all parts of k, one after the other."""
        problem, blocks, call = self.problem, self.blocks, self.call
        size = call.out.itemsize
        out = self.out[some] + column * size
        partial, partial_row, kept = out, call.out.strides[-2], None
        if self.plan.partial:
            partial_row = columns * size_of(self.plan.kernels.how.total)
            kept, partial = self._workspace(len(out), problem.rows * partial_row)
        height = _fitting(problem.rows, self.tile.rows, blocks.k * self.unit) if blocks.pack_left else problem.rows
        for k in range(0, max(problem.k, 1), blocks.k):
            depth = min(blocks.k, problem.k - k)
            right, right_strides, held = self._right(some, column, columns, k, depth)
            for row in range(0, problem.rows, height):
                rows = min(height, problem.rows - row)
                left, left_strides, also_held = self._left(some, row, rows, k, depth)
                part = _Part(
                    rows, columns, depth, k == 0, k + depth >= problem.k, left_strides, right_strides, partial_row
                )
                bias = self.bias[some] + self._bias_offset(row, column)
                addend = self.addend[some]
                if call.addend is not None:
                    addend = addend + (row * call.addend.strides[-2] + column * size)
                down = row * call.out.strides[-2]
                table = np.stack([left, right, partial + row * partial_row, out + down, addend, bias], axis=1)
                self.plan.launch(self.plan.head(call, part, len(table), address(table)), call)
        del kept, held, also_held

    def _bias_offset(self, row: int, column: int) -> int:
        bias = self.call.bias
        return 0 if bias is None else bias.itemsize * (column if bias.ndim == 1 else row)

    def _left(self, some: slice, row: int, rows: int, k: int, depth: int) -> tuple[Array, tuple[int, int, int], Any]:
        """Return where the rows of A are to be read from, their strides, and what holds the memory."""
        down, along = self.problem.left
        sources = self.left[some] + (row * down + k * along)
        if not self.blocks.pack_left:
            return sources, self.plan.in_place(self.call)[0], None
        held, targets, panel = self._pack(sources, self.tile.rows, rows, depth, down, along)
        return targets, (self.unit, self.tile.rows * self.unit, panel), held

    def _right(self, some: slice, column: int, columns: int, k: int, depth: int) -> tuple[Array, tuple[int, int], Any]:
        """Return where the columns of B are to be read from, their strides, and what holds the memory."""
        along, across = self.problem.right
        sources = self.right[some] + (column * across + k * along)
        if not self.blocks.pack_right:
            return sources, self.plan.in_place(self.call)[1], None
        held, targets, panel = self._pack(sources, self.tile.columns, columns, depth, across, along)
        return targets, (self.tile.columns * self.unit, panel), held

    def _pack(self, sources: Array, width: int, count: int, depth: int, across: int, along: int) -> Any:
        """Pack the panels of matrices; those that are one matrix are packed once."""
        panels, panel = parts(count, width), width * parts(depth, self.group) * self.unit
        alone = bool((sources == sources[0]).all())
        held, targets = self._workspace(1 if alone else len(sources), panels * panel)
        table = np.stack([sources[: len(targets)], targets], axis=1)
        arguments = (ctypes.c_int64 * 7)(address(table), across, along, panel, count, depth, panels)
        total = panels * len(targets)
        grain = parts(total, SHARES * get_num_threads())
        parallel_for(self.plan.kernels.panels(width), ctypes.addressof(arguments), total, grain)
        return held, np.broadcast_to(targets, sources.shape), panel

    def _workspace(self, count: int, size: int) -> tuple[Any, Array]:
        """Return memory for some matrices, and the address of each."""
        size = parts(size, 64) * 64
        held = empty(max(count * size, 64), np.uint8)
        return held, address(held) + np.arange(count) * size


def _fitting(count: int, step: int, each: int) -> int:
    """Return how many rows (or columns) fit the workspace when they are packed."""
    most = WORKSPACE // max(each * step, 1) * step
    return max(count if count <= most else most, step)
