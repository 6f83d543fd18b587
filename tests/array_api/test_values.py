"""Every function against NumPy's of the same name, which follows the standard, on values and dtypes, empty ones too."""

import math

import numpy as np
import pytest

import wengert as wg
import wengert.array_api as xp
from tests.array_api import standard

RNG = np.random.default_rng(7)
REAL = RNG.normal(size=(2, 3, 4))
SAME = {name: name for name in standard.UNARY + standard.BINARY}
POSITIVE = {"log", "log10", "log1p", "log2", "sqrt", "pow", "acosh"}
UNIT = {"acos", "asin", "atanh"}
WHOLE = {name for name in standard.UNARY + standard.BINARY if name.startswith("bitwise")}
TRUTH = {"logical_and", "logical_not", "logical_or", "logical_xor"}
ANGLES = {
    "atan2",
    "copysign",
    "hypot",
    "logaddexp",
    "nextafter",
    "signbit",
    "floor_divide",
    "remainder",
    "ceil",
    "floor",
    "trunc",
}
COMPLEX = {
    *standard.UNARY, "add", "subtract", "multiply", "divide", "equal", "not_equal", "pow",
} - WHOLE - TRUTH - ANGLES - {"sign"}  # fmt: skip


def array(name, dtype, shape):
    """Return random numbers in the domain of a function."""
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    if dtype in standard.SIGNED + standard.UNSIGNED:
        return RNG.integers(1, 5, shape).astype(dtype)
    x = RNG.normal(size=shape)
    if dtype in standard.COMPLEX:
        return (x + 1j * RNG.normal(size=shape)).astype(dtype)
    x = np.abs(x) + (1.1 if name == "acosh" else 0.1) if name in POSITIVE else np.tanh(x) if name in UNIT else x
    return x.astype(dtype)


def dtypes(name):
    """Return the dtypes that the standard defines a function for."""
    if name in TRUTH:
        return ("bool",)
    if name in WHOLE:
        return standard.SIGNED + standard.UNSIGNED + (() if "shift" in name else ("bool",))
    found = standard.REAL + (standard.COMPLEX if name in COMPLEX else ())
    floating = {
        *[
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atan2",
            "atanh",
            "copysign",
            "cos",
            "cosh",
            "divide",
            "exp",
            "expm1",
            "hypot",
            "imag",
            "log",
            "log10",
            "log1p",
            "log2",
        ],
        *["logaddexp", "nextafter", "real", "reciprocal", "signbit", "sin", "sinh", "sqrt", "tan", "tanh"],
    }
    return found if name in floating else found + standard.SIGNED + standard.UNSIGNED


def agree(got, wanted, rtol=1e-13):
    """Compare a result, or each of several, with NumPy's in value, shape and dtype."""
    if isinstance(wanted, tuple | list):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            agree(g, w, rtol)
        return
    assert isinstance(got, wg.Tensor)
    wanted = np.asarray(wanted)
    assert (got.dtype.numpy, tuple(got.shape)) == (wanted.dtype, wanted.shape)
    single = wanted.dtype in (np.float32, np.complex64)
    np.testing.assert_allclose(
        got.detach().numpy(), wanted, rtol=3e-6 if single else rtol, atol=1e-6 if single else 1e-13
    )


@pytest.mark.parametrize("name", standard.UNARY)
def test_functions_of_one_array(name):
    for dtype in dtypes(name):
        for shape in ((), (0,), (5,), (2, 3)):
            x = array(name, dtype, shape)
            agree(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x))


@pytest.mark.parametrize("name", standard.BINARY)
def test_functions_of_two_arrays(name):
    for dtype in dtypes(name):
        for first, second in (((), ()), ((3,), (3,)), ((2, 1), (3,)), ((0, 2), (1,))):
            x1, x2 = array(name, dtype, first), array(name, dtype, second)
            with np.errstate(over="ignore"):
                agree(getattr(xp, name)(xp.asarray(x1), xp.asarray(x2)), getattr(np, name)(x1, x2))


