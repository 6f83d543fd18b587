"""Element-wise operators beside PyTorch: their own samples, promotion, numbers on either side, gradients at edges."""

import itertools
import math
import operator

import numpy as np
import pytest
import torch

import wengert as wg
from tests.peers.compare import compare
from tests.peers.differences import DIFFERENT, explained
from wengert.core.registry import operators

FILES = {"activation", "bitwise", "choice", "compare", "complex", "elementary", "pointwise", "rounding", "special"}
OPERATORS = [name for name, op in operators().items() if op.function.__module__.rpartition(".")[2] in FILES]


@pytest.mark.parametrize("name", OPERATORS)
def test_samples_agree_with_pytorch(name):
    unexplained = [d for d in compare(name) if not explained(name, d)]
    assert not unexplained, "\n".join(unexplained)


@pytest.mark.parametrize("name", sorted(set(DIFFERENT) & set(OPERATORS)))
def test_every_explained_difference_still_exists(name):
    assert any(explained(name, d) for d in compare(name)), f"{name} now agrees with PyTorch: drop it from the table"


# ---- dtypes of results

DTYPES = (
    "bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
BINARY = (
    "add", "mul", "true_divide", "pow", "eq", "maximum", "atan2", "remainder", "floor_divide", "bitwise_and",
    "logical_or", "where",
)  # fmt: skip
UNARY = ("exp", "sqrt", "abs", "neg", "floor", "sigmoid", "sin", "sign", "reciprocal", "erf", "isnan", "rsqrt")
UNANSWERED = (None, "complex32")  # PyTorch refuses, or uses a dtype that wengert does not have


def result_dtype(library, name, *args):
    """Return the dtype of a call's result, or None if the library refuses the dtypes."""
    if name == "where":
        args = (library.ones((2,), dtype=library.bool), *args)
    try:
        return str(getattr(library, name)(*args).dtype).partition(".")[2]
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def ones(library, shape, dtype):
    return library.ones(shape, dtype=getattr(library, dtype))


def disagreements(calls):
    """Return the calls (name, recipes of arguments) whose results have other dtypes than in PyTorch."""
    wrong = []
    for name, *recipes in calls:
        found = []
        for library in (wg, torch):
            args = [ones(library, *r) if isinstance(r, tuple) else r for r in recipes]
            found.append(result_dtype(library, name, *args))
        if found[0] != found[1] and found[1] not in UNANSWERED:
            wrong.append((name, recipes, *found))
    return wrong


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((2,), (2,)), ((2,), ()), ((), (2,))])
def test_two_tensors_promote_as_in_pytorch(name, shapes):
    pairs = itertools.product(DTYPES, DTYPES)
    assert not disagreements([(name, (shapes[0], a), (shapes[1], b)) for a, b in pairs])


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("number", [True, 2, 1.5, 1.5 + 1j])
@pytest.mark.parametrize("name", ["add", "mul", "true_divide", "pow", "eq", "where", "remainder", "rsub"])
def test_numbers_promote_as_in_pytorch(name, number):
    assert not disagreements([(name, ((2,), dtype), number) for dtype in DTYPES if (name, dtype) != ("pow", "bool")])


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", UNARY)
def test_one_tensor_gives_the_dtype_of_pytorch(name):
    assert not disagreements([(name, ((2,), dtype)) for dtype in DTYPES])


# ---- Python's operators

SIGNS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<": operator.lt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([1.5, -2.0, 3.0], 2), (2, [1.5, -2.0, 3.0]), (2.5, [1.5, -2.0, 3.0]), ([1.5, -2.0, 3.0], [2.0, 3.0, -1.0]),
        ([5, 7, 2], 3), (7, [5, 3, 2]), ([5, -7, 2], [3, 4, 1]),
    ],
)  # fmt: skip
def test_python_operators_agree_with_pytorch(sign, left, right):
    def value(library):
        return SIGNS[sign](*[library.tensor(x) if isinstance(x, list) else x for x in (left, right)])

    got, want = value(wg), value(torch)
    assert str(got.dtype).partition(".")[2] == str(want.dtype).partition(".")[2]
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "**"])
@pytest.mark.parametrize("number", [2, 2.5, 3])
@pytest.mark.parametrize("reflected", [False, True])
def test_gradients_beside_numbers_agree_with_pytorch(sign, number, reflected):
    def gradient(library):
        x = library.tensor([1.5, 2.0, 0.5], dtype=library.float64, requires_grad=True)
        y = SIGNS[sign](number, x) if reflected else SIGNS[sign](x, number)
        (y * y).sum().backward()
        return x.grad.numpy()

    np.testing.assert_allclose(gradient(wg), gradient(torch), rtol=1e-12)


