"""Every machine operation beside NumPy: all dtypes, one element and vectors, the ends of the dtypes, NaN and both zeros."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from wengert.codegen.emit import emit
from wengert.codegen.engine import load
from wengert.codegen.operations import OPERATIONS
from wengert.codegen.target import host
from wengert.loops import numerics
from wengert.loops.ir import Buffer, Kernel, Loop, Store, bound
from wengert.loops.ir import load as element
from wengert.loops.numerics import numpy_dtype
from wengert.loops.scalar import (
    DTYPES,
    Scalar,
    bits,
    cast,
    const,
    index,
    is_float,
    is_integer,
    lookup,
    make,
    rarely,
    select,
)

FLOATS = ("f32", "f64")
INTEGERS = tuple(d for d in DTYPES if is_integer(d))
HALVES = ("f16", "bf16")
NARROW = os.environ.get("WENGERT_VECTOR_BYTES") == "16"
Case = tuple[Scalar, Any]  # an expression, and what NumPy gives


def lanes_of(dtype: str) -> list[int]:
    """Return one element, a vector, an odd number of elements, and several vectors with a rest."""
    vector = max(2, host().vector_bytes * 8 // max(8, DTYPES[dtype]))
    return [vector] if NARROW else [1, vector, 3, min(64, 2 * vector)]


def numbers(dtype: str) -> Any:
    """Return the numbers of a dtype at which operations may go wrong."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if is_integer(dtype):
        info, width = np.iinfo(kind), DTYPES[dtype]
        found = [0, 1, 2, 3, 5, 7, width - 1, width, info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
        return np.array(found + ([-1, -2, -3, -7] if info.min else []), kind)
    tiny, least = (2.0**-126, 2.0**-149) if dtype == "f32" else (2.0**-1022, 2.0**-1074)
    top = 3.4028234663852886e38 if dtype == "f32" else 1.7976931348623157e308
    positive = [0.0, 0.5, 1.0, 1.5, 2.5, 1 / 3, 3.0, 8388607.5, 4503599627370495.5, tiny, least, top, np.inf, np.nan]
    return np.array([sign * x for x in positive for sign in (1, -1)], kind)


def pairs(values: Any) -> tuple[Any, Any]:
    """Return each number beside each."""
    x, y = np.meshgrid(values, values)
    return x.ravel(), y.ravel()


def run(expressions: Sequence[Scalar], inputs: Sequence[Any], lanes: int) -> list[Any]:
    """Return what machine code computes of elements of inputs, in a loop of its own for each expression."""
    module, names = ir.Module("operations"), [f"k{n}" for n in range(len(expressions))]
    text, found = "", []
    for name, x in zip(names, expressions, strict=True):
        out = Buffer("out", x.dtype, ("n",), (1,), "out")
        loop = Loop("i", bound(0), bound("n"), (Store("out", (index("i"),), x),), lanes=lanes)
        text = emit(
            Kernel(name, (*map(buffer, range(len(inputs)), map(name_of, inputs)), out), ("n",), (loop,)), name, module
        )
    code = load(text, names)
    for name, x in zip(names, expressions, strict=True):
        result = np.zeros(len(inputs[0]), numpy_dtype(x.dtype))
        addresses = [a.__array_interface__["data"][0] for a in (*inputs, result)]
        slots = (ctypes.c_int64 * (len(addresses) + 1))(*addresses, len(result))
        function = code.function(name, None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        function(ctypes.addressof(slots), 0, 1)
        found.append(result)
    return found


@cache
def buffer(place: int, dtype: str) -> Buffer:
    return Buffer(f"x{place}", dtype, ("n",), (1,), "in")


def name_of(array: Any) -> str:
    return next(d for d in DTYPES if numpy_dtype(d) == array.dtype)


def arguments(inputs: Sequence[Any]) -> list[Scalar]:
    return [element(buffer(n, name_of(a)), "i") for n, a in enumerate(inputs)]


def check(inputs: Sequence[Any], cases: Sequence[Case], lanes: int) -> None:
    """Compare bits, but for those of a NaN."""
    for got, (x, want) in zip(run([x for x, _ in cases], inputs, lanes), cases, strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype, x
        same = got.view(f"u{got.itemsize}") == np.ascontiguousarray(want).view(f"u{want.itemsize}")
        with np.errstate(invalid="ignore"):
            same |= (got != got) & (want != want)
        wrong = np.flatnonzero(~same)[:3]
        assert not len(wrong), (x, lanes, [(*(a[k] for a in inputs), got[k], want[k]) for k in wrong])


def second_of_equals(better: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: np.where(better(a, b) | (a != a), a, b)


COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
CHOICE = {"minimum": second_of_equals(np.less), "maximum": second_of_equals(np.greater)}
NUMBERS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
WHOLE = {"quotient": np.floor_divide, "remainder": np.remainder}
SHIFTS = {"shl": np.left_shift, "shr": np.right_shift}
ROUNDING = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint}
Table = dict[str, Callable[..., Any]]


def binary(dtype: str) -> Table:
    """Return the operations of two operands of a dtype."""
    if is_integer(dtype):
        return {**COMPARE, **CHOICE, **NUMBERS, **BITS, **WHOLE, **SHIFTS}
    if dtype == "bool":
        return {**COMPARE, **CHOICE, **BITS}
    return {**COMPARE, **CHOICE, **NUMBERS, "div": np.divide, "copysign": np.copysign}


def unary(dtype: str) -> Table:
    """Return the operations of one operand of a dtype."""
    if is_integer(dtype):
        return {"neg": np.negative, "abs": np.abs, "not": np.bitwise_not}
    if dtype == "bool":
        return {"not": np.logical_not}
    return {**ROUNDING, "sqrt": np.sqrt, "neg": np.negative, "abs": np.abs}


def test_every_operation_is_in_a_table() -> None:
    named = {name for d in DTYPES for name in (*binary(d), *unary(d))}
    assert named | {"fma"} == set(OPERATIONS)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in HALVES])
@pytest.mark.parametrize("kind", range(1 if NARROW else 4))
def test_operations_of_two(dtype: str, kind: int) -> None:
    inputs = pairs(numbers(dtype))
    x, y = arguments(inputs)
    with np.errstate(all="ignore"):
        cases = [(make(op, (x, y)), f(*inputs)) for op, f in binary(dtype).items()]
    check(inputs, cases, lanes_of(dtype)[kind])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in HALVES])