M = RNG.normal(size=(2, 3, 3))
SPD = M @ M.swapaxes(-1, -2) + np.eye(3)
COMPLEX_M = M + 1j * RNG.normal(size=M.shape)
VECTOR = RNG.normal(size=3)
INTEGERS = np.array([[3, 1, 3], [2, 3, 1]])
MASK = np.array([[True, False, True], [False, False, True]])

# (function, arrays, other arguments); NumPy is called likewise.
CALLS = [
    ("sum", [REAL], {}), ("sum", [REAL], {"axis": (0, -1)}), ("sum", [REAL], {"axis": ()}),
    ("sum", [REAL], {"axis": 1, "keepdims": True}), ("sum", [INTEGERS], {"axis": 0}),
    ("sum", [np.zeros((0, 2))], {"axis": 0}),
    ("sum", [np.float64(2.0)], {"axis": ()}),
    ("prod", [REAL], {}), ("prod", [REAL], {"axis": (0, 2)}), ("prod", [REAL], {"axis": ()}),
    ("prod", [REAL], {"axis": (0, 2), "keepdims": True}), ("prod", [np.zeros((0, 2))], {"axis": 0}),
    ("prod", [INTEGERS], {}),
    ("max", [REAL], {}), ("max", [REAL], {"axis": (0, 2)}), ("max", [INTEGERS], {"axis": 1, "keepdims": True}),
    ("max", [REAL], {"axis": ()}), ("min", [REAL], {}), ("min", [REAL], {"axis": (-1,)}),
    ("min", [INTEGERS], {"axis": 0}),
    ("mean", [REAL], {}), ("mean", [REAL], {"axis": (0, 1), "keepdims": True}), ("mean", [REAL], {"axis": ()}),
    ("mean", [COMPLEX_M], {"axis": 0}),
    ("var", [REAL], {}), ("var", [REAL], {"axis": 2, "correction": 1}),
    ("var", [REAL], {"axis": (0, 1), "keepdims": True}),
    ("var", [REAL], {"axis": ()}), ("std", [REAL], {}), ("std", [REAL], {"axis": -1, "correction": 1.5}),
    ("cumulative_sum", [VECTOR], {}), ("cumulative_sum", [REAL], {"axis": 1, "include_initial": True}),
    ("cumulative_sum", [INTEGERS], {"axis": -1}),
    ("cumulative_sum", [np.zeros((0, 2))], {"axis": 0, "include_initial": True}),
    ("cumulative_prod", [VECTOR], {}), ("cumulative_prod", [REAL], {"axis": -1, "include_initial": True}),
    ("all", [MASK], {}), ("all", [MASK], {"axis": 0}), ("all", [REAL], {"axis": (0, 1), "keepdims": True}),
    ("all", [MASK], {"axis": ()}), ("all", [np.zeros((0,))], {}), ("all", [np.arange(3, dtype=np.uint8)], {}),
    ("any", [MASK], {}), ("any", [MASK], {"axis": 1}), ("any", [np.zeros((0,))], {}),
    ("any", [np.array([np.nan, 0])], {}),
    ("diff", [REAL], {}), ("diff", [REAL], {"axis": 1, "n": 2}), ("diff", [INTEGERS], {"axis": 0}),
    ("argmax", [REAL], {}), ("argmax", [REAL], {"axis": 1}), ("argmax", [REAL], {"keepdims": True}),
    ("argmax", [INTEGERS], {"axis": 1, "keepdims": True}), ("argmin", [REAL], {}), ("argmin", [INTEGERS], {"axis": -1}),
    ("count_nonzero", [MASK], {}), ("count_nonzero", [MASK], {"axis": 0}), ("count_nonzero", [REAL], {"axis": (0, 1)}),
    ("count_nonzero", [MASK], {"axis": 1, "keepdims": True}), ("nonzero", [MASK], {}), ("nonzero", [np.zeros(3)], {}),
    ("where", [MASK, INTEGERS, -INTEGERS], {}), ("where", [MASK, INTEGERS, np.int64(0)], {}),
    ("argsort", [INTEGERS], {}), ("argsort", [REAL], {"axis": 1}), ("sort", [INTEGERS], {}),
    ("sort", [REAL], {"axis": 0}),
    ("sort", [np.array([2.0, np.nan, 1.0, np.inf])], {}),
    ("isin", [INTEGERS, np.array([1, 2])], {}), ("isin", [INTEGERS, np.array([1, 2])], {"invert": True}),
    ("tril", [REAL], {}), ("tril", [REAL], {"k": 1}), ("triu", [REAL], {"k": -1}), ("triu", [MASK], {}),
    ("flip", [REAL], {}), ("flip", [REAL], {"axis": (0, -1)}), ("flip", [REAL], {"axis": 1}),
    ("flip", [np.float64(1)], {}),
    ("repeat", [REAL, 2], {}), ("repeat", [REAL, 2], {"axis": 1}), ("repeat", [VECTOR, np.array([2, 0, 1])], {}),
    ("repeat", [REAL, np.array([2])], {"axis": -1}),
    ("roll", [REAL], {"shift": 5}), ("roll", [REAL], {"shift": (1, -2), "axis": (0, 2)}),
    ("roll", [REAL], {"shift": 2, "axis": (0, 1)}), ("roll", [REAL], {"shift": -1, "axis": 1}),
    ("squeeze", [np.ones((1, 2, 1))], {"axis": 0}), ("squeeze", [np.ones((1, 2, 1))], {"axis": (0, -1)}),
    ("expand_dims", [REAL], {"axis": 0}), ("expand_dims", [REAL], {"axis": -1}),
    ("expand_dims", [REAL], {"axis": (0, -1, 2)}),
    ("tile", [REAL, (2, 1, 1, 2)], {}), ("tile", [VECTOR, (2,)], {}), ("tile", [REAL, (2,)], {}),
    ("moveaxis", [REAL, 0, -1], {}), ("moveaxis", [REAL, (0, 1), (1, 2)], {}), ("permute_dims", [REAL, (2, 0, 1)], {}),
    ("broadcast_to", [VECTOR, (2, 3)], {}), ("reshape", [REAL, (4, -1)], {}), ("unstack", [REAL], {"axis": 1}),
    ("broadcast_arrays", [VECTOR, INTEGERS, np.float64(1)], {}),
    ("meshgrid", [VECTOR, np.arange(2)], {}), ("meshgrid", [VECTOR, np.arange(2)], {"indexing": "ij"}),
    ("meshgrid", [VECTOR], {}),
    ("clip", [REAL, -0.5, 0.5], {}), ("clip", [REAL], {"min": 0}), ("clip", [REAL], {"max": np.float64(0.1)}),
    ("clip", [REAL], {}),
    ("clip", [INTEGERS, np.array([2, 1, 2]), 3], {}), ("clip", [np.array([np.nan, 1.0]), 0.0, np.nan], {}),
    ("searchsorted", [np.array([1, 3, 3, 5]), np.array([[0, 3], [4, 9]])], {}),
    ("searchsorted", [np.array([1, 3, 3, 5]), np.array([3])], {"side": "right"}),
    ("searchsorted", [np.array([1.0, 3.0]), 2.0], {}),
    ("searchsorted", [np.array([5, 1, 3]), np.array([2])], {"sorter": np.array([1, 2, 0])}),
    ("matmul", [M, VECTOR], {}), ("matmul", [VECTOR, M], {}), ("matmul", [VECTOR, VECTOR], {}),
    ("matmul", [M, COMPLEX_M], {}),
    ("matrix_transpose", [REAL], {}), ("vecdot", [COMPLEX_M, COMPLEX_M[0]], {}),
    ("vecdot", [REAL, REAL[0]], {"axis": -2}),
    ("tensordot", [REAL, REAL], {"axes": 3}), ("tensordot", [REAL, M], {"axes": ((1, 0), (2, 0))}),
    ("tensordot", [VECTOR, VECTOR], {"axes": 0}), ("tensordot", [REAL, M], {"axes": ((-2,), (1,))}),
    ("linalg.cholesky", [SPD], {}), ("linalg.cholesky", [SPD], {"upper": True}), ("linalg.cross", [M, VECTOR], {}),
    ("linalg.cross", [M, M], {"axis": -2}), ("linalg.det", [M], {}), ("linalg.diagonal", [REAL], {"offset": 1}),
    ("linalg.eigvalsh", [SPD], {}), ("linalg.inv", [COMPLEX_M], {}), ("linalg.matrix_norm", [REAL], {}),
    *(("linalg.matrix_norm", [REAL], {"ord": order}) for order in ("nuc", 1, 2, -1, -2, math.inf, -math.inf)),
    ("linalg.matrix_norm", [REAL], {"keepdims": True}), ("linalg.matrix_power", [M, 3], {}),
    ("linalg.matrix_power", [M, -2], {}),
    ("linalg.matrix_power", [M, 0], {}), ("linalg.matrix_rank", [np.ones((2, 3, 3))], {}),
    ("linalg.matrix_rank", [SPD], {"rtol": 0.9}), ("linalg.outer", [VECTOR, VECTOR], {}), ("linalg.pinv", [REAL], {}),
    ("linalg.slogdet", [COMPLEX_M], {}), ("linalg.solve", [M, VECTOR], {}), ("linalg.solve", [M, VECTOR[:, None]], {}),
    ("linalg.solve", [M[0], M], {}), ("linalg.svdvals", [REAL], {}), ("linalg.trace", [REAL], {"offset": -1}),
    ("linalg.trace", [INTEGERS], {}), ("linalg.vector_norm", [REAL], {}), ("linalg.vector_norm", [REAL], {"axis": ()}),
    *(("linalg.vector_norm", [REAL], {"axis": (0, 2), "ord": order}) for order in (0, 1, -1, 3, 0.5, math.inf,
        -math.inf)),
    ("linalg.vector_norm", [COMPLEX_M], {"axis": -1, "keepdims": True}),
    *((f"fft.{name}", [REAL], {}) for name in ("fft", "ifft", "rfft", "ihfft", "fftn", "ifftn", "rfftn", "fftshift",
        "ifftshift")),
    *((f"fft.{name}", [COMPLEX_M], {"axis": 1, "n": 4, "norm": "ortho"}) for name in ("fft", "ifft", "irfft", "hfft")),
    ("fft.rfft", [REAL], {"n": 6, "norm": "forward"}), ("fft.irfftn", [COMPLEX_M], {"axes": (0, 2)}),
    ("fft.fftn", [REAL], {"s": (2, 5), "axes": (0, 1), "norm": "forward"}), ("fft.fftshift", [REAL], {"axes": (1,)}),
    ("arange", [5], {}), ("arange", [2, 7], {}), ("arange", [7, 2], {}), ("arange", [7, 2, -2], {}),
    ("arange", [0, 0], {}),
    ("arange", [0.5, 2], {"step": 0.5, "dtype": "float64"}), ("arange", [3], {"dtype": "float32"}),
    ("linspace", [0, 1, 5], {"dtype": "float64"}), ("linspace", [0, 1, 5], {"endpoint": False, "dtype": "float64"}),
    ("linspace", [2.0, 2.0, 0], {"dtype": "float64"}), ("linspace", [0, 1j, 3], {"dtype": "complex128"}),
    ("eye", [3], {"dtype": "int32"}), ("eye", [2, 4], {"k": 1, "dtype": "float64"}),
    ("eye", [3, 2], {"k": -2, "dtype": "bool"}),
    ("eye", [2, 2], {"k": 5, "dtype": "float64"}), ("full", [(2, 3), 7], {}), ("full", [2, True], {}),
    ("full", [(), 2.0, ], {"dtype": "int8"}),
    ("full_like", [INTEGERS, 7], {}), ("ones", [(2, 0)], {"dtype": "uint8"}), ("zeros", [3], {"dtype": "complex64"}),
    ("ones_like", [REAL], {}), ("zeros_like", [MASK], {"dtype": "float64"}),
]  # fmt: skip
NUMPY = {"var": {"correction": "ddof"}, "std": {"correction": "ddof"}}  # older names of arguments


