"""Attention by blocks: values and gradients for sizes around the blocks, masks of every shape, layouts, half precision."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.native import native
from wengert.runtime import attention
from wengert.runtime.threads import get_num_threads, set_num_threads
from wengert.testing.opcheck_native import natively

attend = wg.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    native.loaded()
    with natively():
        yield


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def exact(
    q: Any, k: Any, v: Any, mask: Any = None, scale: float | None = None, causal: bool = False
) -> tuple[Any, Any, Any]:
    """Return result, logarithm of the sum, and weights, in float64."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=np.bool_), s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + np.where(np.isneginf(top), 0, top)
    p = p / np.where(total == 0, 1, total)
    return p @ v, lse[..., 0], p


def exact_backward(q: Any, k: Any, v: Any, g: Any, g_lse: Any, **options: Any) -> tuple[Any, Any, Any]:
    out, _, p = exact(q, k, v, **options)
    scale = options.get("scale") or q.shape[-1] ** -0.5
    g = g.astype(np.float64)
    slopes = p * (g @ v.swapaxes(-1, -2) - (g * out).sum(-1, keepdims=True) + g_lse[..., None]) * scale
    return slopes @ k, slopes.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g


# (leading dimensions, queries, keys, width, values): around vectors, tiles of 6 by 16, and blocks of 48 by 96.
SIZES = [
    ((), 1, 1, 1, 1), ((2, 3), 5, 7, 9, 11), ((3,), 48, 96, 16, 16), ((2,), 49, 97, 17, 8), ((1, 2), 100, 193, 32, 40),
    ((2, 1, 2), 6, 200, 64, 64), ((2,), 200, 6, 8, 24),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("lead", "n", "m", "e", "d"), SIZES)
def test_values(lead: Any, n: int, m: int, e: int, d: int, causal: bool, dtype: str) -> None:
    q, k, v = (
        normal(*lead, n, e, dtype=dtype),
        normal(*lead, m, e, seed=1, dtype=dtype),
        normal(*lead, m, d, seed=2, dtype=dtype),
    )
    close = 3e-6 if dtype == "float32" else 1e-14
    out, lse = attention.fused_attention(q, k, v, None, e**-0.5, causal)
    expected, logs, _ = exact(q, k, v, causal=causal)
    assert out.dtype == dtype
    assert lse.dtype == np.float64
    np.testing.assert_allclose(out, expected, atol=close)
    np.testing.assert_allclose(lse, logs, atol=close)
    g, g_lse = normal(*lead, n, d, seed=3, dtype=dtype), normal(*lead, n, seed=4)
    found = attention.fused_attention_backward(g, g_lse, q, k, v, out, lse, None, e**-0.5, causal)
    for a, b in zip(found, exact_backward(q, k, v, g, g_lse, causal=causal), strict=True):
        np.testing.assert_allclose(a, b, atol=10 * close)


