"""The verifier: each rule of the loop IR broken once, and the line that is named."""

import pytest

from tests.loops.programs import PROGRAMS, program
from wengert.errors import KernelError
from wengert.loops.ir import Buffer, Fold, Kernel, Let, Loop, Param, Stage, Store, Update, bound
from wengert.loops.scalar import Scalar, const, make, var
from wengert.loops.text import parse
from wengert.loops.verify import unproven, verify


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_that_keep_the_rules(name: str) -> None:
    verify(program(name))


HEAD = "kernel f(x: f32[n: 1], h: f16[n], at: i64[n: 1], k: i32[n], out y: f32[n: 1], inout z: i32[m], a: f32)\n"
BROKEN = {
    # names and dtypes
    "  t = n\n  t = n\n": "the name 't' has a meaning here already",
    "  for n in 0:3\n    y[0] = a\n": "the name 'n' has a meaning",
    "  for i in 0:n\n    t = i\n  for j in 0:n\n    for i in 0:n\n      for i in 0:n\n        y[i] = a\n": "the name 'i'",
    "  y[0] = 1.0_f64\n": "a f64 value is stored in 'y' of dtype f32",
    "  y[0, 0] = a\n": "'y' has 1 dimensions, got 2 indices",
    "  y[k[0]] = a\n": "an index is an i64, got i32",
    "  y[0] = a if n\n": "a guard must be a bool",
    "  t = x[0 if n]\n": "a guard must be a bool",
    "  t = f32{1.0}[a]\n": "a table is read at an integer, got f32",
    "  t = f32{}[n]\n": "a table needs at least one entry",
    "  t = k[0] / k[0]\n": "div is not defined for i32: k[0] / k[0]",
    "  t = exp(n)\n": "exp is not defined for i64",
    "  t = a // a\n": "quotient is not defined for f32",
    "  t = a & a\n": "and is not defined for f32",
    "  t = True + True\n": "add is not defined for bool",
    "  t = h[0] + h[0]\n": "add of f16: it is a way to store; cast to f32 first, as in f32(h[0])",
    "  t = h[0] < h[0]\n": "lt of f16",
    "  t = i32(h[0])\n": "a f16 is cast to and from f32 and f64, not i32",
    "  t = bf16(n)\n": "a bf16 is cast to and from f32 and f64, not i64",
    # buffers
    "  x[0] = a\n": "'x' is an input",
    "  t = y[0]\n  y[0] = a\n": "'y' is read before it is written",
    "  y[0] += a\n": "'y' is read before it is written",
    "  for i in 0:n\n    stage s: f32[n]\n    t = s[0]\n": "'s' is read before it is written",
    "  stage s: f32[k[0]]\n": "the size of a stage is an i64, got i32",
    "  for i in 0:n\n    stage s: f32[i]\n    s[0] = a\n": "the size of a stage is made of sizes and numbers alone, got i",
    "  for i in 0:n by 4 lanes\n    stage s: f32[n]\n    s[0] = a\n": "a stage belongs to one iteration, but loop 'i' runs 4",
    # folds
    "  fold i in 0:n of s: f32 sum\n    t = x[i]\n": "nothing is folded into s in this loop",
    "  fold i in 0:n\n    s = sum(x[i], x[i])\n": "the sum 's' takes values of dtypes ('f32',), got ('f32', 'f32')",
    "  fold i in 0:n\n    s = argmax(x[i], x[i])\n": "takes values of dtypes ('f32', 'i64')",
    "  fold i in 0:n\n    s = max(h[i])\n": "a f16 is a way to store: fold an f32",
    "  fold i in 0:n of s: f32 sum\n    for j in 0:n by 4 lanes\n      s = sum(x[j])\n": "loop 'j' within it runs in 4 lanes",
    "  fold i in 0:n by 2 lanes\n    s = sum(x[i])\n    y[i] = s\n": "what 's' holds so far is not known in a loop with lanes",
    "  fold i in 0:n unroll 2\n    s = sum(x[i])\n    y[i] = s\n": "what 's' holds so far is not known in a loop with lanes",
    "  fold i in 0:n of s: f32 sum\n    y[i] = s\n    s = sum(x[i])\n": "may be read only after its one update",
    "  fold i in 0:n\n    s = sum(x[i])\n    y[i] = s\n    s = sum(a)\n": "may be read only after its one update",
    "  fold i in 0:n\n    s = sum(x[i])\n  t = s.1\n": "'s' has 1 parts, there is no part 1",
    # loops
    "  for i in 0:n step 0\n    y[i] = a\n": "the step of a loop is a positive number, got 0",
    "  for i in 0:n by 65 lanes\n    y[i] = a\n": "a loop has 1 to 64 lanes, got 65",
    "  fold i in 0:n by 3 lanes\n    s = sum(x[i])\n": "combined by halves: a power of two, got 3",
    "  for i in 0:n unroll 0\n    y[i] = a\n": "a loop is unrolled 1 to 64 times, got 0",
    "  for i in a:n\n    y[i] = a\n": "the bounds of a loop are of dtype i64",
    "  parallel i in 0:n of s: f32 sum\n    s = sum(x[i])\n": "a parallel loop cannot fold",
    "  parallel i in 0:n by 8 lanes\n    y[i] = a\n": "a parallel loop has no lanes",
    "  for i in 0:n\n    parallel j in 0:n\n      y[j] = a\n": "a parallel loop within another loop",
    "  parallel i in 0:n\n    y[i] = a\n  z[0] = 0\n": "a parallel loop is the last statement of a kernel",
    "  z[0] = 0\n  parallel i in 0:n\n    y[i] = a\n": "after nothing but named values",
    "  parallel i in 0:at[0]\n    y[i] = a\n": "the bounds of a parallel loop are made of sizes, params and numbers alone",
    "  for i in 0:n by 4 lanes\n    for j in 0:n by 4 lanes\n      y[i] = a\n": "lanes within the lanes of loop 'i'",
    "  for i in 0:n by 4 lanes\n    fold j in 0:i\n      s = sum(x[j])\n    y[i] = s\n": "the bounds of this loop differ",
    "  for i in 0:n by 4 lanes\n    t = i\n    fold j in t:3\n      s = all(True)\n    y[i] = a\n": "the bounds of this loop",
    # iterations that run at once
    "  parallel i in 0:n\n    y[0] = x[i]\n": "two iterations of loop 'i', which run at once, are not proven",
    "  parallel i in 0:n\n    z[at[i]] = 1\n": "two iterations of loop 'i'",
    "  for i in 0:n by 4 lanes\n    z[at[i]] += 1\n": "two iterations of loop 'i'",
    "  for i in 1:n by 4 lanes\n    y[i] = a\n    y[i - 1] = a\n": "two iterations of loop 'i'",
    "  for i in 1:m by 4 lanes\n    z[i] = z[i - 1]\n": "two iterations of loop 'i'",
    "  for i in 0:m by 4 lanes\n    z[i // 2] = 1\n": "two iterations of loop 'i'",
    "  for i in 0:minimum(m, 49) by 8 lanes\n    for j in 0:m\n      z[48 * j + i] = 1\n": "two iterations of loop 'i'",
    "  for i in 0:minimum(m, 48) by 8 lanes\n    for j in 0:m\n      z[24 * j + i] = 1\n": "two iterations of loop 'i'",
    "  parallel b in 0:n step 48\n    for i in 0:minimum(n - b, 49)\n      y[b + i] = a\n": "two iterations of loop 'b'",
    "  stage s: f32[n]\n  for i in 0:n by 4 lanes\n    s[0] = x[i]\n    y[i] = s[0]\n": "two iterations of loop 'i'",
}  # fmt: skip


