"""Moves: what they turn a kernel into, what they refuse, and that the kernel computes the same."""

from typing import Any

import numpy as np
import pytest

from tests.loops.programs import program
from wengert.errors import KernelError
from wengert.loops.choose import choice, choose
from wengert.loops.cost import bytes_of, flops_of
from wengert.loops.evaluate import evaluate
from wengert.loops.ir import Kernel
from wengert.loops.moves import Move, apply, find, split_fold
from wengert.loops.text import parse, show
from wengert.loops.verify import unproven


def body(kernel: Kernel) -> str:
    return show(kernel).partition("\n")[2]


AFTER = [
    ("copy", [("tile", "i", 64)], """\
  for i_block in 0:n step 64
    for i in i_block:minimum(i_block + 64, n)
      y[i] = x[i]
"""),
    ("total", [("tile", "i", 64), ("vectorize", "i", 8), ("unroll", "i", 4)], """\
  a = 2 * n
  fold i_block in 0:n step 64
    fold i in i_block:minimum(i_block + 64, n) by 8 lanes unroll 4
      s_block = sum(x[i])
      w_block = welford(1.0_f32, x[i], 0.0_f32)
    s = sum(s_block)
    w = welford(w_block, w_block.1, w_block.2)
  y[] = s + f32(a) + w.1
"""),
    ("running", [("tile", "i", 4)], """\
  fold i_block in 0:n step 4
    for i in i_block:minimum(i_block + 4, n)
      s = sum(x[i])
      y[i] = s
"""),
    ("transpose", [("tile", "j", 8), ("reorder", "i"), ("parallelize", "j_block"), ("vectorize", "i", 8)], """\
  parallel j_block in 0:m step 8
    for i in 0:n by 8 lanes
      for j in j_block:minimum(j_block + 8, m)
        y[j, i] = x[i, j]
"""),
    ("softmax", [("stage", "i", "x"), ("parallelize", "i"), ("vectorize", "j.0", 8)], """\
  parallel i in 0:n
    stage x_row: f32[d]
    for x_place in 0:d
      x_row[x_place] = x[i, x_place]
    fold j in 0:d by 8 lanes
      m = max(x_row[j])
    fold j in 0:d
      s = sum(exp(x_row[j] - m))
    for j in 0:d
      y[i, j] = exp(x_row[j] - m) / s
"""),
    ("columns", [("vectorize", "j", 8)], """\
  for j in 0:m by 8 lanes
    fold i in 0:n
      s = sum(x[i, j])
    y[j] = s
"""),
    ("columns", [("stage", "j", "x", 0)], """\
  for j in 0:m
    stage x_row: f32[n]
    for x_place in 0:n
      x_row[x_place] = x[x_place, j]
    fold i in 0:n
      s = sum(x_row[i])
    y[j] = s
"""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "schedule", "expected"), AFTER)
def test_what_moves_make(name: str, schedule: list[Move], expected: str) -> None:
    kernel = program(name)
    moved = apply(kernel, schedule).kernel
    assert body(moved) == expected
    assert not unproven(moved)
    same(kernel, moved)


def same(kernel: Kernel, moved: Kernel) -> None:
    """Both kernels compute the same from the same arrays."""
    for n in (0, 1, 5, 9):
        for m in (0, 3, 8):
            sizes = {"n": n, "m": m, "d": m, "k": 3}
            results = []
            for each in (kernel, moved):
                r = np.random.default_rng(0)
                arrays = {
                    b.name: r.normal(size=[sizes[str(d)] for d in b.dims]).astype(np.float32) for b in kernel.buffers
                }
                evaluate(each, arrays)
                results.append(arrays["y"])
            np.testing.assert_allclose(results[0], results[1], rtol=1e-5)


