"""Square brackets, gather and scatter: values by definition or NumPy, gradients, bounds, in-place twins."""

import numpy as np
import pytest

import wengert as wg
from wengert.errors import InplaceError

A = np.arange(24.0).reshape(2, 3, 4)
V = np.arange(5.0)


def t(data):
    return wg.tensor(data)


# ---- reading: a key and the same key of NumPy's

SAME_AS_NUMPY = [
    0, -1, (1, 2), (1, 2, 3), slice(1, None), (slice(None), slice(0, 3, 2)), (Ellipsis, 1), (0, Ellipsis, 1), None,
    (None, 0, None, Ellipsis), (), Ellipsis, slice(5, 1), slice(-100, 100), (slice(None, None, 5), slice(1, 1)),
    np.array([1, 0, 1]), np.array([[0], [-1]]), (slice(None), np.array([2, 0])), (Ellipsis, np.array([3, -4])),
    (np.array([0, 1]), np.array([2, 1])), (np.array([0, 1]), slice(1), np.array([2, 1])),
    (np.array([[0], [1]]), np.array([2, 1])),
    A > 11, (A > 11).any((1, 2)), (slice(None), np.array([True, False, True])), ([True, False], [0, 2, 1]), [0, 1, 0],
    (None, np.array([1]), None), np.zeros((0,), int), np.array([False, False]), np.int64(1), np.array(1),
    (np.array(1), slice(1)),
]  # fmt: skip