@pytest.mark.parametrize("kind", range(1 if NARROW else 4))
def test_operations_of_one(dtype: str, kind: int) -> None:
    inputs = (numbers(dtype),)
    (x,) = arguments(inputs)
    with np.errstate(all="ignore"):
        cases = [(make(op, (x,)), f(*inputs)) for op, f in unary(dtype).items()]
    check(inputs, cases, lanes_of(dtype)[kind])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_constant_operands(dtype: str) -> None:
    """A divisor or an amount to shift by that is known is emitted in a way of its own."""
    inputs, width = (numbers(dtype),), DTYPES[dtype]
    (x,) = arguments(inputs)
    kind, cases = numpy_dtype(dtype).type, list[Case]()
    with np.errstate(all="ignore"):
        for number in (0, 1, 3, 8, width - 1, width, *((-1, -8) if dtype[0] == "i" else ())):
            cases += [(make(op, (x, const(number, dtype))), f(inputs[0], kind(number))) for op, f in WHOLE.items()]
            if number >= 0:
                cases += [(make(op, (x, const(number, dtype))), f(inputs[0], kind(number))) for op, f in SHIFTS.items()]
    for lanes in lanes_of(dtype)[:2]:
        check(inputs, cases, lanes)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_product_and_a_sum_that_are_rounded_once(dtype: str) -> None:
    values = numbers(dtype)[::2]
    inputs = tuple(np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, -values, values))
    with np.errstate(all="ignore"):
        case = make("fma", tuple(arguments(inputs))), numerics.fma(*inputs)
    for lanes in lanes_of(dtype):
        check(inputs, [case], lanes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices(dtype: str) -> None:
    with np.errstate(over="ignore"):
        values = numbers(dtype if dtype not in HALVES else "f32").astype(numpy_dtype(dtype))
    n = len(values)
    inputs = (np.arange(n) % 3 == 0, values, np.ascontiguousarray(values[::-1]))
    condition, x, y = arguments(inputs)
    want = np.where(*inputs)
    cases: list[Case] = [(select(condition, x, y), want), (rarely(condition, x, y), want)]
    for lanes in lanes_of(dtype):
        check(inputs, cases, lanes)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in HALVES])