MASKS = [
    (60, 110),
    (1, 110),
    (60, 1),
    (3, 60, 110),
    (1, 60, 110),
    (2, 1, 1, 110),
    (2, 3, 60, 110),
    (2, 1, 60, 110),
    (110,),
]


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("shape", MASKS)
def test_masks(shape: Any, kind: str) -> None:
    q, k, v = (normal(2, 3, n, 8, seed=n) for n in (60, 110, 110))
    numbers = normal(*shape, seed=9)
    mask = numbers > -0.5 if kind == "bool" else np.where(numbers > -0.5, numbers, -np.inf)
    out, lse = attention.fused_attention(q, k, v, mask, 0.5)
    expected, logs, _ = exact(q, k, v, mask, 0.5)
    np.testing.assert_allclose(out, expected, atol=1e-13)
    np.testing.assert_allclose(lse, logs, atol=1e-13)
    g, g_lse = normal(2, 3, 60, 8, seed=3), normal(2, 3, 60, seed=4)
    found = attention.fused_attention_backward(g, g_lse, q, k, v, out, lse, mask, 0.5)
    for a, b in zip(found, exact_backward(q, k, v, g, g_lse, mask=mask, scale=0.5), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


def test_a_query_without_keys_gets_zeros_and_gives_none() -> None:
    q, k, v = (normal(2, 5, 4, seed=s) for s in range(3))
    mask = np.ones((5, 5), bool)
    mask[2] = False
    out, lse = attention.fused_attention(q, k, v, mask)
    assert (out[:, 2] == 0).all()
    assert np.isneginf(lse[:, 2]).all()
    dq, dk, dv = attention.fused_attention_backward(np.ones_like(out), np.zeros_like(lse), q, k, v, out, lse, mask)
    assert (dq[:, 2] == 0).all()
    assert np.isfinite(dk).all()
    assert np.isfinite(dv).all()


def test_large_scores_stay_exact() -> None:
    q, k, v = normal(1, 50, 16) * 40, normal(1, 120, 16, seed=1) * 40, normal(1, 120, 16, seed=2)
    np.testing.assert_allclose(attention.fused_attention(q, k, v)[0], exact(q, k, v, scale=1.0)[0], atol=1e-12)
    q[0, 3, 0] = np.nan
    out, _ = attention.fused_attention(q, k, v)
    assert np.isnan(out[0, 3]).all()
    assert np.isfinite(np.delete(out, 3, 1)).all()


def test_layouts_and_half_precision() -> None:
    q, k, v = (normal(2, n, 3, 16, seed=n, dtype=np.float32).swapaxes(1, 2) for n in (60, 70, 70))
    copies = [np.ascontiguousarray(a) for a in (q, k, v)]
    for a, b in zip(attention.fused_attention(q, k, v), attention.fused_attention(*copies), strict=True):
        np.testing.assert_array_equal(a, b)
    turned = [np.asfortranarray(a) for a in copies]
    np.testing.assert_array_equal(attention.fused_attention(*turned)[0], attention.fused_attention(*copies)[0])
    halves = [wg.tensor(a).to(wg.bfloat16) for a in copies]
    out = attend(*halves)
    assert out.dtype is wg.bfloat16
    expected = exact(*(h.to(wg.float64).numpy() for h in halves))[0]
    np.testing.assert_allclose(out.to(wg.float64).numpy(), expected, rtol=2**-8, atol=2**-8)


def test_what_numpy_serves() -> None:
    none = np.zeros((2, 0, 4))
    assert attention.fused_attention(none, none, none) is NotImplemented
    wide = np.zeros((2, 3, 300))
    assert attention.fused_attention(wide, wide, wide) is NotImplemented


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": (7, 9)}, {"mask": (2, 1, 9)}])
def test_gradients(options: Any) -> None:
    rows, mask = (7, 9), None
    options = dict(options)
    shape = options.pop("mask", None)
    inputs = [wg.tensor(normal(2, n, 3, seed=s), requires_grad=True) for s, n in enumerate((rows[0], rows[1], rows[1]))]
    if shape is not None:
        mask = wg.tensor(normal(*shape), requires_grad=True)
        inputs.append(mask)
    assert wg.autograd.gradcheck(lambda *a: attend(*a, **options), inputs)
    assert wg.autograd.gradgradcheck(lambda *a: attend(*a, **options), inputs)


def test_transforms_and_shared_heads() -> None:
    q, k, v = (wg.tensor(normal(3, 4, n, 8, seed=n)) for n in (5, 6, 6))
    whole = attend(q, k, v)
    np.testing.assert_allclose(wg.func.vmap(attend)(q, k, v).numpy(), whole.numpy(), atol=1e-14)
    np.testing.assert_allclose(attend(q, k[:, :2], v[:, :2], enable_gqa=True).numpy().shape, whole.shape)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    q, k, v = (normal(2, 2, n, 16, seed=n, dtype=np.float32) for n in (150, 130, 130))
    before, found = get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            out, lse = attention.fused_attention(q, k, v)
            found.append([out, lse, *attention.fused_attention_backward(out, lse, q, k, v, out, lse)])
    finally:
        set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