@pytest.mark.parametrize("body", BROKEN)
def test_broken_rules(body: str) -> None:
    with pytest.raises(KernelError) as caught:
        verify(parse(HEAD + body))
    assert BROKEN[body] in str(caught.value)
    assert " | " in str(caught.value).splitlines()[-1], "the line of the kernel is shown"


INDEPENDENT = [
    "  parallel i in 0:n\n    y[n - 1 - i] = x[i]\n",
    "  for i in 0:m by 8 lanes\n    z[i] = z[i] + 1\n",
    "  for i in 0:m by 3 lanes\n    z[i] = z[i] + 1\n",
    "  for i in 0:minimum(m, 48) by 8 lanes\n    for j in 0:m\n      z[48 * j + i] = z[48 * j + i] + 1\n",
    "  parallel b in 0:n step 48\n    for i in 0:minimum(n - b, 48) step 6\n"
    "      y[b + minimum(i + 5, minimum(n - b, 48) - 1)] = a\n",
    "  for i in 0:m by 8 lanes\n    z[i] += 1\n",
    "  for i in 0:n step 2 by 4 lanes\n    y[i] = a\n    y[i + 1 - 1] = a\n",
    "  for i in 0:minimum(m // 2, m) by 4 lanes\n    z[2 * i] = 1\n    z[2 * i + 1] = 1\n",
    "  parallel b in 0:n step 64\n    for i in b:minimum(b + 64, n) by 8 lanes\n      y[i] = x[i]\n",
    "  for i in 0:n\n    stage s: f32[n]\n"
    "    for j in 0:n by 4 lanes\n      s[j] = x[j]\n    fold j in 0:n by 4 lanes\n      t = sum(s[j])\n    y[i] = t\n",
    "  t = x[0 if n > 0]\n  parallel i in 0:n\n    y[i] = t\n",
]