def test_conversions(dtype: str) -> None:
    """Integers wrap, and so do floats, as far as 32 or 64 bits hold them."""
    values = numbers(dtype)
    if is_float(dtype):
        edges = [
            s * (2.0**k + d) for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)
        ]
        values = np.concatenate([values, np.array(edges, values.dtype)])
    inputs = (values,)
    (x,) = arguments(inputs)
    with np.errstate(all="ignore"):
        cases = [(make("cast", (x,), d), converted(values, d)) for d in DTYPES if d not in HALVES and d != dtype]
    for lanes in lanes_of(dtype)[:2]:
        check(inputs, cases, lanes)


def converted(values: Any, dtype: str) -> Any:
    """Return NumPy's conversion, and for a float to an integer Python's whole numbers: their low bits."""
    kind = numpy_dtype(dtype)
    if values.dtype.kind != "f" or kind.kind not in "iu":
        return values.astype(kind)
    limit = 2**31 if kind.itemsize < 4 or dtype == "i32" else 2**63
    top = 2 * limit if dtype == "u64" else limit
    whole = [int(v) if -limit <= v < top else 0 if v >= top > limit else -limit for v in values.tolist()]
    return np.array([w % 2**64 for w in whole], np.uint64).astype(kind)


@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_as_a_float_and_back(dtype: str) -> None:
    kind = numpy_dtype(dtype)
    inputs = (np.arange(1 << 16, dtype=np.uint16).view(kind),)
    (x,) = arguments(inputs)
    with np.errstate(invalid="ignore"):  # some of the NaN are signaling ones
        cases: list[Case] = [(cast(x, d), inputs[0].astype(numpy_dtype(d))) for d in FLOATS]
    cases += [(cast(cast(x, d), dtype), inputs[0]) for d in FLOATS]
    cases += [(bits(x, d), inputs[0].view(numpy_dtype(d))) for d in ("u16", "i16")]
    for lanes in (1, 3, 8, 16):
        check(inputs, cases, lanes)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("source", FLOATS)
def test_floats_rounded_to_halves(dtype: str, source: str) -> None:
    """Halfway between any two neighbours, a little beside, and far outside."""
    kind = numpy_dtype(source)
    halves = np.arange(0x7C00 if dtype == "f16" else 0x7F80, dtype=np.uint16).view(numpy_dtype(dtype)).astype(kind)
    middle = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(kind)
    around = [np.nextafter(middle, kind.type(end)) for end in (-np.inf, np.inf)]
    values = np.concatenate([middle, *around, numbers(source), [65504, 65519.99, 65520, 65536]]).astype(kind)
    inputs = (np.concatenate([values, -values]),)
    (x,) = arguments(inputs)
    with np.errstate(all="ignore"):
        want = numerics.convert(inputs[0], dtype)
    for lanes in (1, 3, 8):
        check(inputs, [(cast(x, dtype), want)], lanes)


@pytest.mark.parametrize(
    ("old", "new"), [(a, b) for a in DTYPES for b in DTYPES if a != b and DTYPES[a] == DTYPES[b] > 1]
)
def test_bits_stay(old: str, new: str) -> None:
    whole = numbers(old.replace("bf", "u").replace("f", "u"))
    inputs = (whole.view(numpy_dtype(old)),)
    (x,) = arguments(inputs)
    for lanes in lanes_of(old)[:3]:
        check(inputs, [(bits(x, new), whole.view(numpy_dtype(new)))], lanes)


@pytest.mark.parametrize("dtype", ["u8", "i32", "i64", "u64"])
def test_tables(dtype: str) -> None:
    inputs = (np.array([0, 4, 1, 3, 2, 2, 0], numpy_dtype(dtype)),)
    (x,) = arguments(inputs)
    for kind, table in (
        ("f32", (0.5, -0.0, np.inf, 3.0, 1e-40)),
        ("i64", (1, -(2**63), 2**63 - 1, 0, 7)),
        ("u8", (9, 255, 0, 1, 2)),
    ):
        want = np.array(table, numpy_dtype(kind))[inputs[0].astype(int)]
        for lanes in lanes_of(dtype)[:3]:
            check(inputs, [(lookup(table, x, kind), want)], lanes)


@pytest.mark.skipif(NARROW, reason="this is the narrow run")
def test_narrow_vectors() -> None:
    """All of this in vectors of 16 bytes, on x86 with no instruction that came after the first processors."""
    oldest = {"WENGERT_CPU": "x86-64"} if host().triple.startswith("x86_64") else {}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, **oldest, "WENGERT_VECTOR_BYTES": "16", "WENGERT_CACHE": "0"}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]
