"""What a plain call refuses a compiled one refuses in the same words: when it is captured, or, for values, when it runs."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.compiling.promised import outcome
from wengert import tree
from wengert.compiling.capturing import capture
from wengert.compiling.function import Compiled
from wengert.core.registry import operators
from wengert.errors import CaptureError
from wengert.testing.samples import ErrorSample, samples_of

F = wg.nn.functional
NONSENSE = [
    None, "abc", b"x", [], {}, object(), 1j, 10**30, [[1], [2]], wg.ones(2, 2, 2, 2, 2, 2, 2),
    wg.ones(2, dtype=wg.complex64), wg.ones(2, dtype=wg.int64), wg.ones(3, dtype=wg.bool), wg.ones(2, dtype=wg.float16),
]  # fmt: skip
NAMES = [f"{v.dtype} of {tuple(v.shape)}" if isinstance(v, wg.Tensor) else repr(v) for v in NONSENSE]
PUBLIC = sorted(name for name, op in operators().items() if op.home)
GROUPS, EVERY = 8, 6


def in_a_program(call: Callable[[], Any]) -> Exception | None:
    """Return what a call raises while it is captured, or else when the program runs, with the line."""
    leaves, structure = tree.flatten(((), {}))
    found: list[Any] = []
    error = outcome(lambda: found.append(capture(call, leaves, structure)))
    if error is None:
        found[0].prepare("reference")
        error = outcome(lambda: found[0](leaves))
        assert error is None or __file__ in "".join(error.__notes__)
    return error


def calls(name: str) -> list[tuple[str, Callable[[], Any]]]:
    """Return calls of an operator with nonsense in place of one argument: some of them, always the same ones."""
    op = operators()[name]
    sample = next(s for s in samples_of(op) if not isinstance(s, ErrorSample))
    found = []
    for at in [*range(len(sample.args)), *sample.kwargs]:
        for number, value in enumerate(NONSENSE):
            if hashlib.blake2b(f"{name} {at} {number}".encode(), digest_size=1).digest()[0] % EVERY:
                continue

            def call(at: Any = at, value: Any = value) -> Any:
                args, kwargs = sample.arguments(lambda array: wg.from_numpy(array.copy()))
                (args if isinstance(at, int) else kwargs)[at] = value
                return op.function(*args, **kwargs)

            found.append((f"{name}, argument {at} = {NAMES[number]}", call))
    return found


@pytest.mark.parametrize("group", range(GROUPS))
def test_nonsense_is_refused_in_the_same_words(group: int) -> None:
    checked = 0
    for name in PUBLIC[group::GROUPS]:
        for what, call in calls(name):
            wanted, found = outcome(call), in_a_program(call)
            if not isinstance(found, CaptureError):
                assert (type(found), str(found)) == (type(wanted), str(wanted)), what
                checked += wanted is not None
    assert checked > 150


LATE = {
    "cross_entropy": lambda x, i: F.cross_entropy(x * 1, i),
    "nll_loss": lambda x, i: F.nll_loss(x * 1, i),
    "embedding": lambda x, i: F.embedding(i, (x * 1)[:4]),
    "index_select": lambda x, i: (x * 1).index_select(1, i - 2),
    "gather": lambda x, i: (x * 1).gather(1, i.unsqueeze(1)),
    "take": lambda x, i: (x * 1).take(i * 100),
    "scatter_add": lambda x, i: (x * 1).scatter_add(1, i.unsqueeze(1), x),
    "index_add": lambda x, i: (x * 1).index_add(1, i * 1, x[:, :1].expand(40, 40)),
    "one_hot": lambda x, i: F.one_hot(i, 4),
    "inv": lambda x, i: wg.linalg.inv(x.t() @ x * 0),
    "cholesky": lambda x, i: wg.linalg.cholesky(x.t() @ x * -1),
}


@pytest.mark.parametrize("name", LATE)
def test_what_kernels_refuse_names_the_line(name: str) -> None:
    x, i = wg.ones(40, 4), wg.tensor([1, 9] * 20)
    wanted = outcome(lambda: LATE[name](x, i))
    for _ in range(2):
        found = outcome(lambda: Compiled(LATE[name], fullgraph=True, backend="native")(x, i))
        assert wanted is not None
        assert (type(found), str(found)) == (type(wanted), str(wanted))
        assert f"{__file__}:" in found.__notes__[0]
        assert f'"{name}": lambda x, i' in found.__notes__[0]


def test_tensors_where_numbers_belong_are_named() -> None:
    x = wg.ones(1, 2, 4)
    for run in (lambda: F.unfold(x[..., None], wg.ones(2, 2)), lambda: wg.var(x, correction=wg.ones(2))):
        with pytest.raises(TypeError, match=r"argument '\w+' must (not be a tensor|be)|must be an int"):
            run()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: (x * 1).index_select(0, i * 1), lambda x, i: x.index_add(0, i * 1, x[:100]),
        lambda x, i: x.index_copy(0, i * 1, x[:100]), lambda x, i: x.index_fill(0, i * 1, 2.0),
        lambda x, i: wg.func.vmap(lambda a: a.index_select(0, i * 1))(x.t()),
        lambda x, i: F.gaussian_nll_loss(x, x * 2, x * 3), lambda x, i: wg.cov(x, aweights=x[0] * 2),
    ],
)  # fmt: skip
def test_checks_of_values_make_no_program_for_each(call: Callable[..., Any]) -> None:
    run = native(call)
    for k in range(3):
        x, i = wg.rand(100, 100), wg.tensor([k, 5 + k] * 50)
        np.testing.assert_allclose(run(x, i).numpy(), call(x, i).numpy(), rtol=1e-4, atol=1e-6)
    assert len(next(iter(run.programs.values()))) == 1


def native(function: Callable[..., Any]) -> Compiled:
    return Compiled(function, fullgraph=True, backend="native")


# ---- memory


def through_numpy(x: Any) -> Any:
    x.numpy()[0] = 5
    return x * 2


def into_a_constant(x: Any) -> Any:
    zeros = wg.zeros(3)
    total = zeros + x
    zeros.numpy()[0] = 5
    return total + zeros


def into_an_array(x: Any) -> Any:
    array = np.zeros(3)
    wg.from_numpy(array)[0] = 5
    return x * float(array[0])


@pytest.mark.parametrize("function", [through_numpy, into_a_constant, into_an_array])
def test_what_numpy_writes_is_noticed(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="writes into the array of a tensor"):
        native(function)(wg.arange(3.0))
    plain, x, y = wg.compile(function), wg.arange(3.0), wg.arange(3.0)
    with pytest.warns(RuntimeWarning, match="into the array of a tensor"):
        found = plain(x)
    assert found.tolist() == function(y).tolist()
    assert x.tolist() == y.tolist()


def test_checks_are_made_though_nothing_reads_them() -> None:
    matrices = wg.tensor(np.stack([np.eye(2), np.zeros((2, 2))]))
    for function in (lambda a: wg.linalg.lu_factor(a)[0], lambda a: wg.linalg.ldl_factor(a).LD):
        with pytest.raises(wg.linalg.LinAlgError, match="matrix 1 of the batch: it is singular"):
            native(function)(matrices)


def test_views_look_where_they_do() -> None:
    x = wg.arange(12.0).reshape(3, 4)
    with pytest.raises(RuntimeError, match=r"use reshape\(\)"):
        native(lambda x: x.t().view(12))(x)
    assert native(lambda x: (x * 2).t().view(4, 3) + 0)(x).tolist() == (x * 2).t().tolist()
    assert native(lambda x: x[1:, 2:].as_strided((2,), (3,)) + 0)(x).tolist() == [6, 9]
    assert native(lambda x: x * x[1:, 2:].storage_offset())(x).tolist() == (x * 6).tolist()


@pytest.mark.parametrize("dtype", [wg.float64, wg.float16])
def test_max_norm_changes_the_table(dtype: Any) -> None:
    def looked_up(index: Any, table: Any) -> Any:
        before = table * 1
        return F.embedding(index, table, max_norm=1.0), before

    tables = [wg.nn.Parameter(wg.tensor([[3.0, 4.0], [6.0, 8.0], [0.3, 0.4]], dtype=dtype)) for _ in range(2)]
    run = native(looked_up)
    for index in (wg.tensor([0, 2, 0]), wg.tensor([1, 2, 2]), wg.tensor([1, 2, 2])):
        for got, want in zip(run(index, tables[0]), looked_up(index, tables[1]), strict=True):
            np.testing.assert_allclose(got.tolist(), want.tolist(), rtol=1e-3 if dtype is wg.float16 else 1e-12)
        np.testing.assert_allclose(tables[0].tolist(), tables[1].tolist(), rtol=1e-3 if dtype is wg.float16 else 1e-12)


def test_a_sequence_of_tensors_may_be_a_tensor() -> None:
    x = wg.rand(3, 2, requires_grad=True)
    for join in (wg.cat, wg.stack):
        assert native(join)(x).tolist() == join(list(x)).tolist()
        (grad,) = wg.autograd.grad((join(x) * 2).sum(), x)
        assert grad.tolist() == [[2, 2]] * 3


class Kept:
    """Holds an annotation, which hands on the attributes of its class."""

    kind = list[int]


def test_generic_types_are_looked_at() -> None:
    kept, seen = Kept(), []

    def function(x: Any) -> Any:
        seen.append(kept.kind.__name__)
        return x * 2

    with pytest.raises(CaptureError, match="it changes 'seen'"):
        capture(lambda: function(wg.ones(2)), *tree.flatten(((), {})))
