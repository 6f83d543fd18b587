"""Gradients of the standard's functions against central differences, and where they must not be lost."""

import numpy as np
import pytest

import wengert as wg
import wengert.array_api as xp
from wengert import func
from wengert.autograd import gradcheck

RNG = np.random.default_rng(3)
X, Y = RNG.uniform(0.2, 0.9, (3, 3)), RNG.uniform(0.2, 0.9, (3, 3))
SPD = X @ X.T + np.eye(3)
ONES = [
    "abs", "acos", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p", "log2",
    "negative", "positive", "reciprocal", "sin", "sinh", "sqrt", "square", "tan", "tanh", "real", "conj",
]  # fmt: skip
TWOS = [
    "add",
    "atan2",
    "copysign",
    "divide",
    "hypot",
    "logaddexp",
    "maximum",
    "minimum",
    "multiply",
    "pow",
    "remainder",
    "subtract",
]

CALLS = {
    "astype": lambda x: xp.astype(xp.astype(x, xp.complex128), xp.complex128),
    "asarray": lambda x: xp.asarray(x, copy=True),
    "asarray of a sequence": lambda x: xp.asarray([[x[0, 0], x[1, 1]], [x[2, 2], x[0, 1]]], dtype=xp.float64),
    "broadcast_arrays": lambda x: xp.broadcast_arrays(x, x[0])[1],
    "broadcast_to": lambda x: xp.broadcast_to(x, (2, 3, 3)),
    "clip": lambda x: xp.clip(x, 0.3, xp.asarray(0.8)), "complex": lambda x: xp.abs(xp.exp(x * 1j) + x),
    "concat": lambda x: xp.concat([x, x[:1] * 2]),
    "cumulative_prod": lambda x: xp.cumulative_prod(x, axis=1, include_initial=True),
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=0, include_initial=True),
    "diff": lambda x: xp.diff(x, n=2, append=x[:, :1]),
    "expand_dims": lambda x: xp.expand_dims(x, (0, -1)), "flip": xp.flip, "max": lambda x: xp.max(x, axis=(0, 1)),
    "mean": lambda x: xp.mean(x, axis=()), "meshgrid": lambda x: xp.meshgrid(x[0], x[1])[1],
    "min": lambda x: xp.min(x, axis=1),
    "moveaxis": lambda x: xp.moveaxis(x, 0, 1), "permute_dims": lambda x: xp.permute_dims(x, (1, 0)),
    "prod": lambda x: xp.prod(x, axis=(0, 1)), "repeat": lambda x: xp.repeat(x, xp.asarray([1, 0, 2]), axis=0),
    "reshape": lambda x: xp.reshape(x, (9,)), "roll": lambda x: xp.roll(x, 1),
    "sort": lambda x: xp.sort(x, descending=True),
    "squeeze": lambda x: xp.squeeze(x[None], 0), "stack": lambda x: xp.stack([x, x * x], axis=-1),
    "std": lambda x: xp.std(x, correction=1),
    "sum": lambda x: xp.sum(x, axis=0), "take": lambda x: xp.take(x, xp.asarray([0, -1, 0]), axis=1),
    "take_along_axis": lambda x: xp.take_along_axis(x, xp.asarray([[0], [-1], [1]])),
    "tile": lambda x: xp.tile(x, (2, 1)),
    "tril": xp.tril, "triu": lambda x: xp.triu(x, k=1), "unstack": lambda x: xp.unstack(x, axis=1)[1],
    "unique": lambda x: xp.unique_values(xp.concat([x, x])), "var": lambda x: xp.var(x, axis=1),
    "where": lambda x: xp.where(x > 0.5, x * x, 0.0), "slices": lambda x: x[::-1, ::-2],
    "matmul": lambda x: xp.matmul(x, x[0]),
    "tensordot": lambda x: xp.tensordot(x, x, axes=((0,), (1,))), "vecdot": lambda x: xp.vecdot(x, x[0], axis=-1),
    "cholesky": lambda x: xp.linalg.cholesky(x + x.T + 3 * xp.eye(3, dtype=xp.float64)),
    "cross": lambda x: xp.linalg.cross(x, x[1]),
    "det": xp.linalg.det, "eigvalsh": lambda x: xp.linalg.eigvalsh(x + x.T), "inv": xp.linalg.inv,
    "matrix_norm": lambda x: xp.linalg.matrix_norm(x, ord="nuc"), "matrix_power": lambda x: xp.linalg.matrix_power(x, 3),
    "outer": lambda x: xp.linalg.outer(x[0], x[1]), "pinv": lambda x: xp.linalg.pinv(x[:, :2]),
    "qr": lambda x: xp.linalg.qr(x)[1],
    "slogdet": lambda x: xp.linalg.slogdet(x)[1], "solve": lambda x: xp.linalg.solve(x, x[0]),
    "svdvals": xp.linalg.svdvals,
    "svd": lambda x: xp.abs(xp.linalg.svd(x)[0]), "trace": lambda x: xp.linalg.trace(x, offset=1),
    "vector_norm": lambda x: xp.linalg.vector_norm(x, axis=0, ord=3), "fft": lambda x: xp.abs(xp.fft.fft(x, n=4)),
    "irfft": lambda x: xp.fft.irfft(x), "rfftn": lambda x: xp.abs(xp.fft.rfftn(x)),
    "fftshift": lambda x: xp.fft.fftshift(x),
    "hfft": lambda x: xp.fft.hfft(x, axis=0), "gammaln": xp.special.gammaln,
    "kl_div": lambda x: xp.special.kl_div(x, x.T),
    "gammaincc": lambda x: xp.special.gammaincc(2.5, x), "multigammaln": lambda x: xp.special.multigammaln(x + 2, 3),
    "polygamma": lambda x: xp.special.polygamma(1, x), "log_ndtr": xp.special.log_ndtr,
}  # fmt: skip