def found(namespace, name):
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def convert(value):
    return xp.asarray(value) if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize(("name", "args", "options"), CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(CALLS)])
def test_calls(name, args, options):
    kinds = {k: getattr(xp, v) if k == "dtype" else convert(v) for k, v in options.items()}
    wanted = found(np, name)(*args, **options)
    agree(found(xp, name)(*map(convert, args), **kinds), tuple(wanted) if isinstance(wanted, tuple) else wanted, 1e-10)


JOINED = [REAL, INTEGERS.astype(np.float32)[None]]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_and_stack(axis):
    arrays = [REAL, 2 * REAL]
    agree(xp.concat([xp.asarray(a) for a in arrays], axis=axis), np.concat(arrays, axis=axis))
    agree(xp.stack(tuple(xp.asarray(a) for a in arrays), axis=axis), np.stack(arrays, axis=axis))
    agree(xp.concat([xp.asarray(REAL), xp.asarray(VECTOR)], axis=None), np.concat([REAL, VECTOR], axis=None))


@pytest.mark.parametrize("x",
    [INTEGERS, REAL, np.array([]), np.array(3), np.array([2.0, np.nan, 2.0, np.nan, -0.0, 0.0]), MASK,
                               np.array([1j, 1, 1j, 1 + 1j, -1j]), np.array([7])],
                               ids=lambda x: f"{x.dtype}{x.shape}")  # fmt: skip
