"""One matrix product as a list of native calls, made once for all arrays of the same shapes, strides and dtypes.

Where A is read in place and k is not cut there is one step, the product; else A is packed before, and steps go over
batches, k and rows, in this order. Steps know addresses as offsets from the arrays that come with a call.
"""

import ctypes
import math
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.cache import library
from wengert.codegen.combination import emit_combination
from wengert.codegen.contraction import emit_product, masked_reads
from wengert.codegen.dots import emit_dots
from wengert.codegen.epilogue import Epilogue
from wengert.codegen.microkernel import Arithmetic, Tile, arithmetic, tile_of
from wengert.codegen.panels import emit_panels
from wengert.codegen.target import Target, host
from wengert.loops.scalar import size_of
from wengert.runtime.blocking import SHARES, WORKSPACE, Problem, cut, fitting, parts
from wengert.runtime.calls import dtype_name
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.recording import active, lasting_empty, pack_of, paused, pin
from wengert.runtime.threads import get_num_threads
from wengert.runtime.workers import launch

__all__ = ["Call", "Plan"]

DATA: Final = object.__basicsize__  # where NumPy's array object has its data pointer: after the header of every object
HEADER: Final = 24  # bytes that :func:`launch` takes before the slots
RUN: Final = 128  # bytes of a row, two lines of the cache, whose panels are packed together
TINY: Final = 200_000  # multiplications: some microseconds
SMALL: Final = 1 << 15  # bytes of a result that NumPy allocates as fast as the pool
_NUMBER: Final = {"f32": "f4x", "f64": "d", "i32": "q"}  # struct's format of a slot with a number

_zero = ctypes.c_int64(0)
_pack_panels = struct.Struct("<3q").pack