@pytest.mark.parametrize("body", INDEPENDENT)
def test_iterations_that_are_independent(body: str) -> None:
    verify(parse(HEAD + body))


def one(**changes: object) -> Kernel:
    parts = {"buffers": (Buffer("y", "f32", ("n",), (1,), "out"),), "sizes": ("n",), "body": (), "params": ()} | changes
    return Kernel("f", **parts)  # type: ignore[arg-type]


ZERO = const(0, "i64")
BUILT = [
    (one(buffers=(Buffer("y", "f32", ("m",), (1,), "out"),)), "the dimension 'm' of 'y' is no size"),
    (one(buffers=(Buffer("y", "f32", ("n",), (0,), "out"),)), "its stride 0 makes one element of several"),
    (one(buffers=(Buffer("y", "f32", ("n",), (2,), "in"),)), "only 0 and 1 can be fixed"),
    (one(buffers=(Buffer("y", "f32", ("n",), (), "in"),)), "1 dimensions and 0 strides"),
    (one(buffers=(Buffer("y", "f12", ("n",), (1,), "in"),)), "unknown dtype 'f12'"),
    (one(buffers=(Buffer("y", "f32", ("n",), (1,), "io"),)), "expected in, out or inout"),
    (one(params=(Param("p", "f12"),)), "unknown dtype 'f12'"),
    (one(body=(Let("inf_f64", ZERO),)), "'inf_f64' cannot be a name"),
    (one(body=(Let("for", ZERO),)), "'for' cannot be a name"),
    (one(sizes=("n", "n")), "the name 'n' has a meaning"),
    (one(body=(Let("t", var("q", "f32")),)), "'q' is not defined here"),
    (one(body=(Store("q", (), const(1, "f32")),)), "'q' is no buffer here; known are y"),
    (one(body=(Let("t", make("size", (), "i32", "n")),)), "'n' is a i64, read as a i32"),
    (one(body=(Update("s", (const(1, "f32"),)),)), "'s' is no fold of a loop around this line"),
    (one(body=(Stage("s", "f32", const(1, "i32")),)), "the size of a stage is an i64"),
    (one(body=(Loop("i", ZERO, bound("n"), (Update("s", (const(1, "f32"),)),), (Fold("s", "f32", "mean"),)),)), "'mean'"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "message"), BUILT)
def test_kernels_that_have_no_text(kernel: Kernel, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        verify(kernel)
    assert message in str(caught.value)


def test_a_value_is_not_known_after_its_loop() -> None:
    kernel = parse(HEAD + "  for i in 0:n\n    t = x[i]\n    y[i] = t\n")
    escaped: Scalar = var("t", "f32")
    with pytest.raises(KernelError, match="'t' is not defined here"):
        verify(kernel.with_body((*kernel.body, Let("u", escaped))))


UNPROVEN = [
    ("  for i in 0:n\n    y[i] = x[at[i]]\n", [("x", 0)]),
    ("  for i in 0:n\n    y[i] = x[at[i] if (at[i] >= 0) & (at[i] < n)]\n", []),
    ("  for i in 0:n\n    y[i] = x[maximum(minimum(at[i], n - 1), 0)]\n", []),
    ("  y[0] = a\n", [("y", 0)]),
    ("  y[0] = a if n > 0\n", []),
    ("  for i in 0:m\n    y[i] = a if i < n\n    z[i - 1] = 1\n", [("z", 0)]),
    ("  for i in 0:n\n    y[i] = f32{1.0, 2.0}[i]\n", [("", 0)]),
    ("  for i in 0:n\n    y[i] = f32{1.0, 2.0}[i & 1]\n", []),
    ("  for i in 0:n\n    t = i + 1\n    y[i] = x[t if t < n]\n", []),
    ("  for i in 0:m\n    t = z[i]\n    z[i] = 0\n    z[i64(z[i])] = t\n", [("z", 0)]),
    ("  for i in 0:n\n    stage s: f32[4]\n    s[3] = a\n    s[i % 4] = a\n    s[i % 5] = a\n", [("s", 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), UNPROVEN)
def test_accesses_that_may_be_outside(body: str, expected: list[tuple[str, int]]) -> None:
    kernel = parse(HEAD + body)
    verify(kernel)
    assert [(u.buffer, u.axis) for u in unproven(kernel)] == expected


def test_a_guard_read_earlier_does_not_hold_later() -> None:
    """z[0] may have changed between the guard's value and the index."""
    kernel = parse(
        HEAD + "  t = i64(z[0 if m > 0])\n  ok = (t >= 0) & (t < m)\n"
        "  z[0] = 99 if m > 0\n  z[i64(z[0 if m > 0])] = 1 if ok & (m > 0)\n"
    )
    verify(kernel)
    assert [(u.buffer, u.axis) for u in unproven(kernel)] == [("z", 0)]