def test_distinct_elements(x):
    got = xp.unique_all(xp.asarray(x))
    wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    for name, mine, theirs in zip(("values", "indices", "inverse_indices", "counts"), got, wanted, strict=True):
        assert getattr(got, name) is mine
        agree(mine, theirs.reshape(x.shape) if name == "inverse_indices" else theirs)
    agree(xp.unique_values(xp.asarray(x)), wanted[0])
    agree(tuple(xp.unique_counts(xp.asarray(x))), (wanted[0], wanted[3]))
    agree(tuple(xp.unique_inverse(xp.asarray(x))), (wanted[0], wanted[2].reshape(x.shape)))


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_keeps_the_order_of_equals(descending):
    x = np.array([2, 1, 2, 1, 3])
    order = xp.argsort(xp.asarray(x), descending=descending)
    assert order.tolist() == ([4, 0, 2, 1, 3] if descending else [1, 3, 0, 2, 4])
    assert xp.sort(xp.asarray(x), descending=descending).tolist() == x[order.numpy()].tolist()


@pytest.mark.parametrize("x", [REAL, COMPLEX_M, M[0]], ids=["real", "complex", "square"])
@pytest.mark.parametrize("full", [False, True])
def test_decompositions(x, full):
    a = xp.asarray(x)
    u, s, vh = xp.linalg.svd(a, full_matrices=full)
    k = min(x.shape[-2:])
    agree(xp.matmul(u[..., :k] * s[..., None, :], vh[..., :k, :]), x, 1e-10)
    assert u.shape[-1] == (x.shape[-2] if full else k)
    q, r = xp.linalg.qr(a, mode="complete" if full else "reduced")
    agree(xp.matmul(q, r), x, 1e-10)
    assert q.shape[-1] == (x.shape[-2] if full else k)
    named = xp.linalg.svd(a), xp.linalg.qr(a)
    assert [f._fields for f in named] == [("U", "S", "Vh"), ("Q", "R")]


