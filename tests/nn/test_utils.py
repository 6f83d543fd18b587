"""Clipping and vectors of parameters."""

import math
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)  # fmt: skip


def with_grads(*grads: Any, dtype: Any = wg.float32) -> list[Any]:
    made = []
    for grad in grads:
        p = nn.Parameter(wg.zeros(len(grad), dtype=dtype))
        p.grad = wg.tensor(grad, dtype=dtype)
        made.append(p)
    return made


@pytest.mark.parametrize(
    ("norm_type", "want"),
    [(2.0, 5.0), (1, 7.0), (math.inf, 4.0), ("inf", 4.0), (3, (27 + 64) ** (1 / 3)), (0.5, 7 + 2 * 12**0.5)],
)
def test_norm_types_and_scaling(norm_type: Any, want: float) -> None:
    a, b = ps = with_grads([3.0, 0.0], [0.0, -4.0], dtype=wg.float64)
    if norm_type == 0.5:  # zeros do not count, every element is a root
        np.testing.assert_allclose(get_total_norm([p.grad for p in ps], 0.5).item(), want, rtol=1e-12)
        return
    got = clip_grad_norm_(ps, want / 2, norm_type)
    np.testing.assert_allclose(got.item(), want, rtol=1e-12)
    np.testing.assert_allclose(a.grad.numpy(), [1.5, 0.0], rtol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), [0.0, -2.0], rtol=1e-5)


def test_small_gradients_are_left_alone() -> None:
    (p,) = ps = with_grads([0.3, 0.4])
    assert clip_grad_norm_(ps, 1.0).item() == pytest.approx(0.5)
    assert p.grad.tolist() == wg.tensor([0.3, 0.4]).tolist()
    assert clip_grad_norm_(p, 0.25).item() == pytest.approx(0.5)  # one tensor in place of several


@pytest.mark.parametrize("size", [1e20, 1e-30], ids=["overflow", "underflow"])
def test_squares_that_leave_the_range(size: float) -> None:
    ps = with_grads([size] * 99, [size])
    got = clip_grad_norm_(ps, size * 1e-3)
    np.testing.assert_allclose(got.item(), 10 * size, rtol=1e-5)
    if size > 1:
        np.testing.assert_allclose(ps[0].grad.numpy(), size * 1e-4, rtol=1e-4)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_non_finite(bad: float) -> None:
    a, b = ps = with_grads([bad, 1.0], [2.0])
    with pytest.raises(RuntimeError, match="cannot be clipped"):
        clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    assert b.grad.tolist() == [2.0]
    assert not math.isfinite(clip_grad_norm_(ps, 1.0).item())
    assert a.grad is not None


def test_parameters_without_gradient_and_none_at_all() -> None:
    p = nn.Parameter(wg.zeros(1))
    assert clip_grad_norm_([p], 1.0).item() == 0.0
    assert clip_grad_norm_([], 1.0).item() == 0.0
    assert clip_grad_norm_(iter(with_grads([3.0])), 1.0).item() == 3.0
    assert get_total_norm([wg.zeros(0), wg.zeros(2)]).item() == 0.0


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16], ids=str)
def test_halves_are_accumulated_in_float32(dtype: Any) -> None:
    ps = with_grads([300.0] * 100, dtype=dtype)  # the sum of squares is beyond float16
    got = clip_grad_norm_(ps, 1.0)
    assert got.dtype is wg.float32
    np.testing.assert_allclose(got.item(), 3000.0, rtol=1e-3)
    np.testing.assert_allclose(ps[0].grad.to(wg.float32).numpy(), 0.1, rtol=1e-2)


def test_mixed_dtypes() -> None:
    ps = [*with_grads([3.0]), *with_grads([4.0], dtype=wg.float64)]
    assert clip_grad_norm_(ps, 1.0).dtype is wg.float64
    np.testing.assert_allclose([p.grad.item() for p in ps], [0.6, 0.8], rtol=1e-5)


def test_norm_and_scaling_apart() -> None:
    ps = with_grads([3.0], [4.0])
    clip_grads_with_norm_(ps, 1.0, get_total_norm([p.grad for p in ps]))
    np.testing.assert_allclose([p.grad.item() for p in ps], [0.6, 0.8], rtol=1e-5)


def test_clip_value() -> None:
    (p,) = ps = with_grads([3.0, -0.5, -9.0])
    clip_grad_value_([*ps, nn.Parameter(wg.zeros(1))], 1)
    assert p.grad.tolist() == [1.0, -0.5, -1.0]


def test_parameters_as_a_vector_and_back() -> None:
    m = nn.Linear(2, 3)
    v = parameters_to_vector(m.parameters())
    assert v.shape == (9,)
    (v * wg.arange(9.0)).sum().backward()
    assert m.bias.grad.tolist() == [6.0, 7.0, 8.0]
    vector_to_parameters(wg.arange(9.0), m.parameters())
    assert m.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert m.weight.requires_grad
    with pytest.raises(ValueError, match="9 elements"):
        vector_to_parameters(wg.arange(8.0), m.parameters())
    with pytest.raises(TypeError, match="list"):
        vector_to_parameters([1.0], m.parameters())
