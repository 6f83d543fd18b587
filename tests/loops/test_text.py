"""The text of kernels: printed and parsed back exactly; what is no kernel is refused with its place."""

import math
import time

import pytest

from tests.loops.programs import PROGRAMS, program
from wengert.errors import KernelError
from wengert.loops.accesses import expressions
from wengert.loops.ir import Buffer, Fold, Kernel, Let, Loop, Store, Update, bound, load, walk
from wengert.loops.scalar import DTYPES, Scalar, const, index, is_float, make, param, postorder, var
from wengert.loops.text import line_of, parse, show, show_scalar


@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip(name: str) -> None:
    kernel = program(name)
    assert show(kernel) == PROGRAMS[name]
    assert parse(show(kernel)) == kernel


NUMBERS = [
    const(v, d)
    for d in DTYPES
    if is_float(d)
    for v in (0.0, -0.0, 1.0, -1.5, 0.1, 1e30, 1e-38, math.inf, -math.inf, math.nan)
]
NUMBERS += [const(v, d) for d in DTYPES if not is_float(d) and d != "bool" for v in (0, 1, -1, 2**63)]
NUMBERS += [const(True, "bool"), const(False, "bool")]


@pytest.mark.parametrize("x", NUMBERS, ids=repr)
def test_numbers(x: Scalar) -> None:
    """A number alone, beside one of its dtype, as an operand of a minus, and in a conversion."""
    a = param("a", x.dtype)
    forms = [x, make("eq", (a, x)), make("eq", (x, a)), make("cast", (x,), "f64"), make("minimum", (x, x))]
    if x.dtype != "bool":
        forms += [-x, make("neg", (-x,)), x - x, a - x, x - a, -x - -a]
    for form in forms:
        kernel = Kernel("f", (), (), (Let("t", form),), ())
        text = show(kernel).replace("()", f"(a: {x.dtype})", 1)
        found = parse(text).body[0]
        assert isinstance(found, Let)
        assert found.value is form, show_scalar(form)


def test_precedence_is_pythons() -> None:
    a, b, c = (param(n, "i32") for n in "abc")
    cases = {
        "a - (b - c)": a - (b - c), "a - b - c": a - b - c, "a * (b + c)": a * (b + c), "a * b + c": a * b + c,
        "(a | b) & c": (a | b) & c, "a | b & c": a | (b & c), "a << b + c": a << (b + c), "(a << b) + c": (a << b) + c,
        "-(a + b)": -(a + b), "-a + b": -a + b, "~(a ^ b)": ~(a ^ b), "(a < b) & (b < c)": a.lt(b) & b.lt(c),
        "(a < b) == (b < c)": a.lt(b).eq(b.lt(c)), "a | b < c": (a | b).lt(c), "a % b // c": a % b // c,
        "a // (b % c)": a // (b % c),
    }  # fmt: skip
    for text, x in cases.items():
        assert show_scalar(x) == text
        kernel = parse(f"kernel f(a: i32, b: i32, c: i32)\n  t = {text}\n")
        assert kernel.body == (Let("t", x),)


def test_folds_that_the_updates_do_not_tell_are_spelled_out() -> None:
    """An update in an inner fold that belongs to the outer one, folds in another order, two updates, none."""
    x = Buffer("x", "f32", ("n", "m"), (None, 1))
    cell = load(x, "i", "j")
    zero = const(0, "i64")
    inner = Loop(
        "j",
        zero,
        bound("m"),
        (Update("s", (cell,)), Update("t", (cell,)), Update("s", (cell,))),
        (Fold("t", "f32", "max"),),
    )
    outer = Loop("i", zero, bound("n"), (inner,), (Fold("s", "f32", "sum"),))
    kernel = Kernel("f", (x,), ("n", "m"), (outer,))
    assert "fold i in 0:n of s: f32 sum\n    fold j in 0:m of t: f32 max\n" in show(kernel)
    assert parse(show(kernel)) == kernel


def test_sizes_are_given_where_the_dimensions_do_not_tell_them() -> None:
    x = Buffer("x", "f32", ("n", "m"), (None, 1))
    assert show(Kernel("f", (x,), ("n", "m"), ())).startswith("kernel f(x")
    for sizes in (("m", "n"), ("n", "m", "k")):
        kernel = Kernel("f", (x,), sizes, ())
        assert show(kernel).startswith(f"kernel f[{', '.join(sizes)}](x")
        assert parse(show(kernel)) == kernel


def test_a_repeated_part_of_a_long_expression_is_printed_once() -> None:
    """x·x 60 times over would be 2⁶⁰ characters."""
    x: Scalar = param("a", "f32")
    for _ in range(60):
        x = x * x + 1.0
    kernel = parse("kernel f(a: f32, out y: f32[])\n").with_body((Store("y", (), x),))
    began = time.perf_counter()
    text = show(kernel)
    assert len(text) < 4000
    assert parse(text) == kernel
    assert time.perf_counter() - began < 5


def test_a_deep_expression_is_printed_in_parts() -> None:
    x: Scalar = param("a", "f32")
    for n in range(5000):
        x = x + float(n)
    kernel = parse("kernel f(a: f32, out y: f32[])\n").with_body((Store("y", (), x),))
    assert parse(show(kernel)) == kernel


