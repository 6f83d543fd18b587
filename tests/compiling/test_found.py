"""Compiled functions, case by case: what the program fuzzer and trials by hand have found."""

import copy
import pickle
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.errors import CaptureError
from wengert.testing.programs import difference
from wengert.testing.random_programs import Case

BACKENDS = ("reference", "native")

FOUND: dict[str, Case] = {
    "views of parameters are differentiable views": Case(
        ("p1 = wg.nn.Parameter(drawn(2, (3, 2), 'float32'))",),
        (),
        ("v0 = p1.t()", "v1 = p1.flatten()"),
        ("v0", "v1"),
        (3, 3),
        True,
    ),
    "a written argument gets a history": Case(
        ("p1 = wg.nn.Parameter(drawn(2, (), 'float32'))",),
        (("a0", "drawn(20 + k, (n,), 'float32')"),),
        ("a0.mul_(p1)", "v0 = a0 * 2"),
        ("v0",),
        (3, 3),
        True,
    ),
    "a view of an argument is written and differentiated": Case(
        ("p1 = wg.nn.Parameter(drawn(2, (), 'float32'))",),
        (("a0", "drawn(20 + k, (n,), 'float32')"),),
        ("a0[1:].mul_(p1)", "v0 = a0.sum()"),
        ("v0",),
        (3, 3),
        True,
    ),
    "a view of new zeros is written and differentiated": Case(
        (),
        (("a0", "drawn(20 + k, (n,), 'float32', True)"),),
        ("v0 = wg.zeros(4)", "v0[1:].add_(a0)"),
        ("v0",),
        (3, 3),
        True,
    ),
    "an optimiser steps twice": Case(
        (
            "p0 = wg.nn.Parameter(drawn(1, (3,), 'float32'))",
            "p1 = wg.nn.Parameter(drawn(2, (3,), 'float32'))",
            "opt = wg.optim.AdamW([p0, p1], lr=0.01)",
        ),
        (("a0", "drawn(20 + k, (n,), 'float32')"),),
        (
            "((a0 * p1) ** 2).sum().backward()",
            "wg.nn.utils.clip_grad_norm_([p0, p1], 1.0)",
            "opt.step()",
            "((a0 * p0) ** 2).sum().backward()",
            "wg.nn.utils.clip_grad_norm_([p0, p1], 1.0)",
            "opt.step()",
        ),
        (),
        (3, 3, 3),
    ),
    "what backward needs is written, and nobody walks back": Case(
        (
            "p0 = wg.nn.Parameter(drawn(1, (3,), 'float64'))",
            "c0 = drawn(10, (3,), 'bool')",
        ),
        (),
        ("v0 = p0 * c0.detach()", "c0.index_fill_(0, wg.tensor([0]), True)"),
        ("v0",),
        (3, 3),
    ),
    "a parameter is stepped, then used": Case(
        ("p0 = wg.nn.Parameter(drawn(1, (1,), 'float32'))", "opt = wg.optim.AdamW([p0], lr=0.01)"),
        (("a0", "drawn(20 + k, (n,), 'float64')"),),
        ("opt.step()", "v0 = p0.nansum() * a0"),
        ("v0",),
        (3, 1, 4),
        True,
    ),
    "a view of an argument is an argument": Case(
        (),
        (("a0", "drawn(20 + k, (2, 4), 'float32', True)"), ("a9", "a0[1:]")),
        ("v0 = a0 - a9",),
        ("v0",),
        (3, 3),
        True,
    ),
    "out= into an argument": Case(
        (), (("a0", "drawn(20 + k, (n,), 'float32')"),), ("wg.add(a0, a0, out=a0)",), ("a0",), (3, 3)
    ),
    "a result is returned twice": Case(
        (), (("a0", "drawn(20 + k, (n,), 'float32', True)"),), ("v0 = a0 * 2",), ("v0", "v0"), (3, 3), True
    ),
    "two results share memory, each with a history of its own": Case(
        ("p0 = wg.nn.Parameter(drawn(1, (1,), 'float64'))",),
        (),
        ("v0 = drawn(11, (2, 2), 'float64') - p0", "v1 = v0.detach()", "v1.sub_(v0, alpha=2)"),
        ("v0", "v1"),
        (3,),
        True,
    ),
    "a roll of no dimensions": Case(
        (), (("a0", "drawn(20 + k, (), 'float32')"),), ("v0 = a0.roll(1, 0) + 1",), ("v0",), (3,)
    ),
    "arrays without elements, whose elements would not be contiguous": Case(
        (),
        (("a0", "drawn(20 + k, (n,), 'float64')"),),
        ("v0 = a0[:0] <= a0[:0]", "v1 = a0[:1].expand(2, 1) <= v0"),
        ("v1",),
        (3,),
    ),
    "integers between the parts of a fused kernel": Case(
        (), (("a0", "drawn(20 + k, (n,), 'int64')"),), ("v0 = wg.hypot(a0, a0 + 1) * 1.0",), ("v0",), (3,)
    ),
    "a number that does not fit": Case((), (("a0", "drawn(20 + k, (n,), 'uint8')"),), ("v0 = a0 + -1",), ("v0",), (3,)),
    "no elements are counted": Case(
        (), (("a0", "drawn(20 + k, (0, 1), 'float32')"),), ("v0 = a0.count_nonzero(-1)",), ("v0",), (3,)
    ),
    "a parameter is written, and requires no gradient any more": Case(
        ("p0 = wg.nn.Parameter(drawn(1, (3,), 'float32'))",),
        (),
        ("with wg.no_grad():\n    p0.mul_(2)", "p0.requires_grad_(False)"),
        (),
        (3, 3),
    ),
    "floats out of an integer's range": Case(
        ("c0 = wg.tensor([-2.0, -300.5, 255.5, 3e9, -3e9, 1e19])",),
        (),
        tuple(f"v{i} = c0.to(wg.{k})" for i, k in enumerate(("uint8", "int8", "int16", "int32", "int64"))),
        ("v0", "v1", "v2", "v3", "v4"),
        (3,),
    ),
    "truth of single numbers in uint8": Case(
        (),
        (("a0", "drawn(20 + k, (1, n), 'uint8')"),),
        ("v0 = (a0 + 1).any(0)", "v1 = (a0 + 1).all(0)"),
        ("v0", "v1"),
        (3,),
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, backend: str) -> None:
    assert difference(FOUND[name], backend)[0] == ""


class NoWayBack(wg.autograd.Function):
    """A function whose backward raises, which matters only to whom walks back."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise ValueError("no way back")


def test_a_backward_that_raises_is_not_walked_by_the_capture() -> None:
    x = wg.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        y = wg.compile(NoWayBack.apply)(x)
    assert y.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="no way back"):
        y.sum().backward()
    with pytest.raises(CaptureError, match="no way back"):
        wg.compile(NoWayBack.apply, fullgraph=True)(x)


def test_arguments_that_were_computed_from_others() -> None:
    def run(w: Any, part: Any, scaled: Any) -> Any:
        return w[:2] * part + part * scaled.sum()

    want: list[Any] = []
    found: list[Any] = []
    for function, grads in ((run, want), (wg.compile(run, fullgraph=True), found)):
        w = wg.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        for _ in range(2):
            function(w, w[1:3], w * 3).sum().backward()
            function(w, w.chunk(2)[0], w * 3).sum().backward()  # one of several results
        grads.append(w.grad.tolist())
    assert found == want


def test_a_gradient_is_dropped_where_there_was_none_at_first() -> None:
    p = wg.nn.Parameter(wg.ones(2))

    def run() -> None:
        p.grad = None

    step = wg.compile(run, fullgraph=True)
    step()
    p.grad = wg.ones(2)
    step()
    assert p.grad is None


def test_results_that_are_one_tensor_stay_one() -> None:
    def run(x: Any) -> Any:
        y = x * 2
        return y, [y]

    a, (b,) = wg.compile(run, fullgraph=True)(wg.ones(2))
    assert a is b


def test_detached_arguments_come_back_detached() -> None:
    x = wg.ones(2, requires_grad=True)
    a, b, c = wg.compile(lambda x: (x.detach(), x.detach()[1:], x), fullgraph=True)(x)
    assert (a.requires_grad, b.requires_grad, c is x) == (False, False, True)
    a.fill_(5)
    assert (x.tolist(), b.tolist()) == ([5, 5], [5])


def test_results_that_were_not_walked_back_from_are_differentiable() -> None:
    def run(x: Any) -> Any:
        loss = (x * x).sum()
        loss.backward()
        return loss, x * 3

    x = wg.ones(2, requires_grad=True)
    wg.compile(run, fullgraph=True)(x)[1].sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_leaves_made_inside_are_refused() -> None:
    with pytest.raises(CaptureError, match="that it made itself"):
        wg.compile(lambda: wg.ones(2).requires_grad_() * 2, fullgraph=True)()


def test_second_derivatives_of_what_acts_are_refused() -> None:
    total = wg.zeros(2)

    def run(x: Any) -> Any:
        total.add_(1)
        return (x * x).sum()

    x = wg.ones(2, requires_grad=True)
    loss = wg.compile(run, fullgraph=True)(x)
    with pytest.raises(RuntimeError, match="second derivatives"):
        wg.autograd.grad(loss, x, create_graph=True)


def test_an_argument_may_be_written_before_backward_if_nothing_needs_it() -> None:
    x = wg.ones(2, requires_grad=True) * 1
    y = wg.compile(lambda x: x * 2, fullgraph=True)(x)
    with wg.no_grad():
        x.add_(1)
    y.sum().backward()


# ---- what a function reads from around it

SCALE = 2.0


@dataclass
class Options:
    factor: float
    tensor: Any


def test_surroundings_that_change() -> None:
    global SCALE
    listed, options, array = [wg.tensor(1.0), wg.tensor(2.0)], Options(2.0, wg.tensor(3.0)), np.ones(1, np.float32)

    def run(x: Any, given: Options) -> Any:
        return x * SCALE * options.factor + sum(listed) + given.factor * given.tensor + wg.from_numpy(array)

    step, x = wg.compile(run, fullgraph=True), wg.tensor([1.0])
    given = Options(1.0, wg.tensor(1.0))

    def check() -> None:
        assert step(x, given).tolist() == run(x, given).tolist()

    try:
        check()
        SCALE = 3.0
        check()
    finally:
        SCALE = 2.0
    options.factor = 5.0
    check()
    listed[0] = wg.tensor(10.0)
    check()
    listed.append(wg.tensor(7.0))
    check()
    given.factor = 4.0
    check()
    given.tensor = wg.tensor(9.0)
    check()
    array[0] = 8
    check()


def test_zero_has_a_sign() -> None:
    run = wg.compile(lambda x, z: x / z, fullgraph=True)
    assert run(wg.ones(1), 0.0).item() == float("inf")
    assert run(wg.ones(1), -0.0).item() == float("-inf")


def test_hooks_that_come_and_go() -> None:
    p = wg.nn.Parameter(wg.ones(2))

    def step(x: Any) -> None:
        p.grad = None
        (p * x).sum().backward()

    run, x = wg.compile(step, fullgraph=True), wg.ones(2)
    run(x)
    handle = p.register_hook(lambda g: g * 3)
    run(x)
    assert p.grad.tolist() == [3, 3]
    handle.remove()
    run(x)
    assert p.grad.tolist() == [1, 1]


class Counting(wg.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state, self.count = wg.zeros(1), 0

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.state = self.state + x
        return self.state * self.count


def test_state_that_is_replaced_is_run_as_it_is() -> None:
    kept = [wg.zeros(1)]

    def run(x: Any) -> Any:
        kept[0] = kept[0] + x
        return kept[0] * 1

    def called(function: Any) -> list[float]:
        return [function(wg.ones(1)).item() for _ in range(12)]

    with pytest.warns(RuntimeWarning, match="keeps a tensor"):
        assert called(wg.compile(run)) == list(range(1, 13))
    with pytest.warns(RuntimeWarning, match="attributes of a module"):
        assert called(wg.compile(Counting())) == [k * k for k in range(1, 13)]


def test_state_that_is_made_once_is_captured_the_second_time() -> None:
    kept: dict[str, Any] = {}

    def run(x: Any) -> Any:
        if "mask" not in kept:
            kept["mask"] = wg.ones(2)
        return x * kept["mask"]

    step = wg.compile(run, fullgraph=True)
    assert [step(wg.full((2,), float(k))).tolist() for k in range(3)] == [[0, 0], [1, 1], [2, 2]]
    assert len([p for found in step.programs.values() for p in found]) == 1


# ---- calls


def test_threads_call_at_the_same_time() -> None:
    def run(x: Any) -> Any:
        return ((x * 0.1).sin() @ (x * 0.1)).sum(1)

    step = wg.compile(run, fullgraph=True)
    given = [wg.from_numpy(np.random.default_rng(k).standard_normal((30, 30))) for k in range(4)]
    want, wrong = [run(x).numpy() for x in given], []

    def work(k: int) -> None:
        wrong.extend(k for _ in range(50) if not np.allclose(step(given[k]).numpy(), want[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_function_calls_itself() -> None:
    @wg.compile(fullgraph=True)
    def factorial(x: Any, n: int) -> Any:
        return x if n == 0 else factorial(x, n - 1) * n

    assert factorial(wg.tensor(1.0), 4).item() == 24


def test_interrupted_in_the_middle() -> None:
    total = wg.zeros(1)

    def run(x: Any, stop: bool) -> Any:
        total.add_(1)
        if stop:
            raise KeyboardInterrupt
        return x * 2

    step = wg.compile(run, fullgraph=True)
    with pytest.raises(KeyboardInterrupt):
        step(wg.ones(1), True)
    assert step(wg.ones(1), False).item() == 2
    assert total.item() == 1


def test_programs_are_bounded() -> None:
    step = wg.compile(lambda x: x * 2, fullgraph=True, backend="reference")
    for n in range(300):
        step(wg.ones(n))
    assert len(step.programs) == 256
    assert step(wg.ones(0)).shape == (0,)


def _double(x: Any) -> Any:
    return x * 2


def test_copies_of_compiled_functions() -> None:
    step = wg.compile(_double, fullgraph=True)
    step(wg.ones(1))
    for again in (copy.deepcopy(step), pickle.loads(pickle.dumps(step))):
        assert again is not step
        assert again(wg.ones(1)).item() == 2


def test_an_argument_is_given_another_shape() -> None:
    x = wg.zeros(2, 3)
    with pytest.raises(CaptureError, match="another shape"):
        wg.compile(lambda x: x.t_(), fullgraph=True)(x)
    assert x.shape == (2, 3)


# ---- values that are read without an operator


def test_an_index_of_no_dimensions_is_read_at_each_call() -> None:
    run = wg.compile(lambda x, i: x[i] * 2, fullgraph=True)
    x = wg.arange(4)
    assert [run(x, wg.tensor(i)).item() for i in (0, 3, 1, 0)] == [0, 6, 2, 0]


def test_tensors_made_of_tensors_hold_what_these_hold_at_each_call() -> None:
    run = wg.compile(lambda x: wg.tensor([x[0].item(), 1.0]) + 1)
    for value in (1.0, 2.0, 1.0):
        assert run(wg.tensor([value])).tolist() == [value + 1, 2.0]
    copied = wg.compile(lambda x: wg.tensor(x) * 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [copied(wg.tensor([v])).item() for v in (1.0, 2.0)] == [1.0, 2.0]


def test_seeds_are_not_set_once() -> None:
    def run(x: Any) -> Any:
        wg.manual_seed(3)
        return x + wg.rand(1)

    step = wg.compile(run)
    with pytest.warns(RuntimeWarning, match="of a generator inside a compiled function"):
        first = step(wg.zeros(1))
    assert step(wg.zeros(1)).item() == first.item()


def test_the_text_of_a_tensor_is_that_of_its_values() -> None:
    run = wg.compile(lambda x: (x * 1, str(x), f"{x * 2}"), fullgraph=True)
    assert run(wg.ones(2))[1:] == ("tensor([1., 1.])", "tensor([2., 2.])")
    assert run(wg.zeros(2))[1:] == ("tensor([0., 0.])", "tensor([0., 0.])")
    with pytest.raises(CaptureError, match="the text of a tensor"):
        run(wg.ones(100))


def test_step_hooks_that_come_later_run() -> None:
    p = wg.nn.Parameter(wg.ones(1))
    optimiser, seen = wg.optim.SGD([p], lr=0.1), []

    def step() -> None:
        optimiser.zero_grad()
        (p * p).sum().backward()
        optimiser.step()

    run = wg.compile(step)
    run()
    run()
    optimiser.register_step_post_hook(lambda *_: seen.append(1))
    with pytest.warns(RuntimeWarning, match="step hooks of an optimiser"):
        run()
    run()
    assert seen == [1, 1]


counted = 0


def test_what_a_function_changes_in_python_happens_at_each_call() -> None:
    log: list[int] = []

    def run(x: Any) -> Any:
        global counted
        counted += 1
        log.append(len(log))
        return x * counted

    step = wg.compile(run)
    assert [step(wg.ones(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert log == [0, 1, 2, 3, 4]


def test_modes_are_not_left_changed_once() -> None:
    def run(x: Any) -> Any:
        wg.set_default_dtype(wg.float64)
        return x * 2

    step = wg.compile(run)
    try:
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step(wg.ones(1, dtype=wg.float32))
            assert wg.get_default_dtype() is wg.float64
            wg.set_default_dtype(wg.float32)
    finally:
        wg.set_default_dtype(wg.float32)


def test_compiled_modules_are_copied_and_pickled() -> None:
    run = wg.compile(wg.nn.Linear(2, 1))
    x = wg.ones(2)
    for other in (copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert other(x).item() == run(x).item()
        assert other.weight is not run.weight


def test_a_kernel_that_reads_a_value_twice_computes_another_one_itself():
    """The third derivative of a network: a kernel has one value as two inputs, and takes a part of an earlier kernel in."""

    def losses(wrap):
        wg.manual_seed(0)
        sizes = ((2, 20), (20, 20), (20, 20), (20, 1))
        layers = [(wg.nn.Parameter(wg.randn(i, o) / i**0.5), wg.nn.Parameter(wg.zeros(o))) for i, o in sizes]
        parameters = [p for layer in layers for p in layer]
        x, t = wg.rand(300, 1, requires_grad=True), wg.rand(300, 1, requires_grad=True)
        optimizer = wg.optim.Adam(parameters, lr=1e-3)

        def training():
            optimizer.zero_grad()
            u = wg.cat((x, t), 1)
            for w, b in layers[:-1]:
                u = wg.tanh(u @ w + b)
            u = u @ layers[-1][0] + layers[-1][1]
            u_x, u_t = wg.autograd.grad(u.sum(), (x, t), create_graph=True)
            (u_xx,) = wg.autograd.grad(u_x.sum(), x, create_graph=True)
            loss = (u_t + u * u_x - 0.01 * u_xx).square().mean()
            loss.backward(inputs=parameters)
            optimizer.step()
            return loss

        step = wrap(training)
        return [step().item() for _ in range(4)]

    compiled = losses(lambda f: wg.compile(f, fullgraph=True))
    np.testing.assert_allclose(compiled, losses(lambda f: f), rtol=1e-5)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_an_empty_view_as_real_is_written(backend: str) -> None:
    def step(x: Any) -> Any:
        whole = x * wg.ones(1)
        parts = wg.view_as_real(whole)
        parts += parts
        return whole

    found = wg.compile(step, fullgraph=True, backend=backend)(wg.zeros(0, dtype=wg.complex64))
    assert (found.shape, found.dtype) == ((0,), wg.complex64)
