"""Compiled functions give what the functions give: values, gradients, writes, random numbers, and what they do to modules."""

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.compiling.function import Compiled
from wengert.errors import CaptureError

BACKENDS = ("reference", "native")
F = wg.nn.functional


def drawn(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return wg.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def compiled(function: Callable[..., Any], backend: str, **options: Any) -> Any:
    return wg.compile(function, fullgraph=True, backend=backend, **options)


def programs(function: Any) -> list[Any]:
    return [p for found in function.programs.values() for p in found]


def _writes_rows(x: Any) -> Any:
    y = x.clone()
    y[1] = 7.0
    y[:, 0] += y[:, 1]
    return y


def _writes_through_views(x: Any) -> Any:
    y = x * 1
    row, column = y[0], y.t()[1]
    row.mul_(2)
    column.add_(row[:1])
    return y, row, column


def _reads_alias(x: Any) -> Any:
    y = x * 2
    z = y.detach()
    y.add_(1)
    return z + 1, y


def _several(x: Any) -> Any:
    values, places = x.max(dim=1)
    return {"values": values, "places": places, "both": [x.sort(dim=0)[0], (x.argmax(), None)]}


def _mixed(x: Any) -> Any:
    return (x.to(wg.float32) * 2 + x).sum(0), (x > 0).sum(), x.to(wg.int64) // 2


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x: (x.sigmoid().sigmoid().relu() - 1) / (x.abs() + 1),
    "broadcast": lambda x: x - x.mean(dim=1, keepdim=True) + x[0],
    "softmax": lambda x: x.softmax(-1) * x.log_softmax(0),
    "product": lambda x: (x @ x.t()).tanh() @ x,
    "views": lambda x: x.t().reshape(-1)[2:].view(2, 5).flip(0).permute(1, 0) * 2,
    "writes rows": _writes_rows,
    "writes through views": _writes_through_views,
    "reads alias": _reads_alias,
    "several results": _several,
    "mixed dtypes": _mixed,
    "constants": lambda x: x + wg.arange(3) * wg.tensor([1.0, 2.0, 3.0]).to(x.dtype) + wg.zeros(4, 1, dtype=x.dtype),
    "index": lambda x: x[[0, 2]] + x[wg.tensor([1, 3]), :] + x.gather(0, wg.zeros(2, 3, dtype=wg.int64)),
    "cat": lambda x: wg.cat([x, x * 2, x[:1]], 0).cumsum(0),
    "empty": lambda x: (x[:0] * 2).sum() + x[:, :0].sum(1),
    "scalars": lambda x: x.sum() * x.norm() / x.numel(),
    "where": lambda x: wg.where(x > 0, x, wg.zeros_like(x)).masked_fill(x > 1, -1.0),
    "norms": lambda x: F.layer_norm(x, (3,)) + F.normalize(x, dim=0),
    "complex": lambda x: wg.fft.fft(x).abs(),
    "einsum": lambda x: wg.einsum("ij,kj->ik", x, x),
    "linalg": lambda x: wg.linalg.cholesky(x @ x.t() + 5 * wg.eye(4, dtype=x.dtype)),
    "identity": lambda x: x,
    "nothing": lambda x: None,
}


def _same(found: Any, want: Any) -> None:
    got, expected = wg.tree.leaves(found), wg.tree.leaves(want)
    assert wg.tree.structure(found) == wg.tree.structure(want)
    for g, w in zip(got, expected, strict=True):
        if isinstance(w, wg.Tensor):
            assert g.dtype is w.dtype
            assert g.requires_grad == w.requires_grad
            np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-12, atol=1e-12)
        else:
            assert g == w


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str, backend: str) -> None:
    function = FUNCTIONS[name]
    run = compiled(function, backend)
    for seed in range(3):
        x = drawn(4, 3, seed=seed)
        kept = x.clone()
        _same(run(x), function(kept))
        np.testing.assert_array_equal(x.numpy(), kept.numpy())
        for program in programs(run):
            program.scramble()
    assert len(programs(run)) == 1


