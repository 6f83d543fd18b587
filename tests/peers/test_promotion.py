"""Type promotion: every pair of dtypes and ranks of operands gives PyTorch's dtype."""

import itertools

import pytest
import torch

import wengert as wg

# wengert has no complex32: where PyTorch gives it, complex64 is the answer.
NAMES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
RANKS = [(2,), ()]
SCALARS = [True, 3, 2.5, 1 + 2j]


def one(package, name, shape):
    return package.ones(shape, dtype=getattr(package, name))


def dtype_name(tensor):
    return str(tensor.dtype).rpartition(".")[2]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operator", ["add", "mul", "div", "maximum", "eq", "pow", "atan2", "where"])
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_two_tensors(name, operator):
    for other, a, b in itertools.product(NAMES, RANKS, RANKS):

        def call(package, other=other, a=a, b=b):
            x, y = one(package, name, a), one(package, other, b)
            return (
                package.where(package.ones(2, dtype=package.bool), x, y)
                if operator == "where"
                else getattr(package, operator)(x, y)
            )

        try:
            want = dtype_name(call(torch))
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        if want != "complex32":
            assert dtype_name(call(wg)) == want, f"{operator}({name}{a}, {other}{b})"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_tensor_and_a_number(name, scalar):
    for shape, reflected in itertools.product(RANKS, (False, True)):
        for operator in ("__add__", "__mul__", "__truediv__", "__pow__"):
            method = operator.replace("__", "__r", 1) if reflected else operator

            def call(package, shape=shape, method=method):
                return getattr(one(package, name, shape), method)(scalar)

            try:
                want = dtype_name(call(torch))
            except (RuntimeError, NotImplementedError, TypeError):
                continue
            if want != "complex32":
                assert dtype_name(call(wg)) == want, f"{name}{shape}.{method}({scalar})"


@pytest.mark.parametrize("name", NAMES)
def test_promote_types(name):
    for other in NAMES:
        want = str(torch.promote_types(getattr(torch, name), getattr(torch, other))).rpartition(".")[2]
        assert wg.promote_types(getattr(wg, name), getattr(wg, other)).name == want


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "function",
    ["sin", "exp", "sqrt", "sigmoid", "sum", "mean", "cumsum", "prod", "abs", "neg", "relu", "softmax", "round"],
)
def test_functions_of_one_tensor(name, function):
    extra = (0,) if function in ("cumsum", "softmax") else ()
    try:
        want = dtype_name(getattr(torch, function)(one(torch, name, (2,)), *extra))
    except (RuntimeError, NotImplementedError, TypeError):
        return
    assert dtype_name(getattr(wg, function)(one(wg, name, (2,)), *extra)) == want


@pytest.mark.parametrize("value", [True, 3, 2.5, 1 + 2j, [1, 2], [1.0, 2], [True, False], [1, 2.5, 1j], []])
def test_inferred_dtypes(value):
    assert dtype_name(wg.tensor(value)) == dtype_name(torch.tensor(value))
