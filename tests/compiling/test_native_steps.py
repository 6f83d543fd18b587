"""What compiled programs leave to Python: nothing, for the operators that training is made of, and with eager's values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.compiling.function import Compiled
from wengert.kernels import philox
from wengert.runtime.drawing import Stream
from wengert.runtime.segments import Native

F = wg.nn.functional


def compiled(function: Callable[..., Any]) -> Compiled:
    return Compiled(function, fullgraph=True, backend="native")


def program_of(function: Compiled) -> Any:
    return next(iter(function.programs.values()))[0]


def steps_of(function: Compiled) -> list[Any]:
    """Return what Python does between native calls."""
    return [s for s in program_of(function).plan.steps if not isinstance(s, Native)]


def kernels_of(function: Compiled, name: str) -> list[Any]:
    """Return the fused nodes of a kind in the optimised graph."""
    return [n for n in program_of(function).optimised.nodes if getattr(n.op, "kind", n.op.name) == name]


def numbers(seed: int, *shape: int, below: int | None = None) -> wg.Tensor:
    rng = np.random.default_rng(seed)
    if below is not None:
        return wg.tensor(rng.integers(0, below, shape))
    return wg.tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)


# ---- nothing is left to Python

CUT = (slice(None, None, 2), slice(1, 3))


def joined(a: Any, b: Any) -> Any:
    return wg.cat([a, b, a[:, :1]], 1), wg.stack([a, b], -1), wg.cat([a, a > 0], 0)


def padded(a: Any, b: Any) -> Any:
    return F.pad(a, (1, 2)), F.pad(a, (0, 0, 2, -1), value=1.5), F.pad(b, (-1, -1)), a[CUT] + b[CUT], a.t()[1] + 1


def turned(a: Any, b: Any) -> Any:
    return a.flip(0, 1), a.roll(2, 1), a.roll((1, -2), (0, 1)), b.roll(3), wg.diag_embed(b), a.tril(1) + b.triu()


def written(a: Any, b: Any) -> Any:
    c = a * 2
    c[1:, ::2] = b[1:, ::2]
    c[0].mul_(3)
    return c, c.cumsum(1), c.clone().t().contiguous()


def reduced(a: Any, b: Any) -> Any:
    deep = wg.stack([a, b]) * 2
    return (
        deep.mean((1, 2)), deep.mean((0, 2)), deep.sum((0, 1)), deep.mean(), a.amax(0), a.amin(), a.std(), b.var(0),
        b.norm(), a.norm(dim=1), a.sum(0, keepdim=True), deep[..., :1].sum(-1), (a > 0).count_nonzero(1), a.count_nonzero(),
        (a > 0).any(0), (a > -9).all(),
    )  # fmt: skip


def placed(a: Any, b: Any) -> Any:
    best = a.max(1)
    return best.values * 2, best.indices, b.argmax(), b.argmin(0), a.argmax(-1, keepdim=True)


def sorted_(a: Any, b: Any) -> Any:
    order = (b * 10).to(wg.int64)
    return (
        *a.sort(1),
        *b.topk(2, 0),
        a.argsort(0),
        *order.sort(0),
        *order.kthvalue(2, 1),
        a.cummax(1).values,
        a.cumsum(0),
    )


def looked_up(a: Any, b: Any, i: Any, j: Any) -> Any:
    table = a.index_add(0, i, b[: len(i)])
    return (
        F.embedding(j, a),
        a[i],
        a[:, i % 2],
        a.gather(1, j % 3),
        table.scatter_add(1, j % 3, b[:, :3]),
        a.detach().gather(1, j[:4] % 3),
        b.detach().take(j),
    )


def attended(a: Any, b: Any) -> Any:
    scores = (a @ b.t()).masked_fill(wg.triu(wg.ones(6, 6, dtype=wg.bool), 1), -1e9)
    return scores.softmax(-1) @ b, wg.tril(a @ b.t())


def cut(a: Any, b: Any) -> Any:
    """Reductions with few results, which are made of parts."""
    return (
        a.sum(),
        a.mean(),
        b.mean(1),
        b.sum(1),
        a.amax(),
        a.var(),
        a.norm(),
        (a > 0).any(),
        (b > 0).count_nonzero(),
        b.argmax(),
    )


def divided(x: Any) -> Any:
    averages, maxima = F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, (2, 3))
    return averages, maxima, F.adaptive_avg_pool2d(x * 2, (2, 2))


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    f.__name__: (f, lambda k: (numbers(k, 6, 5), numbers(k + 1, 6, 5)))
    for f in (joined, padded, turned, written, reduced, placed, sorted_, attended)
}
PROGRAMS["looked_up"] = (
    looked_up,
    lambda k: (numbers(k, 6, 5), numbers(k + 1, 6, 5), numbers(k, 4, below=6), numbers(k, 6, 3, below=6)),
)
PROGRAMS["cut"] = (cut, lambda k: (numbers(k, 70_000), numbers(k + 1, 3, 40_000)))
PROGRAMS["divided"] = (divided, lambda k: (numbers(k, 2, 3, 4, 6),))
SQUARE = {"turned"}  # needs matrices that are square


def differentiated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the gradients of its differentiable results in what is differentiable."""

    def run(*given: Any) -> Any:
        results = function(*given)
        grown = [r for r in results if r.requires_grad]
        inputs = [x for x in given if x.requires_grad]
        grads = wg.autograd.grad([(r * r).sum() for r in grown], inputs, allow_unused=True, materialize_grads=True)
        return *[r.detach() for r in results], *grads

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_left_to_python(name: str) -> None:
    function, given = PROGRAMS[name]
    run = differentiated(function)
    program = compiled(run)
    for k in range(2):
        arguments = [a[:5, :5].detach().requires_grad_() if name in SQUARE else a for a in given(10 * k)]
        expected, found = run(*arguments), program(*arguments)
        for e, f in zip(expected, found, strict=True):
            assert e.dtype is f.dtype
            np.testing.assert_allclose(f.numpy(), e.numpy(), rtol=2e-5, atol=2e-5)
        program_of(program).scramble()
    assert not [(getattr(s, "why", s), getattr(s, "node", s)) for s in steps_of(program)]


