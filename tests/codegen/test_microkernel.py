"""The microkernel against NumPy in float64: dtypes, tiles, strides, masks, batches; nothing outside its operands is read."""

import ctypes
import subprocess
import sys
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.guard import guarded
from wengert.codegen.build import at, finish, first_lanes, kernel, loop, slot, times, write
from wengert.codegen.engine import load
from wengert.codegen.lanes import POINTER
from wengert.codegen.microkernel import Left, Right, Tile, arithmetic, multiply_add, row_pointers, tile_of, zeros
from wengert.codegen.target import host

NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
}
TILES = [(1, 1), (1, 3), (2, 2), (3, 3), (4, 1), (4, 3), (6, 2)]


@cache
def compiled(dtype: str, rows: int, vectors: int, packed: bool) -> tuple[Any, Any, Tile]:
    """C[rows, columns] = sum over a batch of A B, with the lanes of the last vector limited by a slot."""
    how = arithmetic(dtype, host(), packed=packed)
    tile = tile_of(how, host())._replace(rows=rows, vectors=vectors)
    b, args, _, batch = kernel("tile")
    left, right, out = (slot(b, args, i, POINTER) for i in range(3))
    row, step, batch_left, step_right, batch_right, row_out, k, last, lanes = (slot(b, args, i) for i in range(3, 12))
    pointers = row_pointers(b, left, row, tile.rows, last)
    mask = first_lanes(b, lanes, tile.lanes)

    def turn(b: Any, i: Any, sums: list[Any]) -> list[Any]:
        a = Left([at(b, pointer, times(b, i, batch_left)) for pointer in pointers], step)
        w = Right(at(b, right, times(b, i, batch_right)), step_right, mask)
        return multiply_add(b, how, tile, a, w, k, sums)

    sums = loop(b, 0, batch, turn, carry=zeros(how, tile))
    for r in range(rows):
        for v in range(vectors):
            place = at(b, out, times(b, r, row_out), v * tile.lanes * (8 if how.total == "f64" else 4))
            write(b, sums[r * vectors + v], place, mask if v == vectors - 1 else None)
    library = load(finish(b), ["tile"])
    return library.function("tile", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64), how, tile


def run(function: Any, how: Any, left: Any, right: Any, total: int, *, valid_rows: int, lanes: int, rows: int) -> Any:
    """Call the kernel on (batch, rows, k) and (batch, k, columns) arrays of operands (pairs already joined)."""
    out = guarded(np.full((rows, right.shape[2]), 7, NUMPY[how.total]))
    slots = [left.ctypes.data, right.ctypes.data, out.ctypes.data, left.strides[1], left.strides[2], left.strides[0]]
    slots += [right.strides[1], right.strides[0], out.strides[0], left.shape[2], valid_rows - 1, lanes]
    table = (ctypes.c_int64 * len(slots))(*slots)
    function(ctypes.addressof(table), 0, total)
    return out


