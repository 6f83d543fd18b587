"""New tensors: constants, ranges, data from elsewhere, windows, dtypes and devices."""

import numpy as np
import pytest
from scipy.signal import windows

import wengert as wg
from wengert.array.device import device

A = np.arange(6.0).reshape(2, 3)


# ---- tensor(): the dtype follows from the data


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, wg.int64, ()),
        (1.0, wg.float32, ()),
        (True, wg.bool, ()),
        (1j, wg.complex64, ()),
        ([], wg.float32, (0,)),
        ([[]], wg.float32, (1, 0)),
        ([1, 2.5], wg.float32, (2,)),
        ([True, 2], wg.int64, (2,)),
        ([1, 2j], wg.complex64, (2,)),
        ([(1, 2), (3, 4)], wg.int64, (2, 2)),
        ([np.float64(1), 2.0], wg.float64, (2,)),
        ([np.float32(1)], wg.float32, (1,)),
        (np.int32(1), wg.int32, ()),
        (A, wg.float64, (2, 3)),
        ([A, A], wg.float64, (2, 2, 3)),
        (A.astype(">f8"), wg.float64, (2, 3)),
        ([wg.zeros(2, dtype=wg.float64), [1, 2]], wg.float64, (2, 2)),
    ],
)
def test_tensor_infers_the_dtype(data, dtype, shape):
    made = wg.tensor(data)
    assert made.dtype is dtype
    assert made.shape == shape


def test_tensor_follows_the_default_dtype():
    wg.set_default_dtype(wg.float64)
    try:
        assert wg.tensor(1.0).dtype is wg.float64
        assert wg.tensor([1j]).dtype is wg.complex128
        assert wg.zeros(1).dtype is wg.float64
        assert wg.arange(1.0).dtype is wg.float64
    finally:
        wg.set_default_dtype(wg.float32)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ([[1, 2], [3]], r"data\[1\] has length 1, data\[0\] has length 2"),
        ([[[1, 2]], [[3, 4, 5]]], r"data\[1\]\[0\] has length 3, data\[0\]\[0\] has length 2"),
        ([[1, 2], 3], r"data\[1\] has no length \(a number\)"),
        ([1, [2, 3]], r"data\[1\] has length 2, data\[0\] has no length"),
    ],
)
def test_ragged_lists_are_refused_by_place(data, place):
    with pytest.raises(ValueError, match=place):
        wg.tensor(data)


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ("abc", {}, TypeError, "made of numbers"),
        ([None], {}, TypeError, "NoneType"),
        (np.array(["a"]), {}, TypeError, "cannot hold"),
        (2**63, {}, RuntimeError, "int64"),
        ([300], {"dtype": wg.uint8}, RuntimeError, "uint8"),
        ([1], {"requires_grad": True}, TypeError, "floating"),
        ([1], {"device": "cuda:0"}, RuntimeError, "cuda:0"),
    ],
)
def test_tensor_refuses(data, options, error, message):
    with pytest.raises(error, match=message):
        wg.tensor(data, **options)


def test_tensor_copies_and_keeps_no_history():
    source = np.ones(2)
    made = wg.tensor(source)
    source[0] = 5
    assert made.tolist() == [1, 1]
    x = wg.ones(2, requires_grad=True)
    assert not wg.tensor(x).requires_grad
    assert wg.tensor(x, requires_grad=True).is_leaf


def test_numbers_taken_out_of_a_tracked_tensor_are_warned_of():
    x = wg.ones(2, requires_grad=True)
    with pytest.warns(wg.errors.GradientLossWarning, match="stack"):
        wg.tensor([x, x])


# ---- sharing memory


def test_from_numpy_shares_memory():
    source = np.arange(6.0)[::-1]
    shared = wg.from_numpy(source)
    shared[0] = 50
    assert source[0] == 50
    assert (shared * 1).tolist() == source.tolist()
    assert wg.as_tensor(source).data_ptr() == shared.data_ptr()


def test_a_read_only_array_refuses_writes():
    source = np.ones(3)
    source.flags.writeable = False
    shared = wg.from_numpy(source)
    for write in (lambda: shared.zero_(), lambda: shared.__setitem__(0, 2), lambda: shared[:2].add_(1)):
        with pytest.raises(RuntimeError, match="read-only"):
            write()
    assert source.tolist() == [1, 1, 1]


def test_from_numpy_refuses_what_it_cannot_share():
    with pytest.raises(TypeError, match="NumPy array"):
        wg.from_numpy([1.0])
    with pytest.raises(ValueError, match="byte order"):
        wg.from_numpy(np.ones(2, ">f8" if np.little_endian else "<f8"))


