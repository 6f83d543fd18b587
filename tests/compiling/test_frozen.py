"""Programs for which weights are constants: what is made of them alone is made once, and a write is not missed."""

import numpy as np
import pytest

import wengert as wg
from wengert import nn

MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(70, 130), nn.ReLU(), nn.Linear(130, 33)), (40, 70)),
    "many rows": (lambda: nn.Linear(500, 100), (3000, 500)),
    "one row": (lambda: nn.Sequential(nn.Linear(300, 200), nn.GELU(), nn.Linear(200, 7)), (1, 300)),
    "deep": (lambda: nn.Linear(3000, 50, bias=False), (30, 3000)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 20, 3, padding=1), nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 8, 3, groups=4)
        ),
        (2, 3, 12, 11),
    ),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 7, 8)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(9, 40), nn.LayerNorm(40), nn.Linear(40, 65)), None),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (3, 17, 32)),
}


def made(name):
    wg.manual_seed(3)
    make, shape = MODELS[name]
    x = wg.randint(0, 9, (5, 21)) if shape is None else wg.randn(shape)
    return make().eval(), x


def program_of(compiled):
    return next(iter(compiled.programs.values()))[0]


def frozen(function):
    """Return a compiled function whose weights are constants; not a module, so that its programs can be looked at."""
    return wg.compile(lambda *args: function(*args), fullgraph=True, frozen=True)


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_function_itself(name):
    model, x = made(name)
    run, plain = frozen(model), wg.compile(lambda x: model(x), fullgraph=True)
    with wg.no_grad():
        expected = model(x).numpy()
        for _ in range(3):
            np.testing.assert_allclose(run(x).numpy(), expected, rtol=1e-4, atol=1e-5)
        assert (
            np.array_equal(run(x).numpy(), plain(x).numpy()) or name == "convolutions"
        )  # whose normalisation is folded
    assert not any(isinstance(p, nn.Parameter) for p in program_of(run).sources)
    assert len(program_of(run).sources) == 1


@pytest.mark.parametrize("name", ["many rows", "convolutions"])  # where that is a task of its own
def test_weights_are_laid_out_once(name):
    model, x = made(name)
    run, plain = frozen(model), wg.compile(lambda x: model(x), fullgraph=True)
    with wg.no_grad():
        _ = run(x), plain(x)
    assert len(program_of(run).plan.tasks) < len(program_of(plain).plan.tasks)


def test_a_write_makes_another_program_and_the_old_one_goes():
    model, x = made("linear")
    run = frozen(model)
    with wg.no_grad():
        for step in range(4):
            np.testing.assert_allclose(run(x).numpy(), model(x).numpy(), rtol=1e-4, atol=1e-5)
            if step == 0:
                model[0].weight.mul_(2)
            elif step == 1:
                model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
            elif step == 2:
                model[2].bias.data = wg.ones(33)
    assert len(run.retraces) == 3
    assert "which is frozen, was written" in run.retraces[0]
    assert [len(programs) for programs in run.programs.values()] == [1]


def test_a_write_drops_the_programs_of_all_forms_of_arguments():
    weight = wg.ones(500, 60)
    run = frozen(lambda x: x @ weight)
    for rows in (300, 301, 302):
        run(wg.ones(rows, 500))
    weight.mul_(2)
    assert (run(wg.ones(300, 500)).numpy() == 1000).all()
    assert [len(programs) for programs in run.programs.values() if programs] == [1]
    for rows in (301, 302):
        assert (run(wg.ones(rows, 500)).numpy() == 1000).all()


@pytest.mark.parametrize(
    ("function", "weight", "shape"),
    [
        (lambda x, w: x @ w, (500, 100), (3000, 500)),
        (lambda x, w: w @ x, (6, 300, 500), (6, 500, 100)),
        (lambda x, w: x.transpose(1, 2) @ w, (200, 300), (700, 200, 64)),  # in several pieces, with the same weights
        (lambda x, w: nn.functional.conv2d(x, w), (20, 3, 3, 3), (2, 3, 12, 11)),
    ],
    ids=["right", "left", "pieces", "convolution"],
)
def test_what_is_made_of_weights_is_made_once_lasts_and_is_counted(function, weight, shape):
    weight, x = wg.randn(weight), wg.randn(shape)
    run = frozen(lambda x: function(x, weight))
    first = run(x).numpy()
    program = program_of(run)
    once = sum(block.size for block in program.plan.scratch.lasting)
    assert weight.nbytes <= once < weight.nbytes * 1.5 + 4096  # panels are padded
    assert program.plan.nbytes >= once
    assert f"{once:,} of what is made of constants once" in program.plan.memory()
    program.scramble()
    np.testing.assert_array_equal(run(x).numpy(), first)
    assert any("which is frozen, is not written" in guard for guard in wg.explain(run, x).programs[0].guards)