def numbers(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    if dtype == "i8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.normal(size=shape).astype(NUMPY[dtype])


def check(dtype: str, rows: int, vectors: int, *, k: int, batch: int, valid: int, short: int, transposed: bool) -> None:
    function, how, tile = compiled(dtype, rows, vectors, False)
    rng = np.random.default_rng(rows * 100 + vectors)
    columns = tile.columns - short
    a, w = numbers(rng, (batch, valid, k), dtype), numbers(rng, (batch, k, columns), dtype)
    stored = guarded(a.transpose(0, 2, 1)).transpose(0, 2, 1) if transposed else guarded(a)
    out = run(function, how, stored, guarded(w), batch, valid_rows=valid, lanes=tile.lanes - short, rows=rows)
    expected = (a.astype(np.float64) @ w.astype(np.float64)).sum(axis=0)
    tolerance = 0 if dtype == "i8" else {"f64": 1e-12, "f32": 2e-5, "bf16": 2e-5}[dtype]
    np.testing.assert_allclose(out[:valid], expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(out[valid:], np.broadcast_to(out[valid - 1], out[valid:].shape))


CASES = [
    {"dtype": dtype, "rows": rows, "vectors": vectors,
     "k": k, "batch": batch, "valid": valid, "short": short, "transposed": transposed}
    for dtype in ("f32", "f64", "bf16", "i8")
    for rows, vectors in TILES
    for k, batch, valid, short, transposed in (
        (7, 1, rows, 0, False), (1, 3, max(1, rows - 1), 1, True), (33, 2, 1, 1, False), (0, 2, rows, 0, False),
    )
]  # fmt: skip


def every_case() -> None:
    for case in CASES:
        check(**case)


def test_tiles_against_numpy_beside_protected_pages() -> None:
    """In a process of its own: what is read outside an operand ends it."""
    program = "from tests.codegen.test_microkernel import every_case; every_case()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"


def test_a_read_outside_would_be_seen() -> None:
    program = "from tests.codegen.guard import *; a = guarded(np.ones(3)); ctypes.string_at(a.ctypes.data, 25)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode < 0


@pytest.mark.parametrize("k", [1, 2, 5, 64])
def test_pairs_of_int16_sum_exactly(k: int) -> None:
    function, how, tile = compiled("i8", 4, 3, True)
    if how.group == 1:
        pytest.skip("this machine multiplies int8 as int32")
    rng = np.random.default_rng(k)
    a, w = numbers(rng, (4, 2 * k), "i8"), numbers(rng, (2 * k, tile.columns), "i8")
    a[0], w[:, 0] = -128, -128
    left = np.ascontiguousarray(a.astype(np.int16)).view(np.int32)[None]
    right = (
        np.ascontiguousarray(w.astype(np.int16).reshape(k, 2, -1).transpose(0, 2, 1)).view(np.int32).reshape(1, k, -1)
    )
    out = run(function, how, left, right, 1, valid_rows=4, lanes=tile.lanes, rows=4)
    np.testing.assert_array_equal(out, a.astype(np.int32) @ w.astype(np.int32))


def test_the_bits_do_not_depend_on_the_tile() -> None:
    rng = np.random.default_rng(0)
    a, w = numbers(rng, (1, 4, 200), "f32"), numbers(rng, (1, 200, 3 * host().vector_bytes // 4), "f32")
    results = []
    for rows, vectors in ((4, 3), (1, 1), (2, 3), (6, 2)):
        function, how, tile = compiled("f32", rows, vectors, False)
        part = np.ascontiguousarray(w[:, :, : tile.columns])
        results.append(run(function, how, a, part, 1, valid_rows=min(rows, 4), lanes=tile.lanes, rows=rows))
    for found in results[1:]:
        both = min(len(found), 4)
        np.testing.assert_array_equal(found[:both], results[0][:both, : found.shape[1]])


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="multiplies f32, f64, bf16, i8, not u8"):
        arithmetic("u8", host())


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("registers", [16, 32])
def test_tiles_fit_the_registers(vector_bytes: int, registers: int) -> None:
    target = host()._replace(vector_bytes=vector_bytes, registers=registers)
    tile = tile_of(arithmetic("f32", target), target)
    assert tile.rows * tile.vectors + tile.vectors + 1 <= registers
    assert tile.lanes * 4 == vector_bytes


def test_bfloat16_pairs_use_the_instruction_of_the_machine() -> None:
    for triple, name in (
        ("aarch64-linux", "llvm.aarch64.neon.bfdot.v4f32.v8bf16"),
        ("x86_64", "llvm.x86.avx512bf16.dpbf16ps.512"),
    ):
        how = arithmetic("bf16", host()._replace(dot=True, triple=triple, vector_bytes=64), packed=True)
        assert (how.group, how.operand, how.total, how.dot) == (2, "bf16", "f32", name)
    assert arithmetic("bf16", host()._replace(dot=False), packed=True).operand == "f32"
