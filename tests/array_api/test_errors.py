"""What the standard calls invalid raises, and the message says what was given and what would do."""

import pytest

import wengert as wg
import wengert.array_api as xp

X, SCALAR = xp.ones((2, 3)), xp.asarray(1.0)
AXIS = ("sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "argmax", "argmin", "count_nonzero",
        "cumulative_sum", "cumulative_prod", "sort", "argsort", "diff", "unstack", "flip", "concat", "stack", "take",
        "repeat", "roll")  # fmt: skip


def call(name, x, axis):
    function = getattr(xp, name)
    extra = {"take": (xp.asarray([0]),), "repeat": (2,), "roll": (1,)}.get(name, ())
    return function([x] if name in ("concat", "stack") else x, *extra, axis=axis)


@pytest.mark.parametrize("name", AXIS)
@pytest.mark.parametrize("axis", [3, -4])
def test_an_axis_that_is_not_there(name, axis):
    with pytest.raises(IndexError, match=f"axis={axis} is out of range"):
        call(name, X, axis)


@pytest.mark.parametrize("name", [n for n in AXIS if n != "stack"])
def test_a_0d_array_has_no_axis(name):
    with pytest.raises(IndexError, match="it has none"):
        call(name, SCALAR, 0)


@pytest.mark.parametrize("axis", [1.0, "0", True])
def test_an_axis_is_an_integer(axis):
    with pytest.raises(TypeError, match="axis must be an int"):
        xp.sum(X, axis=axis)


CALLS = [
    (lambda: xp.sum(X, axis=(0, -2)), ValueError, "same axis twice"),
    (lambda: xp.max(xp.ones(0)), IndexError, "is empty"),
    (lambda: xp.cumulative_sum(X), ValueError, "axis must be given"),
    (lambda: xp.cumulative_prod(X), ValueError, "axis must be given"),
    (lambda: xp.nonzero(SCALAR), ValueError, "0-d"),
    (lambda: xp.concat([]), ValueError, "at least one array"),
    (lambda: xp.stack([]), ValueError, "at least one array"),
    (lambda: xp.concat([X, SCALAR]), ValueError, "number of dimensions"),
    (lambda: xp.concat([X, xp.ones((2, 2))], axis=0), ValueError, "sizes"),
    (lambda: xp.stack([X, xp.ones((2, 2))]), ValueError, "one shape"),
    (lambda: xp.squeeze(X, 0), ValueError, "has size 2, not 1"),
    (lambda: xp.expand_dims(X, 4), IndexError, "axis=4"),
    (lambda: xp.expand_dims(X, (0, 0)), ValueError, "twice"),
    (lambda: xp.permute_dims(X, (0, 0)), ValueError, "twice"),
    (lambda: xp.permute_dims(X, (0,)), ValueError, "each of the 2 dimensions"),
    (lambda: xp.reshape(X, (4, 2)), ValueError, "reshape"),
    (lambda: xp.broadcast_to(X, (2, 2)), ValueError, "does not match 3"),
    (lambda: xp.broadcast_shapes((2,), (3,)), ValueError, "do not broadcast"),
    (lambda: xp.add(X, xp.ones((2, 2))), ValueError, "do not broadcast"),
    (lambda: xp.broadcast_shapes((-1,)), ValueError, "must not be negative"),
    (lambda: xp.permute_dims(X, None), TypeError, "axis must be an int, got None"),
    (lambda: xp.squeeze(X, None), TypeError, "axis must be an int, got None"),
    (lambda: xp.eye(2, k=1.5), TypeError, "k must be an int, got 1.5"),
    (lambda: xp.linspace(0, 1, -1, endpoint=False), ValueError, "num must not be negative, got -1"),
    (lambda: xp.tensordot(X, X, axes=((0, 1), (0,))), ValueError, "equally many axes"),
    (lambda: xp.tensordot(X, X, axes=(0, 0)), ValueError, "two sequences"),
    (lambda: xp.special.polygamma(1.5, X), TypeError, "n must be an int, got 1.5"),
    (lambda: xp.add(X, "a"), TypeError, r"add\(\) takes an array, got str"),
    (lambda: xp.sum([1, 2]), TypeError, r"sum\(\) takes an array, got list"),
    (lambda: xp.all("a"), TypeError, r"all\(\) takes an array, got str"),
    (lambda: xp.tanh(1.0), TypeError, r"tanh\(\) takes an array, got float"),
    (lambda: xp.roll(X, (1, 2), axis=0), ValueError, "equally long"),
    (lambda: xp.meshgrid(xp.ones(2), indexing="yx"), ValueError, "indexing"),
    (lambda: xp.searchsorted(xp.ones(2), xp.ones(2), side="middle"), ValueError, "side"),
    (lambda: xp.matmul(X, X), ValueError, "cannot be multiplied"),
    (lambda: xp.matmul(X, SCALAR), ValueError, "at least one dimension"),
    (lambda: xp.matrix_transpose(xp.ones(2)), ValueError, "two dimensions"),
    (lambda: xp.ones(2).mT, ValueError, "2 dimensions"),
    (lambda: xp.vecdot(X, xp.ones((2, 1))), ValueError, "same size"),
    (lambda: xp.vecdot(X, xp.ones(3), axis=0), ValueError, "negative"),
    (lambda: xp.linalg.cross(xp.ones(2), xp.ones(2)), ValueError, "size 3"),
    (lambda: xp.linalg.cross(xp.ones(3), xp.ones(1)), ValueError, "same size"),
    (lambda: xp.linalg.qr(X, mode="r"), ValueError, "mode"),
    (lambda: xp.linalg.inv(X), ValueError, "square"),
    (lambda: xp.linalg.outer(X, X), ValueError, "1 dimensions"),
    (lambda: xp.linalg.solve(xp.ones((3, 3)), xp.ones((2, 1))), ValueError, "3 rows"),
    (lambda: xp.fft.fft(X, norm="unit"), ValueError, "norm"),
    (lambda: xp.fft.fft(X, axis=2), IndexError, "axis=2"),
    (lambda: xp.fft.rfft(X + 1j), TypeError, "real"),
    (lambda: xp.arange(0, 1, 0), RuntimeError, "step"),
    (lambda: xp.ones(2, device="cuda"), RuntimeError, "cpu"),
    (lambda: xp.asarray(1.0, device="cuda"), RuntimeError, "cpu"),
    (lambda: xp.asarray([[1], [1, 2]]), ValueError, "equally long"),
    (lambda: xp.asarray("text"), TypeError, "numbers"),
    (lambda: xp.asarray(1.0, dtype="object"), TypeError, "dtype"),
    (lambda: xp.take_along_axis(X, xp.asarray([[7], [0]])), IndexError, "index 7 is out of bounds"),
    (lambda: bool(X), RuntimeError, "ambiguous"),
    (lambda: xp.asarray(1.5).__index__(), TypeError, "integer"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "error", "text"), CALLS, ids=range(len(CALLS)))
def test_an_invalid_call(function, error, text):
    with pytest.raises(error, match=text):
        function()


def test_a_function_the_standard_does_not_have_is_not_there():
    assert not hasattr(xp, "softmax")
    assert not hasattr(xp.linalg, "lstsq")
    assert isinstance(X, wg.Tensor)