@pytest.mark.parametrize("sign", ["&", "|", "^", "<<", ">>"])
@pytest.mark.parametrize(("left", "right"), [([6, -3, 1], 2), (6, [1, 2, 3]), ([6, -3, 64], [1, 63, 64])])
def test_bitwise_operators_agree_with_pytorch(sign, left, right):
    run = {"&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift}[sign]

    def value(library):
        return run(*[library.tensor(x) if isinstance(x, list) else x for x in (left, right)]).tolist()

    assert value(wg) == value(torch)


# ---- gradients at kinks, ties, zeros and infinities

EDGES = {
    "relu": [0.0, -0.0, math.inf, -math.inf, math.nan],
    "nn.functional.relu6": [0.0, 6.0, 7.0],
    "nn.functional.hardtanh": [-1.0, 1.0],
    "nn.functional.hardsigmoid": [-3.0, 3.0, math.nan],
    "nn.functional.hardswish": [-3.0, 3.0, -4.0, 4.0],
    "nn.functional.leaky_relu": [0.0, -0.0],
    "nn.functional.elu": [0.0, -100.0, 1e4],
    "nn.functional.softplus": [20.0, 20.1, -800.0, 800.0],
    "nn.functional.logsigmoid": [-800.0, 800.0, -math.inf],
    "nn.functional.hardshrink": [0.5, -0.5],
    "nn.functional.softshrink": [0.5, -0.5],
    "nn.functional.silu": [-800.0, 800.0, 0.0],
    "nn.functional.mish": [-800.0, 800.0, 0.0],
    "nn.functional.gelu": [-30.0, 30.0, 0.0],
    "sigmoid": [-800.0, 800.0, math.inf, -math.inf],
    "tanh": [-800.0, 800.0],
    "abs": [0.0, -0.0],
    "sqrt": [0.0],
    "sinc": [0.0, 1.0],
    "log": [0.0, -1.0],
    "asin": [1.0, -1.0],
    "acosh": [1.0],
    "sign": [0.0, 3.0],
    "frac": [0.0, 1.0],
    "round": [0.5, 1.5],
    "erf": [math.inf, 40.0, -40.0],
    "lgamma": [0.0, 1.0, 2.0],
    "special.entr": [0.0, -1.0],
    "special.log_ndtr": [-40.0, 40.0],
}


@pytest.mark.parametrize("name", EDGES)
def test_gradients_at_edges_agree_with_pytorch(name):
    def gradient(library):
        function = library
        for part in name.split("."):
            function = getattr(function, part)
        x = library.tensor(EDGES[name], dtype=library.float64, requires_grad=True)
        y = function(x)
        y.sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    for got, want in zip(gradient(wg), gradient(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-100)


PAIRED_EDGES = {
    "maximum": ([1.0, 2.0, math.nan], [1.0, 1.0, 1.0]),
    "minimum": ([1.0, 2.0, math.nan], [1.0, 1.0, 1.0]),
    "fmax": ([1.0, 2.0, math.nan, 1.0], [1.0, 1.0, 1.0, math.nan]),
    "fmin": ([1.0, 2.0, math.nan, 1.0], [1.0, 1.0, 1.0, math.nan]),
    "pow": ([0.0, 0.0, 0.0, -1.5, 0.0], [0.0, 1.0, 2.0, 3.0, 0.5]),
    "true_divide": ([1.0, -1.0], [0.0, 0.0]),
    "remainder": ([5.5, -5.5, 4.0], [2.0, 2.0, 2.0]),
    "fmod": ([5.5, -5.5, 4.0], [2.0, 2.0, 2.0]),
    "copysign": ([1.0, -2.0, 0.0, -0.0], [-1.0, -0.0, -3.0, 1.0]),
    "clamp": ([0.0, 1.0, 2.0], [0.0, 1.5, 2.0]),
}


@pytest.mark.parametrize("name", PAIRED_EDGES)
def test_gradients_of_pairs_at_edges_agree_with_pytorch(name):
    def gradients(library):
        inputs = [library.tensor(v, dtype=library.float64, requires_grad=True) for v in PAIRED_EDGES[name]]
        y = getattr(library, name)(*inputs)
        y.sum().backward()
        return [y.detach().numpy(), *[x.grad.numpy() for x in inputs]]

    for got, want in zip(gradients(wg), gradients(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


# ---- complex gradients

COMPLEX = (
    "abs", "angle", "sgn", "exp", "log", "sqrt", "sin", "tan", "tanh", "acos", "acosh", "reciprocal", "real", "imag",
    "conj", "square",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_agree_with_pytorch(name):
    values = [1 + 2j, -0.5 + 0.25j, -1.5 - 2j, 0.3 - 1j]

    def gradient(library):
        z = library.tensor(values, dtype=library.complex128, requires_grad=True)
        w = getattr(library, name)(z)
        weight = library.tensor([0.5, -1.0, 2.0, 0.25], dtype=library.float64)
        (library.real(w) * weight).sum().backward(retain_graph=True)
        return z.grad.resolve_conj().numpy()

    np.testing.assert_allclose(gradient(wg), gradient(torch), rtol=1e-10)


def test_parts_are_views_that_write_to_their_base():
    def run(library):
        z = library.tensor([1 + 2j, 3 + 4j])
        z.real.mul_(2)
        z.imag[0] = 7.0
        library.view_as_real(z)[1, 1] = -1.0
        return z.tolist()

    assert run(wg) == run(torch)


def test_where_with_one_argument_gives_indices():
    mask = [[True, False], [False, True]]
    got, want = (lib.where(lib.tensor(mask)) for lib in (wg, torch))
    assert [g.tolist() for g in got] == [w.tolist() for w in want]
