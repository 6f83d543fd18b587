"""NumPy lives with tensors: its functions record gradients, and never turn a tensor into an array silently."""

import numpy as np
import pytest

import wengert as wg


def leaf(data):
    return wg.tensor(np.asarray(data, float), requires_grad=True)


UNARY = [np.sin, np.exp, np.tanh, np.sqrt, np.log1p, np.square, np.absolute, np.negative, np.arctan, np.reciprocal]
BINARY = [np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum, np.arctan2, np.hypot]


@pytest.mark.parametrize("ufunc", UNARY, ids=lambda u: u.__name__)
def test_unary_ufuncs_record(ufunc):
    x = leaf([0.3, 0.7, 1.9])
    y = ufunc(x)
    assert isinstance(y, wg.Tensor)
    assert y.requires_grad
    np.testing.assert_allclose(y.detach().numpy(), ufunc(x.detach().numpy()))
    y.sum().backward()
    step = 1e-6
    base = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), (ufunc(base + step) - ufunc(base - step)) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
@pytest.mark.parametrize("order", ["tensor first", "array first"])
def test_binary_ufuncs_mix_arrays_and_tensors(ufunc, order):
    a, b = np.array([0.5, 1.5, 2.5]), leaf([1.25, 0.75, 2.0])
    args = (b, a) if order == "tensor first" else (a, b)
    y = ufunc(*args)
    assert isinstance(y, wg.Tensor)
    assert y.requires_grad
    np.testing.assert_allclose(
        y.detach().numpy(), ufunc(*[v.detach().numpy() if isinstance(v, wg.Tensor) else v for v in args])
    )
    y.sum().backward()
    assert b.grad is not None


def test_an_array_on_the_left_of_an_operator_gives_a_tensor():
    x = leaf([1.0, 2.0])
    for y in (np.ones(2) * x, np.ones(2) - x, np.ones((2, 2)) @ x, np.float64(3.0) * x):
        assert isinstance(y, wg.Tensor)
        assert y.requires_grad


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda x: np.sum(x, axis=0), (3, 2)),
        (lambda x: np.sum(x, axis=1, keepdims=True), (3, 2)),
        (lambda x: np.mean(x), (3, 2)),
        (lambda x: np.var(x), (4,)),
        (lambda x: np.std(x, axis=0), (3, 2)),
        (lambda x: np.max(x, axis=1), (3, 2)),
        (lambda x: np.transpose(x), (3, 2)),
        (lambda x: np.reshape(x, (2, 3)), (3, 2)),
        (lambda x: np.concatenate([x, x], axis=1), (3, 2)),
        (lambda x: np.stack([x, x]), (3, 2)),
        (lambda x: np.where(np.array([True, False, True])[:, None], x, 2 * x), (3, 2)),
        (lambda x: np.clip(x, 0.2, 0.8), (3, 2)),
        (lambda x: np.einsum("ij,ik->jk", x, x), (3, 2)),
        (lambda x: np.matmul(x, np.ones((2, 2))), (3, 2)),
        (lambda x: np.linalg.inv(x), (2, 2)),
        (lambda x: np.cumsum(x, axis=0), (3, 2)),
        (lambda x: np.add.reduce(x, axis=0), (3, 2)),
        (lambda x: np.expand_dims(x, 0), (3, 2)),
        (lambda x: np.dot(x[:, 0], x[:, 1]), (3, 2)),
    ],
)
def test_functions_agree_with_numpy_and_record(call, shape):
    array = np.random.default_rng(0).uniform(0.1, 1.0, shape) + np.eye(*shape) if len(shape) == 2 else np.arange(4.0)
    x = leaf(array)
    y = call(x)
    assert isinstance(y, wg.Tensor)
    assert y.requires_grad
    np.testing.assert_allclose(y.detach().numpy(), call(array))


def test_solve_of_an_array_and_a_tensor_records():
    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), leaf([1.0, 2.0])
    x = np.linalg.solve(a, b)
    np.testing.assert_allclose(x.detach().numpy(), np.linalg.solve(a, [1.0, 2.0]))
    x.sum().backward()
    np.testing.assert_allclose(b.grad.numpy(), np.linalg.solve(a.T, np.ones(2)))


def test_functions_without_an_operator_are_refused():
    with pytest.raises(TypeError, match=r"np.i0.*|np.histogram_bin_edges"):
        np.histogram_bin_edges(leaf([1.0, 2.0]))
    with pytest.raises(TypeError, match="where"):
        np.add(leaf([1.0]), 1.0, where=np.array([True]))


def test_out_of_a_ufunc_may_be_a_tensor():
    out = wg.zeros(2, dtype=wg.float64)
    np.add(wg.ones(2, dtype=wg.float64), 1.0, out=out)
    np.testing.assert_array_equal(out.numpy(), [2.0, 2.0])


def test_asarray_shares_memory_and_refuses_tracked_tensors():
    x = wg.tensor([1.0, 2.0])
    a = np.asarray(x)
    x.add_(1)
    np.testing.assert_array_equal(a, [2.0, 3.0])
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(leaf([1.0]))


def test_dlpack_shares_memory_both_ways():
    x = wg.tensor([1.0, 2.0])
    a = np.from_dlpack(x)
    x.add_(1)
    np.testing.assert_array_equal(a, [2.0, 3.0])
    array = np.array([1.0, 2.0])
    t = wg.from_dlpack(array)
    array[0] = 7.0
    assert t[0].item() == 7.0
    with pytest.raises(RuntimeError, match="detach"):
        leaf([1.0]).__dlpack__()


def test_numpy_settings_of_the_user_are_left_alone():
    before = np.geterr()
    (wg.zeros(2) / 0).sum()
    wg.ones(2).exp()
    assert np.geterr() == before
    with np.errstate(all="raise"):
        assert wg.tensor([1e38]).mul(1e38).isinf().item()