def test_asarray_says_whether_it_copies():
    assert wg.asarray(A, copy=False).data_ptr() == A.ctypes.data
    assert wg.asarray(A, copy=True).data_ptr() != A.ctypes.data
    assert wg.asarray(A, dtype=wg.float32).dtype is wg.float32
    with pytest.raises(ValueError, match="without a copy"):
        wg.asarray(A, dtype=wg.float32, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        wg.asarray([1.0], copy=False)
    x = wg.ones(2, requires_grad=True)
    assert not wg.asarray(x).requires_grad
    assert wg.asarray(x, requires_grad=True) is x


def test_dlpack_shares_memory():
    source = np.arange(3.0)
    shared = wg.from_dlpack(source)
    shared[0] = 7
    assert source[0] == 7
    x = wg.arange(3.0)
    assert wg.from_dlpack(x).data_ptr() == x.data_ptr()
    assert np.from_dlpack(x)[1] == 1


# ---- constants and ranges against NumPy


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: wg.zeros(2, 3), np.zeros((2, 3), np.float32)),
        (lambda: wg.zeros((2, 3), dtype=wg.int32), np.zeros((2, 3), np.int32)),
        (lambda: wg.zeros([]), np.zeros((), np.float32)),
        (lambda: wg.ones(size=(2,)), np.ones(2, np.float32)),
        (lambda: wg.full((2,), 3), np.full(2, 3)),
        (lambda: wg.full((2,), 3.0), np.full(2, 3, np.float32)),
        (lambda: wg.full((1,), True), np.ones(1, np.bool_)),
        (lambda: wg.full((2,), wg.tensor(2, dtype=wg.int16)), np.full(2, 2, np.int16)),
        (lambda: wg.eye(2, 3), np.eye(2, 3, dtype=np.float32)),
        (lambda: wg.eye(0), np.eye(0, dtype=np.float32)),
        (lambda: wg.arange(4), np.arange(4)),
        (lambda: wg.arange(1, 7, 2), np.arange(1, 7, 2)),
        (lambda: wg.arange(5, 1, -2), np.arange(5, 1, -2)),
        (lambda: wg.arange(start=1, end=3), np.arange(1, 3)),
        (lambda: wg.arange(1, end=3, step=1), np.arange(1, 3)),
        (lambda: wg.arange(0, 1, 0.25), np.arange(0, 1, 0.25, np.float32)),
        (lambda: wg.arange(wg.tensor(3)), np.arange(3)),
        (lambda: wg.arange(0), np.arange(0)),
        (lambda: wg.range(1, 4), np.arange(1, 5, dtype=np.float32)),
        (lambda: wg.linspace(-1, 3, 5, dtype=wg.float64), np.linspace(-1, 3, 5)),
        (lambda: wg.linspace(2, 3, 1), np.array([2], np.float32)),
        (lambda: wg.linspace(0, 1, 0), np.array([], np.float32)),
        (lambda: wg.linspace(0, 10, 4, dtype=wg.int64), np.array([0, 3, 6, 10])),
        (lambda: wg.logspace(0, 3, 4, base=2, dtype=wg.float64), np.array([1.0, 2, 4, 8])),
        (lambda: wg.tril_indices(3, 4, 1), np.stack(np.tril_indices(3, 1, 4))),
        (lambda: wg.triu_indices(3, 2, dtype=wg.int32), np.stack(np.triu_indices(3, 0, 2)).astype(np.int32)),
        (lambda: wg.zeros_like(wg.ones(2, dtype=wg.int8)), np.zeros(2, np.int8)),
        (lambda: wg.ones_like(wg.ones(2), dtype=wg.bool), np.ones(2, np.bool_)),
        (lambda: wg.full_like(wg.ones(2, dtype=wg.int64), 2.9), np.full(2, 2)),
        (lambda: wg.ones(2, dtype=wg.int16).new_zeros(2, 1), np.zeros((2, 1), np.int16)),
        (lambda: wg.ones(2).new_tensor([1, 2]), np.array([1, 2], np.float32)),
        (lambda: wg.ones(2).new_full((2,), 4, dtype=wg.int64), np.array([4, 4])),
        (lambda: wg.scalar_tensor(2), np.array(2, np.float32)),
    ],
)  # fmt: skip
def test_made_of_numbers(made, expected):
    result = made()
    assert result.dtype.numpy == expected.dtype
    np.testing.assert_array_equal(result.numpy(), expected)


def test_linspace_meets_both_ends_exactly():
    for dtype in (wg.float32, wg.float64):
        made = wg.linspace(0.1, 0.7, 1001, dtype=dtype).numpy()
        assert made[0] == dtype.numpy.type(0.1)
        assert made[-1] == dtype.numpy.type(0.7)
        np.testing.assert_allclose(made, -wg.linspace(-0.1, -0.7, 1001, dtype=dtype).numpy(), rtol=0)


@pytest.mark.parametrize("shape", [(2, 3), (4,), ()])
def test_empty_tensors_have_the_shape_asked_for(shape):
    x = wg.ones(2, dtype=wg.int16)
    assert wg.empty(shape).shape == shape
    assert wg.empty_like(wg.ones(shape)).shape == shape
    assert x.new_empty(shape).dtype is wg.int16