def test_fuse() -> None:
    text = (
        "kernel f(x: f32[n], out y: f32[n], out z: f32[])\n  fold i in 0:n\n    s = sum(x[i])\n    y[i] = x[i]\n"
        "  fold k in 0:n\n    t = sum(x[k] * y[k])\n  z[] = s + t\n"
    )
    assert body(apply(parse(text), [("fuse", "i")]).kernel) == (
        "  fold i in 0:n\n    s = sum(x[i])\n    y[i] = x[i]\n    t = sum(x[i] * y[i])\n  z[] = s + t\n"
    )


HEAD = "kernel f(x: f32[n, m], out y: f32[n, m], inout z: f32[n], a: f32)\n"
TWO = HEAD + "  for i in 0:n\n    z[i] = a\n  for k in 0:n\n    z[{}] = z[{}] + 1.0\n"
REFUSED = [
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("tile", "i", 0), "a block has at least one iteration, got 0"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("tile", "q", 4), "no loop of f has the variable 'q'; known are i"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("tile", "i.1", 4), "there are 1 loops over 'i', so no 'i.1'"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n  for i in 0:n\n    z[i] = a\n", ("tile", "i", 4), "name one i.0 … i.1"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("dance", "i"), "'dance' is no move; known are tile"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("reorder", "i"), "the loop must consist of one loop"),
    (HEAD + "  for i in 0:n\n    for j in 0:i\n      y[i, j] = a\n", ("reorder", "i"), "the bounds of this loop depend on 'i'"),
    (HEAD + "  for i in 1:n\n    for j in 1:m\n      y[i, j] = a\n      y[i - 1, j] = a\n", ("vectorize", "i", 4), "proven"),
    (HEAD + "  for i in 0:n\n    for j in 0:n\n      z[j] = f32(i)\n", ("vectorize", "i", 4), "two iterations of loop 'i'"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      z[i] = z[i] * f32(j)\n", ("vectorize", "j", 4), "two iterations"),
    (HEAD + "  fold i in 0:n\n    s = sum(z[i])\n  z[0] = s\n", ("parallelize", "i"), "a parallel loop"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("vectorize", "i", 65), "a loop has 1 to 64 lanes"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      y[i, j] = x[i, j]\n", ("stage", "i", "y"), "'y' is written in this loop"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      y[i, j] = x[i, j]\n", ("stage", "i", "q"), "'q' is no buffer"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      y[i, j] = a\n", ("stage", "i", "x"), "'x' is not read in this loop"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      y[i, j] = x[i, j]\n", ("stage", "i", "x", 0), "reads several rows"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      y[i, j] = x[i, j if j > 1]\n", ("stage", "i", "x"), "read under a guard"),
    (HEAD + "  for i in 0:n\n    for j in 0:m\n      y[i, j] = x[i + 1, j]\n", ("stage", "i", "x"), "not proven to be inside"),
    (TWO.format("k", "n - 1 - k"), ("fuse", "i"), "may need 'z' as a later one of the first leaves it"),
    (TWO.format("k", "k + 1"), ("fuse", "i"), "may need 'z'"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n", ("fuse", "i"), "followed by another loop"),
    (HEAD + "  for i in 0:n\n    z[i] = a\n  for k in 0:m\n    y[0, k] = a\n", ("fuse", "i"), "differs from loop 'i'"),
    (HEAD + "  fold i in 0:n\n    s = sum(z[i])\n  for k in 0:n\n    z[k] = s\n", ("fuse", "i"), "needs the result"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "move", "message"), REFUSED)
def test_what_moves_refuse(text: str, move: Move, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        apply(parse(text), [move])
    assert message in str(caught.value)


def test_a_swap_that_would_turn_a_dependence_around() -> None:
    """y[i, j] needs y[i - 1, j + 1], which a swap would compute later; y[i - 1, j - 1] it would compute before, too."""
    text = "kernel f(inout y: f32[n, m])\n  for i in 1:n\n    for j in 1:m - 1\n      y[i, j] = y[i - 1, j {} 1]\n"
    with pytest.raises(KernelError, match="a later iteration may use an element"):
        apply(parse(text.format("+")), [("reorder", "i")])
    assert "for j in 1:m - 1\n    for i in 1:n" in show(apply(parse(text.format("-")), [("reorder", "i")]).kernel)


def test_two_phases() -> None:
    kernel = program("total")
    first, second = split_fold(kernel, "i", 4)
    assert body(first).startswith(
        "  a = 2 * n\n  parallel block in 0:blocks\n    fold i in block * 4:minimum(block * 4 + 4, n)\n"
    )
    x = np.random.default_rng(0).normal(size=11).astype(np.float32)
    arrays: dict[str, Any] = {b.name: np.zeros(3, np.float32) for b in first.buffers if b.name != "x"}
    evaluate(first, {"x": x, **arrays}, {"blocks": 3})
    y, expected = np.zeros((), np.float32), np.zeros((), np.float32)
    evaluate(second, {"y": y, **arrays}, {"n": 11})
    evaluate(kernel, {"x": x, "y": expected})
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_two_phases_are_refused() -> None:
    for name, message in [
        ("columns", "expected a fold at the top"),
        ("copy", "expected a fold"),
        ("running", "the loop also stores"),
    ]:
        with pytest.raises(KernelError, match=message):
            split_fold(program(name), "i", 4)


def test_the_history_is_printed() -> None:
    text = apply(program("copy"), [("tile", "i", 64), ("parallelize", "i_block")]).explain()
    assert text.count("kernel copy(") == 3
    assert "tile('i', 64)\n" in text
    assert text.endswith(show(apply(program("copy"), [("tile", "i", 64), ("parallelize", "i_block")]).kernel))


def test_finding_loops() -> None:
    assert find(program("softmax"), "j.2").path == (0, 2)
    assert [loop.variable for loop in find(program("columns"), "i").around] == ["j"]


CHOICES = [
    ("copy", [("vectorize", "i", 8), ("tile", "i", 4096), ("parallelize", "i_block")]),
    ("total", [("vectorize", "i", 8), ("unroll", "i", 4)]),
    ("columns", [("vectorize", "j", 8), ("tile", "j", 64), ("parallelize", "j_block")]),
    ("softmax", [("vectorize", "j.0", 8), ("unroll", "j.0", 4), ("vectorize", "j.1", 8), ("unroll", "j.1", 2),
                 ("vectorize", "j.2", 8), ("parallelize", "i")]),
    ("running", []),
    ("scatter", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "schedule"), CHOICES)
def test_the_default_choice(name: str, schedule: list[Move]) -> None:
    assert choice(program(name), 32) == schedule
    assert choose(program(name), 32) == apply(program(name), schedule).kernel


def test_lanes_follow_the_narrowest_dtype_that_is_computed_with() -> None:
    text = "kernel f(x: {0}[n: 1], out y: {0}[n: 1])\n  for i in 0:n\n    y[i] = {1}\n"
    for dtype, value, lanes in [
        ("f64", "x[i] * x[i]", 4),
        ("u8", "x[i] + 1", 32),
        ("f16", "f16(f32(x[i]) + 1.0)", 8),
        ("f16", "x[i]", 16),
    ]:
        assert choice(parse(text.format(dtype, value)), 32)[0] == ("vectorize", "i", lanes)
    assert choice(parse(text.format("f64", "x[i] * x[i]")), 8) == [("parallelize", "i")]


def test_costs() -> None:
    sizes = {"n": 10, "d": 100, "m": 100}
    assert bytes_of(program("softmax"), sizes) == 4 * 2 * 1000
    assert flops_of(program("softmax"), sizes) == 1000 * (1 + (1 + 20 + 1) + (1 + 20 + 4))
    assert bytes_of(program("columns"), sizes) == 4 * (1000 + 100)
    assert flops_of(program("columns"), sizes) == 1000
    assert bytes_of(program("scatter"), {"n": 10, "m": 1000}) == 10 * (8 + 4 + 4 + 4)
    assert flops_of(apply(program("columns"), [("tile", "j", 8)]).kernel, sizes) == pytest.approx(1000, rel=0.1)