def leaf(x):
    return wg.tensor(x, requires_grad=True)


@pytest.mark.parametrize("name", ONES)
def test_functions_of_one_array(name):
    assert gradcheck(getattr(xp, name), (leaf(X),))


@pytest.mark.parametrize("name", TWOS)
def test_functions_of_two_arrays(name):
    assert gradcheck(getattr(xp, name), (leaf(X), leaf(Y[0])))
    assert gradcheck(lambda x: getattr(xp, name)(x, 0.45), (leaf(X),))
    assert gradcheck(lambda x: getattr(xp, name)(0.45, x), (leaf(X),))


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    assert gradcheck(CALLS[name], (leaf(X),))


def test_a_cast_operand_gets_its_gradient_in_its_own_dtype():
    a, b = wg.ones(2, requires_grad=True), wg.tensor(3.0, dtype=wg.float64, requires_grad=True)
    out = xp.multiply(a, b)
    out.sum().backward()
    assert (out.dtype, a.grad.dtype, b.grad.dtype) == (wg.float64, wg.float32, wg.float64)
    assert (a.grad.tolist(), b.grad.item()) == ([3, 3], 2)


@pytest.mark.parametrize("function",
    [xp.sqrt, lambda x: xp.max(x, axis=0), lambda x: xp.min(x, axis=0), lambda x: xp.std(x, axis=0),
                                      lambda x: xp.linalg.vector_norm(x, axis=0),
                                      lambda x: xp.linalg.svd(x).S])  # fmt: skip
def test_a_result_may_be_written_to_before_backward(function):
    x = leaf(X)
    (out := function(x))[0] = 1.0
    got = wg.autograd.grad(out.sum(), x)[0]
    kept = wg.autograd.grad(function(x)[1:].sum(), x)[0]
    np.testing.assert_allclose(got.numpy(), kept.numpy())


def test_second_derivatives():
    x = leaf(X)
    first = wg.autograd.grad(xp.sum(xp.linalg.solve(x, x[0]) ** 2), x, create_graph=True)[0]
    assert gradcheck(lambda x: wg.autograd.grad(xp.sum(xp.exp(xp.var(x, axis=0))), x, create_graph=True)[0], (x,))
    assert first.requires_grad


@pytest.mark.parametrize(
    "name", ["clip", "cumulative_sum", "fft", "flip", "roll", "slices", "solve", "sort", "std", "take", "tril", "where"]
)
def test_transforms_pass_through(name):
    function, x = CALLS[name], wg.tensor(np.stack([X, Y]))
    np.testing.assert_allclose(func.vmap(function)(x).numpy(), xp.stack([function(row) for row in x]).numpy())
    _, pushed = func.jvp(function, (x[0],), (x[1],))
    ends = [function(x[0] + h * x[1]).numpy() for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(pushed.numpy(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)
