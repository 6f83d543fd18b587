"""Values that are not quite tensors: odd operands, foreign arrays, empty tensors, shapes that do not fit."""

import numpy as np
import pytest

import wengert as wg


class Series:
    """An object of another library that NumPy can read."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0], dtype or np.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: "a" in x, TypeError, "str"),
        (lambda x: None in x, TypeError, "NoneType"),
        (lambda x: x.fill_("a"), TypeError, "str"),
        (lambda x: x.__setitem__(0, "a"), TypeError, "str"),
        (lambda x: wg.from_dlpack(5), TypeError, "__dlpack__"),
        (lambda x: wg.from_dlpack(x.clone().requires_grad_()), RuntimeError, "detach"),
        (lambda x: wg.set_printoptions(profile="long"), ValueError, "profile"),
        (lambda x: wg.cartesian_prod(wg.ones(2, 2)), RuntimeError, "vector"),
        (lambda x: wg.addmm(x, x[0], x), RuntimeError, "matrices"),
        (lambda x: wg.addmm(wg.ones(3, 2), x[:1], x), RuntimeError, "broadcast"),
        (lambda x: wg.addmv(x, x, x[0]), RuntimeError, "broadcast"),
        (lambda x: wg.addr(wg.ones(3, 2, 2), x[0], x[0]), RuntimeError, "broadcast"),
        (lambda x: wg.baddbmm(wg.ones(2, 1, 2, 2), x[None], x[None]), RuntimeError, "broadcast"),
        (lambda x: wg.nn.functional.linear(x[0], x[0], x[0]), RuntimeError, "bias"),
        (lambda x: wg.from_numpy(np.ones(3)[::-1]).__dlpack__(copy=False), BufferError, "strides"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=message):
        call(wg.ones(2, 2))


@pytest.mark.parametrize(
    ("data", "wanted"), [(range(3), [0, 1, 2]), (Series(), [1.0, 2.0]), (np.arange(3.0)[::-1], [2.0, 1.0, 0.0])]
)
def test_what_numpy_can_read_makes_a_tensor(data, wanted):
    for make in (wg.tensor, wg.as_tensor):
        assert make(data).tolist() == wanted


def test_negative_strides_are_exported_as_a_copy():
    array = np.arange(3.0)
    exported = np.from_dlpack(wg.from_numpy(array[::-1]))
    np.testing.assert_array_equal(exported, [2.0, 1.0, 0.0])
    assert not np.shares_memory(exported, array)


@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 3), (3, 0)])
def test_logsumexp_of_empty_tensors_keeps_the_other_dimensions(shape):
    x = wg.zeros(shape)
    found = x.logsumexp(1)
    assert tuple(found.shape) == (*shape[:1], *shape[2:])
    assert bool((found == -np.inf).all())


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (3, 0)])
def test_batch_norm_of_an_empty_batch_gives_an_empty_batch_and_zero_gradients(shape):
    x = wg.zeros(shape, requires_grad=True)
    weight = wg.ones(shape[1], requires_grad=True)
    y = wg.nn.functional.batch_norm(x, None, None, weight, training=True)
    y.sum().backward()
    assert y.shape == x.shape == x.grad.shape
    np.testing.assert_array_equal(weight.grad.numpy(), np.zeros(shape[1]))


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("float32", "tensor([])"),
        ("int64", "tensor([], dtype=wengert.int64)"),
        ("bool", "tensor([], dtype=wengert.bool)"),
    ],
)
def test_an_empty_tensor_prints_its_dtype(dtype, text):
    assert repr(wg.zeros(0, dtype=getattr(wg, dtype))) == text
