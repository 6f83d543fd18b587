"""What follows from bounds of loops and guards: every proof is checked against all small integers."""

import itertools
import random

import pytest

from wengert.loops.accesses import accesses
from wengert.loops.affine import Facts, Linear
from wengert.loops.ir import size
from wengert.loops.scalar import Scalar, cast, const, index, make, param, select
from wengert.loops.text import parse

i, j, n, m = index("i"), index("j"), size("n"), size("m")


def proven(*conditions: Scalar, goal: Scalar) -> bool:
    """Whether conditions imply that an expression is at least 0."""
    facts = Facts()
    for condition in conditions:
        facts.assume(condition)
    return facts.implies(facts.linear(goal))


LINES = [
    ([i.ge(0), i.lt(n)], n - 1 - i, True),
    ([i.ge(0), i.lt(n)], n - 1, True),
    ([i.ge(0), i.lt(n)], n - 2, False),
    ([i.ge(0) & i.lt(n)], i, True),
    ([i.ge(0) | i.lt(n)], i, False),
    ([~(i.lt(0) | i.ge(n))], n - 1 - i, True),
    ([i.ge(0), i.lt(make("minimum", (n, m)))], m - 1 - i, True),
    ([i.ge(0), i.lt(make("maximum", (n, m)))], n + m - 1 - i, True),
    ([i.ge(make("maximum", (j, m)))], i - j, True),
    ([n.gt(0)], make("maximum", (make("minimum", (i, n - 1)), const(0, "i64"))), True),
    ([n.gt(0)], n - 1 - make("maximum", (make("minimum", (i, n - 1)), const(0, "i64"))), True),
    ([], n - 1 - make("maximum", (make("minimum", (i, n - 1)), const(0, "i64"))), False),
    ([i.ge(0), i.lt(n * 2)], n - 1 - i // 2, True),
    ([i.ge(0), i.lt(n * 2)], n - 2 - i // 2, False),
    ([], 2 - i % 3, True),
    ([], i % 3, True),
    ([n.gt(0)], n - 1 - i % n, True),
    ([], n - 1 - i % n, False),
    ([], 7 - (i & 7), True),
    ([], 255 - cast(param("k", "u8"), "i64"), True),
    ([], cast(param("k", "i8"), "i64") + 128, True),
    ([], cast(param("k", "i64") & 3, "i64"), True),
    ([], 3 - cast(param("k", "i32") & 3, "i64"), True),
    ([i.ge(0), i.lt(n)], n - 1 - select(i.lt(j), i, n - 1), True),
    ([], abs(i), True),
    ([], abs(i) + i, True),
    ([i.eq(j), j.ge(3)], i - 3, True),
    ([i.ne(0), i.ge(0)], i - 1, True),
    ([(i * 2).eq(j * 2 + 1)], const(-1, "i64"), True),  # no integers: anything follows
    ([i.lt(j), j.lt(i)], const(-1, "i64"), True),
    ([i.ge(0)], i * j, False),
]  # fmt: skip


@pytest.mark.parametrize(("conditions", "goal", "expected"), LINES)
def test_implications(conditions: list[Scalar], goal: Scalar, expected: bool) -> None:
    assert proven(*conditions, goal=goal) == expected


def test_no_proof_is_wrong() -> None:
    """Random sums over three integers: where something is said to follow, it does for all values in a box."""
    r = random.Random(0)
    atoms = ["a", "b", "c"]
    box = list(itertools.product(range(-4, 5), repeat=3))
    count = 0
    for _ in range(400):
        facts = Facts()
        sums = [
            Linear(r.randint(-4, 4), {a: c for a in atoms if (c := r.randint(-2, 2))}) for _ in range(r.randint(1, 4))
        ]
        facts.known += sums
        for a in atoms:  # inside the box
            facts.known += [Linear(4, {a: 1}), Linear(4, {a: -1})]
        goal = Linear(r.randint(-4, 4), {a: c for a in atoms if (c := r.randint(-2, 2))})
        holds = all(_at(goal, p) >= 0 for p in box if all(_at(s, p) >= 0 for s in sums))
        if facts.implies(goal):
            count += 1
            assert holds
    assert count > 40


def _at(s: Linear, point: tuple[int, ...]) -> int:
    return s.constant + sum(c * point["abc".index(str(a))] for a, c in s.terms.items())


def test_the_facts_of_loops() -> None:
    """Steps, blocks and triangles."""
    kernel = parse(
        "kernel f(x: f32[n, n], out y: f32[n])\n  for b in 0:n step 8\n    for i in b:minimum(b + 8, n)\n"
        "      for j in 0:i\n        y[i] = x[i - 1 - j, j]\n"
    )
    assert [a.outside_of() for a in accesses(kernel)] == [[], []]
    kernel = parse("kernel f(out y: f32[6])\n  for i in 1:6 step 2\n    y[i + 1] = 0.0\n    y[i] = 0.0\n")
    assert [a.outside_of() for a in accesses(kernel)] == [[0], []]
