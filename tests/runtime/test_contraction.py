"""Matrix products against NumPy in float64: dtypes, layouts, sizes about the edges of tiles, epilogues, batches, threads."""

import itertools
import math
import os
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.guard import guarded
from wengert.codegen.contraction import PANEL
from wengert.codegen.epilogue import ACTIVATIONS
from wengert.codegen.microkernel import arithmetic, tile_of
from wengert.codegen.target import host
from wengert.runtime import blocking, contraction
from wengert.runtime.contraction import matmul
from wengert.runtime.threads import get_num_threads, set_num_threads

DTYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i8": np.int8}
LAYOUTS = ("rows", "columns", "strided", "reversed", "unaligned")
TOLERANCE = {"f32": 2e-5, "f64": 1e-12, "bf16": 1e-2, "i8": 0}


def numbers(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    if dtype == "i8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    return rng.normal(size=shape).astype(DTYPES[dtype])


def lay(x: Any, layout: str) -> Any:
    """Return the same matrices (the last two dimensions) lying otherwise in memory."""
    if layout == "columns":
        return guarded(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if layout == "strided":
        whole = np.zeros((*x.shape[:-2], 2 * x.shape[-2], 3 * x.shape[-1]), x.dtype)
        part = whole[..., ::2, 1::3]
        part[...] = x
        return part
    if layout == "reversed":
        return guarded(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    if layout == "unaligned":
        memory = np.zeros(x.nbytes + 1, np.uint8)[1:]
        part = memory.view(x.dtype).reshape(x.shape)
        part[...] = x
        return part
    return guarded(x)


def wide(x: Any) -> Any:
    return x.astype(np.int64) if x.dtype.kind == "i" else x.astype(np.float64)


def check(found: Any, expected: Any, dtype: str, k: int) -> None:
    scale = max(1.0, math.sqrt(k))
    np.testing.assert_allclose(
        wide(found).astype(np.float64),
        expected.astype(np.float64),
        rtol=TOLERANCE[dtype],
        atol=TOLERANCE[dtype] * scale,
    )


def every_size(dtype: str) -> None:
    """Sizes from 0 to beyond two tiles in each direction, the others at awkward values; every pair of layouts once or more."""
    rng = np.random.default_rng(0)
    pairs = itertools.cycle(itertools.product(LAYOUTS, LAYOUTS))
    sizes = [(m, 5, 9) for m in range(41)] + [(5, k, 25) for k in range(41)] + [(6, 17, n) for n in range(52)]
    sizes += [(1, 40, n) for n in range(0, 120, 7)] + [(m, 40, 1) for m in range(0, 40, 3)]
    sizes += [(m, k, 1) for m in (1, 9) for k in range(20)]
    for m, k, n in sizes:
        left, right = next(pairs)
        a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
        out = guarded(np.zeros((m, n), np.int32 if dtype == "i8" else DTYPES[dtype]))
        check(matmul(lay(a, left), lay(b, right), out), wide(a) @ wide(b), dtype, k)


def every_pair(dtype: str) -> None:
    rng = np.random.default_rng(1)
    for (m, k, n), left, right in itertools.product([(13, 70, 50), (70, 41, 130)], LAYOUTS, LAYOUTS):
        a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
        check(matmul(lay(a, left), lay(b, right)), wide(a) @ wide(b), dtype, k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("narrow", [False, True])
def test_sizes_and_layouts_beside_protected_pages(dtype: str, narrow: bool) -> None:
    """In a process of its own: what is read or written outside an array ends it. Once with vectors of 16 bytes."""
    program = f"import tests.runtime.test_contraction as t; t.every_size({dtype!r}); t.every_pair({dtype!r})"
    environment = {**os.environ, **({"WENGERT_VECTOR_BYTES": "16"} if narrow else {})}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("m", "k", "n"), [(65, 2000, 70), (200, 1100, 30), (1, 3000, 33), (30, 3000, 1), (300, 3, 300)]
)
def test_sizes_that_are_cut(dtype: str, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(2)
    a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
    check(matmul(a, b), wide(a) @ wide(b), dtype, k)
    again = np.empty((n, m), np.int32 if dtype == "i8" else DTYPES[dtype]).T
    assert matmul(a, b, again) is again
    check(again, wide(a) @ wide(b), dtype, k)


def test_a_small_workspace_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    a, b = numbers(rng, (3, 150, 700), "f32"), numbers(rng, (3, 700, 200), "f32")
    expected = matmul(a, b)
    monkeypatch.setattr("wengert.runtime.product.WORKSPACE", 50_000)
    monkeypatch.setattr(blocking, "WORKSPACE", 50_000)
    contraction._plans.clear()
    np.testing.assert_array_equal(matmul(a, b), expected)
    contraction._plans.clear()


FUNCTIONS: dict[str, Any] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
}


def test_every_activation_is_tested() -> None:
    assert set(FUNCTIONS) == {"", *ACTIVATIONS}


EPILOGUES = [("f32", activation, "column") for activation in FUNCTIONS]
EPILOGUES += [("f32", "", ""), ("f32", "tanh", "row"), ("f32", "relu", "row")]
EPILOGUES += [("f64", "relu", "column"), ("f64", "silu", "row"), ("bf16", "relu", "column"), ("bf16", "tanh", "")]


@pytest.mark.parametrize(("dtype", "activation", "bias"), EPILOGUES)
@pytest.mark.parametrize(("m", "k", "n"), [(9, 7, 50), (1, 5, 30), (11, 6, 1), (64, 900, 48)])
def test_epilogues(dtype: str, activation: str, bias: str, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(4)
    a, b, d = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype), numbers(rng, (m, n), dtype)
    a = (a / np.sqrt(k)).astype(a.dtype)
    shape = {"": (), "column": (n,), "row": (m, 1)}[bias]
    offset = numbers(rng, shape, "f32") if bias else None
    expected = FUNCTIONS[activation](0.5 * (wide(a) @ wide(b)) + 2 * wide(d) + (0 if offset is None else wide(offset)))
    for addend in (d, np.asfortranarray(d)):
        found = matmul(a, b, alpha=0.5, beta=2, addend=addend, bias=offset, activation=activation)
        check(found, expected, dtype, 1)
    plain = FUNCTIONS[activation](wide(a) @ wide(b) + (0 if offset is None else wide(offset)))
    check(matmul(a, b, bias=offset, activation=activation), plain, dtype, 1)
    turned = matmul(a, b, np.empty((n, m), a.dtype).T, addend=d[:1], bias=offset, activation=activation)
    check(
        turned,
        FUNCTIONS[activation](wide(a) @ wide(b) + wide(d[:1]) + (0 if offset is None else wide(offset))),
        dtype,
        1,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [0, 5, 1200])
def test_accumulating_into_out(dtype: str, k: int) -> None:
    rng = np.random.default_rng(5)
    a, b = numbers(rng, (20, k), dtype), numbers(rng, (k, 30), dtype)
    out = rng.integers(-9, 9, (20, 30)).astype(np.int32 if dtype == "i8" else DTYPES[dtype])
    expected = 3 * (wide(a) @ wide(b)) - 2 * wide(out)
    assert matmul(a, b, out, alpha=3, beta=-2) is out
    check(out, expected, dtype, 9 * k + 1)


def test_numbers_that_are_not_finite_pass_through() -> None:
    a = np.array([[np.nan, 1], [np.inf, 1], [1, 2]], np.float32)
    b = np.ones((2, 3), np.float32)
    expected = np.array([[np.nan] * 3, [np.inf] * 3, [3] * 3], np.float32)
    for activation in ("", "relu"):
        np.testing.assert_array_equal(matmul(a, b, activation=activation), expected)
    out = np.full((3, 3), np.nan, np.float32)
    np.testing.assert_array_equal(matmul(a[2:], b, out[2:], beta=0), expected[2:])


BATCHES = [
    ((4, 5, 6), (4, 6, 7)), ((4, 5, 6), (6, 7)), ((5, 6), (4, 6, 7)), ((2, 1, 5, 6), (3, 6, 7)), ((1, 5, 6), (4, 6, 7)),
    ((3, 80, 90), (3, 90, 100)), ((3, 80, 90), (90, 100)), ((0, 5, 6), (6, 7)), ((2, 5, 0), (2, 0, 7)), ((3, 1, 9), (3, 9, 40)),
    ((3, 9, 40), (3, 40, 1)), ((3, 9, 40), (40, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(6)
    a, b = numbers(rng, left, dtype), numbers(rng, right, dtype)
    expected = wide(a) @ wide(b)
    for layouts in (("rows", "rows"), ("columns", "columns"), ("rows", "strided"), ("reversed", "rows")):
        for _ in range(2):
            found = matmul(lay(a, layouts[0]), lay(b, layouts[1]))
            assert found.shape == expected.shape
            check(found, expected, dtype, left[-1])
    moved = np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0)
    check(matmul(moved, b, addend=np.ones((), found.dtype), beta=2), expected + 2, dtype, left[-1])


def test_bits_depend_neither_on_threads_nor_on_layout_nor_on_blocks() -> None:
    rng = np.random.default_rng(7)
    a, b = numbers(rng, (130, 1500), "f32"), numbers(rng, (1500, 210), "f32")
    expected = matmul(a, b)
    before = get_num_threads()
    try:
        for threads, left, right in itertools.product((1, 2, 3), ("rows", "columns"), ("rows", "columns", "strided")):
            set_num_threads(threads)
            np.testing.assert_array_equal(matmul(lay(a, left), lay(b, right)), expected)
        for rows in (1, 4, 7):
            np.testing.assert_array_equal(matmul(a[:rows, :400], b[:400]), matmul(a[:, :400], b[:400])[:rows])
    finally:
        set_num_threads(before)


def test_a_call_seen_before_gives_the_same() -> None:
    rng = np.random.default_rng(9)
    a, b, column = (numbers(rng, shape, "f32") for shape in ((12, 12), (12, 12), (12, 1)))
    row, batch = column.reshape(-1).copy(), numbers(rng, (3, 4, 12), "f32")
    calls: list[tuple[Any, Any, dict[str, Any]]] = [
        (a, b, {}), (a, b, {"bias": row}), (a, b, {"bias": column}), (a, b, {"addend": row}), (a, b, {"addend": a}),
        (a, b, {"addend": a, "beta": 2}), (a, b, {"addend": a, "beta": 0}), (a, b, {"addend": a.T, "bias": row}), (a, a.T, {}),
        (a, column, {}), (a, column, {"bias": column[:1, 0]}), (a, column, {"addend": column}), (batch, b, {}),
        (batch, b, {"bias": row}), (batch, column, {}), (batch, a.T, {"alpha": 3}), (batch[:, :1], column, {}),
        (batch, b, {"bias": row.astype(np.float64)}), (batch, b, {"bias": np.repeat(row, 2)[::2]}),
    ]  # fmt: skip
    for _ in range(3):
        for x, y, options in calls:
            expected = wide(x) @ wide(y) * options.get("alpha", 1)
            expected = (
                expected + options.get("beta", 1) * wide(options.get("addend", np.zeros(()))) + options.get("bias", 0)
            )
            check(matmul(x, y, **options), expected, "f32", 12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("registers", "vector_bytes"), [(16, 16), (16, 32), (32, 64)])
def test_packed_panels_have_room(dtype: str, registers: int, vector_bytes: int) -> None:
    target = host()._replace(registers=registers, vector_bytes=vector_bytes)
    how = arithmetic(dtype, target, packed=True)
    tile, unit = tile_of(how, target), how.size
    for k in (*range(1, 3000, 7), 10_000, 123_457):
        problem = blocking.Problem(1, 500, 500, k, (k * unit, unit), (unit, k * unit), unit, True)
        blocks = blocking.cut(problem, tile, unit, 2, masks=True, dots=False)
        assert blocks.pack_right
        assert -(-blocks.k // how.group) * tile.columns * unit <= PANEL
        assert how.group == 1 or blocks.k % how.group == 0 or blocks.k == k


def test_out_that_shares_memory_or_lies_badly() -> None:
    rng = np.random.default_rng(8)
    a, b = numbers(rng, (20, 20), "f64"), numbers(rng, (20, 20), "f64")
    expected = a @ b
    x = a.copy()
    assert matmul(x, b, x) is x
    np.testing.assert_allclose(x, expected)
    out = np.zeros((40, 60))[::2, ::3]
    np.testing.assert_allclose(matmul(a, b, out), expected)
    memory = rng.normal(size=(21, 20))
    shifted = memory[:-1].copy()
    found = matmul(a, b, memory[1:], addend=memory[:-1])
    np.testing.assert_allclose(found, expected + shifted)


def test_many_plans_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "PLANS", 4)
    for m in range(1, 12):
        a = np.ones((m, 3), np.float32)
        assert matmul(a, a.T).tolist() == [[3.0] * m] * m
    assert len(contraction._plans) <= 4


WRONG = [
    (((2, 3), (4, 5)), {}, ValueError, "3 columns against 4 rows"),
    (((3,), (3, 4)), {}, ValueError, "must be matrices"),
    (((2, 2, 3), (3, 3, 4)), {}, ValueError, "do not broadcast"),
    (((2, 3), (3, 4)), {"beta": 1}, ValueError, "needs an addend"),
    (((2, 3), (3, 4)), {"bias": np.ones(3)}, ValueError, "one number per column"),
    (((2, 3), (3, 4)), {"addend": np.ones((3, 4), np.float32)}, ValueError, "does not broadcast"),
    (((2, 3), (3, 4)), {"activation": "elu"}, ValueError, "must be one of relu"),
    (((2, 3), (3, 4)), {"out": np.ones((2, 4))}, ValueError, "out must be float32 of shape"),
]


@pytest.mark.parametrize(("shapes", "options", "error", "text"), WRONG)
def test_what_does_not_fit_is_refused(shapes: Any, options: Any, error: type[Exception], text: str) -> None:
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    with pytest.raises(error, match=text):
        matmul(a, b, **options)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="float32 and float64; cast them"):
        matmul(np.ones((2, 2), np.float32), np.ones((2, 2)))
    with pytest.raises(TypeError, match="complex128"):
        matmul(np.ones((2, 2), complex), np.ones((2, 2), complex))
    with pytest.raises(TypeError, match="tanh of int32"):
        matmul(np.ones((2, 2), np.int8), np.ones((2, 2), np.int8), activation="tanh")
