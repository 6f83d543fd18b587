"""Random operators under vmap: which examples get which numbers, what is refused, and how far the generator moves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.errors import TransformError

F = wg.nn.functional

RATES = wg.tensor(np.random.default_rng(0).uniform(0.2, 0.8, (4, 3)))
EQUAL = wg.expand_copy(RATES[:1], (4, 3))
WEIGHTS = wg.tensor(np.random.default_rng(1).uniform(0.1, 1.0, (4, 2, 5)))

# Of one example: numbers of a shape, numbers in the place of its elements, numbers of which its elements are parameters.
MADE: dict[str, Callable[[Any], Any]] = {
    "rand": lambda x: wg.rand(3, dtype=x.dtype),
    "randn": lambda x: wg.randn((3,), dtype=wg.complex128),
    "randint": lambda x: wg.randint(0, 1000, (5,)),
    "randperm": lambda x: wg.randperm(40),
    "normal": lambda x: wg.normal(1.0, 2.0, (3,)),
    "rand_like": lambda x: wg.rand_like(x),
    "randn_like": lambda x: wg.randn_like(x),
    "randint_like": lambda x: wg.randint_like(x, 1000),
}
FILLED: dict[str, Callable[[Any], Any]] = {
    "uniform_": lambda x: x.uniform_(-1.0, 1.0),
    "normal_": lambda x: x.normal_(1.0, 2.0),
    "exponential_": lambda x: x.exponential_(),
    "cauchy_": lambda x: x.cauchy_(),
    "log_normal_": lambda x: x.log_normal_(),
    "random_": lambda x: x.random_(0, 1000),
    "geometric_": lambda x: x.geometric_(0.01),
}
DROPPED: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.5, True, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "feature_dropout": lambda x: F.feature_dropout(x, 0.5),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, True),
    "dropout1d": lambda x: F.dropout1d(x, 0.5),
}
OF_PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "bernoulli": lambda x: wg.bernoulli(x),
    "poisson": lambda x: wg.poisson(x * 100),
    "binomial": lambda x: wg.binomial(wg.full_like(x, 1000.0), x),
    "normal of tensors": lambda x: wg.normal(x, x),
    "normal of a mean": lambda x: wg.normal(x, 2.0),
    "multinomial": lambda x: wg.multinomial(x, 2),
    "multinomial with replacement": lambda x: wg.multinomial(x, 30, True),
    "bernoulli_": lambda x: wg.empty_like(x).bernoulli_(x),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "rrelu": lambda x: F.rrelu(-x, training=True),
}
ALL = {**MADE, **{k: lambda x, f=f: f(x.clone()) for k, f in FILLED.items()}, **OF_PARAMETERS}


def drawn(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """Return what a call gives from one seed, and how far the default generator moved."""
    wg.manual_seed(11)
    found = function(*args)
    return found, int(wg.get_rng_state()[1].item())


@pytest.mark.parametrize("name", ALL)
def test_an_untold_vmap_refuses(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"rand.*under vmap.*randomness='different'.*randomness='same'"):
        func.vmap(ALL[name])(RATES)


@pytest.mark.parametrize("name", DROPPED)
def test_an_untold_vmap_refuses_dropout(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"dropout.*randomness='different'"):
        func.vmap(DROPPED[name])(WEIGHTS)


def test_without_a_draw_nothing_is_refused() -> None:
    assert wg.equal(func.vmap(lambda x: F.dropout(x, 0.5, training=False))(RATES), RATES)


@pytest.mark.parametrize("name", ALL)
def test_different_is_one_larger_draw(name: str) -> None:
    """The numbers are those of one call on the whole batch: each example its own, the generator moved once."""
    whole = {
        "rand": lambda x: wg.rand(4, 3, dtype=x.dtype),
        "randn": lambda x: wg.randn(4, 3, dtype=wg.complex128),
        "randint": lambda x: wg.randint(0, 1000, (4, 5)),
        "normal": lambda x: wg.normal(1.0, 2.0, (4, 3)),
    }.get(name, ALL[name])
    found, moved = drawn(func.vmap(ALL[name], randomness="different"), RATES)
    if name == "randperm":
        assert found.shape == (4, 40)
        assert wg.equal(found.sort(-1).values, wg.arange(40).expand(4, 40))
        assert len({tuple(row) for row in found.tolist()}) == 4
        return
    want, far = drawn(whole, RATES)
    assert wg.equal(found, want)
    assert moved == far


@pytest.mark.parametrize("name", ALL)
def test_same_is_one_example_for_all(name: str) -> None:
    """Every example gets what it would get alone from the same state, and the generator moves as for one."""
    found, moved = drawn(func.vmap(ALL[name], randomness="same"), RATES)
    alone = [drawn(ALL[name], row) for row in RATES]
    assert wg.equal(found, wg.stack([value for value, _ in alone]))
    assert moved == max(far for _, far in alone)
    equal, _ = drawn(func.vmap(ALL[name], randomness="same"), EQUAL)
    assert all(wg.equal(row, equal[0]) for row in equal)


@pytest.mark.parametrize("name", ALL)
def test_the_seed_decides(name: str) -> None:
    run = func.vmap(ALL[name], randomness="different")
    first, second = drawn(run, RATES)[0], drawn(run, RATES)[0]
    assert wg.equal(first, second)


def test_a_generator_of_ones_own() -> None:
    generator = wg.Generator().manual_seed(3)
    found = func.vmap(lambda x: x + wg.randn(3, generator=generator, dtype=x.dtype), randomness="different")(RATES)
    moved = generator.offset
    want = RATES + wg.randn(4, 3, generator=generator.manual_seed(3), dtype=RATES.dtype)
    assert wg.equal(found, want)
    assert generator.offset == moved


@pytest.mark.parametrize("outer", ["different", "same"])
@pytest.mark.parametrize("inner", ["different", "same"])
@pytest.mark.parametrize("draw", [lambda x: wg.randn(2, dtype=x.dtype), lambda x: wg.normal(x * 0, 1.0)],
                         ids=["of a shape", "of parameters"])  # fmt: skip
def test_nested(outer: str, inner: str, draw: Callable[[Any], Any]) -> None:
    """Each level decides for its own examples."""
    x = wg.ones(3, 4, 2, dtype=wg.float64)
    found, _ = drawn(func.vmap(func.vmap(draw, randomness=inner), randomness=outer), x)
    assert found.shape == (3, 4, 2)
    assert all(wg.equal(row, found[0]) for row in found) == (outer == "same")
    assert all(wg.equal(found[:, k], found[:, 0]) for k in range(4)) == (inner == "same")
    count = (3 if outer == "different" else 1) * (4 if inner == "different" else 1) * 2
    assert len(set(found.numpy().ravel().tolist())) == count


def test_parameters_of_either_level() -> None:
    """A mean of the outer examples meets a deviation of the inner ones."""
    mean, std = wg.tensor([0.0, 1000.0, 2000.0]), wg.tensor([[0.0], [1.0]])
    run = func.vmap(
        lambda m: func.vmap(lambda s: wg.normal(m.expand(5), s), randomness="different")(std), randomness="different"
    )
    found = run(mean)
    assert found.shape == (3, 2, 5)
    assert wg.equal(found[:, 0], mean[:, None].expand(3, 5))
    assert len(set((found[:, 1] - mean[:, None]).numpy().ravel().tolist())) == 15
    tied = func.vmap(
        lambda m: func.vmap(lambda s: wg.normal(m.expand(5), s), randomness="same")(std), randomness="same"
    )
    found = tied(mean)
    assert wg.allclose(found[1:, 1] - mean[1:, None], found[:1, 1].expand(2, 5), atol=1e-3)


def test_an_outer_level_that_was_not_told() -> None:
    run = func.vmap(func.vmap(lambda x: wg.rand_like(x), randomness="same"))
    with pytest.raises(RuntimeError, match="randomness='different'"):
        run(RATES)


@pytest.mark.parametrize("name", ["dropout", "dropout in place", "dropout1d", "feature_dropout"])
@pytest.mark.parametrize("randomness", ["different", "same"])
def test_gradient_of_dropout(name: str, randomness: str) -> None:
    """The gradient is the mask that was drawn, whichever way round grad and vmap are nested."""
    drop = DROPPED[name]
    values, _ = drawn(func.vmap(drop, randomness=randomness), wg.ones_like(WEIGHTS))
    per_example, _ = drawn(func.vmap(func.grad(lambda x: drop(x).sum()), randomness=randomness), WEIGHTS)
    total, _ = drawn(func.grad(lambda x: func.vmap(drop, randomness=randomness)(x).sum()), WEIGHTS)
    tangent = drawn(lambda x: func.jvp(func.vmap(drop, randomness=randomness), (x,), (wg.ones_like(x),))[1], WEIGHTS)[0]
    assert set(values.unique().tolist()) <= {0.0, 2.0}
    for found in (per_example, total, tangent):
        assert wg.equal(found, values)
    assert all(wg.equal(v, values[0]) for v in values) == (randomness == "same")


def test_forward_mode_inside() -> None:
    """Parameters with a tangent: what is drawn has none."""

    def one(x: Any) -> Any:
        return func.jvp(lambda m: wg.normal(m, 0.0) * m, (x,), (wg.ones_like(x),))[1]

    assert wg.equal(func.vmap(one, randomness="different")(RATES), RATES)


def test_writing_into_what_all_share() -> None:
    shared = wg.zeros(3)
    with pytest.raises(TransformError, match=r"normal_.*all examples share"):
        func.vmap(lambda x: shared.normal_() + x, randomness="different")(RATES)
    func.vmap(lambda x: shared.normal_() + x, randomness="same")(RATES)
    assert bool((shared != 0).all())


def test_out_is_refused() -> None:
    out = wg.zeros(3)
    with pytest.raises(RuntimeError, match="out="):
        func.vmap(lambda x: x + wg.rand(3, out=out), randomness="different")(RATES)


def test_an_empty_batch() -> None:
    empty = wg.zeros(0, 3)
    for randomness in ("different", "same"):
        assert func.vmap(lambda x: wg.normal(x, 1.0), randomness=randomness)(empty).shape == (0, 3)
        assert func.vmap(lambda x: x + wg.rand(3), randomness=randomness)(empty).shape == (0, 3)


def test_chunks_draw_one_after_the_other() -> None:
    whole, _ = drawn(func.vmap(lambda x: wg.rand_like(x), randomness="different"), RATES)
    parts, _ = drawn(func.vmap(lambda x: wg.rand_like(x), randomness="different", chunk_size=3), RATES)
    assert wg.equal(whole, parts)


def test_a_recorded_tensor_that_is_filled_passes_zeros_on() -> None:
    leaf = wg.ones(3, requires_grad=True)
    made = leaf * 2
    made.normal_()
    made.sum().backward()
    assert wg.equal(leaf.grad, wg.zeros(3))
