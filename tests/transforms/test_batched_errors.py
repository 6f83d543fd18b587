"""Errors under vmap: what one example refuses, a batch refuses too, with the same class of error and the operator's name."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.core.registry import operators
from wengert.errors import MissingRuleError, TransformError
from wengert.nn import functional as F
from wengert.testing.case import Case
from wengert.testing.samples import ErrorSample, samples_of

X = wg.from_numpy(np.random.default_rng(2).standard_normal((4, 3)))
ONES = wg.ones(2, dtype=wg.float64)


def tensor(values: Any, dtype: Any = np.float64) -> Any:
    """Return a tensor of NumPy dtype."""
    return wg.from_numpy(np.array(values, dtype))


INDEXED = {
    "index_select": lambda x, i: wg.index_select(x, 0, i),
    "index_fill": lambda x, i: wg.index_fill(x, -2, i, 2.0),
    "index_fill_": lambda x, i: (x * 1).index_fill_(0, i, 2.0),
    "index_add": lambda x, i: wg.index_add(x, 0, i, x[:2]),
    "index_copy": lambda x, i: wg.index_copy(x, 0, i, x[:2]),
    "index_reduce": lambda x, i: wg.index_reduce(x, 0, i, x[:2], "prod"),
    "gather": lambda x, i: wg.gather(x, 0, i[:, None]),
    "scatter": lambda x, i: wg.scatter(x, 0, i[:, None], 1.0),
    "scatter_add": lambda x, i: wg.scatter_add(x, 0, i[:, None], x[:2]),
    "scatter_reduce": lambda x, i: wg.scatter_reduce(x, 0, i[:, None], x[:2], "amax"),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "one_hot": lambda x, i: F.one_hot(i, 4),
    "class_index": lambda x, i: F.nll_loss(wg.cat([x, x[:, :1]], 1)[:2], i),
}
SIGNED = {  # negative indices count from the end
    "take": lambda x, i: wg.take(x[:, 0], i),
    "put": lambda x, i: wg.put(x[:, 0], i, x[0, :2]),
    "index": lambda x, i: x[i],
    "index_write": lambda x, i: wg.index_put(x, [i], x[0]),
}


BOUNDS = [(name, mask) for name in (*INDEXED, *SIGNED) for mask in ((0, 0), (None, 0), (0, None))
          if (name, mask) != ("index_fill_", (None, 0))]  # fmt: skip  # a tensor that all examples share takes none of them


@pytest.mark.parametrize(("name", "mask"), BOUNDS)
def test_indices_out_of_bounds(name: str, mask: tuple[Any, ...]) -> None:
    function = INDEXED.get(name) or SIGNED[name]
    x = X if mask[0] is None else wg.stack([X, X])
    for wrong in (4, 90, -90, *([-1] if name in INDEXED else [])):
        with pytest.raises((IndexError, RuntimeError, ValueError)) as alone:
            function(X, tensor([0, wrong], np.int64))
        indices = tensor([[0, 1], [0, wrong]] if mask[1] == 0 else [0, wrong], np.int64)
        for run in (function, func.grad(lambda x, i: function(x, i).sum() + x.sum())):
            with pytest.raises(type(alone.value), match=r"out of (bounds|range)|[Cc]lass|negative") as batched:
                func.vmap(run, mask)(x, indices)
            assert name.startswith("index") or "index_" not in str(batched.value).split("(")[0]


MATRIX = tensor([[2.0, 0.0], [0.0, 2.0]])
VALUES = [
    (lambda p: wg.bernoulli(p), [0.5, 0.2], [0.5, 1.5]),
    (lambda q: wg.quantile(wg.arange(4.0, dtype=wg.float64), q), [0.5, 0.2], [0.5, 1.5]),
    (lambda b: wg.histogram(wg.arange(4.0, dtype=wg.float64), b)[0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]),
    (lambda x: wg.histc(x, 3), [0.0, 1.0, 2.0], [0.0, np.inf, 1.0]),
    (lambda w: wg.cov(wg.arange(3.0), aweights=w), [1.0, 2.0, 1.0], [1.0, -2.0, 1.0]),
    (lambda v: F.gaussian_nll_loss(ONES, ONES, v), [0.5, 0.2], [0.5, -1.0]),
    (
        lambda w: wg.istft(wg.ones(3, 4, dtype=wg.complex128), 4, 2, window=w, center=False),
        [0.3, 1, 1, 0.3],
        [0, 0, 0, 0.0],
    ),
    (lambda m: wg.masked_scatter(wg.zeros(3), m > 0, wg.ones(2)), [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]),
    (lambda m: wg.masked.median(wg.arange(3), 0, mask=m > 0), [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]),
    (lambda v: wg.zeros(2, dtype=wg.int8).masked_fill(wg.tensor([True, False]), v), 1.0, 1000.0),
    (lambda v: wg.zeros(2, dtype=wg.int32).masked_fill(wg.tensor([True, False]), v), 1.0, np.inf),
    (wg.linalg.cholesky, [[2.0, 0.0], [0.0, 2.0]], [[-1.0, 0.0], [0.0, 1.0]]),
    (lambda n: F.ctc_loss(wg.zeros(4, 1, 3), wg.tensor([[1, 2]]), n.long(), wg.tensor([2])), [4.0], [5.0]),
    (lambda n: F.ctc_loss(wg.zeros(4, 1, 3), wg.tensor([[1, 2]]), wg.tensor([4]), n.long()), [2.0], [3.0]),
    (lambda t: F.ctc_loss(wg.zeros(4, 1, 3), t.long(), wg.tensor([4]), wg.tensor([2])), [[1.0, 2.0]], [[1.0, 7.0]]),
]


@pytest.mark.parametrize(("function", "good", "bad"), VALUES)
def test_a_value_that_one_of_the_examples_must_not_have(function: Any, good: Any, bad: Any) -> None:
    with pytest.raises((ValueError, RuntimeError, IndexError)) as alone:
        function(tensor(bad))
    batched = func.vmap(function, randomness="different")
    batched(tensor([good, good]))
    nested = func.vmap(batched, randomness="different")
    for run, x in ((batched, tensor([good, bad])), (nested, tensor([[good, good], [good, bad]]))):
        with pytest.raises(type(alone.value)) as error:
            run(x)
        assert str(error.value)[:12] == str(alone.value)[:12]


def several_zeros(x: Any) -> Any:
    """Return a product of two zeros among others, whose second derivative is not known."""
    return x.sum() * wg.scatter_reduce(wg.ones(1), 0, wg.tensor([0, 0, 0]), x * 1, "prod").sum()


def test_second_derivatives_that_are_not_known() -> None:
    gradient = func.grad(lambda x: func.grad(several_zeros)(x).sum())
    with pytest.raises(RuntimeError, match="several zeros"):
        gradient(wg.tensor([0.0, 0.0, 2.0]))
    with pytest.raises(RuntimeError, match="several zeros"):
        func.vmap(gradient)(wg.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 2.0]]))


def test_third_derivatives_of_ctc_loss_are_refused() -> None:
    x = wg.from_numpy(np.random.default_rng(0).standard_normal((5, 1, 4)))
    loss = lambda x: F.ctc_loss(x.log_softmax(-1), wg.tensor([[1, 2]]), [5], [2])  # noqa: E731
    second = lambda x: func.jvp(func.grad(loss), (x,), (x.cos(),))[1]  # noqa: E731
    for third in (lambda: func.jvp(second, (x,), (x,)), lambda: func.grad(lambda x: second(x).sum())(x)):
        with pytest.raises(MissingRuleError, match="ctc_loss"):
            third()


MIXED = [
    (lambda x, w, b: F.linear(x, w, b), (2, 3), (4, 3), (4,)),
    (lambda x, w, b: wg.addmm(b, x, w), (2, 3), (3, 4), (4,)),
    (lambda x, w, b: F.conv1d(x, w, b), (1, 2, 5), (3, 2, 2), (3,)),
    (lambda x, w, b: F.conv2d(x, w, b), (1, 2, 3, 3), (3, 2, 2, 2), (3,)),
    (lambda x, w, b: wg.matmul(x, w) + b, (2, 3), (3, 4), (4,)),
]


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize(("function", "shapes"), [(case[0], case[1:]) for case in MIXED])
def test_dtypes_that_one_example_refuses(function: Any, shapes: Any, wrong: int) -> None:
    given = [wg.ones(s, dtype=wg.float32 if i == wrong else wg.float64) for i, s in enumerate(shapes)]
    try:
        function(*given)
    except TypeError as error:
        with pytest.raises(type(error), match="same dtype"):
            func.vmap(function)(*[wg.stack([t, t]) for t in given])
    else:
        func.vmap(function)(*[wg.stack([t, t]) for t in given])


def test_a_bias_is_not_broadcast() -> None:
    x, w = wg.ones(2, 1, 2, 5), wg.ones(2, 3, 2, 2)
    with pytest.raises(RuntimeError, match="bias must have shape"):
        func.vmap(F.conv1d)(x, w, wg.ones(2, 1))
    with pytest.raises(RuntimeError, match="bias"):
        func.vmap(F.linear)(wg.ones(2, 3), wg.ones(2, 4, 3), wg.ones(2, 5, 4))
    with pytest.raises(RuntimeError, match="put"):
        func.vmap(lambda s: wg.put(wg.ones(3), wg.tensor([0, 1]), s))(wg.ones(2, 1))
    for beta in (0.5, 1.5):
        with pytest.raises(TypeError, match=r"addmm.*must be ints"):
            func.vmap(lambda x, b=beta: wg.addmm(x, x, x, beta=b))(wg.ones(2, 2, 2, dtype=wg.int64))


REFUSED: dict[str, list[Any]] = {name: [s for s in samples_of(op) if isinstance(s, ErrorSample)]
           for name, op in operators().items() if op.name == name}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, found in REFUSED.items() if found])
def test_what_an_operator_refuses(name: str) -> None:
    op = operators()[name]
    for case in (Case(op, s) for s in REFUSED[name]):
        if not case.arrays:
            continue
        given = [wg.from_numpy(a) for a in case.arrays]
        with pytest.raises(Exception) as alone:  # opcheck checks its class
            case.run(*given)
        twice = [wg.stack([t, t]) for t in given]
        masks = [
            (0,) * len(given),
            *([tuple(0 if i == k else None for i in range(len(given))) for k in range(len(given))]),
        ]
        for mask in masks:
            run = func.vmap(case.run, mask, randomness="same")
            mixed = [t if m is None else pair for t, pair, m in zip(given, twice, mask, strict=True)]
            classes = (type(alone.value), case.sample.error, *((TransformError,) if op.batch == "refuse" else ()))
            with pytest.raises(classes):
                run(*mixed)
        with pytest.raises(classes):
            func.vmap(func.vmap(case.run, randomness="same"), randomness="same")(*[wg.stack([t, t]) for t in twice])


SHAPES = [
    (lambda x: wg.linalg.svd(x).S, (2,)), (lambda x: wg.linalg.qr(x).R, (2,)), (lambda x: wg.geqrf(x)[0], (2,)),
    (lambda x: wg.view_as_complex(x), ()), (lambda x: x.expand(2, -1), ()), (lambda x: wg.matmul(X, x), ()),
    (lambda x: wg.matmul(x, X), ()), (lambda x: F.grid_sample(x, wg.zeros(1, 1, 1, 2)), ()),
    (lambda x: wg.scatter_add(X, 0, wg.tensor([[0, 1], [1, 1]]), x), ()),
    (lambda x: wg.lu_unpack(wg.eye(2), x.int())[0], ()),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shape"), SHAPES)
def test_the_batch_is_no_dimension_of_an_example(function: Any, shape: tuple[int, ...]) -> None:
    x = wg.ones(shape, dtype=wg.float64)
    with pytest.raises((RuntimeError, ValueError, IndexError)) as alone:
        function(x)
    with pytest.raises(type(alone.value)):
        func.vmap(function)(wg.stack([x, x]))
    with pytest.raises(type(alone.value)):
        func.vmap(func.vmap(function))(wg.ones(2, 2, *shape, dtype=wg.float64))


ACCEPTED = [
    (lambda x: wg.gather(x, 0, wg.tensor([0, 0])), ()), (lambda x: wg.gather(x, 0, wg.tensor(1)), (3,)),
    (lambda x: wg.gather(x, 0, (x > 9).long().expand(2)), ()), (lambda x: wg.roll(x, (1, 2), (0, -1)), ()),
    (lambda x: wg.scatter_add(x, 0, wg.tensor(1), x[0]), (3,)), (lambda x: wg.scatter(x, 0, wg.tensor([0]), 2.0), ()),
    (lambda x: wg.nextafter(x, 2.0), ()), (lambda x: wg.nextafter(x, 2.0), (3,)),
    (lambda x: wg.masked.median(x.long(), 0, mask=x < 2), (3,)), (lambda x: x.to(wg.uint8).sum_to_size(1), (3,)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "shape"), ACCEPTED)
def test_what_one_example_accepts(function: Any, shape: tuple[int, ...]) -> None:
    x = wg.from_numpy(np.random.default_rng(3).uniform(0, 2, (2, *shape)))
    got = func.vmap(function)(x)
    want = wg.stack([function(v) for v in x])
    assert got.dtype is want.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_sums_of_integers_are_int64() -> None:
    for dtype in (wg.uint8, wg.int32, wg.bool):
        assert wg.ones(2, 3, dtype=dtype).sum_to_size(1, 3).dtype is wg.int64
        assert wg.ones(2, 3, dtype=dtype).sum_to_size(3).tolist() == [2, 2, 2]
