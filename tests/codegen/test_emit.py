"""Machine code of loop IR kernels: what a loop reads before its iterations."""

import ctypes

import numpy as np
import pytest

from wengert.codegen.emit import bounds_checked, emit
from wengert.codegen.engine import load
from wengert.errors import KernelError
from wengert.loops.text import parse
from wengert.loops.verify import unproven, verify
from wengert.runtime.launch import Launcher, pointer

ROW = """kernel same(x: f32[m: 1], out y: f32[m: 1])
  for j in 0:m
    y[j] = x[0]
"""
BLOCKS = """kernel same(x: f32[m: 1], out y: f32[n, m: 1])
  for i in 0:n
    for j in 0:m by 4 lanes
      y[i, j] = x[0]
"""


@pytest.mark.parametrize(
    ("text", "shape"), [(ROW, (0,)), (ROW, (9,)), (BLOCKS, (3, 0)), (BLOCKS, (0, 3)), (BLOCKS, (3, 9))]
)
def test_what_iterations_have_in_common_is_not_read_where_there_are_none(
    text: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WENGERT_BOUNDS_CHECK", "1")
    kernel = parse(text)
    verify(kernel)
    assert not unproven(kernel)
    x, y = np.full(shape[-1:], 3.0, np.float32), np.zeros(shape, np.float32)
    strides = y.strides[:-1]
    Launcher(f"test {text}", lambda: kernel)([pointer(x), pointer(y), *strides, *_sizes(kernel.sizes, shape)], 1, 1)
    np.testing.assert_array_equal(y, np.full(shape, 3.0))


def _sizes(names: tuple[str, ...], shape: tuple[int, ...]) -> list[int]:
    known = dict(zip(("n", "m")[-len(shape) :], shape, strict=True))
    return [known[name] for name in names]


STAGED = """kernel reverse(x: f32[n: 1], out y: f32[n: 1])
  stage row: f32[{size}]
  for i in 0:n
    row[i] = x[n - 1 - i]
  for i in 0:n
    y[i] = row[i]
"""


@pytest.mark.parametrize(("size", "limits", "taken"), [
    ("n", {}, "any number of bytes"), ("n", {"n": 131073}, "524292 bytes"), ("n * 2 + 5", {"n": 65536}, "524308 bytes"),
    ("maximum(n, 131073)", {"n": 1}, "524292 bytes"), ("n - 3", {}, "any number of bytes"), ("131073", {}, "524292 bytes"),
])  # fmt: skip
def test_a_stage_that_may_not_fit_on_the_stack_is_refused(size: str, limits: dict[str, int], taken: str) -> None:
    with pytest.raises(
        KernelError, match=f"reverse may take {taken} of the stack, which has room for 524288"
    ) as caught:
        emit(parse(STAGED.format(size=size)), limits=limits)
    assert "stage row" in str(caught.value)


@pytest.mark.skipif(bounds_checked(), reason="of code without bounds checks")
@pytest.mark.parametrize(("size", "limits"), [
    ("n", {"n": 131072}), ("minimum(n, 100)", {}), ("(n + 7) // 8", {"n": 10**6}), ("n - 5", {"n": 100}), ("100", {}),
])  # fmt: skip
def test_a_stage_with_a_bound_is_taken(size: str, limits: dict[str, int]) -> None:
    assert "alloca i8" in emit(parse(STAGED.format(size=size)), limits=limits)


def test_a_stage_of_less_than_nothing_takes_nothing() -> None:
    text = "kernel none(out y: i64[1], inout z: f32[n: 1])\n  stage row: f32[n - 3]\n  y[0] = n\n"
    code = load(emit(parse(text), limits={"n": 10}), ["kernel"])
    y, z = np.zeros(1, np.int64), np.zeros(1, np.float32)
    arguments = (ctypes.c_int64 * 4)(pointer(y), 8, pointer(z), 1)
    code.function("kernel", None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(ctypes.addressof(arguments), 0, 1)
    assert y[0] == 1
