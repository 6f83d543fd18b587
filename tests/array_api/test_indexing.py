"""Square brackets as the standard has them: views forwards and backwards, masks, integer arrays, writes."""

import numpy as np
import pytest

import wengert as wg
import wengert.array_api as xp

A = np.arange(24.0).reshape(2, 3, 4)
SLICES = [
    slice(None), slice(None, None, -1), slice(2, 0, -1), slice(0, 2, -1), slice(None, -3, -1), slice(5, None, -2),
    slice(-1, None, -1), slice(1, None, 2), slice(2, 1), slice(-2, None),
]  # fmt: skip
BASIC = [
    *((s,) for s in SLICES), *((..., s) for s in SLICES), (1, slice(None, None, -1), slice(3, 0, -2)), (0, ..., -1),
    (None, 1),
    (slice(None, None, -1), None, ..., slice(None, None, -1)), (1, 2, 3), (...,), (),
]  # fmt: skip


def same(tensor, array):
    assert tuple(tensor.shape) == array.shape
    np.testing.assert_array_equal(tensor.detach().numpy(), array)


@pytest.mark.parametrize("key", BASIC, ids=str)
def test_basic_keys_are_views_that_read_write_and_differentiate(key):
    x = xp.asarray(A.copy())
    same(x[key], A[key])
    if A[key].size:
        assert np.shares_memory(x[key].numpy(), x.numpy())
    written, value = A.copy(), np.arange(A[key].size, dtype=float).reshape(A[key].shape)
    written[key] = value
    x[key] = xp.asarray(value)
    same(x, written)

    leaf, source = wg.tensor(A, requires_grad=True), wg.tensor(value, requires_grad=True)
    (leaf[key] * wg.tensor(value)).sum().backward()
    wanted = np.zeros_like(A)
    wanted[key] = value
    same(leaf.grad, wanted)
    result = leaf * 1
    result[key] = source
    gradients = wg.autograd.grad((result * wg.tensor(A)).sum(), (leaf, source))
    wanted = A.copy()
    wanted[key] = 0
    same(gradients[0], wanted)
    same(gradients[1], A[key])


def test_a_view_that_goes_backwards_can_be_changed_in_place():
    leaf = wg.tensor(A, requires_grad=True)
    result = leaf * 1
    result[..., ::-2].mul_(3)
    result.square().sum().backward()
    wanted = 2 * A
    wanted[..., ::-2] *= 9
    same(leaf.grad, wanted)


def test_a_backward_step_survives_layout_and_export():
    v = xp.arange(6)[::-1]
    assert v.stride() == (-1,)
    assert v.contiguous().tolist() == v.tolist() == [5, 4, 3, 2, 1, 0]
    assert xp.reshape(v, (2, 3)).tolist() == [[5, 4, 3], [2, 1, 0]]
    assert np.from_dlpack(v).tolist() == v.tolist()
    with pytest.raises(ValueError, match="zero"):
        v[::0]


ROWS, COLUMNS, DEPTHS = (np.array(i) for i in ([1, 0, 1], [2, -1, 0], [[3], [0]]))
ARRAYS = [
    (ROWS,), (ROWS, COLUMNS), (ROWS, COLUMNS, np.array([0, 1, -4])), (ROWS, 2), (1, COLUMNS), (1, COLUMNS, 0),
    (0, 2, DEPTHS), (ROWS, COLUMNS, DEPTHS), (DEPTHS % 2, 1, DEPTHS),
    (np.array(1),), (np.array(-1), COLUMNS), (np.array([], np.int64),),
]  # fmt: skip


@pytest.mark.parametrize("key", ARRAYS, ids=str)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
def test_integer_arrays_and_integers(key, dtype):
    x = xp.asarray(A)
    same(x[tuple(xp.asarray(k.astype(dtype)) if isinstance(k, np.ndarray) else k for k in key)], A[key])


@pytest.mark.parametrize("key", [(ROWS, COLUMNS), (ROWS,), (1, COLUMNS)], ids=str)
def test_repeated_places_add_their_gradients(key):
    x = wg.tensor(A, requires_grad=True)
    x[tuple(wg.tensor(k) if isinstance(k, np.ndarray) else k for k in key)].sum().backward()
    wanted = np.zeros_like(A)
    np.add.at(wanted, key, 1)
    same(x.grad, wanted)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3), (2,), ()])
def test_masks(shape):
    mask = np.random.default_rng(0).random(shape) < 0.5
    x = xp.asarray(A.copy())
    same(x[xp.asarray(mask)], A[mask])
    x[xp.asarray(mask)] = -1.0
    written = A.copy()
    written[mask] = -1.0
    same(x, written)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (2, 3, 0), (0, 0, 4)])
def test_a_mask_without_elements_takes_nothing(shape):
    out = xp.asarray(A)[xp.zeros(shape, dtype=xp.bool)]
    assert out.shape == (0, *A.shape[len(shape) :])


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 3, 4, 1)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(IndexError):
        xp.asarray(A)[xp.zeros(shape, dtype=xp.bool)]


@pytest.mark.parametrize(
    "key", [(2,), (0, 3), (-3,), (xp.asarray([2]),), (0, 0, 0, 0), (0.5,), (xp.asarray([0.5]),)], ids=str
)
def test_what_is_no_place_is_refused(key):
    with pytest.raises(IndexError):
        xp.asarray(A)[key]


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_take(axis):
    same(xp.take(xp.asarray(A), xp.asarray([1, 0, -1, 1]), axis=axis), np.take(A, [1, 0, -1, 1], axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_take_along_axis(axis, dtype):
    places = np.random.default_rng(0).integers(-2, 2, [2 if a == axis % 3 else n for a, n in enumerate(A.shape)])
    same(
        xp.take_along_axis(xp.asarray(A), xp.asarray(places.astype(dtype)), axis=axis),
        np.take_along_axis(A, places, axis),
    )


def test_take_along_axis_broadcasts():
    out = xp.take_along_axis(xp.asarray(A), xp.asarray([[[3], [0], [1]]]), axis=-1)
    same(out, A[:, [0, 1, 2], [3, 0, 1]][..., None])


def test_take_needs_an_axis():
    assert xp.take(xp.asarray([5, 6]), xp.asarray([1, -2])).tolist() == [6, 5]
    with pytest.raises(ValueError, match="axis"):
        xp.take(xp.asarray(A), xp.asarray([0]))
    with pytest.raises(IndexError):
        xp.take(xp.asarray(A), xp.asarray([2]), axis=0)
