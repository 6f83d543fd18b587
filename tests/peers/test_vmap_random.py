"""Random operators under vmap against PyTorch's: shapes, dtypes, which examples agree, and what is refused."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg

X = np.random.default_rng(0).uniform(0.2, 0.8, (4, 3))
Y = np.random.default_rng(1).uniform(0.2, 0.8, (2, 4, 3))

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "rand": lambda m, x: m.rand(3, 2),
    "randn": lambda m, x: m.randn((3,), dtype=m.float64),
    "randint": lambda m, x: m.randint(0, 1000, (3,)),
    "randperm": lambda m, x: m.randperm(30),
    "rand_like": lambda m, x: m.rand_like(x),
    "randn_like": lambda m, x: m.randn_like(x),
    "normal": lambda m, x: m.normal(0.0, 1.0, (3,)),
    "normal_": lambda m, x: x.clone().normal_(),
    "uniform_": lambda m, x: x.clone().uniform_(),
    "exponential_": lambda m, x: x.clone().exponential_(),
    "cauchy_": lambda m, x: x.clone().cauchy_(),
    "log_normal_": lambda m, x: x.clone().log_normal_(),
    "random_": lambda m, x: x.clone().random_(0, 1000),
    "geometric_": lambda m, x: x.clone().geometric_(0.01),
    "zeros_like, normal_": lambda m, x: m.zeros_like(x).normal_(),
    "bernoulli": lambda m, x: m.bernoulli(x.expand(30, 3)),
    "poisson": lambda m, x: m.poisson(x * 1000),
    "multinomial": lambda m, x: m.multinomial(x.repeat(20), 10),
    "multinomial of rows": lambda m, x: m.multinomial(x.expand(20, 3), 2, True),
    "normal of tensors": lambda m, x: m.normal(x, x),
    "dropout": lambda m, x: m.nn.functional.dropout(x.expand(20, 3), 0.5),
    "alpha_dropout": lambda m, x: m.nn.functional.alpha_dropout(x.expand(20, 3), 0.5, True),
    "feature_dropout": lambda m, x: m.nn.functional.dropout1d(x.expand(20, 3), 0.5),
    "eval dropout": lambda m, x: m.nn.functional.dropout(x, 0.5, False),
}  # fmt: skip
# PyTorch refuses one draw for examples of different parameters; here each is drawn from the same state.
PARAMETERS = {"bernoulli", "poisson", "multinomial", "multinomial of rows", "normal of tensors", "dropout", "alpha_dropout",
              "feature_dropout"}  # fmt: skip


def mapped(module: Any, name: str, array: Any, *randomness: str) -> Any:
    """Return the result, its numbers as an array, of as many nested vmaps as settings."""

    def run(x: Any) -> Any:
        return DRAWS[name](module, x)

    for setting in reversed(randomness):
        run = module.func.vmap(run, randomness=setting)
    module.manual_seed(0)
    return run(module.from_numpy(array))


def pattern(values: Any) -> list[bool]:
    """Return, for each of all examples of all levels, whether the next one is equal to it."""
    rows = np.asarray(values.detach().numpy()).reshape(values.shape[0], -1)
    return [bool(np.array_equal(a, b)) for a, b in itertools.pairwise(rows)]


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_one_level(name: str, randomness: str) -> None:
    try:
        want = mapped(torch, name, X, randomness)
    except RuntimeError:
        if randomness == "same" and name in PARAMETERS:
            assert mapped(wg, name, X, randomness).shape[0] == 4
            return
        with pytest.raises(RuntimeError):
            mapped(wg, name, X, randomness)
        return
    got = mapped(wg, name, X, randomness)
    assert tuple(got.shape) == tuple(want.shape)
    assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1]
    assert pattern(got) == pattern(want)


@pytest.mark.parametrize("name", ["randn", "rand_like", "normal_", "randperm"])
@pytest.mark.parametrize("outer", ["error", "different", "same"])
@pytest.mark.parametrize("inner", ["error", "different", "same"])
def test_two_levels(name: str, outer: str, inner: str) -> None:
    try:
        want = mapped(torch, name, Y, outer, inner)
    except RuntimeError:
        if (name, outer, inner) == ("normal_", "different", "same"):  # a tensor of PyTorch's own that is not batched
            assert pattern(mapped(wg, name, Y, outer, inner)) == [False]
            return
        with pytest.raises(RuntimeError):
            mapped(wg, name, Y, outer, inner)
        return
    got = mapped(wg, name, Y, outer, inner)
    assert tuple(got.shape) == tuple(want.shape)
    assert pattern(got) == pattern(want)
    assert pattern(got.transpose(0, 1)) == pattern(want.transpose(0, 1))


@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_writing_into_what_all_share(randomness: str) -> None:
    """Different numbers do not fit into one tensor."""

    def run(module: Any) -> Any:
        shared = module.zeros(3)
        return module.func.vmap(lambda x: x * 0 + shared.normal_(), randomness=randomness)(module.from_numpy(X))

    try:
        want = run(torch)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            run(wg)
        return
    assert pattern(run(wg)) == pattern(want)


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_gradient_of_dropout(randomness: str) -> None:
    """The gradient of a sum is the mask: 0 and 2, equal for all examples or not."""

    def run(module: Any) -> Any:
        module.manual_seed(0)
        one = module.func.grad(lambda x: module.nn.functional.dropout(x.expand(30, 3), 0.5).sum())
        return module.func.vmap(one, randomness=randomness)(module.from_numpy(X))

    got, want = run(wg), run(torch)
    assert tuple(got.shape) == tuple(want.shape)
    assert pattern(got) == pattern(want)
