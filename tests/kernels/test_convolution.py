"""Convolution against the definition as a loop, and its transposes against the property that defines them."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.support import Array, assert_transposed, normal
from wengert.errors import ShapeError
from wengert.kernels import convolution as module
from wengert.kernels.convolution import convolution, convolution_input_grad, convolution_weight_grad, fold, unfold


class Case(NamedTuple):
    """One configuration: the shapes of input and weight, then the parameters."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self[2:]


CASES = {
    "1d": Case((2, 3, 9), (4, 3, 3), (1,), (0,), (1,)),
    "1d strided, padded, dilated": Case((2, 3, 11), (4, 3, 3), (2,), (2,), (2,)),
    "1d grouped": Case((2, 4, 8), (6, 2, 2), (1,), (1,), (1,), 2),
    "2d": Case((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1)),
    "2d same": Case((3, 8, 6, 5), (8, 8, 3, 3), (1, 1), (1, 1), (1, 1)),
    "2d more inputs than outputs": Case((2, 9, 6, 5), (4, 9, 3, 2), (1, 1), (1, 0), (1, 1)),
    "2d fewer inputs than outputs": Case((2, 5, 6, 5), (7, 5, 3, 2), (1, 1), (1, 1), (1, 1)),
    "2d strided": Case((2, 6, 9, 8), (4, 6, 3, 3), (2, 3), (1, 0), (1, 1)),
    "2d dilated": Case((2, 3, 9, 10), (4, 3, 3, 2), (1, 1), (2, 1), (2, 3)),
    "2d stride beyond kernel": Case((1, 2, 9, 9), (3, 2, 2, 1), (4, 3), (0, 0), (1, 1)),
    "2d pointwise": Case((2, 5, 4, 3), (6, 5, 1, 1), (1, 1), (0, 0), (1, 1)),
    "2d pointwise, strided": Case((2, 5, 5, 5), (6, 5, 1, 1), (2, 2), (0, 0), (1, 1)),
    "2d grouped": Case((2, 6, 5, 6), (4, 3, 3, 3), (1, 2), (1, 1), (1, 1), 2),
    "2d grouped, wide": Case((2, 16, 5, 6), (8, 8, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "2d depthwise": Case((2, 4, 6, 6), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "2d depthwise strided": Case((2, 4, 6, 6), (4, 1, 3, 3), (2, 2), (1, 1), (1, 1), 4),
    "2d padding beyond kernel": Case((2, 8, 4, 4), (4, 8, 2, 2), (1, 1), (3, 2), (1, 1)),
    "2d one channel": Case((3, 1, 8, 8), (4, 1, 5, 5), (1, 1), (2, 2), (1, 1)),
    "3d": Case((2, 3, 4, 5, 4), (4, 3, 2, 3, 2), (1, 1, 1), (1, 0, 1), (1, 1, 1)),
    "3d strided": Case((1, 4, 6, 5, 6), (2, 2, 3, 2, 2), (2, 1, 3), (1, 1, 0), (1, 2, 1), 2),
    "4d": Case((1, 2, 3, 4, 3, 3), (2, 2, 2, 2, 2, 2), (1, 1, 1, 1), (0, 1, 0, 0), (1, 1, 1, 1)),
    "no images": Case((0, 3, 7, 6), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1)),
    "no input channels": Case((2, 0, 5, 5), (4, 0, 3, 3), (1, 1), (0, 0), (1, 1)),
    "no output channels": Case((2, 3, 5, 5), (0, 3, 3, 3), (1, 1), (0, 0), (1, 1)),
    "no window fits": Case((2, 3, 2, 6), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1)),
    "no window fits across": Case((2, 3, 6, 2), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1)),
    "nothing but padding": Case((2, 3, 0, 4), (4, 3, 2, 2), (1, 1), (1, 1), (1, 1)),
}
PARAMETERS = [pytest.param(case, id=name) for name, case in CASES.items()]