def test_eigenvalues():
    values, vectors = xp.linalg.eigh(xp.asarray(SPD))
    agree(xp.matmul(vectors * values[..., None, :], xp.matrix_transpose(vectors)), SPD, 1e-10)
    values, vectors = xp.linalg.eig(xp.asarray(M))
    agree(xp.matmul(xp.asarray(M), vectors), (vectors * values[..., None, :]).numpy(), 1e-10)
    agree(xp.sort(xp.abs(xp.linalg.eigvals(xp.asarray(M)))), np.sort(np.abs(np.linalg.eigvals(M))), 1e-10)
    assert (
        xp.linalg.eigh(xp.asarray(SPD))._fields
        == xp.linalg.eig(xp.asarray(M))._fields
        == ("eigenvalues", "eigenvectors")
    )
    assert xp.linalg.slogdet(xp.asarray(M))._fields == ("sign", "logabsdet")


@pytest.mark.parametrize(("data", "dtype"), [
    (True, "bool"), (1, "int64"), (1.0, "float32"), (1j, "complex64"), ([1, 2.0], "float32"), ([True, 2], "int64"),
    ([[1, 2], [3, 4j]], "complex64"), ([], "float32"), (np.ones(2), "float64"), (memoryview(b"ab"), "uint8"),
    ([np.float64(1.5)], "float64"),
])  # fmt: skip
def test_asarray_infers_the_dtype(data, dtype):
    agree(xp.asarray(data), np.asarray(data, dtype))


