"""autograd.functional against PyTorch's: values, structures, requires_grad of what is returned, and what is refused."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg
from wengert.autograd import functional

peer = torch.autograd.functional

A = np.array([[0.5, -1.25], [2.0, 0.75], [-0.5, 1.5]])
B = np.array([1.5, -0.25])
C = np.array(0.8)
V = np.random.default_rng(0)


def make(module: Any, array: Any, requires_grad: bool = False) -> Any:
    tensor = wg.tensor(array) if module is wg else torch.tensor(array)
    return tensor.requires_grad_(requires_grad)


def like(module: Any, value: Any) -> Any:
    """Arrays, and tuples of them, as tensors of a framework."""
    if isinstance(value, tuple):
        return tuple(like(module, v) for v in value)
    return None if value is None else make(module, value)


def describe(value: Any) -> Any:
    """A result as plain data: structure, and for each tensor its elements, dtype and requires_grad."""
    if isinstance(value, tuple):
        return tuple(describe(v) for v in value)
    return np.asarray(value.detach().numpy()), str(value.dtype).split(".")[-1], value.requires_grad


def agree(found: Any, expected: Any) -> None:
    assert type(found) is type(expected), (found, expected)
    if isinstance(found, tuple) and not isinstance(found[0], np.ndarray):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            agree(a, b)
        return
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-11, atol=1e-12)
    assert found[0].shape == expected[0].shape
    assert found[1:] == expected[1:]


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the type of the error it raises."""
    try:
        return describe(call())
    except (RuntimeError, TypeError) as error:
        return RuntimeError if isinstance(error, RuntimeError) else TypeError


# Name: (function of tensors, its inputs). Methods that both frameworks have; x * x instead of x**2, whose second derivative
# PyTorch computes as 2 x**0: it says of a constant that it requires grad.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "element-wise": (lambda x: x.sin() * x, A),
    "to one number": (lambda x: x.exp().sum(), A),
    "to one element": (lambda x: x.exp().sum().reshape(1, 1), A),
    "of one number": (lambda x: x**3, C),
    "two inputs": (lambda x, y: (x @ y).sin(), (A, B)),
    "two inputs, one number": (lambda x, y: ((x @ y) ** 3).sum() + (y**2).prod(), (A, B)),
    "two outputs": (lambda x: (x.sum(0), x**2), A),
    "two of each": (lambda x, y: (x * y, y.cos().sum()), (A, B)),
    "tuple of one": (lambda x: (x.tanh(),), (B,)),
    "an unused input": (lambda x, y: (x * x).sum(), (A, B)),
    "an unused input in one output": (lambda x, y: (x * 2, (y**2).sum()), (A, B)),
    "linear": (lambda x: 3 * x, B),
    "linear to one number": (lambda x: (3 * x).sum(), B),
    "linear in one": (lambda x, y: (x * x).sum() + y.sum(), (A, B)),
    "constant": (lambda x: x.detach() * 2, B),
    "constant number": (lambda x: x.detach().sum(), B),
    "quadratic": (lambda x: (x * x).sum(), B),
    "product": (lambda x: x.prod(), np.array([2.0, 3.0, -1.0])),
    "cumulative": (lambda x: (x.cumprod(0) * x.cumsum(0)).sum(), np.array([2.0, 3.0, -1.0])),
}  # fmt: skip

FLAGS = list(itertools.product((False, True), (False, True), (False, True)))


def shaped(value: Any) -> Any:
    """Random arrays of the shapes of the tensors in a value."""
    if isinstance(value, tuple):
        return tuple(shaped(v) for v in value)
    return V.standard_normal(tuple(value.shape))


@pytest.mark.parametrize("product", ["vjp", "jvp", "vhp", "hvp"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_products(name: str, product: str) -> None:
    func, arrays = FUNCTIONS[name]
    output = func(*(like(torch, arrays) if isinstance(arrays, tuple) else (like(torch, arrays),)))
    vector = shaped(output if product == "vjp" else arrays)
    for create_graph, strict, tracked in FLAGS:

        def run(module: Any, place: Any, v: Any) -> Any:
            inputs = like(module, arrays)
            for x in inputs if isinstance(inputs, tuple) else (inputs,):
                x.requires_grad_(tracked)  # noqa: B023
            return getattr(place, product)(func, inputs, like(module, v), create_graph=create_graph, strict=strict)  # noqa: B023

        for v in (vector, None):
            expected = outcome(lambda: run(torch, peer, v))  # noqa: B023
            found = outcome(lambda: run(wg, functional, v))  # noqa: B023
            if isinstance(expected, type):
                assert found is expected, (create_graph, strict, tracked, v)
            else:
                agree(found, expected)


@pytest.mark.parametrize("matrix", ["jacobian", "hessian"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrices(name: str, matrix: str) -> None:
    func, arrays = FUNCTIONS[name]
    for create_graph, strict, tracked in FLAGS:

        def run(module: Any, place: Any) -> Any:
            inputs = like(module, arrays)
            for x in inputs if isinstance(inputs, tuple) else (inputs,):
                x.requires_grad_(tracked)  # noqa: B023
            return getattr(place, matrix)(func, inputs, create_graph=create_graph, strict=strict)  # noqa: B023

        expected = outcome(lambda: run(torch, peer))
        found = outcome(lambda: run(wg, functional))
        if isinstance(expected, type):
            assert found is expected, (create_graph, strict, tracked)
        else:
            agree(found, expected)


MODES: dict[str, dict[str, Any]] = {
    "vectorized": {"vectorize": True},
    "vectorized and recorded": {"vectorize": True, "create_graph": True},
    "forward": {"vectorize": True, "forward": True},
}


def elements(value: Any) -> Any:
    """A nest of results as nested lists of arrays: PyTorch returns lists of rows in forward mode."""
    return [elements(v) for v in value] if isinstance(value, tuple | list) else value.detach().numpy()


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
        return
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    assert found.shape == expected.shape


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # from loading forward mode
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("matrix", ["jacobian", "hessian"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrices_at_once(name: str, matrix: str, mode: str) -> None:
    func, arrays = FUNCTIONS[name]
    options = dict(MODES[mode])
    if options.pop("forward", False):
        options["strategy" if matrix == "jacobian" else "outer_jacobian_strategy"] = "forward-mode"
    try:
        expected = getattr(peer, matrix)(func, like(torch, arrays), **options)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            getattr(functional, matrix)(func, like(wg, arrays), **options)
        return
    found = getattr(functional, matrix)(func, like(wg, arrays), **options)
    same(elements(found), elements(expected))
    assert isinstance(found, tuple) == isinstance(expected, tuple | list)