def tensors(key):
    if isinstance(key, tuple):
        return tuple(tensors(k) for k in key)
    return wg.tensor(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("key", SAME_AS_NUMPY, ids=repr)
def test_reading_like_numpy(key):
    for given in (key, tensors(key)):
        x = wg.tensor(A, requires_grad=True)
        out = x[given]
        np.testing.assert_array_equal(out.numpy(force=True), A[key])
        weights = np.random.default_rng(0).standard_normal(A[key].shape)
        out.backward(wg.tensor(weights))
        expected = np.zeros_like(A)
        np.add.at(expected, key, weights)
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("key", SAME_AS_NUMPY, ids=repr)
def test_writing_like_numpy(key):
    for value in (7.0, np.random.default_rng(0).standard_normal(A[key].shape)):
        expected = A.copy()
        expected[key] = value
        plain = wg.tensor(A)
        plain[tensors(key)] = value
        np.testing.assert_array_equal(plain.numpy(), expected)
        x = wg.tensor(A, requires_grad=True)
        y = x * 1
        y[key] = value
        np.testing.assert_array_equal(y.numpy(force=True), expected)
        y.sum().backward()
        kept = np.ones_like(A)
        kept[key] = 0
        np.testing.assert_array_equal(x.grad.numpy(), kept)


def test_ints_are_taken_first_as_in_pytorch():
    """NumPy puts the gathered dimension in front here; PyTorch takes the int as a view and indexes what is left."""
    x = wg.tensor(A)
    assert x[0, :, [0, 1]].shape == (3, 2)
    np.testing.assert_array_equal(x[0, :, [0, 1]].numpy(), A[0][:, [0, 1]])
    assert A[0, :, [0, 1]].shape == (2, 3)


def test_bools_add_a_dimension():
    x = t(V)
    assert x[True].shape == (1, 5)
    assert x[False].shape == (0, 5)
    assert x[wg.tensor(True)].shape == (1, 5)
    assert x[np.bool_(False)].shape == (0, 5)
    assert t(1.0)[wg.tensor(True)].tolist() == [1]


def test_basic_keys_give_views_and_others_copies():
    x = t(A)
    for key in (0, slice(1), (Ellipsis, None), (0, 1, 2), ()):
        assert x[key]._base is x
    for key in ([0], t([1]), t(A) > 3, True):
        assert x[key]._base is None


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (5, IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
        ((0, -4), IndexError, "index -4 is out of bounds for dimension 1 with size 3"),
        ((0, 0, 0, 0), IndexError, "too many indices: 4"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
        (slice(None, None, 0), ValueError, "zero"),
        ((Ellipsis, Ellipsis), IndexError, "one Ellipsis"),
        ([0, 2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
        (([0], [3]), IndexError, "index 3 is out of bounds for dimension 1 with size 3"),
        ([[0, 1], [1, 0]], IndexError, "use a tuple"),
        ([0.5], IndexError, "ints or bools"),
        (1.5, IndexError, "float"),
        ("a", IndexError, "str"),
        (wg.tensor([0.0]), IndexError, "ints or bools"),
        (wg.tensor([1, 0], dtype=wg.uint8), IndexError, "uint8"),
        (wg.tensor([True, False, True]), IndexError, "mask of shape"),
        (([0, 1], [0, 1, 2]), IndexError, "broadcast"),
    ],
)
def test_keys_refused(key, error, message):
    x = t(A)
    with pytest.raises(error, match=message):
        x[key]
    with pytest.raises(error, match=message):
        x[key] = 1.0
    assert x.tolist() == A.tolist()
    assert x._version == 0


def test_setitem_broadcasts_casts_and_drops_leading_ones():
    x = wg.zeros(2, 3)
    x[0] = wg.arange(3)
    x[1:, :] = t([[[1.0, 2.0, 3.0]]])
    x[:, [0]] = t([[5.0]])
    x[[1]] = t([[[1.9, 2.9, 3.9]]])
    assert x.tolist() == [[5, 1, 2], [pytest.approx(1.9), pytest.approx(2.9), pytest.approx(3.9)]]
    whole = wg.zeros(3, dtype=wg.int64)
    whole[0], whole[[1]], whole[whole == 0] = 2.9, t([1.9]), 7.2
    assert whole.tolist() == [2, 1, 7]
    with pytest.raises(RuntimeError, match="does not fit"):
        whole[0] = float("inf")
    with pytest.raises(RuntimeError, match="broadcast"):
        x[0] = t([1.0, 2.0])
    with pytest.raises(RuntimeError, match="broadcast"):
        x[[0, 1]] = t([1.0, 2.0])


def test_setitem_gives_gradients_to_the_value():
    x, v = wg.zeros(4, requires_grad=True), t([2.0, 3.0]).requires_grad_()
    y = x * 1
    y[1:3] = v * v
    y[t([0, 3])] = v
    y[y > 8] = v[0]
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 0]
    assert v.grad.tolist() == [4 + 1 + 1, 1]


def test_setitem_on_leaves_and_overlapping_memory_is_refused():
    leaf = wg.zeros(3, requires_grad=True)
    for key in (0, [0], wg.tensor([True, False, False])):
        with pytest.raises(InplaceError, match="leaf"):
            leaf[key] = 1.0
        with wg.no_grad():
            leaf[key] = 1.0
    with pytest.raises(InplaceError, match="share one memory"):
        wg.zeros(1).expand(3)[[0]] = 1.0
    assert leaf.tolist() == [1, 0, 0]


def test_writing_what_is_read_from_the_same_memory():
    x = t(V)
    x[t([0, 1, 2, 3, 4])] = x.flip(0)
    assert x.tolist() == V[::-1].tolist()
    x = t(V)
    x[t([1, 2, 3, 4])] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]
    x = t(V)
    x.scatter_(0, t([1, 2, 3, 4]), x[:-1])
    assert x.tolist() == [0, 0, 1, 2, 3]


def test_indices_of_every_integer_dtype():
    x = t(V)
    for dtype in (wg.int8, wg.int16, wg.int32, wg.int64):
        assert x[wg.tensor([1, -1], dtype=dtype)].tolist() == [1, 4]


# ---- gather and scatter by their definitions


def test_gather_and_scatter_by_definition():
    rng = np.random.default_rng(1)
    x, src = rng.standard_normal((3, 4)), rng.standard_normal((2, 5))
    index = rng.integers(0, 4, (2, 5))
    gathered, added, largest = np.empty((2, 5)), x.copy(), x.copy()
    for i, j in np.ndindex(index.shape):
        gathered[i, j] = x[i, index[i, j]]
        added[i, index[i, j]] += src[i, j]
        largest[i, index[i, j]] = max(largest[i, index[i, j]], src[i, j])
    np.testing.assert_array_equal(t(x).gather(1, t(index)).numpy(), gathered)
    np.testing.assert_allclose(t(x).scatter_add(1, t(index), t(src)).numpy(), added, rtol=1e-12)
    np.testing.assert_array_equal(t(x).scatter_reduce(1, t(index), t(src), "amax").numpy(), largest)
    np.testing.assert_array_equal(wg.take_along_dim(t(x), t(index[:, :1].repeat(3, 0)[:3]), 1).numpy(),
                                  np.take_along_axis(x, index[:, :1].repeat(3, 0)[:3], 1))  # fmt: skip


def test_product_of_zeros_has_its_first_derivative_and_refuses_the_second():
    src = t([0.0, 2.0, 3.0, 0.0, 0.0, 4.0]).requires_grad_()
    index = t([0, 0, 0, 1, 1, 1])
    out = wg.ones(2).scatter_reduce(0, index, src, "prod")
    out.sum().backward()
    assert src.grad.tolist() == [6, 0, 0, 0, 0, 0]
    out = wg.ones(2).scatter_reduce(0, index, src, "prod")
    with pytest.raises(RuntimeError, match="several zeros"):
        wg.autograd.grad(out.sum(), src, create_graph=True)


def test_integer_means_are_rounded_down():
    assert wg.zeros(1, dtype=wg.int64).scatter_reduce(0, t([0, 0]), t([-3, -4]), "mean").tolist() == [-3]


TWINS = [
    ("index_add", (0, t([2, 0, 2]), t(A[:, :, 0][[0, 1, 0]]))),
    ("index_copy", (1, t([2, 0]), t(A[0, :, :2]))),
    ("index_fill", (1, t([2, 0]), -1.5)),
    ("index_put", ((t([0, 2]), t([1, 1])), t([5.0, 6.0], ))),
    ("index_put", ((t([0, 0]), t([1, 1])), t([5.0, 6.0]), True)),
    ("index_reduce", (0, t([2, 0, 2]), t(A[0, :, :3]), "mean")),
    ("masked_fill", (t([True, False, True]), 0.5)),
    ("masked_scatter", (t([True, False, True]), t(A[0]))),
    ("put", (t([0, -1, 4]), t([1.0, 2.0, 3.0]))),
    ("put", (t([0, 0, 4]), t([1.0, 2.0, 3.0]), True)),
    ("scatter", (0, t([[0, 2, 1]]), t(A[0, :1, :3]))),
    ("scatter", (0, t([[0, 2, 1]]), 2.5)),
    ("scatter_add", (1, t([[0, 0], [1, 1], [2, 2]]), t(A[0, :, :2]))),
    ("scatter_reduce", (1, t([[0, 0], [1, 1], [2, 2]]), t(A[0, :, :2] + 1), "prod")),
    ("scatter_reduce", (1, t([[0, 0], [1, 1], [2, 2]]), t(A[0, :, :2]), "amax")),
    ("tril", ()),
    ("triu", (1,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), TWINS, ids=[f"{k}-{name}" for k, (name, _) in enumerate(TWINS)])
def test_in_place_twins_write_what_the_operator_returns(name, args):
    """On a tensor and on strided views, recorded or not: the same values and gradients, and one version more."""
    start = np.random.default_rng(2).uniform(1, 2, (3, 3))
    args = tuple(a.to(wg.float64) if isinstance(a, wg.Tensor) and a.is_floating_point() else a for a in args)
    args = tuple(tuple(v for v in a) if isinstance(a, tuple) else a for a in args)
    expected = getattr(wg.tensor(start), name)(*args)
    larger = np.zeros((3, 7))
    larger[:, 1::2] = start
    for target in (wg.tensor(start), wg.from_numpy(larger)[:, 1::2], wg.tensor(start.T.copy()).t()):
        before = target._version
        assert getattr(target, name + "_")(*args) is target
        np.testing.assert_array_equal(target.numpy(), expected.numpy())
        assert target._version == before + 1

    def gradients(call):
        x = wg.tensor(larger, requires_grad=True)
        moving = [a.clone().requires_grad_() if isinstance(a, wg.Tensor) and a.is_floating_point() else a for a in args]
        call(x * 1, moving).backward(wg.tensor(np.arange(21.0).reshape(3, 7)))
        return [x.grad, *(m.grad for m in moving if isinstance(m, wg.Tensor) and m.requires_grad)]

    def in_place(y, moving):
        getattr(y[:, 1::2], name + "_")(*moving)
        return y

    def out_of_place(y, moving):
        changed = getattr(y[:, 1::2], name)(*moving)
        return wg.stack([changed[:, k // 2] if k % 2 else y[:, k] for k in range(7)], 1)

    for got, want in zip(gradients(in_place), gradients(out_of_place), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)


def test_a_failed_write_changes_nothing():
    for name, args in (
        ("index_add_", (0, t([0, 9]), t([1.0, 2.0]))),
        ("index_copy_", (0, t([0, 9]), t([1.0, 2.0]))),
        ("index_fill_", (0, t([0, -1]), 2.0)),
        ("index_put_", ((t([0, 9]),), t([1.0, 2.0]))),
        ("put_", (t([0, 9]), t([1.0, 2.0]))),
        ("scatter_", (0, t([0, 9]), t([1.0, 2.0]))),
        ("scatter_add_", (0, t([0, -1]), t([1.0, 2.0]))),
        ("scatter_reduce_", (0, t([0, 9]), t([1.0, 2.0]), "sum")),
    ):
        x = t([1.0, 2.0, 3.0])
        with pytest.raises(IndexError, match=r"index (9|-1) is out of bounds"):
            getattr(x, name)(*args)
        assert x.tolist() == [1, 2, 3]
        assert x._version == 0


@pytest.mark.parametrize("bad", [1 << 62, -(1 << 62), 5, -6])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i], lambda x, i: x.take(i), lambda x, i: x.gather(0, i), lambda x, i: x.index_select(0, i),
        lambda x, i: wg.take_along_dim(x, i, 0), lambda x, i: x.scatter(0, i, 1.0),
        lambda x, i: x.scatter_add(0, i, wg.ones(2)),
        lambda x, i: x.index_add(0, i, wg.ones(2)), lambda x, i: x.put(i, wg.ones(2)),
        lambda x, i: x.index_fill(0, i, 0.0),
        lambda x, i: x.index_put((i,), wg.ones(2), True), lambda x, i: x.index_copy(0, i, wg.ones(2)),
        lambda x, i: x.scatter_reduce(0, i, wg.ones(2), "amin"), lambda x, i: x.index_reduce(0, i, wg.ones(2), "prod"),
        lambda x, i: x.__setitem__(i, 1.0),
    ],
)  # fmt: skip
def test_no_index_leaves_the_memory(call, bad):
    with pytest.raises(IndexError, match="out of bounds"):
        call(wg.zeros(5), wg.tensor([0, bad]))


def test_a_reduction_in_place_keeps_what_its_backward_needs():
    x = t([2.0, 3.0]).requires_grad_()
    y = x * 1
    y.scatter_reduce_(0, t([0, 0]), t([5.0, 7.0]), "prod")
    y.sum().backward()
    assert x.grad.tolist() == [35, 1]


# ---- masks and positions


def test_masks():
    x = t(A[0])
    mask = t(A[0]) > 4
    np.testing.assert_array_equal(x.masked_select(mask).numpy(), A[0][A[0] > 4])
    np.testing.assert_array_equal(
        wg.masked_select(x, t([True, False, False, True])).numpy(), A[0][:, [0, 3]].reshape(-1)
    )
    np.testing.assert_array_equal(x.masked_fill(mask, -1).numpy(), np.where(A[0] > 4, -1, A[0]))
    filled = wg.zeros(2, 2).masked_scatter(t([True, False]), t([1.0, 2.0, 3.0]))
    assert filled.tolist() == [[1, 0], [2, 0]]


@pytest.mark.parametrize("array", [A > 5, A[0], np.array(3), np.array(0), np.zeros((0, 2)), np.zeros(4)], ids=repr)
def test_positions_of_what_is_not_zero(array):
    assert wg.argwhere(t(array)).tolist() == np.argwhere(array).tolist()
    assert wg.nonzero(t(array)).shape == np.argwhere(array).shape
    if array.ndim:
        for got, want in zip(t(array).nonzero(as_tuple=True), np.nonzero(array), strict=True):
            assert got.tolist() == want.tolist()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.gather(1, t([0])), RuntimeError, "dimensions"),
        (lambda x: x.gather(0, t([[0.0]])), TypeError, "integer"),
        (lambda x: x.scatter(0, t([[0, 1]]), t([[1.0]])), RuntimeError, "smaller than index"),
        (lambda x: x.scatter(0, t([[0]])), TypeError, "either src or value"),
        (lambda x: x.scatter(0, t([[0]]), 1.0, reduce="max"), RuntimeError, "'add' or 'multiply'"),
        (lambda x: x.scatter_reduce(0, t([[0]]), t([[1.0]]), "median"), RuntimeError, "must be one of"),
        (lambda x: x.scatter_reduce(0, t([[0]]), t([[1]]), "sum"), TypeError, "one dtype"),
        (lambda x: x.index_select(0, t([[0]])), RuntimeError, "vector"),
        (lambda x: x.index_select(0, t([0.0])), TypeError, "integer"),
        (lambda x: x.index_select(2, t([0])), IndexError, "dim=2"),
        (lambda x: x.index_add(0, t([0]), t([[1.0]])), RuntimeError, "must have shape"),
        (lambda x: x.index_add(0, t([0]), t([[1, 2, 3]])), TypeError, "dtype of input"),
        (lambda x: x.index_fill(0, t([0]), t([1.0])), RuntimeError, "0-d"),
        (lambda x: x.index_put((t([0]),), t([1])), TypeError, "dtype of input"),
        (lambda x: x.index_put(t([0]), t([1.0])), TypeError, "sequence"),
        (lambda x: x.index_put((t([0]),), t([1.0, 2.0])), RuntimeError, "broadcast"),
        (lambda x: x.index_reduce(0, t([0, 1]), x[:1], "prod"), RuntimeError, "as long as dimension"),
        (lambda x: x.put(t([0, 1]), t([1.0])), RuntimeError, "put"),
        (lambda x: x.masked_fill(t([1, 0, 1]), 0), TypeError, "boolean"),
        (lambda x: x.masked_fill_(t([True, False]), 0), RuntimeError, "masked_fill"),
        (lambda x: x.masked_fill_(wg.ones(2, 2, 3).bool(), 0), RuntimeError, "masked_fill"),
        (lambda x: x.masked_fill(t([True, False, True]), 1j), TypeError, "complex"),
        (lambda x: x.masked_fill(t([True, False, True]), t([1.0])), RuntimeError, "0-d"),
        (lambda x: x.masked_scatter_(t([True, True, True]), t([1.0])), RuntimeError, "only 1 elements"),
        (lambda x: x.masked_select(t([1, 0, 1])), TypeError, "use mask.bool"),
        (lambda x: wg.take_along_dim(x, t([0]), 0), RuntimeError, "equally many"),
        (lambda x: x.select_scatter(t([1.0]), 0, 0), RuntimeError, "the part it replaces"),
        (lambda x: x.select_scatter(x[0], 0, 2), IndexError, "index 2 is out of bounds"),
        (lambda x: x.slice_scatter(x, step=0), RuntimeError, "positive"),
    ],
)
def test_refused(call, error, message):
    x = t([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    with pytest.raises(error, match=message):
        call(x)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