def reference(x: Array, w: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Sum over the definition, one output position at a time."""
    kernel = w.shape[2:]
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    counts = [
        max(0, (size - d * (k - 1) - 1) // s + 1)
        for size, k, s, d in zip(padded.shape[2:], kernel, stride, dilation, strict=True)
    ]
    out = np.zeros((len(x), len(w), *counts), x.dtype)
    inputs, outputs = x.shape[1] // groups, len(w) // groups
    for position in np.ndindex(*counts):
        window = padded[
            :,
            :,
            *[
                slice(i * s, i * s + d * (k - 1) + 1, d)
                for i, s, d, k in zip(position, stride, dilation, kernel, strict=True)
            ],
        ]
        for group in range(groups):
            taken = window[:, group * inputs : (group + 1) * inputs]
            weights = w[group * outputs : (group + 1) * outputs]
            axes = range(1, x.ndim)
            out[:, group * outputs : (group + 1) * outputs, *position] = np.tensordot(taken, weights, (axes, axes))
    return out


def channels_last(x: Array) -> Array:
    """Return the same values with the channels next to each other in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


@pytest.mark.parametrize("case", PARAMETERS)
def test_convolution_is_its_definition(case: Case) -> None:
    x, w = normal(case.x), normal(case.w, seed=1)
    expected = reference(x, w, *case.parameters)
    for given in (x, channels_last(x), x[:, :, ::-1].copy()[:, :, ::-1]):
        result = convolution(given, w, *case.parameters)
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize("case", PARAMETERS)
def test_input_grad_is_the_transpose(case: Case, dtype: Any) -> None:
    x, w = normal(case.x, dtype), normal(case.w, dtype, seed=1)
    for order in (np.ascontiguousarray, channels_last):
        assert_transposed(
            lambda x: convolution(x, w, *case.parameters),
            lambda g, order=order: convolution_input_grad(order(g), w, case.x[2:], *case.parameters),
            x,
        )


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize("case", PARAMETERS)
def test_weight_grad_is_the_transpose(case: Case, dtype: Any) -> None:
    x, w = normal(case.x, dtype), normal(case.w, dtype, seed=1)
    for order in (np.ascontiguousarray, channels_last):
        assert_transposed(
            lambda w, order=order: convolution(order(x), w, *case.parameters),
            lambda g, order=order: convolution_weight_grad(g, order(x), case.w[2:], *case.parameters),
            w,
        )


@pytest.mark.parametrize("block_bytes", [1, 200, 1000, 5000, 1 << 30])
@pytest.mark.parametrize("name", ["2d same", "2d strided", "2d grouped", "3d strided", "1d strided, padded, dilated"])
def test_the_size_of_the_blocks_does_not_matter(name: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    x, w = normal(case.x), normal(case.w, seed=1)
    y = convolution(x, w, *case.parameters)
    g = normal(y.shape, seed=2)
    whole = (
        y,
        convolution_input_grad(g, w, case.x[2:], *case.parameters),
        convolution_weight_grad(g, x, case.w[2:], *case.parameters),
    )
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    divided = (
        convolution(x, w, *case.parameters),
        convolution_input_grad(g, w, case.x[2:], *case.parameters),
        convolution_weight_grad(g, x, case.w[2:], *case.parameters),
    )
    for one, other in zip(whole, divided, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_the_result_has_the_memory_order_of_the_input() -> None:
    x, w = normal((2, 8, 5, 5)), normal((6, 8, 3, 3), seed=1)
    parameters: Any = ((1, 1), (1, 1), (1, 1), 1)
    assert convolution(x, w, *parameters).flags.c_contiguous
    last = convolution(channels_last(x), w, *parameters)
    assert np.moveaxis(last, 1, -1).flags.c_contiguous
    assert convolution_input_grad(np.ascontiguousarray(last), w, (5, 5), *parameters).flags.c_contiguous
    assert np.moveaxis(convolution_input_grad(last, w, (5, 5), *parameters), 1, -1).flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_computed_in_float32(dtype: Any) -> None:
    case = CASES["2d same"]
    x, w = normal(case.x, dtype), normal(case.w, dtype, seed=1)
    wide = [a.astype(np.float32) for a in (x, w)]
    y = convolution(x, w, *case.parameters)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, convolution(*wide, *case.parameters).astype(dtype))
    for narrow in (
        convolution_input_grad(y, w, case.x[2:], *case.parameters),
        convolution_weight_grad(y, x, case.w[2:], *case.parameters),
    ):
        assert narrow.dtype == dtype


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_transposed_convolution_with_output_padding(extra: int) -> None:
    """Positions that no window reaches are zero, the others do not depend on how many there are."""
    g, w = normal((2, 5, 4)), normal((5, 3, 3), seed=1)
    least = convolution_input_grad(g, w, (9,), (2,), (1,), (1,), 1)[:, :, :8]
    more = convolution_input_grad(g, w, (7 + extra,), (2,), (1,), (1,), 1)
    assert more.shape == (2, 3, 7 + extra)
    np.testing.assert_allclose(more[:, :, :7], least[:, :, :7], rtol=1e-12)
    np.testing.assert_array_equal(more[:, :, 8:], 0)


FOLDS = [
    ((2, 3, 5, 6), (2, 3), (1, 1), (0, 0), (1, 1)),
    ((2, 3, 5, 6), (2, 3), (2, 1), (1, 2), (2, 3)),
    ((1, 2, 7), (3,), (1,), (1,), (2,)),
    ((1, 2, 4, 4, 5), (2, 1, 3), (1, 1, 1), (0, 0, 1), (1, 2, 1)),
    ((0, 2, 4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    ((2, 2, 1, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
]


@pytest.mark.parametrize(("shape", "kernel", "dilation", "padding", "stride"), FOLDS)
def test_unfold_shows_windows_and_fold_is_its_transpose(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
    stride: tuple[int, ...],
) -> None:
    x = normal(shape)
    rows = int(np.prod(kernel))
    # Convolution with the unit kernels picks the elements of the windows.
    units = np.eye(rows).reshape(rows, 1, *kernel)
    flat = x.reshape(-1, 1, *shape[2:])
    picked = reference(flat, units, stride, padding, dilation, 1)
    expected = picked.reshape(shape[0], shape[1] * rows, int(np.prod(picked.shape[2:])))
    np.testing.assert_array_equal(unfold(x, kernel, dilation, padding, stride), expected)
    assert_transposed(
        lambda x: unfold(x, kernel, dilation, padding, stride),
        lambda g: fold(g, shape[2:], kernel, dilation, padding, stride),
        x,
    )


def test_unfold_owns_its_memory() -> None:
    x = np.arange(4.0).reshape(1, 1, 4)
    columns = unfold(x, [1], [1], [0], [1])
    columns[...] = 7
    np.testing.assert_array_equal(x, [[[0, 1, 2, 3]]])


ONE = ((1, 1), (0, 0), (1, 1), 1)
X, W = (2, 4, 5, 5), (6, 4, 3, 3)


@pytest.mark.parametrize(
    ("shapes", "parameters", "message"),
    [
        ((X, (6, 3, 3, 3)), ONE, "needs 3 input channels"),
        ((X, (6, 4, 3)), ONE, "same number of dimensions"),
        (((4, 5), (6, 4)), ONE, "at least 3"),
        ((X, W), ((0, 1), (0, 0), (1, 1), 1), "stride must be 2 positive integers"),
        ((X, W), ((1,), (0, 0), (1, 1), 1), "stride must be 2 positive integers"),
        ((X, W), ((1, 1), (-1, 0), (1, 1), 1), "padding must be 2 non-negative integers"),
        ((X, W), ((1, 1), (0, 0), (1, 0), 1), "dilation must be 2 positive integers"),
        ((X, W), ((1, 1), (0, 0), (1, 1), 3), "divisible by groups"),
        ((X, W), ((1, 1), (0, 0), (1, 1), 0), "groups=0"),
        ((X, (5, 2, 3, 3)), ((1, 1), (0, 0), (1, 1), 2), "divisible by groups"),
    ],
)
def test_what_does_not_fit_is_refused(shapes: Any, parameters: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        convolution(np.zeros(shapes[0]), np.zeros(shapes[1]), *parameters)


@pytest.mark.parametrize("shape", [(2, 6, 4, 3), (1, 6, 3, 3), (2, 6, 3)])
def test_weight_grad_refuses_a_cotangent_that_does_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"at most \(2, 6, 3, 3\) was expected"):
        convolution_weight_grad(np.zeros(shape), np.zeros(X), (3, 3), *ONE)


@pytest.mark.parametrize("shape", [(2, 6, 4, 3), (2, 5, 3, 3)])
def test_input_grad_refuses_a_cotangent_that_does_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"at most \(2, 6, 3, 3\) was expected"):
        convolution_input_grad(np.zeros(shape), np.zeros(W), (5, 5), *ONE)


def test_columns_that_do_not_fit_are_refused() -> None:
    for shape in ((1, 8, 8), (1, 7, 9)):
        with pytest.raises(ShapeError, match="9 columns with a multiple of 4 rows"):
            fold(np.zeros(shape), (4, 4), (2, 2), (1, 1), (0, 0), (1, 1))


def test_random_configurations() -> None:
    """Forward against the loop and both transposes, over configurations nobody chose."""
    generator = np.random.default_rng(7)
    for seed in range(60):
        n = int(generator.integers(1, 4))

        def some(low: int, high: int, n: int = n) -> Sequence[int]:
            return [int(v) for v in generator.integers(low, high, n)]

        groups = int(generator.integers(1, 4))
        x_shape = (int(generator.integers(1, 4)), groups * int(generator.integers(1, 5)), *some(1, 9))
        w_shape = (groups * int(generator.integers(1, 5)), x_shape[1] // groups, *some(1, 4))
        parameters: Any = (some(1, 4), some(0, 3), some(1, 3), groups)
        x, w = normal(x_shape, seed=seed), normal(w_shape, seed=seed + 1)
        np.testing.assert_allclose(convolution(x, w, *parameters), reference(x, w, *parameters), rtol=1e-11, atol=1e-11)
        assert_transposed(
            lambda x, w=w, parameters=parameters: convolution(x, w, *parameters),
            lambda g, w=w, x=x, parameters=parameters: convolution_input_grad(g, w, x.shape[2:], *parameters),
            x,
        )
        assert_transposed(
            lambda w, x=x, parameters=parameters: convolution(x, w, *parameters),
            lambda g, w=w, x=x, parameters=parameters: convolution_weight_grad(g, x, w.shape[2:], *parameters),
            w,
        )


def test_every_position_of_a_kernel_is_used_once() -> None:
    """Counting: a convolution of ones with ones counts the products."""
    for shape, kernel in itertools.product([(5, 6), (3, 3)], [(1, 1), (3, 2)]):
        y = convolution(np.ones((1, 2, *shape)), np.ones((1, 2, *kernel)), (1, 1), (0, 0), (1, 1), 1)
        np.testing.assert_array_equal(y, 2 * kernel[0] * kernel[1])