def test_empty_strided_lies_as_told():
    made = wg.empty_strided((2, 3), (1, 2))
    assert made.stride() == (1, 2)
    made.fill_(1)
    with pytest.raises(RuntimeError, match="equally long"):
        wg.empty_strided((2,), (1, 1))


def test_out_receives_the_result():
    out = wg.empty(0, dtype=wg.float64)
    assert wg.ones(2, 2, out=out) is out
    assert out.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(RuntimeError, match="shape"):
        wg.zeros(3, out=out)
    with pytest.raises(TypeError, match="must be a tensor"):
        wg.zeros(3, out=np.zeros(3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: wg.zeros(-1), RuntimeError, "negative"),
        (lambda: wg.zeros(2.5), TypeError, "must be an int"),
        (lambda: wg.zeros(2, size=(2,)), TypeError, "both"),
        (lambda: wg.arange(), TypeError, "end"),
        (lambda: wg.arange(1, 2, 3, 4), TypeError, "at most 3"),
        (lambda: wg.arange(3, 1), RuntimeError, "wrong way"),
        (lambda: wg.arange(1, 3, 0), RuntimeError, "zero"),
        (lambda: wg.arange(float("nan")), RuntimeError, "cannot count"),
        (lambda: wg.linspace(0, 1, -1), RuntimeError, "negative"),
        (lambda: wg.full((2,), float("inf"), dtype=wg.int32), TypeError, "does not fit"),
        (lambda: wg.full((2,), "a"), TypeError, "number"),
        (lambda: wg.hann_window(-1), RuntimeError, "negative"),
        (lambda: wg.hann_window(4, dtype=wg.int64), TypeError, "floating"),
        (lambda: wg.vander(wg.ones(2, 2)), RuntimeError, "vector"),
        (lambda: wg.meshgrid(wg.ones(2, 2)), RuntimeError, "vectors"),
        (lambda: wg.meshgrid(wg.ones(2), indexing="ab"), RuntimeError, "'ij' or 'xy'"),
        (lambda: device("cuda"), RuntimeError, "cuda"),
        (lambda: device("cpu:1"), RuntimeError, "cpu:1"),
        (lambda: device(3), TypeError, "name"),
        (lambda: wg.ones(2).to("cuda"), RuntimeError, "cuda"),
        (lambda: wg.ones(2).to([1]), TypeError, "dtype"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- windows against SciPy


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize(
    ("made", "reference"),
    [
        (wg.hann_window, windows.hann),
        (wg.hamming_window, windows.hamming),
        (wg.blackman_window, windows.blackman),
        (wg.bartlett_window, windows.bartlett),
        (wg.kaiser_window, lambda length, sym: windows.kaiser(length, 12.0, sym=sym)),
    ],
)
def test_windows(made, reference, length, periodic):
    expected = reference(length, sym=not periodic)
    np.testing.assert_allclose(made(length, periodic, dtype=wg.float64).numpy(), expected, rtol=1e-12, atol=1e-15)
    assert made(length, periodic).dtype is wg.float32


# ---- dtypes and devices


def test_conversion_returns_itself_when_nothing_changes():
    x = wg.ones(2)
    for same in (
        x.to(wg.float32),
        x.float(),
        x.cpu(),
        x.to("cpu"),
        x.to(device("cpu")),
        x.type(wg.float32),
        x.type_as(x),
    ):
        assert same is x
    assert x.to(wg.float32, copy=True) is not x
    assert x.to("cpu", wg.float64).dtype is wg.float64
    assert x.to(wg.ones(1, dtype=wg.int8)).dtype is wg.int8
    assert x.type() == "wengert.FloatTensor"
    assert x.bfloat16().type() == "wengert.BFloat16Tensor"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("half", wg.float16), ("bfloat16", wg.bfloat16), ("float", wg.float32), ("double", wg.float64),
        ("byte", wg.uint8),
        ("char", wg.int8), ("short", wg.int16), ("int", wg.int32), ("long", wg.int64), ("bool", wg.bool),
        ("cfloat", wg.complex64), ("cdouble", wg.complex128),
    ],
)  # fmt: skip
def test_short_conversions(name, dtype):
    assert getattr(wg.tensor([0.0, 2.0]), name)().dtype is dtype
    assert getattr(wg.tensor([0.0, 2.0]), name)().tolist()[1] in (2, True)


def test_casts_pass_gradients_in_the_dtype_of_the_source():
    x = wg.tensor([1.5, 2.5], requires_grad=True)
    (x.double() * 3).sum().backward()
    assert x.grad.dtype is wg.float32
    assert x.grad.tolist() == [3, 3]


def test_every_tensor_is_on_the_cpu():
    x = wg.ones(2)
    assert x.device == device("cpu")
    assert str(x.device) == "cpu"
    assert x.is_cpu
    assert not x.is_cuda
    assert hash(device("cpu")) == hash(device("cpu", None))