class Kernels:
    """The kernels of products of a dtype with an epilogue; those that pack are compiled when they are needed."""

    def __init__(self, dtype: str, epilogue: Epilogue, kind: str) -> None:
        self.dtype, self.epilogue, self.kind, target = dtype, epilogue, kind, host()
        self.how = arithmetic(dtype, target, packed=True)
        self.tile = {"tiles": tile_of, "rows": row_tile, "dots": dot_tile}[kind](self.how, target)
        self.convert = converts(dtype)
        self.masks = kind == "rows" or masked_reads(target.vector_bytes)
        key = f"{kind} {dtype} {self.how} {self.tile} {epilogue}"
        self._library = library(key, ["product"], self._build, direct=True)
        self.product = self._library.addresses["product"]
        self.direct = self._library.function(
            "product", None, gil=True
        )  # for products too small to give up Python's lock

    def _build(self) -> str:
        if self.kind == "dots":
            return emit_dots(self.how, self.tile.lanes, self.epilogue)
        if self.kind == "rows":
            return emit_combination(self.how, self.tile, self.epilogue)
        return emit_product(self.dtype, self.how, self.tile, self.epilogue)

    def panels(self, width: int) -> tuple[int, int]:
        """Return the address of the kernel that packs panels of a width, and how many it packs together."""
        together = max(2, RUN // (width * size_of(self.dtype)))
        return int(_panels(self.dtype, width, together).addresses["panels"]), together


@cache
def kernels_of(dtype: str, epilogue: Epilogue, kind: str) -> Kernels:
    """Return the kernels of a dtype and an epilogue: "tiles", or for a single row "rows" (of B) or "dots"."""
    return Kernels(dtype, epilogue, kind)


def row_tile(how: Arithmetic, target: Target) -> Tile:
    """Return the tile of linear combinations of rows: as narrow as it pays to walk them."""
    return Tile(1, 16, tile_of(how, target).lanes)


def dot_tile(how: Arithmetic, target: Target) -> Tile:
    """Return the tile of dot products."""
    return Tile(1, 1, tile_of(how, target).lanes)


@cache
def converts(dtype: str) -> bool:
    """Whether operands of a dtype are packed as something else than what they are in memory."""
    how = arithmetic(dtype, host(), packed=True)
    return how.operand != dtype or how.group > 1


def kind_of(call: "Call") -> str:
    """Return which kernel is best for a product."""
    size = call.a.itemsize
    if call.out.shape[-2] > 1 or converts(dtype_name(call.a.dtype) or ""):
        return "tiles"
    along, across = call.b.strides[-2:]
    if along == size and call.a.strides[-1] == size:
        return "dots"
    return "rows" if across == size or call.b.shape[-1] == 1 else "tiles"


@cache
def _panels(dtype: str, width: int, together: int) -> Any:
    how = arithmetic(dtype, host(), packed=True)
    lanes = tile_of(how, host()).lanes
    key = f"panels {dtype} {how} {width} {lanes} {together}"
    return library(key, ["panels"], lambda: emit_panels(dtype, how, width, lanes, together=together), direct=True)


class Call(NamedTuple):
    """The arrays and numbers of a product; ``addend`` and ``bias`` may be None."""

    a: Any
    b: Any
    out: Any
    addend: Any
    bias: Any
    alpha: Any
    beta: Any


class Base(IntEnum):
    """What addresses are counted from: the arrays of a call, the workspace, and what is packed once for all calls."""

    A = 0
    B = 1
    OUT = 2
    ADDEND = 3
    BIAS = 4
    WORK = 5
    ONCE = 6


class Step(NamedTuple):
    """One native call.

    Attributes:
        head: what :func:`launch` takes, up to what is known only with the arrays. product: whether it multiplies, or packs.
        offsets: per batch and address the offset from its base. first: those of the first batch. bases: per address its base.
        once: whether it packs an operand that is the same at every call.
    """

    head: bytes
    product: bool
    offsets: NDArray[np.int64]
    first: list[int]
    bases: tuple[Base, ...]
    once: bool = False


class Operand(NamedTuple):
    """How a step reads an operand: offsets of its matrices, from which base, and the strides that the kernel wants."""

    offsets: NDArray[np.int64]
    base: Base
    strides: tuple[int, ...]


class Plan:
    """What is known of a product before its arrays are.

    Args:
        lasting: whether A and B are packed once, in a program that is recorded: for all its runs, as they are the same there,
            or in each of its runs for several products.

    Attributes:
        shape, dtype: of the result. steps: the calls. workspace: how many bytes they share. packed: of what is packed once.
    """

    def __init__(self, call: Call, epilogue: Epilogue, lasting: tuple[bool, bool] = (False, False)) -> None:
        self.shape, self.dtype, self._lasting = call.out.shape, call.out.dtype, lasting
        kernels = kernels_of(dtype_name(call.a.dtype) or "", epilogue, kind_of(call))
        number = _NUMBER[kernels.how.total]
        self._tail = struct.Struct(f"<{number}{number}7q").pack
        builder = _Builder(kernels, call, lasting)
        self.steps = list(builder.steps())
        self.workspace, self.packed = builder.workspace, builder.packed
        single = len(self.steps) == 1 and len(self.steps[0].offsets) == 1
        self._head = self.steps[0].head if single else b""
        self._launch: Any = launch
        if single and math.prod(self.shape) * call.a.shape[-1] < TINY:
            self._head, count = self._head[HEADER:], ctypes.c_int64(struct.unpack_from("<3q", self._head)[1])
            self._launch = lambda slots: kernels.direct(slots, _zero, count)
        self.empty = np.empty if call.out.nbytes <= SMALL else empty

    def __call__(self, call: Call, steady: bool = False) -> None:
        """Compute the product into ``call.out``; ``steady`` says that what is packed once is packed in each run."""
        a, b, out, addend, bias, alpha, beta = call
        if self._head and not active[0]:
            where = id(out) + DATA
            self._launch(
                self._head
                + self._tail(
                    alpha, beta, 1, id(a) + DATA, id(b) + DATA, where, where,
                    where if addend is None else id(addend) + DATA, where if bias is None else id(bias) + DATA,
                )
            )  # fmt: skip
            return
        work = (np.empty if self.workspace <= SMALL and not active[0] else empty)(self.workspace, np.uint8)
        packed, new = None, True
        if self.packed and steady:
            places = [pointer(x) for x, lasting in zip((a, b), self._lasting, strict=True) if lasting]
            packed, new = pack_of((self, *places), self.packed)
        elif self.packed:
            packed = lasting_empty(self.packed, np.uint8)
        bases = [0 if x is None else pointer(x) for x in (a, b, out, addend, bias, work, packed)]
        for step in self.steps:
            if new or not step.once:
                with paused() if step.once and not steady else nullcontext():
                    self._run(step, call, bases)

    def _run(self, step: Step, call: Call, bases: list[int]) -> None:
        if len(step.offsets) == 1:
            table, batch = 0, [offset + bases[i] for offset, i in zip(step.first, step.bases, strict=True)]
        else:
            addresses = step.offsets + np.array([bases[i] for i in step.bases])
            table, batch = pointer(addresses), step.first
            pin(*(x for x in call[:5] if x is not None))
        tail = self._tail(call.alpha, call.beta, table, *batch) if step.product else _pack_panels(table, *batch)
        launch(step.head + tail)


def _offsets(array: Any, batch: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how far the matrices of a batch are from the first, those of broadcast dimensions again and again."""
    found = np.zeros(batch, np.int64)
    if array is not None:
        for axis in range(-len(batch), 0):
            if axis - 2 >= -array.ndim and array.shape[axis - 2] > 1:
                steps = np.arange(batch[axis]) * array.strides[axis - 2]
                found += steps.reshape(-1, *[1] * (-axis - 1))
    return found.ravel()


class _Builder:
    """Makes the steps of a product."""

    def __init__(self, kernels: Kernels, call: Call, lasting: tuple[bool, bool]) -> None:
        self.lasting_left, self.lasting_right = lasting
        self.kernels, self.call, self.tile, self.unit = kernels, call, kernels.tile, kernels.how.size
        batch = call.out.shape[:-2]
        self.problem = Problem(
            math.prod(batch), call.out.shape[-2], call.out.shape[-1], call.a.shape[-1], call.a.strides[-2:],
            call.b.strides[-2:], call.a.itemsize, kernels.convert,
        )  # fmt: skip
        self.threads = get_num_threads()
        self.blocks = cut(
            self.problem, self.tile, self.unit, self.threads, masks=kernels.masks, dots=kernels.kind == "dots"
        )
        self.left, self.right, self.out, self.addend = (
            _offsets(x, batch) for x in (call.a, call.b, call.out, call.addend)
        )
        row = self.blocks.k * self.unit
        self.height = fitting(self.problem.rows, self.tile.rows, row) if self.blocks.pack_left else self.problem.rows
        total = size_of(kernels.how.total)
        self.partial = self.problem.k > self.blocks.k and (
            kernels.epilogue.dtype != kernels.how.total or call.addend is not None
        )
        each = (
            self.problem.rows * self.problem.columns * total * self.partial
            + self.height * row * self.blocks.pack_left
            + self.problem.columns * row * self.blocks.share_right
        )
        self.batches = max(1, WORKSPACE // each) if each else self.problem.batches
        self.workspace, self.used, self.packed = 64, 0, 0
        self.known: dict[Any, NDArray[np.int64]] = {}  # where lies what is packed once

    def _reserve(self, count: int, size: int, once: bool = False) -> NDArray[np.int64]:
        """Return offsets in the workspace for some matrices; whoever sets ``used`` back gives their room to others.

        What is packed once has memory of its own.
        """
        start, size = self.used, parts(size, 64) * 64
        if once:
            start, self.packed = self.packed, self.packed + count * size
            return start + np.arange(count) * size
        self.used += count * size
        self.workspace = max(self.workspace, self.used)
        return start + np.arange(count) * size

    def steps(self) -> Iterator[Step]:
        """Yield the steps, in the order in which they must run."""
        problem = self.problem
        for start in range(0, problem.batches, self.batches):
            self.used = 0
            yield from self._some(slice(start, min(start + self.batches, problem.batches)))

    def _some(self, some: slice) -> Iterator[Step]:
        """Yield the steps for some batches: all parts of k, one after the other."""
        problem, blocks, call = self.problem, self.blocks, self.call
        partial, partial_row, base = self.out[some], call.out.strides[-2], Base.OUT
        if self.partial:  # the result holds no sums: it is of another dtype, or still the addend
            partial_row = problem.columns * size_of(self.kernels.how.total)
            partial, base = self._reserve(some.stop - some.start, problem.rows * partial_row), Base.WORK
        kept = self.used
        for k in range(0, max(problem.k, 1), blocks.k):
            self.used = kept
            depth = min(blocks.k, problem.k - k)
            right, packing = self._right(some, k, depth)
            yield from packing
            packed = self.used
            for row in range(0, problem.rows, self.height):
                self.used = packed
                rows = min(self.height, problem.rows - row)
                left, packing = self._left(some, row, rows, k, depth)
                yield from packing
                sums = Operand(partial + row * partial_row, base, (partial_row,))
                yield self._product(
                    some, row, (rows, problem.columns, depth), (k == 0, k + depth >= problem.k), left, right, sums
                )

    def _left(self, some: slice, row: int, rows: int, k: int, depth: int) -> tuple[Operand, list[Step]]:
        """Return how rows of A are read, and the step that packs them if they are packed."""
        down, along = self.problem.left
        offsets = self.left[some] + (row * down + k * along)
        if not self.blocks.pack_left:
            return Operand(offsets, Base.A, (down, along, self.tile.rows * down)), []
        matrices = Operand(offsets, Base.A, (down, along))
        panels, steps = self._packing(matrices, self.tile.rows, rows, depth, self.lasting_left)
        return panels._replace(strides=(self.unit, self.tile.rows * self.unit, *panels.strides)), steps

    def _right(self, some: slice, k: int, depth: int) -> tuple[Operand, list[Step]]:
        """Return how columns of B are read, or packed before they are, and the step that packs them for all."""
        along, across = self.problem.right
        width, offsets = self.tile.columns, self.right[some] + k * along
        once = self.lasting_right and self.blocks.pack_right
        if self.blocks.share_right or once:
            matrices = Operand(offsets, Base.B, (across, along))
            panels, steps = self._packing(matrices, width, self.problem.columns, depth, once)
            return panels._replace(strides=(width * self.unit, *panels.strides, 0, 0, 0)), steps
        packed = depth if self.blocks.pack_right else 0
        far = width * self.unit if packed else along
        return Operand(offsets, Base.B, (far, width * across, packed, across, along)), []

    def _packing(self, matrices: Operand, width: int, count: int, depth: int, once: bool) -> tuple[Operand, list[Step]]:
        """Return panels of matrices, with the bytes of one as stride, and the step that packs them if none has before.

        Args:
            matrices: with their strides across panels, and along k. Equal ones are packed once for all.
            width, count: of a panel, and of what they hold together. once: whether they are packed for all calls.
        """
        (sources, base, (across, along)), into = matrices, Base.ONCE if once else Base.WORK
        panels, panel = parts(count, width), width * parts(depth, self.kernels.how.group) * self.unit
        alone = bool((sources == sources[0]).all())
        some = sources[:1] if alone else sources
        key = base, some.tobytes(), count, depth
        if (targets := self.known.get(key)) is not None:
            return Operand(np.broadcast_to(targets, sources.shape), into, (panel,)), []
        targets = self._reserve(len(some), panels * panel, once)
        if once:
            self.known[key] = targets
        address, together = self.kernels.panels(width)
        groups = parts(panels, together)
        total = groups * len(targets)
        grain = parts(total, SHARES * self.threads)
        head = struct.pack("<9q", address, total, grain, across, along, panel, count, depth, groups)
        offsets = np.stack([some, targets], axis=1)
        step = Step(head, False, offsets, offsets[0].tolist(), (base, into), once)
        return Operand(np.broadcast_to(targets, sources.shape), into, (panel,)), [step]

    def _product(
        self, some: slice, row: int, size: tuple[int, int, int], ends: tuple[bool, bool], left: Operand,
        right: Operand, sums: Operand,
    ) -> Step:  # fmt: skip
        """Return the step that multiplies a piece: its first row, its rows, columns and k."""
        call, blocks, (rows, columns, depth) = self.call, self.blocks, size
        row_blocks, column_blocks = parts(rows, blocks.rows), parts(columns, blocks.columns)
        count = len(left.offsets) * row_blocks * column_blocks
        addend_row = 0 if call.addend is None else call.addend.strides[-2]
        head = struct.pack(
            "<23q", self.kernels.product, count, 1,
            *left.strides, *right.strides, *sums.strides, call.out.strides[-2], addend_row,
            rows, columns, parts(depth, self.kernels.how.group), row_blocks, column_blocks,
            blocks.rows // self.tile.rows, blocks.columns // self.tile.columns, *ends,
        )  # fmt: skip
        bias = 0 if call.bias is None or call.bias.ndim == 1 else call.bias.itemsize * row
        offsets = np.stack(
            [
                left.offsets, right.offsets, sums.offsets, self.out[some] + row * call.out.strides[-2],
                self.addend[some] + row * addend_row, self.out[some] * 0 + bias,
            ], axis=1,
        )  # fmt: skip
        return Step(
            head,
            True,
            offsets,
            offsets[0].tolist(),
            (left.base, right.base, sums.base, Base.OUT, Base.ADDEND, Base.BIAS),
        )
