"""Machine code of loop IR kernels: what a loop reads before its iterations."""

import numpy as np
import pytest

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
