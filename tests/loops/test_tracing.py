"""NumPy kernels and derivative rules traced to scalar expressions: the same numbers as NumPy, or a refusal."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from wengert.core.operator import Op
from wengert.core.registry import operators
from wengert.loops.scalar import Scalar
from wengert.loops.symbolic import lowered, trace_update
from wengert.loops.tracing import Symbol, Untraceable, name_of, placeholder, symbols


def elementwise() -> list[Op]:
    return [op for op in operators().values() if op.batch == "broadcast" and op.single and not op.composite]


def test_most_operators_have_native_code_from_their_declaration_alone() -> None:
    traced, left = [], []
    for op in elementwise():
        arguments = [
            Symbol(placeholder(i, "f32"), np.dtype(np.float32)) if i in op.signature.inputs else slot.default
            for i, slot in enumerate(op.signature.slots)
        ]
        try:
            lowered(op, arguments)
            traced.append(op.name)
        except Untraceable:
            left.append(op.name)
    assert len(traced) >= 105, sorted(left)
    assert {"add", "sigmoid", "gelu", "erf", "lgamma", "choose", "clamp", "leaky_relu", "lerp"} <= {*traced}


def test_an_update_is_what_a_formula_writes() -> None:
    def formula(p: Any, g: Any, m: Any, rate: Any) -> None:
        m *= 0.5
        m += g
        p -= m * rate

    kinds = [np.dtype(np.float32)] * 4
    found = trace_update(formula, [None] * 4, kinds)
    assert [i for i, _ in found] == [0, 2]
    assert all(isinstance(s, Scalar) for _, s in found)


@pytest.mark.parametrize("kernel", [
    lambda x: x if x > 0 else -x, lambda x: x.sum(), lambda x: x.reshape(-1), lambda x: np.sort(x), lambda x: [x],
    lambda x: np.add.reduce(x), lambda x: x + np.arange(3), lambda x: float(x),
])  # fmt: skip
def test_what_one_element_cannot_know_is_refused(kernel: Any) -> None:
    assert not isinstance(result_of(kernel), Symbol)


def result_of(kernel: Any) -> Any:
    """Return what a kernel gives for a symbol, or why it refuses."""
    try:
        return kernel(*symbols([None], [np.dtype(np.float32)]))
    except (Untraceable, TypeError) as error:
        return error


def test_promotion_is_numpys() -> None:
    (x,) = symbols([None], [np.dtype(np.float32)])
    (n,) = symbols([None], [np.dtype(np.int64)])
    assert (x * 2).dtype == np.float32
    assert (x * np.float64(2)).dtype == np.float64
    assert (n * 2.5).dtype == np.float64
    assert (x + n).dtype == np.float64
    assert (x > 1).dtype == np.bool_
    assert np.where(x > 0, 1, 0).dtype == np.int64
    assert np.exp(n).dtype == np.float64


def test_constants_keep_their_bits() -> None:
    assert placeholder(0, "f32") * -0.0 is not placeholder(0, "f32") * 0.0
    assert placeholder(0, "f32") * math.nan is placeholder(0, "f32") * -math.nan


def test_foreign_byte_order_has_no_name() -> None:
    assert name_of(np.dtype("=f4")) == "f32"
    with pytest.raises(Untraceable, match="no dtype >f4"):
        name_of(np.dtype(">f4"))


def test_threads_that_make_the_same_expression_get_one_object() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for round_ in range(50):
            with ThreadPoolExecutor(4) as pool:
                found = list(
                    pool.map(lambda _, r=round_: [placeholder(k, f"f{32 + r % 2 * 32}") for k in range(200)], range(4))
                )
            assert all(a is b for row in found for a, b in zip(row, found[0], strict=True))
    finally:
        sys.setswitchinterval(interval)