class Pictures(wg.nn.Module):
    """Convolutions, pooling, and normalisation of pictures, then classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = wg.nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = wg.nn.BatchNorm2d(4)
        self.out = wg.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        hidden = F.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        return self.out(F.avg_pool2d(hidden, 2).mean((2, 3)))


class Words(wg.nn.Module):
    """Words that a cell reads one after the other; its weights are used again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.into, self.again = wg.nn.Embedding(7, 4), wg.nn.Linear(4, 16), wg.nn.Linear(4, 16, bias=False)
        self.out = wg.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        hidden = state = wg.zeros(x.shape[0], 4)
        for word in self.words(x).unbind(1):
            a, b, c, d = (self.into(word) + self.again(hidden)).chunk(4, 1)
            state = a.sigmoid() * state + b.sigmoid() * c.tanh()
            hidden = d.sigmoid() * state.tanh()
        return self.out(hidden)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    "pictures": (Pictures, lambda k: numbers(k, 6, 1, 8, 8).detach()),
    "words": (Words, lambda k: numbers(k, 6, 5, below=7)),
}


def training(build: Callable[[], Any], compile_: bool) -> tuple[Any, Any]:
    wg.manual_seed(1)
    model = build()
    optimizer = wg.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        wg.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, compiled(step) if compile_ else step


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_native(name: str) -> None:
    build, given = MODELS[name]
    (model, step), (same, eager) = training(build, True), training(build, False)
    for k in range(3):
        x, y = given(k), numbers(k + 7, 6, below=3)
        assert float(step(x, y)) == pytest.approx(float(eager(x, y)), rel=1e-4)
    assert not [(getattr(s, "why", s), getattr(s, "node", s)) for s in steps_of(step)]
    for p, q in zip(model.parameters(), same.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_gradients_of_a_matrix_that_is_used_again_add_up_in_the_products() -> None:
    weight, x = numbers(0, 5, 4), numbers(1, 3, 4)

    def run(w: Any, x: Any) -> Any:
        for _ in range(6):
            x = (x @ w.t()).tanh()[:, :4]
        return wg.autograd.grad(x.sum(), [w])[0]

    program = compiled(run)
    np.testing.assert_allclose(program(weight, x).numpy(), run(weight, x).numpy(), rtol=1e-5, atol=1e-6)
    added = [n for n in program_of(program).optimised.nodes if n.op.name == "product(rows_product, add)"]
    assert len(added) == 5


# ---- positions


def wrong_rows(k: Any, table: Any) -> Any:
    return F.embedding(k, table)


def wrong_places(k: Any, table: Any) -> Any:
    return table[k]


def wrong_columns(k: Any, table: Any) -> Any:
    return table.gather(1, k[:, None])


def wrong_sums(k: Any, table: Any) -> Any:
    return table.index_add(0, k, table[: len(k)])


def wrong_writes(k: Any, table: Any) -> Any:
    return table.scatter(1, k[:, None], 1.0)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("function", [wrong_rows, wrong_places, wrong_columns, wrong_sums, wrong_writes])
def test_positions_are_checked_at_each_call_before_anything_is_written(function: Any, count: int) -> None:
    table, total = wg.arange(1.0, 17.0).reshape(4, 4), wg.zeros(())

    def run(k: Any) -> Any:
        found = function(k, table)
        total.add_(found.sum())
        return found

    program = compiled(run)
    fine = wg.zeros(count, dtype=wg.int64)
    program(fine)
    before = float(total)
    for wrong in (4, 99, -5):
        bad = fine.clone()
        bad[-1] = wrong
        with pytest.raises(IndexError) as expected:
            function(bad, table)
        with pytest.raises(IndexError, match="out of bounds") as found:
            program(bad)
        message = f"index {wrong} is out of bounds for dimension 0 with size 4"
        assert all(
            message.replace("dimension 0", "dimension")
            in str(e.value).replace("dimension 0", "dimension").replace("dimension 1", "dimension")
            for e in (expected, found)
        )
        assert float(total) == before
    np.testing.assert_array_equal(program(fine).numpy(), function(fine, table).numpy())
    assert float(total) > before


def test_a_check_holds_for_later_readers_of_the_same_positions_only() -> None:
    def run(k: Any, table: Any) -> Any:
        return F.embedding(k, table), F.embedding(k, table[:2])

    program = compiled(run)
    table = wg.arange(12.0).reshape(4, 3)
    program(wg.tensor([0, 1]), table)
    with pytest.raises(IndexError, match="index 2 is out of bounds"):
        program(wg.tensor([0, 2]), table)


# ---- random numbers


def dropped(x: Any) -> Any:
    return F.dropout(x, 0.3), F.dropout(x[:3, :3], 0.5), F.dropout(x, 1.0)  # the second is no whole number of blocks


def uniform(x: Any) -> Any:
    return (
        x[:7, :3] + wg.rand(7, 3),
        wg.rand(3, dtype=wg.float64),
        wg.rand(5, dtype=wg.float16),
        wg.empty(5).uniform_(-2, 3),
    )


def truths(x: Any) -> Any:
    return (
        wg.empty(5, 5).bernoulli_(0.3),
        wg.empty(3, dtype=wg.bool).bernoulli_(0.5),
        F.dropout2d(x[None, :, :, None], 0.2),
    )


@pytest.mark.parametrize("start", [0, (1 << 33) + 3])
@pytest.mark.parametrize("function", [dropped, uniform, truths])
def test_numbers_drawn_natively_are_those_of_eager(function: Any, start: int) -> None:
    x, program = numbers(0, 9, 11).detach(), compiled(function)
    program(x)
    generator = wg.default_generator
    runs = []
    for run in (function, program):
        generator.set_state(wg.tensor(np.array([5, start], np.uint64)))
        runs.append([[r.numpy() for r in run(x)] for _ in range(2)] + [generator.get_state().tolist()])
    np.testing.assert_equal(runs[1], runs[0])
    assert [type(s) for s in steps_of(program)] == [Stream]


def test_a_number_just_at_a_probability_is_drawn_to_the_last_bit() -> None:
    word = int(philox.words(0, 0, 1)[0])
    more = int(philox.element_bits(0, np.zeros(1, np.uint64), 0)[0, 0]) >> 11
    program = {}
    for rest in (more * 2.0**-53 - 2.0**-20, more * 2.0**-53 + 2.0**-20):
        p = (word + rest) * 2.0**-32

        def run(p: float = p) -> Any:
            return wg.empty(4).bernoulli_(p)

        found = []
        for draw in (run, compiled(run)):
            draw()
            wg.manual_seed(0)
            found.append(draw().tolist())
        assert found[0] == found[1]
        program[rest] = found[1][0]
    assert sorted(program.values()) == [0.0, 1.0]


def test_draws_in_python_keep_their_place_among_native_ones() -> None:
    def run(x: Any) -> Any:
        return F.dropout(x), wg.randn(3), F.dropout(x), F.dropout(x)

    x, program = wg.ones(6), compiled(run)
    program(x)
    found = []
    for draw in (run, program):
        wg.manual_seed(4)
        found.append([r.tolist() for r in draw(x)])
    assert found[0] == found[1]
    assert sum(isinstance(s, Stream) for s in steps_of(program)) == 2


def test_a_stream_that_ends_says_so() -> None:
    program = compiled(lambda x: F.dropout(x))
    x = wg.ones(8)
    program(x)
    state = wg.default_generator.get_state()
    try:
        wg.default_generator.set_state(wg.tensor(np.array([0, 2**64 - 4], np.uint64)))
        with pytest.raises(ValueError, match="the stream of a key ends"):
            program(x)
    finally:
        wg.default_generator.set_state(state)


# ---- kernels


def test_one_matrix_times_many_vectors_is_one_product() -> None:
    matrix, vectors = numbers(0, 5, 4).detach(), numbers(1, 3, 6, 4, 1).detach()
    program = compiled(lambda m, v: m @ v)
    np.testing.assert_allclose(program(matrix, vectors).numpy(), matrix.numpy() @ vectors.numpy(), rtol=1e-5, atol=1e-6)
    assert len(program_of(program).plan.tasks) == 1


@pytest.mark.parametrize("dtype", [wg.complex64, wg.complex128, wg.float16, wg.bfloat16, wg.bool, wg.int8])
def test_elements_of_any_dtype_are_moved(dtype: Any) -> None:
    def run(a: Any, b: Any) -> Any:
        return (
            wg.cat([a, b.t()]),
            wg.stack([a, b]),
            F.pad(a, (1, 1)),
            a.flip(0),
            b.roll(1, 0),
            a.t().contiguous(),
            b[1, 1].clone(),
        )

    a, b = (wg.tensor(np.arange(k, k + 9).reshape(3, 3) % 3).to(dtype) for k in (0, 1))
    program = compiled(run)
    for expected, found in zip(run(a, b), program(a, b), strict=True):
        assert found.dtype is dtype
        assert found.tolist() == expected.tolist()
    assert not steps_of(program)


def test_a_sum_of_many_arrays_is_several_kernels_of_few() -> None:
    program = compiled(lambda *xs: sum(xs[1:], xs[0]))
    given = [numbers(k, 40, 50).detach() for k in range(30)]
    expected = np.sum([x.numpy() for x in given], 0)
    np.testing.assert_allclose(program(*given).numpy(), expected, rtol=1e-4, atol=1e-4)
    found = kernels_of(program, "pointwise")
    assert len(found) == 3
    assert max(len(n.inputs) for n in found) <= 13


def test_numbers_that_are_spread_do_not_divide_a_kernel() -> None:
    def prices(s: Any) -> Any:
        def first(s: Any) -> Any:
            return wg.func.grad(lambda s: (s.exp() * s.sin()).sum())(s).sum()

        return wg.func.grad(first)(s)

    program, x = compiled(prices), numbers(0, 300).detach()
    np.testing.assert_allclose(program(x).numpy(), prices(x).numpy(), rtol=1e-5, atol=1e-5)
    assert len(program_of(program).optimised.nodes) == 1


def test_factors_of_batched_products_may_lie_elsewhere_at_each_call() -> None:
    program = compiled(lambda a, b: (a @ b, (a * 2) @ b))
    held = []
    for k in range(3):
        a, b = numbers(k, 4, 100, 120).detach(), numbers(k + 9, 4, 120, 90).detach()
        first, second = program(a, b)
        expected = a.numpy().astype(np.float64) @ b.numpy()
        np.testing.assert_allclose(first.numpy(), expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(second.numpy(), 2 * expected, rtol=1e-3, atol=1e-3)
        held += [a, b, first, second]


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_halves_is_cast_at_each_call(dtype: Any, masked: bool) -> None:
    mask = numbers(9, 8, 8).to(dtype) if masked else None

    def run(*given: Any) -> Any:
        q, k, v = (x.to(dtype).detach().requires_grad_() for x in given)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked)
        return out.detach(), *wg.autograd.grad(out.float().square().sum(), (q, k, v))

    program = compiled(run)
    for k in range(2):
        given = [numbers(10 * k + i, 2, 3, 8, 16) for i in range(3)]
        for e, f in zip(run(*given), program(*given), strict=True):
            assert e.dtype is f.dtype
            np.testing.assert_allclose(f.float().numpy(), e.float().numpy(), rtol=2e-2, atol=2e-2)
        program_of(program).scramble()
    assert not [(getattr(s, "why", s), getattr(s, "node", s)) for s in steps_of(program)]
