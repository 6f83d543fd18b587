"""Python's operators on tensors: every operand on either side, what is declined, what is written in place."""

import operator

import numpy as np
import pytest

import wengert as wg

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
ORDER = [operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("run", ARITHMETIC + ORDER + [operator.eq, operator.ne], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("number", [2, 3.0, True])
def test_numbers_on_either_side(run, dtype, number):
    array = np.array([[4, 5], [3, 2]], dtype)
    x = wg.tensor(array)
    for got, want in ((run(x, number), run(array, number)), (run(number, x), run(number, array))):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("run", BITS, ids=lambda f: f.__name__)
def test_bits_on_either_side(run):
    array = np.array([4, 5, 1])
    for other in (2, np.array([1, 2, 3])):
        np.testing.assert_array_equal(run(wg.tensor(array), wg.tensor(other)).numpy(), run(array, other))
    np.testing.assert_array_equal(run(2, wg.tensor(array)).numpy(), run(2, array))


@pytest.mark.parametrize("run", ARITHMETIC + ORDER, ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [None, "text", [1.0], object()], ids=lambda o: type(o).__name__)
def test_foreign_operands_are_declined(run, other):
    with pytest.raises(TypeError):
        run(wg.ones(1), other)


@pytest.mark.parametrize("run", ARITHMETIC + ORDER, ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [None, object()], ids=lambda o: type(o).__name__)
def test_foreign_operands_on_the_left_are_declined(run, other):
    with pytest.raises(TypeError):
        run(other, wg.ones(1))


@pytest.mark.parametrize("other", [None, "text", object()])
def test_foreign_operands_are_unequal(other):
    assert (wg.ones(1) == other) is False
    assert (wg.ones(1) != other) is True


class Quantity:
    """A class of the user's that knows how to meet a tensor."""

    def __radd__(self, other):
        return "added"

    def __rpow__(self, other):
        return "raised"

    def __lt__(self, other):
        return "compared"


def test_the_other_operand_is_asked():
    x = wg.ones(1)
    assert x + Quantity() == "added"
    assert x ** Quantity() == "raised"
    assert (x > Quantity()) == "compared"


INPLACE = [
    (operator.iadd, [3.0, 6.0]), (operator.isub, [1.0, 2.0]), (operator.imul, [2.0, 8.0]),
    (operator.itruediv, [2.0, 2.0]), (operator.ifloordiv, [2.0, 2.0]), (operator.imod, [0.0, 0.0]),
    (operator.ipow, [2.0, 16.0]),
]  # fmt: skip


@pytest.mark.parametrize(("run", "want"), INPLACE, ids=lambda f: getattr(f, "__name__", ""))
def test_augmented_assignment_writes_the_tensor_itself(run, want):
    x = wg.tensor([2.0, 4.0])
    view = x[:1]
    assert run(x, wg.tensor([1.0, 2.0])) is x
    assert x.tolist() == want
    assert view.tolist() == want[:1]


def test_augmented_assignment_of_bits():
    x = wg.tensor([True, False])
    x &= wg.tensor([True, True])
    x |= wg.tensor([False, True])
    x ^= True
    assert x.tolist() == [False, False]
    n = wg.tensor([1, 2])
    n <<= 2
    n >>= 1
    assert n.tolist() == [2, 4]


def test_augmented_assignment_keeps_the_dtype_or_refuses():
    x = wg.tensor([2, 4])
    with pytest.raises(TypeError, match="float32"):
        x /= 2
    x *= 2
    assert x.dtype is wg.int64


def test_unary_operators():
    x = wg.tensor([1.5, -2.0])
    assert (-x).tolist() == [-1.5, 2.0]
    assert (+x) is x
    assert abs(x).tolist() == [1.5, 2.0]
    assert (~wg.tensor([True, False])).tolist() == [False, True]


@pytest.mark.parametrize("left", [2, 2.5, np.float64(2.0), np.array([1.0, 2.0])], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("run", ARITHMETIC, ids=lambda f: f.__name__)
def test_reflected_operators_record_gradients(run, left):
    base, step = np.array([1.3, 2.2]), 1e-6
    x = wg.tensor(base, requires_grad=True)
    y = run(left, x)
    assert y.requires_grad
    assert y.dtype is wg.float64
    y.sum().backward()
    want = (run(left, base + step) - run(left, base - step)) / (2 * step)
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-6, atol=1e-8)


def test_reflected_operators_notice_a_changed_operand():
    x = wg.tensor([1.5, 2.5], requires_grad=True)
    z = x * 1
    y = 1 / z
    z.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_results_of_mixed_precision_follow_promotion():
    half, single, double = (wg.ones(2, dtype=d) for d in (wg.float16, wg.float32, wg.float64))
    assert (half + single).dtype is wg.float32
    assert (single * double).dtype is wg.float64
    assert (single * wg.tensor(2.0, dtype=wg.float64)).dtype is wg.float32
    assert (2.5 * wg.tensor([1, 2])).dtype is wg.float32


def test_membership_and_hash_follow_identity_and_equality():
    x, y = wg.ones(2), wg.ones(2)
    assert len({x, y}) == 2
    assert 1.0 in x
    assert 5.0 not in x
