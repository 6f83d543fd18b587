"""Training steps with sparse gradients as one program: they do what the same steps do with dense gradients, row by row."""

import numpy as np
import pytest

import wengert as wg
from wengert.errors import GraphError, TransformError
from wengert.runtime import table_rows
from wengert.runtime.lowering import Step

RNG = np.random.default_rng(8)
SMALL = RNG.normal(size=(6, 3)), [np.array([1, 4, 1]), np.array([0, 1, 5]), np.array([5, 5, 5]), np.array([4, 2, 4])]
LARGE = RNG.normal(size=(300, 40)), [RNG.integers(0, 300, 900) for _ in range(3)]

STEPS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "maximize": True}), ("Adagrad", {"lr": 0.1}), ("Adagrad", {"maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3}), ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"betas": (0.5, 0.9), "eps": 1e-3, "maximize": True}),
]  # fmt: skip


def table_of(values, dtype=wg.float64):
    layer = wg.nn.Embedding(*values.shape, sparse=True, dtype=dtype)
    with wg.no_grad():
        layer.weight.copy_(wg.tensor(values))
    return layer


def stepping(layer, optimizer, **options):
    """Return a compiled step, which takes an index."""

    @wg.compile(fullgraph=True, **options)
    def step(index):
        optimizer.zero_grad()
        loss = layer(index).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def program_of(step):
    ((program,),) = step.programs.values()
    return program


def dense(rows, index, shape):
    """Return the sum of rows at their places."""
    found = np.zeros(shape)
    np.add.at(found, index, rows)
    return found


def by_hand(name, options, table, batches):
    """Return the losses and the table after steps, by the formulas of the optimisers' documentation, in NumPy."""
    table, sign = table.copy(), -1.0 if options.get("maximize") else 1.0
    m, v, losses = np.zeros_like(table), np.full_like(table, options.get("initial_accumulator_value", 0.0)), []
    for t, index in enumerate(batches, 1):
        losses.append(np.square(table[index]).sum())
        rows, g = np.unique(index), sign * dense(2 * table[index], index, table.shape)
        g = g[rows]
        if name == "SGD":
            table[rows] -= options["lr"] * g
        elif name == "Adagrad":
            v[rows] += g * g
            rate = options.get("lr", 1e-2) / (1 + (t - 1) * options.get("lr_decay", 0.0))
            table[rows] -= rate * g / (np.sqrt(v[rows]) + options.get("eps", 1e-10))
        else:
            (one, two), eps = options.get("betas", (0.9, 0.999)), options.get("eps", 1e-8)
            m[rows] = one * m[rows] + (1 - one) * g
            v[rows] = two * v[rows] + (1 - two) * g * g
            rate = options.get("lr", 1e-3) * np.sqrt(1 - two**t) / (1 - one**t)
            table[rows] -= rate * m[rows] / (np.sqrt(v[rows]) + eps)
    return losses, table


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize(("name", "options"), STEPS, ids=str)
def test_steps_are_those_of_the_formulas(name, options, size, dtype, backend):
    table, batches = SMALL if size == "small" else LARGE
    layer = table_of(table, getattr(wg, dtype))
    optimizer = getattr(wg.optim, name)(layer.parameters(), **options)
    step = stepping(layer, optimizer, backend=backend)
    losses = [step(wg.tensor(index)).item() for index in batches]
    want, after = by_hand(name, options, table, batches)
    rtol = {"float64": 1e-11, "float32": 1e-4, "bfloat16": 0.1}[dtype]
    np.testing.assert_allclose(losses, want, rtol=rtol)
    np.testing.assert_allclose(layer.weight.detach().double().numpy(), after, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("index_dtype", [wg.int64, wg.int32, wg.int16])
def test_what_is_left_in_grad(index_dtype):
    table, (index, *_) = SMALL
    layer = table_of(table)
    step = stepping(layer, wg.optim.SGD(layer.parameters(), lr=0.0))
    given = wg.tensor(index, dtype=index_dtype).reshape(1, 3)
    for _ in range(3):
        step(given)
    grad = layer.weight.grad
    given.zero_()  # the gradient has an index of its own
    assert grad.layout is wg.sparse_coo
    assert tuple(grad.shape) == table.shape
    assert not grad.is_coalesced()
    np.testing.assert_array_equal(grad._indices().numpy(), index[np.newaxis])
    np.testing.assert_allclose(grad._values().numpy(), 2 * table[index], rtol=1e-13)
    np.testing.assert_allclose(grad.to_dense().numpy(), dense(2 * table[index], index, table.shape), rtol=1e-13)


def test_each_call_leaves_another_gradient():
    layer = table_of(SMALL[0])
    step = stepping(layer, wg.optim.SGD(layer.parameters(), lr=0.0))
    kept = []
    for index in SMALL[1] * 2:
        step(wg.tensor(index))
        kept.append((index, layer.weight.grad))
    for index, grad in kept:
        np.testing.assert_array_equal(grad._indices().numpy()[0], index)
        np.testing.assert_allclose(grad._values().numpy(), 2 * SMALL[0][index], rtol=1e-13)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_table_that_is_looked_up_twice(name, size):
    table, (one, two, *_) = SMALL if size == "small" else LARGE
    found = []
    for compiled in (True, False):
        layer = table_of(table)
        optimizer = getattr(wg.optim, name)(layer.parameters(), lr=0.1)

        def step(a, b, layer=layer, optimizer=optimizer):
            optimizer.zero_grad()
            loss = layer(a).square().sum() + (3 * layer(b)).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = wg.compile(step, fullgraph=True) if compiled else step
        losses = [run(wg.tensor(one), wg.tensor(two)).item() for _ in range(3)]
        found.append((losses, layer.weight.detach().numpy(), layer.weight.grad.to_dense().numpy()))
    rows = dense(2 * table[one], one, table.shape) + dense(np.full_like(table[two], 3.0), two, table.shape)
    if name == "SGD":
        after = table - 0.1 * rows
        np.testing.assert_allclose(found[0][0][1], np.square(after[one]).sum() + 3 * after[two].sum())
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_no_other_table_is_made(name):
    """Native code writes rows where they lie, and nothing as large as the table is computed or copied."""
    layer = table_of(np.zeros((4000, 40)), wg.float32)
    optimizer = getattr(wg.optim, name)(layer.parameters(), lr=0.1)
    step = stepping(layer, optimizer)
    for index in LARGE[1]:
        step(wg.tensor(index))
    program = program_of(step)
    assert program.plan.in_place == [True] * len(program.plan.in_place)
    assert not any(isinstance(task, Step) for task in program.plan.tasks)
    changed = {value for _, value in program.optimised.writes}
    made = [v for node in program.optimised.nodes for v in node.results if v not in changed]
    assert max(v.nbytes for v in made) < layer.weight.nbytes / 4


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
@pytest.mark.parametrize("wrong", [-1, 300, 2**40])
def test_a_row_outside_of_the_table_is_refused_and_nothing_written(name, wrong):
    layer = table_of(LARGE[0])
    optimizer = getattr(wg.optim, name)(layer.parameters(), lr=0.1)
    step = stepping(layer, optimizer)
    index = LARGE[1][0].copy()
    step(wg.tensor(index))
    before = layer.weight.detach().numpy().copy(), {k: v.clone() for k, v in optimizer.state[layer.weight].items()}
    index[700] = wrong
    with pytest.raises(IndexError, match=f"embedding.*{wrong}"):
        step(wg.tensor(index))
    np.testing.assert_array_equal(layer.weight.detach().numpy(), before[0])
    for key, value in optimizer.state[layer.weight].items():
        assert bool((value == before[1][key]).all())


def test_rates_change_without_another_program():
    layer = table_of(SMALL[0])
    optimizer = wg.optim.SGD(layer.parameters(), lr=0.5)
    step = stepping(layer, optimizer)
    want = SMALL[0].copy()
    for k, index in enumerate(SMALL[1]):
        optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
        step(wg.tensor(index))
        want -= 0.1 / (k + 1) * dense(2 * want[index], index, want.shape)
    np.testing.assert_allclose(layer.weight.detach().numpy(), want, rtol=1e-12)
    program_of(step)


def test_no_rows():
    for name in ("SGD", "Adagrad", "SparseAdam"):
        layer = table_of(LARGE[0])
        step = stepping(layer, getattr(wg.optim, name)(layer.parameters(), lr=0.1))
        for _ in range(3):
            step(wg.zeros(0, dtype=wg.int64))
        assert layer.weight.grad._nnz() == 0
        np.testing.assert_array_equal(layer.weight.detach().numpy(), LARGE[0])


def test_bags_of_rows():
    found = []
    for sparse in (True, False):
        bag = wg.nn.EmbeddingBag(6, 3, mode="mean", sparse=sparse, dtype=wg.float64)
        with wg.no_grad():
            bag.weight.copy_(wg.tensor(SMALL[0]))
        optimizer = wg.optim.Adagrad(bag.parameters(), lr=0.1)

        def step(index, bag=bag, optimizer=optimizer):
            optimizer.zero_grad()
            bag(index).square().sum().backward()
            optimizer.step()

        run = wg.compile(step, fullgraph=True)
        for _ in range(3):
            run(wg.tensor([[0, 2], [2, 5]]))
        found.append(bag.weight.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_programs_are_verified(name, size):
    table, batches = SMALL if size == "small" else LARGE
    layer = table_of(table)
    step = stepping(layer, getattr(wg.optim, name)(layer.parameters(), lr=0.1), verify="always")
    for index in batches:
        step(wg.tensor(index))


def coalescing(layer, optimizer, index):
    layer(index).sum().backward()
    return layer.weight.grad.coalesce().values().sum()


def left_in_results(layer, optimizer, index):
    layer(index).sum().backward()
    return layer.weight.grad


def not_zeroed(layer, optimizer, index):
    layer(index).sum().backward()
    optimizer.step()


def forward(layer, optimizer, index):
    return layer(index)


def stepped(layer, optimizer, index):
    optimizer.zero_grad()
    layer(index).sum().backward()
    optimizer.step()


def clipped(layer, optimizer, index):
    optimizer.zero_grad()
    layer(index).sum().backward()
    wg.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    optimizer.step()


REFUSED = {
    "the positions": (coalescing, {}, {}, "where the entries"), "a result": (left_in_results, {}, {}, "returns a sparse"),
    "a gradient from before": (not_zeroed, {}, {}, "add\\(\\) of a sparse tensor"),
    "no backward": (forward, {}, {}, "compile the whole step"), "padding": (stepped, {"padding_idx": 0}, {}, "padding_idx"),
    "a velocity": (stepped, {}, {"momentum": 0.9}, "momentum"), "clipping": (clipped, {}, {}, "sparse tensor"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_program_does_is_run_as_it_is(what):
    function, layer_options, options, message = REFUSED[what]
    tables = []
    for compiled in (True, False):
        layer = wg.nn.Embedding(6, 3, sparse=True, dtype=wg.float64, **layer_options)
        with wg.no_grad():
            layer.weight.copy_(wg.tensor(SMALL[0]))
        optimizer = wg.optim.SGD(layer.parameters(), lr=0.1, **options)
        run = wg.compile(function) if compiled else function
        given = layer, optimizer, wg.tensor([1, 0, 1])
        if function in (stepped, not_zeroed, clipped):  # which makes the optimiser's state, and a gradient from before
            function(*given)
        if compiled:
            with pytest.raises(TransformError, match=message):
                wg.compile(function, fullgraph=True)(*given)
            with pytest.warns(RuntimeWarning, match=message):
                run(*given)
        else:
            run(*given)
        grad = layer.weight.grad
        tables.append((layer.weight.detach().numpy(), 0 if grad is None else grad.to_dense().numpy()))
    np.testing.assert_array_equal(tables[0][0], tables[1][0])
    np.testing.assert_array_equal(tables[0][1], tables[1][1])


def test_optimisers_that_take_no_sparse_gradients_say_so():
    layer = table_of(SMALL[0])
    optimizer = wg.optim.Adam(layer.parameters())
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients"):
        stepping(layer, optimizer)(wg.tensor([1]))
    decayed = wg.optim.Adagrad(layer.parameters(), weight_decay=0.1)
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible"):
        stepping(layer, decayed)(wg.tensor([1]))


def test_traces_with_sparse_gradients(tmp_path):
    layer = table_of(SMALL[0])

    def backward(index):
        layer(index).square().sum().backward()

    program = wg.trace(backward)(wg.tensor([1, 1]))
    program.evaluate(wg.tensor([1, 1]))
    np.testing.assert_allclose(layer.weight.grad._values().numpy(), 2 * SMALL[0][[1, 1]])
    with pytest.raises(GraphError, match="sparse gradients"):
        program.save(tmp_path / "program")


@pytest.mark.parametrize("count", [1, 2, 1000])
@pytest.mark.parametrize("size", [1, 2, 7, 500])
def test_distinct_rows(count, size):
    index = np.random.default_rng(size).integers(0, count, size)
    for _ in range(2):  # the second time in memory that holds what the first left
        places, groups = table_rows.distinct_rows(index, count)
        distinct = np.unique(index)
        np.testing.assert_array_equal(places[groups], index)
        np.testing.assert_array_equal(np.sort(places[size - distinct.size :]), distinct)
        assert set(places) == set(distinct)
        assert groups.min() == size - distinct.size
