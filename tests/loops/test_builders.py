"""Every kernel that a builder makes keeps the rules, and reads and writes inside its buffers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from wengert.loops import attention, normalization, softmax
from wengert.loops.ir import MONOIDS, Kernel
from wengert.loops.layout import space
from wengert.loops.pointwise import pointwise
from wengert.loops.reducing import Reduction, reduction
from wengert.loops.scalar import DTYPES, Scalar, cast, is_float, make
from wengert.loops.tracing import placeholder
from wengert.loops.verify import unproven, verify

FLOATS = ("f32", "f64", "f16", "bf16")
LINES = ((False, 8), (False, 4), (True, 32), (True, 3), (True, 24))


def line_kernels(name: str) -> Iterator[Kernel]:
    """Yield the kernels of softmax and its kin."""
    build = getattr(softmax, name)
    for across, lanes in LINES:
        for x in FLOATS:
            for y in FLOATS if name in ("softmax", "log_softmax") else (None,):
                yield build(*(d for d in (x, y) if d is not None), across, lanes)


@pytest.mark.parametrize("name", softmax.__all__)
def test_softmax_and_its_kin(name: str) -> None:
    for kernel in line_kernels(name):
        verify(kernel)
        # a line without a class has none to read at a target: the runtime hands no empty array over
        assert {u.buffer for u in unproven(kernel)} == {"class_loss": {"x"}, "class_loss_backward": {"dx"}}.get(
            name, set()
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_normalization(dtype: str) -> None:
    wide = "f64" if dtype == "f64" else "f32"
    lanes = {"columns_norm": 5, "columns_norm_backward": 24}
    for weight in (None, dtype, wide):
        for bias in (None, dtype):
            for name in ("batch_norm", "columns_norm"):
                verify(getattr(normalization, name)(dtype, weight, bias, lanes.get(name, 8)))
            for name in ("layer_norm", "group_norm"):
                for center in (True, False):
                    verify(getattr(normalization, name)(dtype, weight, bias, center, 8))
        for name in ("batch_norm_backward", "columns_norm_backward"):
            verify(getattr(normalization, name)(dtype, weight, lanes.get(name, 8)))
        for name in ("layer_norm_backward", "group_norm_backward"):
            for center in (True, False):
                verify(getattr(normalization, name)(dtype, weight, center, 8))
    for result in ("f32", "f64"):
        verify(normalization.column_sums(wide, result, 12))


@pytest.mark.parametrize("build", [attention.attention, attention.attention_backward])
@pytest.mark.parametrize(("dtype", "room", "causal", "masked", "lanes"), [
    ("f32", 64, False, False, 16), ("f32", 128, True, True, 16), ("f64", 256, True, False, 8), ("f64", 64, False, True, 4),
])  # fmt: skip
def test_attention(build: Any, dtype: str, room: int, causal: bool, masked: bool, lanes: int) -> None:
    kernel = build(dtype, room, causal, masked, lanes)
    verify(kernel)
    # what is beyond its stages or arrays: a query or value wider than the room, which the runtime does not hand over
    assert {u.buffer for u in unproven(kernel)} <= {"turned", "turned_g", "weights", "slopes"}


# ---- element-wise


def spaces() -> Iterator[Any]:
    """Yield spaces of a result and two arguments that lie in different ways."""
    whole = np.zeros((6, 8, 10), np.float32)
    for a, b in (
        (whole, whole), (whole, whole[0]), (whole, whole[:, :1]), (whole.T, whole[:, 0, 0]), (whole[::2, ::-1], whole[:3]),
        (whole[..., ::3], whole[..., :4]), (np.broadcast_to(whole[:1], whole.shape), whole), (whole[..., :1], whole[..., :1]),
    ):  # fmt: skip
        shape = np.broadcast_shapes(a.shape, b.shape)
        yield space(shape, [np.zeros(shape, np.float32), a, b])


def expressions(dtype: str) -> Iterator[tuple[Scalar, ...]]:
    """Yield what is computed of two elements."""
    x, y = (placeholder(i, dtype) for i in range(2))
    yield (x,)
    if dtype in ("f16", "bf16"):
        wide = tuple(cast(v, "f32") for v in (x, y))
        yield cast(wide[0] * wide[1], dtype), cast(wide[0] + wide[1], dtype)
        return
    yield (x.lt(y),)
    yield cast(x, "f32"), cast(y, "bool")
    if dtype != "bool":
        yield x * y + x, make("maximum", (x, y))
    if is_float(dtype):
        yield make("exp", (x,)) / y, make("pow", (x, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [2, 8, 32])
def test_pointwise(dtype: str, lanes: int) -> None:
    inputs = [(i, dtype, dtype) for i in range(2)]
    for where in spaces():
        for results in expressions(dtype):
            layout = where._replace(pattern=(where.pattern[0],) * len(results) + where.pattern[1:])
            kernel = pointwise("test", results, [r.dtype for r in results], inputs, layout, lanes=lanes, unroll=4)
            verify(kernel)
            assert not unproven(kernel)
            numbers = pointwise("test", results, [r.dtype for r in results], inputs[:1], layout, ((1, dtype),), lanes)
            verify(numbers)


# ---- reductions


LOOPS: dict[str, tuple[tuple[bool, int | None], ...]] = {
    "all": ((True, 1),), "rows": ((False, None), (True, 1)), "strided rows": ((False, None), (True, None)),
    "columns": ((True, None), (False, 1)), "middle": ((False, None), (True, None), (False, 1)),
    "outer and inner": ((True, None), (False, None), (True, 1)), "broadcast": ((False, 0), (True, 0)),
}  # fmt: skip


def _wide(x: Scalar, dtype: str) -> Scalar:
    return cast(cast(x, "f32") if x.dtype in ("f16", "bf16") else x, dtype)


@pytest.mark.parametrize("loops", LOOPS)
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("monoid", ["sum", "max", "min", "any", "all", "argmax", "argmin"])
def test_reductions(loops: str, split: bool, monoid: str) -> None:
    parts = MONOIDS[monoid].parts
    columns = not LOOPS[loops][-1][0]
    if (columns and parts > 1) or (parts > 1 and sum(r for r, _ in LOOPS[loops]) > 1):
        return  # the runtime leaves them to NumPy
    for dtype in DTYPES:
        folded = "bool" if monoid in ("any", "all") else "f32" if dtype in ("f16", "bf16", "bool") else dtype
        results = MONOIDS[monoid].dtypes(folded)
        inner = 1 if LOOPS[loops][-1][1] is not None else None
        lying = tuple(
            (r, own, (0 if r else inner if n == len(LOOPS[loops]) - 1 else None,) * parts)
            for n, (r, own) in enumerate(LOOPS[loops])
        )
        what = Reduction(monoid, dtype, folded, results, lying, split, 8)

        def state(x: Scalar, i: Scalar, dtype: str = folded) -> tuple[Scalar, ...]:
            return _wide(x, dtype), *[i] * (parts - 1)

        kernel = reduction("test", what, state)
        verify(kernel)
        assert not unproven(kernel)
