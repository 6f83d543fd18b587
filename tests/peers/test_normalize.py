"""Normalisation beside PyTorch: larger shapes than the samples, running statistics, halves, second derivatives."""

import numpy as np
import pytest
import torch

import wengert as wg
from tests.peers.compare import compare
from tests.peers.differences import DIFFERENT, explained
from wengert.core.registry import operators

FILES = {"normalize"}
OPERATORS = [name for name, op in operators().items() if op.function.__module__.rpartition(".")[2] in FILES]


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_agree_with_pytorch(name):
    unexplained = [d for d in compare(name) if not explained(name, d)]
    assert not unexplained, "\n".join(unexplained)


@pytest.mark.parametrize("name", sorted(set(DIFFERENT) & set(OPERATORS)))
def test_every_explained_difference_still_exists(name):
    assert any(explained(name, d) for d in compare(name)), f"{name} now agrees with PyTorch: drop it from the table"


def batch(m, x, w, b):
    return m.nn.functional.batch_norm(x, None, None, w, b, True)


def instance(m, x, w, b):
    return m.nn.functional.instance_norm(x, None, None, w, b)


def groups(m, x, w, b):
    return m.nn.functional.group_norm(x, 4, w, b)


def layer(m, x, w, b):
    return m.nn.functional.layer_norm(x, tuple(w.shape), w, b)


def rms(m, x, w, b):
    return m.nn.functional.rms_norm(x, tuple(w.shape), w) + b


# The function, the shape of the input, the shape of weight and bias; blocks of the kernels begin and end inside them.
CASES = [
    (batch, (70, 8), (8,)), (batch, (9, 8, 150), (8,)), (batch, (40, 16, 11, 13), (16,)), (batch, (2, 3, 1, 1), (3,)),
    (batch, (3, 2, 200, 200), (2,)), (instance, (5, 8, 12, 9), (8,)), (instance, (2, 3, 300, 300), (3,)),
    (groups, (6, 8, 10, 10), (8,)), (groups, (90, 32), (32,)), (groups, (3, 64, 40, 40), (64,)),
    (layer, (300, 384), (384,)),
    (layer, (2, 3, 5, 7), (5, 7)), (layer, (1, 100000), (100000,)), (layer, (1000, 3), (3,)), (rms, (300, 384), (384,)),
    (rms, (4, 2, 9), (2, 9)),
]  # fmt: skip


def run(m, call, arrays, dtype):
    x, w, b, g = (m.tensor(a).to(getattr(m, dtype)) for a in arrays)
    inputs = [v.requires_grad_() for v in (x, w, b)]
    out = call(m, *inputs)
    found = [out, *m.autograd.grad(out, inputs, g)]
    return [v.detach().to(m.float64).numpy() for v in found]


@pytest.mark.parametrize(("call", "shape", "channels"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-10)])
def test_values_and_gradients(call, shape, channels, dtype, tolerance):
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(s) * k + m for s, k, m in ((shape, 2, 3), (channels, 1, 1), (channels, 1, 0), (shape, 1, 0))
    ]
    for got, want in zip(run(wg, call, arrays, dtype), run(torch, call, arrays, dtype), strict=True):
        scale = np.abs(want).max()
        np.testing.assert_allclose(got / scale, want / scale, atol=tolerance * (10 if call is rms else 1))


@pytest.mark.parametrize(("call", "shape", "channels"), [c for c in CASES if np.prod(c[1]) < 5000])
def test_second_derivatives(call, shape, channels):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s) for s in (shape, channels, channels, shape)]

    def twice(m):
        x, w, b, g = (m.tensor(a, requires_grad=True) for a in arrays)
        first = m.autograd.grad(call(m, x, w, b), (x, w), g, create_graph=True)
        total = sum((v * v).sum() for v in first)
        return [v.numpy() for v in m.autograd.grad(total, (x, w, g))]

    for got, want in zip(twice(wg), twice(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7 * np.abs(want).max())


@pytest.mark.parametrize("call", [batch, groups, layer])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 4e-3), ("bfloat16", 3e-2)])
def test_low_precision(call, dtype, tolerance):
    shape, channels = (30, 32), (32,)
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(s) for s in (shape, channels, channels, shape)]
    for got, want in zip(run(wg, call, arrays, dtype), run(torch, call, arrays, "float32"), strict=True):
        np.testing.assert_allclose(got, want, atol=tolerance * max(1, np.abs(want).max()))


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 5, 2)])
@pytest.mark.parametrize("kind", ["batch_norm", "instance_norm"])
def test_running_statistics(kind, shape):
    if kind == "instance_norm" and len(shape) == 2:
        pytest.skip("one position per channel")
    array = np.random.default_rng(3).standard_normal(shape)

    def statistics(m):
        x, mean, var = m.tensor(array, dtype=m.float32), m.zeros(3), m.ones(3)
        function = getattr(m.nn.functional, kind)
        for _ in range(3):
            function(x, mean, var, None, None, True, 0.3)
        out = function(x, mean, var, None, None, False)
        return mean.numpy(), var.numpy(), out.numpy()

    for got, want in zip(statistics(wg), statistics(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
