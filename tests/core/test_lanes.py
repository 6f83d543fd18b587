"""The fast lanes give what the general lane gives: values, dtype, record and gradients, sample by sample."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.core.apply import call
from wengert.core.registry import operators
from wengert.core.tensor import Tensor, from_array
from wengert.testing.samples import ErrorSample, samples_of, tensors_in

FAST = [name for name, op in operators().items() if op.ufunc is not None]


def leaf(array: Any) -> Tensor:
    made = from_array(array.copy())
    return made.requires_grad_() if array.dtype.kind in "fc" else made


def near(a: Tensor, b: Tensor, sample: Any) -> None:
    """Require equality up to the last bit: a small integer power is a product in the fast lane."""
    if a._payload.dtype.kind in "fc":
        limit = 4 * np.finfo(a._payload.dtype).eps
        np.testing.assert_allclose(a._payload, b._payload, rtol=limit, atol=0, err_msg=repr(sample))
    else:
        np.testing.assert_array_equal(a._payload, b._payload, err_msg=repr(sample))


@pytest.mark.parametrize("name", FAST)
def test_both_lanes_agree(name):
    op = operators()[name]
    for sample in samples_of(op):
        if isinstance(sample, ErrorSample):
            continue
        (args, kwargs), (others, same) = sample.arguments(leaf), sample.arguments(leaf)
        fast, general = op.function(*args, **kwargs), call(op, tuple(others), dict(same))
        assert fast.dtype is general.dtype, sample
        near(fast, general, sample)
        assert fast.requires_grad == general.requires_grad, sample
        if not fast.requires_grad:
            continue
        assert fast.grad_fn.plan is general.grad_fn.plan, sample
        found = [wg.autograd.grad(out, [t for t in tensors_in(given) if t.requires_grad], wg.ones_like(out))
                 for out, given in ((fast, args), (general, others))]  # fmt: skip
        for a, b in zip(*found, strict=True):
            near(a, b, sample)