def test_comments_and_broken_lines() -> None:
    text = (
        "# a kernel\nkernel f(x: f32[n],  # the input\n         out y: f32[n])\n\n"
        "  for i in 0:n\n    # twice\n    y[i] = (x[i]\n  + x[i])\n"
    )
    assert show(parse(text)) == "kernel f(x: f32[n], out y: f32[n])\n  for i in 0:n\n    y[i] = x[i] + x[i]\n"


MISTAKES = {
    "kernel f(x: f32[n])\n  for i in 0:n\n    x[i] = y[i]\n": "line 3, column 12: 'y' is no buffer",
    "kernel f(x: f32[n])\n  for i in 0:n\n      x[i] = 2\n    x[i] = 3\n": "line 4, column 5: indented to column 5",
    "kernel f(x: f32[n])\n  a = 1 + 2\n": "line 2, column 7: expected a dtype after the number, as in 1_i64",
    "kernel f(x: f32[n])\n  a = -(1.5)\n": "as in 1.5_f32",
    "kernel f(x: f32[n: 2])\n": "line 1, column 20: a fixed stride is 0 or 1, not 2",
    "kernel f(x: f32[n])\n  a = n < n < n\n": "line 2, column 13: comparisons do not chain",
    "kernel f(x: f32[n])\n  a = n + 1.0_f32\n": "line 2, column 9: add takes operands of one dtype, got ['i64', 'f32']",
    "kernel f(x: f32[n])\n  a = n + 1.5\n": "line 2, column 11: expected a number of dtype i64, found 1.5",
    "kernel f(x: f32[n])\n  fold a in 0:n\n    x[a] = 0.0\n": "line 2, column 3: a fold loop without an update",
    "kernel f(x: f32[n])\n  a = foo(n)\n": "line 2, column 7: 'foo' is no function of a kernel",
    "kernel f(x: f32[n])\n  a = exp(n, n)\n": "exp takes 1 arguments, got 2",
    "kernel f(x: f32[n])\n  a = (n +\n": "expected an expression, found the end of the line",
    "kernel f(x: f32[n])\n  for a in 0:n by 8\n    x[a] = 0.0\n": "line 2, column 20: expected 'lanes'",
    "kernel f(x: f32[n])\n  a = 300_u8\n": "line 2, column 7: 300 does not fit in u8",
    "kernel f(x: f32[n])\n  a = bits(n, f32)\n": "bits: i64 and f32 differ in width",
    "kernel f(x: f32[n])\n  s = sum(n)\n": "line 2, column 7: 's' is no fold of a loop around this line",
    "kernel f(x: f32[n])\n  fold i in 0:n of s: i64 max\n    s = sum(i)\n": "the fold 's' is a max, not a sum",
    "kernel f(x: f32[n n])\n": "line 1, column 19: expected ',' or ']', found 'n'",
    "kernel f(x: f32[n], x: f32[n])\n": "the name 'x' is given twice",
    "kernel f(out a: f32)\n": "only a buffer can be 'out'",
    "kernel f(x: f31[n])\n": "line 1, column 13: expected a dtype (bool, i8",
    "kernel for(x: f32[n])\n": "expected the kernel's name, found 'for'",
    "kernel f(x: f32[n])\n  a = x\n": "'x' is a buffer: expected '[' after it",
    "kernel f(x: f32[n])\n  a = b\n": "'b' is not defined",
    "kernel f(x: f32[n])\n  a = $1\n": "$1 is not defined",
    "kernel f(x: f32[n])\n  a = n @ n\n": "line 2, column 9: '@' is no part of a kernel",
    "kernel f(x: f32[n])\na = n\n": "line 2, column 1: expected a statement of the kernel, further indented",
    "kernel f(x: f32[n])\n  a = f32{}[n] n\n": "expected the end of the line, found 'n'",
    "": "expected 'kernel'",
    "kernel f(a: f32)\n  t = " + "(" * 5000 + "a" + ")" * 5000 + "\n": "nested too deeply",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named_with_their_place(text: str) -> None:
    with pytest.raises(KernelError) as caught:
        parse(text)
    assert MISTAKES[text] in str(caught.value)


def test_a_mistake_is_pointed_at() -> None:
    with pytest.raises(KernelError) as caught:
        parse("kernel f(x: f32[n])\n  a = n + b\n")
    assert str(caught.value).splitlines()[1:] == ["   2 |   a = n + b", "     |           ^"]


def test_the_line_of_a_statement() -> None:
    kernel = program("columns")
    loop = kernel.body[0]
    assert isinstance(loop, Loop)
    assert line_of(kernel, loop.body[1]) == "   5 |     y[j] = s"
    assert line_of(kernel, Let("q", index("j"))) == "     | q = j"


def test_parts_of_a_fold() -> None:
    kernel = program("everything")
    nodes = postorder(x for s in walk(kernel.body) for x in expressions(s))
    assert {var("c", "f32"), var("c", "i64", 1)} & set(nodes) == {var("c", "i64", 1)}