DIFFERENTIABLE = [
    n for n in FUNCTIONS if n not in ("mixed dtypes", "several results", "nothing", "identity", "reads alias")
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_gradients(name: str, where: str, backend: str) -> None:
    function = FUNCTIONS[name]

    def loss(x: Any) -> Any:
        return sum((r * r).sum() for r in wg.tree.leaves(function(x)) if r.requires_grad)

    def inside(x: Any) -> Any:
        value = loss(x)
        return value.detach(), wg.autograd.grad(value, x)[0]

    run = compiled(inside if where == "inside" else loss, backend)
    for seed in range(2):
        x = drawn(4, 3, seed=seed).requires_grad_()
        want = inside(x)
        if where == "inside":
            found = run(x)
        else:
            value = run(x)
            found = value.detach(), wg.autograd.grad(value, x)[0]
        for got, expected in zip(found, want, strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives_go_through(backend: str) -> None:
    run = compiled(lambda x: (x.sin() * x).sum(), backend)
    x = drawn(5).requires_grad_()
    (g,) = wg.autograd.grad(run(x), x, create_graph=True)
    (h,) = wg.autograd.grad(g.sum(), x)
    a = x.detach().numpy()
    np.testing.assert_allclose(h.numpy(), 2 * np.cos(a) - a * np.sin(a), rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_transforms_outside_and_inside(backend: str) -> None:
    def square(x: Any) -> Any:
        return (x * x * x).sum()

    run = compiled(square, backend)
    x = drawn(3)
    a = x.numpy()
    np.testing.assert_allclose(wg.func.grad(run)(x).numpy(), 3 * a**2)
    np.testing.assert_allclose(wg.func.hessian(run)(x).numpy(), np.diag(6 * a), atol=1e-12)
    np.testing.assert_allclose(wg.func.vmap(run)(drawn(4, 3)).numpy(), (drawn(4, 3).numpy() ** 3).sum(1))
    np.testing.assert_allclose(compiled(wg.func.hessian(square), backend)(x).numpy(), np.diag(6 * a), atol=1e-12)
    each = compiled(wg.func.vmap(wg.func.grad(square)), backend)
    np.testing.assert_allclose(each(drawn(4, 3)).numpy(), 3 * drawn(4, 3).numpy() ** 2)
    np.testing.assert_allclose(compiled(compiled(square, backend), backend)(x).numpy(), (a**3).sum())


# ---- tensors from outside


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_reach_arguments_and_captured_tensors(backend: str) -> None:
    total, history = wg.zeros(3, dtype=wg.float64), wg.zeros(2, 3, dtype=wg.float64)

    def run(x: Any, y: Any) -> Any:
        total.add_(x)
        history[1] = total
        y[0], before = x[0], y.clone()
        return before, total

    step = compiled(run, backend)
    x, y = drawn(3), drawn(3, seed=1)
    for k in range(1, 4):
        old = y.numpy().copy()
        before, same = step(x, y)
        assert same is total
        np.testing.assert_array_equal(before.numpy(), old)
        np.testing.assert_allclose(total.numpy(), k * x.numpy(), rtol=1e-15)
        np.testing.assert_array_equal(history.numpy(), [[0, 0, 0], total.tolist()])
        assert y[0] == x[0]
    assert len(programs(step)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_tensors_change_places(backend: str) -> None:
    a, b = wg.tensor([1.0, 2.0]), wg.tensor([3.0, 4.0])

    def swap() -> None:
        t = a.clone()
        a.copy_(b)
        b.copy_(t)

    run = compiled(swap, backend)
    for k in range(4):
        run()
        assert (a.tolist(), b.tolist()) == (([3, 4], [1, 2]) if k % 2 == 0 else ([1, 2], [3, 4]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_tensor_twice_is_another_program(backend: str) -> None:
    def run(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 1

    step = compiled(run, backend)
    x, y = wg.zeros(2), wg.zeros(2)
    assert step(x, y).tolist() == [0, 0]
    assert step(x, x).tolist() == [2, 2]
    assert step(x, y).tolist() == [0, 0]
    assert len(programs(step)) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_arguments_come_back_as_views(backend: str) -> None:
    run = compiled(lambda x: (x[1:], x), backend)
    x = wg.zeros(3)
    part, whole = run(x)
    assert whole is x
    part.fill_(5)
    assert x.tolist() == [0, 5, 5]


def test_overlapping_memory_that_is_written_is_refused() -> None:
    x = wg.zeros(4)

    def run(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    with pytest.raises(CaptureError, match="memory that another"):
        compiled(run, "native")(x[:3], x[1:])
    with pytest.warns(RuntimeWarning, match="run as it is"):
        assert wg.compile(run)(x[:3], x[1:]).tolist() == [2, 2, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parameter_gets_other_memory(backend: str) -> None:
    p = wg.nn.Parameter(wg.ones(2))
    run = compiled(lambda x: p.detach() * x, backend)
    assert run(wg.ones(2)).tolist() == [1, 1]
    p.data = wg.tensor([3.0, 4.0])
    assert run(wg.ones(2)).tolist() == [3, 4]
    with wg.no_grad():
        p.mul_(2)
    assert run(wg.ones(2)).tolist() == [6, 8]


# ---- what makes another program


def test_what_is_guarded() -> None:
    layer, scale = wg.nn.Linear(3, 3), 2.0
    dropout = wg.nn.Dropout(0.5)

    def run(x: Any, power: Any = 1, flag: bool = False) -> Any:
        y = dropout(layer(x)) ** power
        return -y if flag else y * scale

    dropout.eval()
    step = compiled(run, "native")
    x = drawn(2, 3, dtype=np.float32)

    def count(*args: Any, **kwargs: Any) -> int:
        found, want = (f(*args, **kwargs).detach().numpy() for f in (step, run))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
        return len(programs(step))

    assert count(x) == 1
    assert count(x * 2) == 1
    assert count(drawn(5, 3, dtype=np.float32)) == 2
    assert count(x, 2) == 3
    assert count(x, 2.0) == 4
    assert count(x, flag=True) == 5
    assert count(x.requires_grad_()) == 6
    with wg.no_grad():
        assert count(x) == 7
    x = x.detach()
    layer.weight.requires_grad_(False)
    assert count(x) == 8
    layer.weight = wg.nn.Parameter(wg.zeros(3, 3))
    assert count(x) == 9
    layer.bias = None
    assert count(x) == 10
    dropout.p = 0.25
    assert count(x) == 11
    assert count(x.t().contiguous().t()) == 12
    assert count(x) == 12


def test_modes_of_a_module() -> None:
    model = wg.nn.Sequential(wg.nn.Linear(4, 4), wg.nn.BatchNorm1d(4), wg.nn.Dropout(0.5))
    plain, run = copy.deepcopy(model), wg.compile(model, fullgraph=True)
    x = drawn(6, 4, dtype=np.float32)
    for mode in (True, False, True, False, True):
        model.train(mode)
        plain.train(mode)
        wg.manual_seed(1)
        found = run(x)
        wg.manual_seed(1)
        np.testing.assert_allclose(found.detach().numpy(), plain(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    for a, b in zip(model.buffers(), plain.buffers(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    assert len(programs(run.compiled)) == 2
    assert run.training
    assert len(list(run.parameters())) == 4
    assert set(run.state_dict()) == {f"_orig_mod.{name}" for name in plain.state_dict()}


# ---- whole training steps


def _model() -> Any:
    wg.manual_seed(0)
    return wg.nn.Sequential(
        wg.nn.Linear(6, 16, bias=False), wg.nn.BatchNorm1d(16), wg.nn.GELU(), wg.nn.Dropout(0.2), wg.nn.Linear(16, 3)
    ).to(wg.float64)


OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: wg.optim.SGD(p, lr=0.1),
    "momentum": lambda p: wg.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=1e-3),
    "nesterov": lambda p: wg.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: wg.optim.Adam(p, lr=1e-2, weight_decay=1e-2),
    "amsgrad": lambda p: wg.optim.Adam(p, lr=1e-2, amsgrad=True, maximize=True),
    "adamw": lambda p: wg.optim.AdamW([{"params": list(p)[:2], "lr": 1e-3}, {"params": list(p)[2:]}], lr=1e-2)
    if not isinstance(p, list) else wg.optim.AdamW([{"params": p[:2], "lr": 1e-3}, {"params": p[2:]}], lr=1e-2),
    "rmsprop": lambda p: wg.optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
    "adagrad": lambda p: wg.optim.Adagrad(p, lr=1e-2, lr_decay=1e-2),
    "nadam": lambda p: wg.optim.NAdam(p, lr=1e-2),
    "radam": lambda p: wg.optim.RAdam(p, lr=1e-2),
    "adadelta": lambda p: wg.optim.Adadelta(p),
    "adamax": lambda p: wg.optim.Adamax(p, lr=1e-2),
}  # fmt: skip


def _trained(make: Callable[[Any], Any], backend: str | None, steps: int) -> tuple[Any, list[float], Any]:
    model = _model()
    optimiser = make(list(model.parameters()))
    schedule = wg.optim.lr_scheduler.StepLR(optimiser, 4, 0.5)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = wg.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
        schedule.step()
        return loss, norm

    run = step if backend is None else compiled(step, backend)
    wg.manual_seed(5)
    losses = []
    for k in range(steps):
        x, y = drawn(12, 6, seed=k), wg.from_numpy(np.random.default_rng(k).integers(0, 3, 12))
        loss, norm = run(x, y)
        losses += [loss.item(), norm.item()]
    return model, losses, run


@pytest.mark.parametrize("name", OPTIMISERS)
def test_training_steps(name: str) -> None:
    """Forward, backward, clipping, dropout, running statistics, optimiser and schedule: one program, the same numbers."""
    want, losses, _ = _trained(OPTIMISERS[name], None, 12)
    for backend in BACKENDS:
        model, found, run = _trained(OPTIMISERS[name], backend, 12)
        np.testing.assert_allclose(found, losses, rtol=1e-9)
        for (key, a), b in zip(model.state_dict().items(), want.state_dict().values(), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-10, err_msg=key)
        for a, b in zip(model.parameters(), want.parameters(), strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-7, atol=1e-10)
        assert len(programs(run)) == 1


def test_gradients_accumulate_without_zero_grad() -> None:
    p = wg.nn.Parameter(wg.ones(3))

    def step(x: Any) -> None:
        (p * x).sum().backward()

    run = compiled(step, "native")
    kept = []
    for k in range(1, 5):
        run(wg.ones(3))
        assert p.grad.tolist() == [k] * 3
        kept.append(p.grad)
    assert kept[1] is kept[3]  # later gradients are added into the same memory, as without compile
    assert len(programs(run)) == 2


def test_a_kept_gradient_is_not_overwritten() -> None:
    p = wg.nn.Parameter(wg.ones(3))

    def step(x: Any) -> None:
        p.grad = None
        (p * x).sum().backward()

    run = compiled(step, "native")
    run(wg.ones(3))
    kept = p.grad
    run(wg.full((3,), 2.0))
    assert kept.tolist() == [1] * 3
    assert p.grad.tolist() == [2] * 3


def test_random_numbers_are_those_of_the_plain_function() -> None:
    def run(x: Any) -> Any:
        return x + wg.randn(3) * wg.rand(3), F.dropout(x, 0.5), wg.bernoulli(wg.full((4,), 0.5)), wg.randperm(5)

    step = compiled(run, "native")
    x = wg.ones(3)
    wg.manual_seed(3)
    want = [run(x) for _ in range(3)]
    wg.manual_seed(3)
    for each in want:
        _same(step(x), each)


# ---- ways through a function


@pytest.mark.parametrize("backend", BACKENDS)
def test_branches_on_values(backend: str) -> None:
    def run(x: Any) -> Any:
        if x.sum() > 0:
            return x * 2
        if x.max() > 0.5:
            return x - 1
        return x + 100

    step = compiled(run, backend)
    for seed in range(40):
        x = drawn(3, seed=seed) * (0.1 if seed % 2 else 1)
        _same(step(x), run(x))
    assert len(programs(step)) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_loops_whose_length_depends_on_values(backend: str) -> None:
    def run(x: Any) -> Any:
        n = 0
        while x.norm() > 1:
            x, n = x / 2, n + 1
        return x, n

    step = compiled(run, backend)
    lengths = set()
    for scale in (0.1, 1, 10, 100, 10, 0.1, 100):
        x = drawn(3) * scale
        _same(step(x), run(x))
        lengths.add(run(x)[1])
    assert len(programs(step)) == len(lengths) > 2


def test_nothing_is_written_on_a_way_that_is_not_taken() -> None:
    total, drawn_sum = wg.zeros(1), wg.zeros(1)

    def run(x: Any) -> Any:
        total.add_(1)
        noise = wg.rand(1)
        drawn_sum.add_(noise)
        if x.sum() > 0:
            total.add_(10)
            return noise
        return -noise

    step = compiled(run, "native")
    wg.manual_seed(0)
    found = [step(wg.full((2,), s)) for s in (1.0, -1.0, 1.0, 1.0, -1.0)]
    wg.manual_seed(0)
    noise = [wg.rand(1).item() for _ in range(5)]
    assert [f.item() for f in found] == [noise[0], -noise[1], noise[2], noise[3], -noise[4]]
    assert total.item() == 35
    np.testing.assert_allclose(drawn_sum.item(), sum(noise), rtol=1e-6)


def test_too_many_ways_are_run_as_they_are() -> None:
    run = wg.compile(lambda x: x * x.sum().item())
    inputs = [drawn(2, seed=seed) for seed in range(30)]
    with pytest.warns(RuntimeWarning, match=r"test_programs\.py:\d+.*more than 16 values"):
        found = [run(x) for x in inputs]
    for x, got in zip(inputs, found, strict=True):
        np.testing.assert_array_equal(got.numpy(), (x * x.sum()).numpy())


def test_what_cannot_be_captured() -> None:
    def run(x: Any) -> Any:
        return wg.from_numpy(np.sort(x.repeat(100).numpy()))[:2]

    x = drawn(2)
    with pytest.raises(CaptureError, match=r"numpy\(\)"):
        compiled(run, "native")(x)
    step = wg.compile(run)
    with pytest.warns(RuntimeWarning, match="run as it is"):
        _same(step(x), run(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _same(step(x), run(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_are_those_of_the_function_and_leave_nothing_behind(backend: str) -> None:
    p = wg.nn.Parameter(wg.ones(3))

    def run(x: Any) -> Any:
        p.grad = wg.zeros(3)
        with wg.no_grad():
            p.add_(1)
        if x.shape[0] == 2:
            raise KeyError("of the user")
        return p @ x

    step = compiled(run, backend)
    with pytest.raises(KeyError, match="of the user"):
        step(wg.ones(2))
    assert p.grad is None
    assert p.tolist() == [1] * 3
    with pytest.raises(RuntimeError, match="matmul"):
        step(wg.ones(4))
    assert p.tolist() == [1] * 3
    assert step(wg.ones(3)).item() == 6


def test_targets_out_of_range_are_refused_at_each_call() -> None:
    run = compiled(lambda x, t: F.cross_entropy(x, t), "native")
    x = drawn(4, 3)
    run(x, wg.tensor([0, 1, 2, 0]))
    with pytest.raises(IndexError, match="target 3"):
        run(x, wg.tensor([0, 1, 3, 0]))


# ---- the interface


def test_decorators_methods_and_options() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @wg.compile(fullgraph=True)
        def apply(self, x: Any) -> Any:
            """Scale."""
            return x * self.factor

    one, two = Scale(2.0), Scale(3.0)
    assert one.apply(wg.ones(1)).item() == 2
    assert two.apply(wg.ones(1)).item() == 3
    assert Scale.apply.__doc__ == "Scale."
    assert wg.compile(len) is not len
    assert wg.compile(len, disable=True) is len
    assert wg.compile(len, backend="eager") is len
    with pytest.raises(ValueError, match="no backend 'tpu'"):
        wg.compile(len, backend="tpu")
    with pytest.raises(TypeError, match="takes a function"):
        wg.compile(3)


def test_containers_and_keywords() -> None:
    def run(batch: Any, *, scale: Any = None, names: Any = ()) -> Any:
        x = batch["x"] * (1 if scale is None else scale)
        return {"y": x, "rest": [batch["pair"][1], scale, names]}

    step = compiled(run, "native")
    for scale in (None, 2, wg.tensor(3.0)):
        batch = {"x": wg.ones(2), "pair": (None, wg.zeros(1))}
        _same(step(batch, scale=scale, names=("a", "b")), run(batch, scale=scale, names=("a", "b")))
    assert len(programs(step)) == 3


def test_memory_does_not_grow_with_calls() -> None:
    model, _, run = _trained(OPTIMISERS["adam"], "native", 3)
    x, y = drawn(12, 6), wg.zeros(12, dtype=wg.int64)
    run(x, y)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(300):
        run(x, y)
    gc.collect()
    assert len(gc.get_objects()) - before < 50
    assert isinstance(model, wg.nn.Module)
    assert isinstance(run, Compiled)