def test_asarray_copies_when_told():
    x, array_ = xp.asarray([1.0, 2.0]), np.ones(2)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert xp.asarray(array_).data_ptr() == xp.asarray(array_, copy=False).data_ptr() == array_.ctypes.data
    assert xp.asarray(array_, copy=True).data_ptr() != array_.ctypes.data
    for obj in (x, array_):
        with pytest.raises(ValueError, match="copy"):
            xp.asarray(obj, dtype=xp.int8, copy=False)
    with pytest.raises(ValueError, match="copy"):
        xp.asarray([x, x], copy=False)


def test_reshape_copies_when_told():
    x = xp.asarray(REAL)
    assert xp.reshape(x, (-1,), copy=False).data_ptr() == x.data_ptr()
    assert xp.reshape(x, (-1,), copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="copy"):
        xp.reshape(xp.matrix_transpose(x), (-1,), copy=False)


def test_shapes_of_nothing():
    assert xp.broadcast_shapes() == ()
    assert xp.broadcast_shapes((3, 1), (1, 4), ()) == (3, 4)
    assert xp.broadcast_arrays() == xp.meshgrid() == ()
    assert xp.empty((2, 0)).shape == xp.empty_like(xp.ones((2, 0))).shape == (2, 0)


@pytest.mark.parametrize(("n", "d"), [(5, 0.5), (4, 1.0), (1, 2.0)])
def test_frequencies(n, d):
    agree(xp.fft.fftfreq(n, d=d, dtype=xp.float64), np.fft.fftfreq(n, d))
    agree(xp.fft.rfftfreq(n, d=d, dtype=xp.float64), np.fft.rfftfreq(n, d))
    assert xp.fft.fftfreq(n).dtype is xp.fft.rfftfreq(n).dtype is xp.float32


def test_a_diagonal_far_away_is_empty():
    assert xp.eye(2, k=2**70).tolist() == xp.eye(2, k=-(2**70)).tolist() == [[0, 0], [0, 0]]


def test_a_sorter_stands_beside_any_dtype():
    for name in standard.SIGNED + standard.UNSIGNED + standard.REAL:
        x = xp.asarray(np.array([3, 1, 2]).astype(name))
        assert xp.searchsorted(x, x, sorter=xp.argsort(x)).tolist() == [2, 0, 1]


def test_constants():
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(xp.nan)
