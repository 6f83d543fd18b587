"""In-place operators on batched and dual tensors do what their out-of-place twins do."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.errors import TransformError

RNG = np.random.default_rng(0)
INDEX = wg.tensor([2, 0])
ALONG = wg.tensor([[0, 2, 1, 0], [1, 1, 0, 2]])
MASK = wg.tensor([[True, False, True, False], [False, True, False, False], [True, True, False, True]])


def array(*shape: int) -> Any:
    """Return random numbers away from 0."""
    drawn = RNG.uniform(0.3, 1.5, shape)
    return wg.from_numpy(np.asarray(drawn * np.where(RNG.random(shape) < 0.5, -1.0, 1.0)))


class Case(NamedTuple):
    """A write into ``x`` of shape (3, 4) of something made of ``y``, and its twin without writes."""

    name: str
    write: Callable[[Any, Any], Any]
    twin: Callable[[Any, Any], Any]
    shape: tuple[int, ...] = (3, 4)  # of y


def assigned(key: Any) -> Callable[[Any, Any], Any]:
    """Return the write ``x[key] = y``."""

    def write(x: Any, y: Any) -> None:
        x[key] = y

    return write


def updated(key: Any) -> Callable[[Any, Any], Any]:
    """Return the write ``x[key] *= y``."""

    def write(x: Any, y: Any) -> None:
        x[key] *= y

    return write


def rows(x: Any, *parts: Any) -> Any:
    """Return the rows of x with some replaced: (number, row) pairs."""
    replaced = dict(parts)
    return wg.stack([replaced.get(i, x[i]) for i in range(3)])


def imaginary(x: Any, y: Any) -> Any:
    """Write through a view of real numbers into a complex tensor made of x; return it as real numbers in x."""
    z = wg.complex(x, x * 2)
    z.imag.copy_(y)
    x.copy_(z.imag * z.real)


CASES = [
    Case("add_", lambda x, y: x.add_(y), lambda x, y: x + y),
    Case("add_ a row", lambda x, y: x.add_(y, alpha=2), lambda x, y: x + 2 * y, (4,)),
    Case("sub_", lambda x, y: x.sub_(y), lambda x, y: x - y),
    Case("mul_", lambda x, y: x.mul_(y), lambda x, y: x * y),
    Case("div_", lambda x, y: x.div_(y), lambda x, y: x / y),
    Case("+=", lambda x, y: x.__iadd__(y), lambda x, y: x + y),
    Case("pow_", lambda x, y: x.pow_(3), lambda x, y: x**3),
    Case("exp_", lambda x, y: x.exp_(), lambda x, y: x.exp()),
    Case("sigmoid_ twice", lambda x, y: x.sigmoid_().sigmoid_(), lambda x, y: x.sigmoid().sigmoid()),
    Case("clamp_", lambda x, y: x.clamp_(-0.7, 0.7), lambda x, y: x.clamp(-0.7, 0.7)),
    Case("lerp_", lambda x, y: x.lerp_(y, 0.3), lambda x, y: x.lerp(y, 0.3)),
    Case("addcmul_", lambda x, y: x.addcmul_(y, y, value=2), lambda x, y: x + 2 * y * y),
    Case("add_ of itself", lambda x, y: x.add_(x * y), lambda x, y: x + x * y),
    Case("copy_", lambda x, y: x.copy_(y), lambda x, y: y * 1.0),
    Case("copy_ a row", lambda x, y: x.copy_(y), lambda x, y: wg.zeros_like(x) + y, (4,)),
    Case("fill_ with a number", lambda x, y: x.fill_(2.5), lambda x, y: x * 0 + 2.5),
    Case("fill_ with a tensor", lambda x, y: x.fill_(y), lambda x, y: x * 0 + y, ()),
    Case("zero_", lambda x, y: x.zero_(), lambda x, y: x * 0),
    Case("masked_fill_ with a number", lambda x, y: x.masked_fill_(MASK, 7.0), lambda x, y: wg.where(MASK, 7.0, x)),
    Case("masked_fill_ with a tensor", lambda x, y: x.masked_fill_(MASK, y), lambda x, y: wg.where(MASK, y, x), ()),
    Case(
        "masked_fill_ by values", lambda x, y: x.masked_fill_(y > 0, 7.0), lambda x, y: wg.where(y > 0, 7.0, x)
    ),
    Case("masked_scatter_", lambda x, y: x.masked_scatter_(MASK, y), lambda x, y: x.masked_scatter(MASK, y), (9,)),
    Case(
        "masked_scatter_ by values",
        lambda x, y: x.masked_scatter_(y > 0, y),
        lambda x, y: wg.masked_scatter(x, y > 0, y),
    ),
    Case("index_add_", lambda x, y: x.index_add_(0, INDEX, y), lambda x, y: x.index_add(0, INDEX, y), (2, 4)),
    Case("index_copy_", lambda x, y: x.index_copy_(0, INDEX, y), lambda x, y: x.index_copy(0, INDEX, y), (2, 4)),
    Case("index_fill_", lambda x, y: x.index_fill_(1, INDEX, 3.0), lambda x, y: x.index_fill(1, INDEX, 3.0)),
    Case(
        "index_put_",
        lambda x, y: x.index_put_((INDEX, INDEX), y, accumulate=True),
        lambda x, y: x.index_put((INDEX, INDEX), y, accumulate=True),
        (2,),
    ),
    Case("scatter_", lambda x, y: x.scatter_(0, ALONG, y), lambda x, y: x.scatter(0, ALONG, y)),
    Case("scatter_ a number", lambda x, y: x.scatter_(0, ALONG, 2.0), lambda x, y: x.scatter(0, ALONG, 2.0)),
    Case("scatter_add_", lambda x, y: x.scatter_add_(0, ALONG, y), lambda x, y: x.scatter_add(0, ALONG, y)),
    Case(
        "scatter_reduce_",
        lambda x, y: x.scatter_reduce_(0, ALONG, y, "amax"),
        lambda x, y: x.scatter_reduce(0, ALONG, y, "amax"),
    ),
    Case(
        "index_reduce_",
        lambda x, y: x.index_reduce_(0, INDEX, y, "prod"),
        lambda x, y: x.index_reduce(0, INDEX, y, "prod"),
        (2, 4),
    ),
    Case("put_", lambda x, y: x.put_(wg.tensor([3, -1]), y), lambda x, y: x.put(wg.tensor([3, -1]), y), (2,)),
    Case("tril_", lambda x, y: x.tril_(), lambda x, y: x.tril()),
    Case("fill_diagonal_", lambda x, y: x.fill_diagonal_(2.0), lambda x, y: wg.where(wg.eye(3, 4) > 0, 2.0, x)),
    Case("x[1] = y", assigned(1), lambda x, y: rows(x, (1, y)), (4,)),
    Case("x[-1] = number", assigned(-1), lambda x, y: rows(x, (2, y.expand(4))), ()),
    Case("x[:, 1:3] = y", assigned((slice(None), slice(1, 3))), lambda x, y: wg.cat([x[:, :1], y, x[:, 3:]], 1), (3, 2)),
    Case("x[..., 0] = y", assigned((..., 0)), lambda x, y: wg.cat([y.unsqueeze(1), x[:, 1:]], 1), (3,)),
    Case("x[None, ::2] = y", assigned((None, slice(None, None, 2))), lambda x, y: rows(x, (0, y[0]), (2, y[1])), (2, 4)),
    Case("x[index] = y", assigned(INDEX), lambda x, y: x.index_copy(0, INDEX, y), (2, 4)),
    Case("x[index, index] = y", assigned((INDEX, INDEX)), lambda x, y: x.index_put((INDEX, INDEX), y), (2,)),
    Case("x[mask] = number", assigned(MASK), lambda x, y: wg.where(MASK, y, x), ()),
    Case("x[mask] = y", assigned(MASK), lambda x, y: x.masked_scatter(MASK, y), (6,)),
    Case("x[1] *= y", updated(1), lambda x, y: rows(x, (1, x[1] * y)), (4,)),
    Case("view.add_", lambda x, y: x.view(12).add_(y), lambda x, y: x + y.reshape(3, 4), (12,)),
    Case("view of a view", lambda x, y: x[1:][0].mul_(y), lambda x, y: rows(x, (1, x[1] * y)), (4,)),
    Case("transposed.copy_", lambda x, y: x.t().copy_(y), lambda x, y: y.t() * 1.0, (4, 3)),
    Case("diagonal.fill_", lambda x, y: x.diagonal().fill_(y), lambda x, y: wg.where(wg.eye(3, 4) > 0, y, x), ()),
    Case("select, twice", lambda x, y: (x[0].add_(y), x[0].mul_(y)), lambda x, y: rows(x, (0, (x[0] + y) * y)), (4,)),
    Case("unsqueezed view", lambda x, y: x.unsqueeze(0).sub_(y), lambda x, y: x - y),
    Case("imag.copy_", imaginary, lambda x, y: x * y),
    Case("relu_", lambda x, y: wg.nn.functional.relu(x, inplace=True), lambda x, y: x.relu()),
]  # fmt: skip


def writing(case: Case) -> Callable[[Any, Any], Any]:
    """Return the write as a function: into a copy of x, read back with something that depends on it."""

    def run(x: Any, y: Any) -> Any:
        target = x * 1.0
        case.write(target, y)
        return target * 2

    return run


def reading(case: Case) -> Callable[[Any, Any], Any]:
    """Return the twin as a function of the same shape."""
    return lambda x, y: case.twin(x, y) * 2


def inputs(case: Case, *lead: int) -> tuple[Any, Any]:
    """Return x and y with dimensions ``lead`` in front."""
    return array(*lead, 3, 4), array(*lead, *case.shape)


def same(got: Any, want: Any) -> None:
    """Require trees of tensors to agree."""
    for g, w in zip(wg.tree.leaves(got), wg.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-12, atol=1e-13)


# x * y keeps x for its derivative, and then x is written: reverse mode must refuse.
REVERSIBLE = [case for case in CASES if case.name != "add_ of itself"]
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
reversible = pytest.mark.parametrize("case", REVERSIBLE, ids=lambda case: case.name)


@every
def test_vmap_writes_into_every_example(case: Case) -> None:
    x, y = inputs(case, 2)
    same(func.vmap(writing(case))(x, y), func.vmap(reading(case))(x, y))
    same(func.vmap(writing(case))(x, y), wg.stack([reading(case)(x[k], y[k]) for k in range(2)]))


@every
def test_vmap_writes_a_shared_value_into_every_example(case: Case) -> None:
    x, _ = inputs(case, 2)
    _, y = inputs(case)
    same(func.vmap(writing(case), (0, None))(x, y), wg.stack([reading(case)(x[k], y) for k in range(2)]))


@every
def test_jvp_pushes_tangents_through_writes(case: Case) -> None:
    primals, tangents = inputs(case), inputs(case)
    same(func.jvp(writing(case), primals, tangents), func.jvp(reading(case), primals, tangents))


@every
@pytest.mark.parametrize("which", [0, 1], ids=["x alone", "y alone"])
def test_jvp_with_one_tangent(case: Case, which: int) -> None:
    given, tangent = inputs(case), inputs(case)[which]

    def of_one(function: Callable[[Any, Any], Any]) -> Any:
        return func.jvp(
            lambda v: function(*(v if i == which else other for i, other in enumerate(given))),
            (given[which],),
            (tangent,),
        )

    same(of_one(writing(case)), of_one(reading(case)))


@reversible
def test_gradients_through_writes(case: Case) -> None:
    x, y = inputs(case)
    weights = array(3, 4)

    def gradients(function: Callable[[Any, Any], Any]) -> Any:
        return func.grad(lambda a, b: (function(a, b) * weights).sum(), (0, 1))(x, y)

    same(gradients(writing(case)), gradients(reading(case)))


@reversible
def test_gradients_of_examples(case: Case) -> None:
    x, y = inputs(case, 2)
    weights = array(3, 4)

    def gradients(function: Callable[[Any, Any], Any]) -> Any:
        return func.vmap(func.grad(lambda a, b: (function(a, b).sin() * weights).sum(), (0, 1)))(x, y)

    same(gradients(writing(case)), gradients(reading(case)))


@reversible
def test_gradients_of_a_batch(case: Case) -> None:
    x, y = inputs(case, 2)
    weights = array(3, 4)

    def gradients(function: Callable[[Any, Any], Any]) -> Any:
        return func.grad(lambda a, b: (func.vmap(function)(a, b).sin() * weights).sum(), (0, 1))(x, y)

    same(gradients(writing(case)), gradients(reading(case)))


@reversible
def test_forward_over_reverse(case: Case) -> None:
    primals, tangents = inputs(case), inputs(case)
    weights = array(3, 4)

    def pushed(function: Callable[[Any, Any], Any]) -> Any:
        gradient = func.grad(lambda a, b: (function(a, b).sin() * weights).sum(), (0, 1))
        return func.jvp(gradient, primals, tangents)

    same(pushed(writing(case)), pushed(reading(case)))


@every
def test_tangents_of_examples(case: Case) -> None:
    primals, tangents = inputs(case, 2), inputs(case, 2)

    def pushed(function: Callable[[Any, Any], Any]) -> Any:
        return func.vmap(lambda x, y, s, t: func.jvp(function, (x, y), (s, t)))(*primals, *tangents)

    same(pushed(writing(case)), pushed(reading(case)))


@every
def test_tangents_of_a_batch(case: Case) -> None:
    primals, tangents = inputs(case, 2), inputs(case, 2)
    same(func.jvp(func.vmap(writing(case)), primals, tangents), func.jvp(func.vmap(reading(case)), primals, tangents))


@every
def test_nested_batches(case: Case) -> None:
    x, y = inputs(case, 2, 3)
    same(func.vmap(func.vmap(writing(case)))(x, y), func.vmap(func.vmap(reading(case)))(x, y))


@every
def test_nested_tangents(case: Case) -> None:
    primals, tangents = inputs(case), inputs(case)

    def twice(function: Callable[[Any, Any], Any]) -> Any:
        return func.jvp(lambda x, y: func.jvp(function, (x, y), tangents)[1], primals, tangents)

    same(twice(writing(case)), twice(reading(case)))


# ---- writes into tensors from outside

TAKES_VALUES = [case for case in CASES if case.twin(*inputs(case)).numpy().shape == (3, 4) and case.name not in (
    "pow_", "exp_", "sigmoid_ twice", "clamp_", "fill_ with a number", "zero_", "masked_fill_ with a number",
    "index_fill_", "scatter_ a number", "tril_", "fill_diagonal_", "relu_",
)]  # fmt: skip
takes_values = pytest.mark.parametrize("case", TAKES_VALUES, ids=lambda case: case.name)


@takes_values
def test_values_of_examples_do_not_go_into_a_shared_tensor(case: Case) -> None:
    x, _ = inputs(case)
    _, y = inputs(case, 2)
    before = x.clone()

    def run(y: Any) -> Any:
        case.write(x, y)
        return y

    with pytest.raises(TransformError, match="examples"):
        func.vmap(run)(y)
    same(x, before)
    assert isinstance(x._payload, np.ndarray)


@takes_values
def test_tangents_go_into_a_plain_tensor_which_stays_plain(case: Case) -> None:
    x, y = inputs(case)
    tangent = inputs(case)[1]
    target, view = x.clone(), None

    def run(y: Any) -> Any:
        case.write(target, y)
        return target * 2

    view = target[0]
    same(func.jvp(run, (y,), (tangent,)), func.jvp(lambda v: reading(case)(x, v), (y,), (tangent,)))
    assert isinstance(target._payload, np.ndarray)
    assert target._node is None
    assert target._view is None
    same(target, case.twin(x, y))
    same(view, target[0])
    target.add_(1)
    same(target, case.twin(x, y) + 1)


def test_a_shared_tensor_takes_what_is_shared() -> None:
    shared, x = wg.zeros(3), array(2, 3)

    def run(x: Any) -> Any:
        shared.add_(1)
        return x + shared

    same(func.vmap(run)(x), x + 1)
    same(shared, wg.ones(3))


def test_a_tensor_made_inside_from_the_example_takes_values() -> None:
    x = array(2, 3)

    def run(x: Any) -> Any:
        out, like = x.new_full((2, 3), 5.0), wg.zeros_like(x)
        out[0] = x
        like.add_(x)
        return out, like

    rows = wg.stack([x, wg.full_like(x, 5.0)], 1)
    same(func.vmap(run)(x), (rows, x))
    same(func.vmap(lambda x: func.jvp(run, (x,), (x,)))(x), ((rows, x), (wg.stack([x, x * 0], 1), x)))
    same(func.jvp(func.vmap(run), (x,), (x,)), ((rows, x), (wg.stack([x, x * 0], 1), x)))
    same(func.vmap(func.vmap(run))(x.reshape(2, 1, 3)), (rows.unsqueeze(1), x.unsqueeze(1)))


def test_a_view_of_an_argument_is_written_and_the_argument_seen() -> None:
    x, t = array(3, 4), array(3, 4)

    def run(x: Any) -> Any:
        row = x[1]
        row.mul_(row)
        return x.sum(0), row

    def twin(x: Any) -> Any:
        return x[0] + x[1] * x[1] + x[2], x[1] * x[1]

    same(func.jvp(run, (x.clone(),), (t,)), func.jvp(twin, (x,), (t,)))
    same(func.vmap(run)(x.clone().reshape(1, 3, 4)), [v.unsqueeze(0) for v in twin(x)])


def test_the_version_counts_under_transforms() -> None:
    x = array(3)

    def run(x: Any) -> Any:
        y = x * 1.0
        z = y * y
        y.add_(1)
        return z.sum()

    with pytest.raises(RuntimeError, match="changed in place"):
        func.vmap(func.grad(run))(x.reshape(1, 3))
