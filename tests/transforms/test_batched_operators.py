"""Operators under vmap where one batched run is not one run per example: convolutions, tables, norms, errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.errors import TransformError
from wengert.nn import functional as F

RNG = np.random.default_rng(1)


def array(*shape: int) -> Any:
    """Return random numbers."""
    return wg.from_numpy(RNG.standard_normal(shape))


def whole(*shape: int, below: int) -> Any:
    """Return random indices."""
    return wg.from_numpy(RNG.integers(0, below, shape))


def same(got: Any, want: Any) -> None:
    """Require trees of tensors to agree."""
    for g, w in zip(wg.tree.leaves(got), wg.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-9, atol=1e-11)


def one_by_one(function: Callable[..., Any], in_dims: Any, *given: Any) -> Any:
    """Return what vmap must give, by a loop."""
    size = next(t.shape[0] for t, d in zip(given, in_dims, strict=True) if d == 0)
    found = [function(*[t[k] if d == 0 else t for t, d in zip(given, in_dims, strict=True)]) for k in range(size)]
    return wg.tree.map(lambda *parts: wg.stack(parts), *found)


def agrees(function: Callable[..., Any], in_dims: tuple[Any, ...], *given: Any) -> None:
    """Require a function, and its gradient at every float argument, to agree with a loop."""
    same(func.vmap(function, in_dims)(*given), one_by_one(function, in_dims, *given))
    floats = tuple(i for i, t in enumerate(given) if t.is_floating_point())

    def weighted(*values: Any) -> Any:
        return sum(t.cos().sum() for t in wg.tree.leaves(function(*values)))

    gradient = func.grad(weighted, floats)
    same(func.vmap(gradient, in_dims)(*given), one_by_one(gradient, in_dims, *given))
    outside = func.grad(lambda *v: sum(t.cos().sum() for t in wg.tree.leaves(func.vmap(function, in_dims)(*v))), floats)
    total = func.grad(lambda *v: sum(t.cos().sum() for t in wg.tree.leaves(one_by_one(function, in_dims, *v))), floats)
    same(outside(*given), total(*given))


DIMS = [(0, None, None), (None, 0, None), (0, 0, None), (0, 0, 0), (None, None, 0), (None, 0, 0)]


def batch(in_dims: tuple[Any, ...], *shapes: tuple[int, ...]) -> list[Any]:
    """Return tensors of shapes, those with dimension 0 in a batch of three."""
    return [array(*((3,) if d == 0 else ()), *shape) for d, shape in zip(in_dims, shapes, strict=True)]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("in_dims", DIMS)
def test_convolutions_with_kernels_of_their_own(in_dims: tuple[Any, ...], groups: int) -> None:
    x, w, b = batch(in_dims, (2, 4, 5, 4), (6, 4 // groups, 2, 3), (6,))
    agrees(lambda x, w, b: F.conv2d(x, w, b, (2, 1), (0, 1), groups=groups), in_dims, x, w, b)
    x, w, b = batch(in_dims, (2, 6, 3), (6, 4 // groups, 2), (4,))
    agrees(lambda x, w, b: F.conv_transpose1d(x, w, b, 2, groups=groups), in_dims, x, w, b)


def test_gradients_of_kernels_by_example() -> None:
    x, w = array(3, 2, 6), array(4, 2, 3)
    gradient = func.grad(lambda w, x: F.conv1d(x, w, padding=1).sin().sum())
    same(func.vmap(gradient, (None, 0))(w, x), one_by_one(gradient, (None, 0), w, x))
    hessian = func.vmap(func.hessian(lambda w, x: F.conv1d(x, w).sin().sum()), (None, 0))
    assert hessian(w, x).shape == (3, *w.shape, *w.shape)


@pytest.mark.parametrize("in_dims", DIMS)
@pytest.mark.parametrize(
    ("norm", "shape", "affine"),
    [
        (lambda x, w, b: F.layer_norm(x, (4,), w, b), (2, 4), (4,)),
        (lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 3), (4,)),
        (lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4), (4,)),
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (3, 4, 2), (4,)),
        (lambda x, w, b: F.rms_norm(x, (4,), w) + b, (2, 4), (4,)),
    ],
    ids=["layer", "group", "group of numbers", "batch", "rms"],
)
def test_norms_with_weights_of_their_own(norm: Any, shape: Any, affine: Any, in_dims: tuple[Any, ...]) -> None:
    agrees(norm, in_dims, *batch(in_dims, shape, affine, affine))


TABLE, ROWS = array(5, 2), whole(3, 2, 4, below=5)


@pytest.mark.parametrize(
    ("function", "in_dims", "given"),
    [
        (lambda t, i: F.embedding(i, t), (0, 0), (array(3, 5, 2), ROWS)),
        (lambda t, i: F.embedding(i, t), (0, None), (array(3, 5, 2), ROWS[0])),
        (lambda t, i: F.embedding(i, t), (None, 0), (TABLE, ROWS)),
        (lambda t, i: F.embedding(i, t, padding_idx=1), (None, 0), (TABLE, ROWS)),
        (lambda t, i: F.embedding(i, t, padding_idx=1), (0, 0), (array(3, 5, 2), ROWS)),
        (lambda t, i: F.embedding(i, t, scale_grad_by_freq=True), (None, 0), (TABLE, ROWS)),
        (lambda t, i: F.embedding_bag(i, t, mode="max"), (None, 0), (TABLE, ROWS)),
        (lambda t, i: F.embedding_bag(i, t, mode="mean"), (0, 0), (array(3, 5, 2), ROWS)),
        (lambda t, i: F.embedding_bag(i, t, mode="max"), (0, None), (array(3, 5, 2), ROWS[0])),
        (lambda t, i: F.embedding_bag(i, t, wg.tensor([0, 3]), mode="sum"), (None, 0), (TABLE, ROWS[:, 0])),
        (lambda t, i: F.embedding_bag(i, t, wg.tensor([0, 3]), padding_idx=1), (0, None), (array(3, 5, 2), ROWS[0, 0])),
    ],
)
def test_tables(function: Any, in_dims: Any, given: Any) -> None:
    agrees(function, in_dims, *given)


@pytest.mark.parametrize(
    ("function", "in_dims", "given"),
    [
        (lambda x, y: F.cross_entropy(x, y), (0, 0), (array(3, 4, 5), whole(3, 4, below=5))),
        (lambda x, y: F.cross_entropy(x, y), (0, 0), (array(3, 5), whole(3, below=5))),
        (lambda x, y: F.cross_entropy(x, y, ignore_index=1), (0, None), (array(3, 4, 5), whole(4, below=5))),
        (lambda x, y: F.nll_loss(x, y, reduction="none"), (None, 0), (array(4, 5), whole(3, 4, below=5))),
        (lambda x, y: F.multilabel_margin_loss(x, y), (0, 0), (array(3, 2, 4), whole(3, 2, 4, below=4))),
        (lambda x, y: F.ctc_loss(x, y, [6, 5], [2, 1]), (0, 0), (array(3, 6, 2, 4), whole(3, 2, 2, below=3) + 1)),
        (lambda x, y: F.ctc_loss(x, y, [6, 5], [2, 1]), (0, None), (array(3, 6, 2, 4), wg.tensor([1, 2, 3]))),
        (lambda x, n: F.ctc_loss(x, wg.tensor([[1, 2]]), n, [2]), (None, 0), (array(6, 1, 4), wg.tensor([[6], [4], [2]]))),
        (lambda x, m: wg.masked_scatter(x, m > 1, x.sin()), (0, 0), (array(3, 2, 4), whole(3, 2, 4, below=3))),
        (lambda x, i: wg.gather(x, 0, i), (0, 0), (array(3, 2, 4), whole(3, 5, 4, below=2))),
        (lambda x, i: x.scatter_add(1, i, x.sin()), (None, 0), (array(2, 4), whole(3, 2, 4, below=4))),
        (lambda x, i: x.take(i), (0, 0), (array(3, 2, 4), whole(3, 5, below=8))),
        (lambda x, i: wg.isin(i, i[0] + wg.arange(2)) * x, (None, 0), (array(4), whole(3, 4, below=4))),
    ],
)  # fmt: skip
def test_examples_with_indices_of_their_own(function: Any, in_dims: Any, given: Any) -> None:
    agrees(function, in_dims, *given)


def test_positions_of_a_fixed_number() -> None:
    x = whole(3, 2, 4, below=2)
    found = func.vmap(lambda x: wg.nonzero_static(x, size=6, fill_value=-1))(x)
    same(found, wg.stack([wg.nonzero_static(v, size=6, fill_value=-1) for v in x]))
    for got, v in zip(found, x, strict=True):
        count = min(int((v != 0).sum()), 6)
        np.testing.assert_array_equal(got.numpy()[:count], np.argwhere(v.numpy())[:count])
        assert (got.numpy()[count:] == -1).all()


def test_strided_views_of_examples() -> None:
    x = array(3, 2, 4)
    take = lambda x: x.as_strided((2, 3), (4, 1), 1)  # noqa: E731
    same(func.vmap(take)(x), x[:, :, 1:])
    same(func.vmap(lambda x: x[:, 1:].as_strided((2, 2), (4, 2)))(x), x[:, :, [1, 3]])
    same(func.jvp(take, (x[0],), (x[1],)), (x[0, :, 1:], x[1, :, 1:]))

    def written(x: Any) -> Any:
        y = x * 1.0
        y.as_strided((2,), (5,)).fill_(0.0)
        return y

    same(func.vmap(written)(x), x * (1 - wg.eye(2, 4, dtype=wg.float64)))


REFUSED = [
    ("the shape of its result", lambda x: wg.masked_select(x, x > 0), "masked_select"),
    ("the shape of its result", lambda x: wg.nonzero(x), "argwhere|nonzero"),
    ("counts", lambda x: x.repeat_interleave((x > 0).sum().long(), 0), "repeat_interleave"),
    ("classes", lambda x: F.one_hot((x > 0).long()), "one_hot"),
    ("bags", lambda x: F.embedding_bag(wg.tensor([0, 1]), TABLE, (x[:2] * 0).long()), "embedding_bag"),
    ("NumPy", lambda x: wg.from_numpy(np.asarray(x._payload)), "NumPy"),
]


@pytest.mark.parametrize(("function", "match"), [case[1:] for case in REFUSED], ids=[case[2] for case in REFUSED])
def test_what_depends_on_values_is_refused_by_name(function: Any, match: str) -> None:
    with pytest.raises(TransformError, match=match):
        func.vmap(function)(array(2, 3))


WRONG = [
    (RuntimeError, lambda x: wg.tril(x)),
    (RuntimeError, lambda x: F.pad(x, (1, 1, 1, 1))),
    (IndexError, lambda x: wg.unbind(x[0])),
    (IndexError, lambda x: wg.split_with_sizes(x[0], (1,))),
    (RuntimeError, lambda x: x.fill_(x)),
    (RuntimeError, lambda x: wg.masked_fill(x, x > 0, x)),
    (IndexError, lambda x: wg.gather(x, 0, (x > 0).long() + 3)),
    (IndexError, lambda x: F.embedding((x > 0).long() + 5, TABLE)),
    (RuntimeError, lambda x: x.as_strided((2, 3), (3, 1))),
    (RuntimeError, lambda x: wg.cat([x[0], x[1]])),
]


@pytest.mark.parametrize(("error", "function"), WRONG)
def test_what_is_wrong_for_one_example_is_wrong_for_a_batch(error: type[Exception], function: Any) -> None:
    with pytest.raises(error):
        function(array(3))
    with pytest.raises(error):
        func.vmap(function)(array(2, 3))


def test_running_statistics_are_shared_and_refuse_the_batch() -> None:
    mean, var, x = wg.zeros(4), wg.ones(4), array(3, 5, 4)
    with pytest.raises(TransformError, match="examples"):
        func.vmap(lambda x: F.batch_norm(x, mean, var, training=True))(x)
    same((mean, var), (wg.zeros(4), wg.ones(4)))
    func.jvp(lambda x: F.batch_norm(x, mean, var, training=True), (x[0],), (x[1],))
    np.testing.assert_allclose(mean.numpy(), 0.1 * x[0].numpy().mean(0), rtol=1e-6)
    own = wg.zeros(3, 4), wg.ones(3, 4)
    func.vmap(lambda x, m, v: F.batch_norm(x, m, v, training=True))(x, *own)
    np.testing.assert_allclose(own[0].numpy(), 0.1 * x.numpy().mean(1), rtol=1e-6)
    np.testing.assert_allclose(own[1].numpy(), 0.9 + 0.1 * x.numpy().var(1, ddof=1), rtol=1e-6)


def test_an_empty_batch() -> None:
    x = array(0, 2, 3)
    assert func.vmap(lambda x: wg.cat([x, x]).softmax(0))(x).shape == (0, 4, 3)
    assert func.vmap(lambda x: F.conv1d(x, array(4, 2, 2)))(x).shape == (0, 4, 2)
    assert func.vmap(lambda x: F.layer_norm(x, (3,)))(x).shape == (0, 2, 3)