def handle(weight):
    """Return what writes through ``.data`` that was taken before the function ran."""
    data = weight.data
    return lambda: data.mul_(2)


WRITES = {
    "in place": lambda w: lambda: w.mul_(2),
    "a view": lambda w: lambda: w[0].mul_(2),
    "detached": lambda w: lambda: w.detach().mul_(2),
    "data": lambda w: lambda: w.data.mul_(2),
    "data of a view": lambda w: lambda: w[0].data.mul_(2),
    "a view of data": lambda w: lambda: w.data[0].mul_(2),
    "data of data": lambda w: lambda: w.data.data.mul_(2),
    "data taken before": handle,
    "other memory": lambda w: lambda: setattr(w, "data", wg.ones(500, 60)),
    "a compiled function": lambda w: lambda: wg.compile(lambda: w.mul_(2), fullgraph=True)(),
    "a compiled function of data": lambda w: lambda: wg.compile(lambda d: d.mul_(2), fullgraph=True)(w.data),
    "an initialiser": lambda w: lambda: nn.init.ones_(w),
    "an item": lambda w: lambda: w.__setitem__((0, 0), 9.0),
    "out": lambda w: lambda: wg.add(w, w, out=w),
}


@pytest.mark.parametrize("how", WRITES)
def test_every_way_to_write_is_seen(how):
    weight, x = wg.full((500, 60), 0.5), wg.randn(300, 500)
    write = WRITES[how](weight)
    run = frozen(lambda x: x @ (weight * weight))
    for _ in range(3):
        for _ in range(3):
            np.testing.assert_allclose(run(x).numpy(), (x @ (weight * weight)).numpy(), rtol=1e-3, atol=1e-3)
        write()
    assert len(run.retraces) == 2


def test_weights_that_change_at_each_call_are_given_up_with_a_warning():
    weight, x = wg.ones(50, 50), wg.randn(20, 50)
    run = wg.compile(lambda x: x @ weight, frozen=True)

    def rounds():
        for _ in range(40):
            weight.add_(1)
            np.testing.assert_allclose(run(x).numpy(), x.numpy() @ weight.numpy(), rtol=1e-4)

    with wg.no_grad(), pytest.warns(RuntimeWarning, match="frozen"):
        rounds()


def test_nothing_is_frozen_where_results_have_a_history():
    model, x = made("linear")
    run = frozen(model)
    run(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert len(program_of(run).sources) == 5


def test_a_step_trains_the_head_of_a_frozen_body():
    body, x = made("linear")
    head = nn.Linear(33, 2)
    body.requires_grad_(False)
    optimizer = wg.optim.SGD(head.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = head(body(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = frozen(step)
    before = [p.clone() for p in head.parameters()]
    losses = [run(x).item() for _ in range(3)]
    after = [p.clone() for p in head.parameters()]
    for p, value in zip(head.parameters(), before, strict=True):
        p.data.copy_(value)
    np.testing.assert_allclose(losses, [step(x).item() for _ in range(3)], rtol=1e-5)
    for p, value in zip(head.parameters(), after, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), value.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert not run.retraces


def test_pytorchs_option_means_the_same():
    model, x = made("linear")
    run = wg.compile(lambda x: model(x), options={"freezing": True})
    with wg.inference_mode():
        run(x)
    assert len(program_of(run).sources) == 1


@pytest.mark.parametrize(
    ("rows", "k", "columns"), [(1, 5, 3), (2, 700, 31), (65, 1100, 257), (300, 64, 16), (130, 2100, 40), (7, 1, 1)]
)
@pytest.mark.parametrize("which", ["left", "right", "both"])
@pytest.mark.parametrize("dtype", [wg.float32, wg.float64])
def test_products_of_constants(rows, k, columns, which, dtype):
    wg.manual_seed(0)
    a, b = wg.randn(rows, k, dtype=dtype), wg.randn(columns, k, dtype=dtype)
    function = {"left": lambda y: a @ y.T, "right": lambda x: x @ b.T, "both": lambda x: x.sum() + a @ b.T}[which]
    run = wg.compile(function, fullgraph=True, frozen=True)
    for seed in range(2):
        wg.manual_seed(seed)
        given = wg.randn(b.shape if which == "left" else a.shape, dtype=dtype)
        exact = {
            "left": lambda g=given: a.numpy() @ g.numpy().T,
            "right": lambda g=given: g.numpy() @ b.numpy().T,
            "both": lambda g=given: g.numpy().sum() + a.numpy() @ b.numpy().T,
        }[which]()
        close = 1e-3 if dtype is wg.float32 else 1e-10
        np.testing.assert_allclose(run(given).numpy(), exact, rtol=close, atol=close * k**0.5)
