"""compile(verify=...): right programs pass, and each kind of wrong one is found, named, and leaves everything as it was."""

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn
from wengert.core.registry import operators
from wengert.errors import KernelError, VerifyError
from wengert.passes import pipeline
from wengert.passes.pipeline import Stage
from wengert.runtime import lowering

X, Y = wg.linspace(-1, 1, 128).reshape(16, 8), wg.arange(16) % 3
OPTIMIZERS = {
    "SGD": lambda p: wg.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: wg.optim.AdamW(p, lr=0.1),  # divides what rounding makes of nothing by its own size
    "NAdam": lambda p: wg.optim.NAdam(p, lr=0.1),  # whose numbers of a step have a state of their own
}


class Training:
    """A training step that has made its state, and everything that it may change."""

    def __init__(self, optimizer: str) -> None:
        wg.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = wg.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.step(X, Y)

    def step(self, inputs: Any, targets: Any) -> Any:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        return loss

    def state(self) -> Any:
        parameters = list(self.model.parameters())
        tensors = [*parameters, *self.model.buffers(), *(p.grad for p in parameters)]
        own = [v for s in self.optimizer.state.values() for v in s.values()]
        tensors += [v for v in own if isinstance(v, wg.Tensor)]
        schedule = {k: v for k, v in vars(self.scheduler).items() if k != "optimizer"}
        return (
            [(t.tolist(), t._version) for t in tensors], wg.get_rng_state().tolist(), repr(schedule),
            [v for v in own if not isinstance(v, wg.Tensor)], [g["lr"] for g in self.optimizer.param_groups],
        )  # fmt: skip


@pytest.mark.parametrize(("optimizer", "verify"), [*((name, "first_call") for name in OPTIMIZERS), ("AdamW", "always")])
def test_a_right_training_step_passes_and_does_one_step_a_call(optimizer: str, verify: str) -> None:
    plain = Training(optimizer)
    for _ in range(3):
        plain.step(X, Y)
    want = plain.state()
    tried = Training(optimizer)
    step = wg.compile(tried.step, fullgraph=True, verify=verify)
    for _ in range(3):
        step(X, Y)
    ((program,),) = step.programs.values()
    assert program.verified
    (tensors, *rest), (found, *others) = want, tried.state()
    assert rest == others
    if verify == "always":  # it is the function itself that has run
        assert tensors == found
    if optimizer == "SGD":  # the others make much of rounding
        for (a, _), (b, _) in zip(tensors, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)


def right() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    held = wg.zeros(4)

    def written(x):
        held.add_(x)
        x[0] = 1.0
        return held, x[1:], 3

    def asked(x):
        while x.norm() > 1:
            x = x / 2
        return x, x.view(2, 2), x.tolist()

    ones = wg.ones(4)
    grows = wg.linspace(-1, 1, 4).requires_grad_()
    return {
        "writes": (written, (ones,)),
        "asks for values": (asked, (ones * 3,)),
        "gradients outside": (lambda x: ((x.sin() * x).sum(), x.exp()), (grows,)),
        "a loss that cancels": (lambda x: (x - x.mean()).sum() * 1e6, (grows,)),
        "whole numbers and truths": (lambda x: (x.argsort(), x > 0, (x * 10).to(wg.int64)), (grows.detach(),)),
        "halves": (lambda x: (x.softmax(0), (x @ x).exp()), (ones.to(wg.bfloat16),)),
        "complex numbers": (lambda x: wg.fft.fft(x) * 1j, (ones,)),
        "double precision": (lambda x: (x.softmax(0).log().sum(), x.cumsum(0)), (grows.detach().double(),)),
        "NaN and infinity": (lambda x: (x / 0, (x - 1).log()), (ones,)),
        "nothing": (lambda x: (x[:0] * 2, None), (ones,)),
        "random numbers": (lambda x: (x + wg.rand(4), nn.functional.dropout(x)), (ones,)),
    }


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("name", right())
def test_right_programs_pass(name: str, backend: str) -> None:
    function, args = right()[name]
    wg.manual_seed(3)
    with np.errstate(all="ignore"):
        compiled = wg.compile(function, fullgraph=True, verify="first_call", backend=backend)
        compiled(*args)
    assert all(program.verified for programs in compiled.programs.values() for program in programs)


def halving(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the recorded kernel of an operator (or of what the passes make of it) give half of a result."""

    def wrong(node: Any, arrays: Any, outs: Any, recording: Any) -> Any:
        found = native(node, arrays, outs, recording)
        if name in node.op.name and recording.tasks:
            out = next(o for o in outs if o.dtype == np.float32)
            recording.tasks.append(lambda: np.multiply(out, 0.5, out=out))
        return found

    native = lowering._native
    monkeypatch.setattr(lowering, "_native", wrong)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gelu", "gelu, add"), ("softmax", "softmax, is the first"), ("matmul", "matmul"), ("sum", "sum"),
        ("log", "log, is the first"),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_named(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x, w):
        y = nn.functional.gelu(x) + 1
        y = (y @ w).softmax(-1)
        y = y.log()
        return y.sum(0)

    halving(name, monkeypatch)
    with pytest.raises(VerifyError) as caught:
        wg.compile(function, verify="first_call")(X, wg.linspace(0, 1, 48).reshape(8, 6))
    said = str(caught.value)
    assert isinstance(caught.value, KernelError)
    assert said.startswith("test_a_wrong_kernel_is_named.<locals>.function: result 0 differs by ")
    assert "is the first that is wrong" in said
    assert words in said
    line = function.__code__.co_firstlineno + {"gelu": 1, "log": 3, "sum": 4}.get(name, 2)
    assert f"test_verify.py:{line} in function" in said


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_wrong_training_step_is_not_done(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = Training(optimizer)
    before = tried.state()
    halving("formulas", monkeypatch)
    step = wg.compile(tried.step, fullgraph=True, verify="first_call")
    for _ in range(2):  # also when it is called again
        with pytest.raises(VerifyError, match=rf"what captured .* is to hold .*{optimizer}\.step.* is the first"):
            step(X, Y)
        assert tried.state() == before


def test_wrong_gradients_outside_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    halving("softmax_backward", monkeypatch)
    x = wg.linspace(0, 1, 6).reshape(2, 3).requires_grad_()
    with pytest.raises(VerifyError, match=r"the gradient by argument 0 differs .* softmax_backward, is the first"):
        wg.compile(lambda x: x.softmax(-1), verify="first_call")(x)
    assert x.grad is None


def test_wrong_random_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    halving("draw", monkeypatch)
    state = wg.get_rng_state().tolist()
    with pytest.raises(VerifyError, match=r"kernel \d of \d, draw\.\w+, is the first that is wrong"):
        wg.compile(lambda x: (x * wg.randn(4), x + wg.rand(4)), verify="first_call")(wg.ones(4))
    assert wg.get_rng_state().tolist() == state


def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def relu_is_abs(graph: Any, options: Any) -> Any:
        for node in graph.nodes:
            if node.op.name == "sin":
                node.op = operators()["cos"]
        return graph

    stages = [s if s.name != "share" else Stage("share", "", relu_is_abs) for s in pipeline.PIPELINE]
    monkeypatch.setattr(pipeline, "PIPELINE", tuple(stages))
    with pytest.raises(VerifyError, match=r"result 1 differs by .*; the pass 'share' changes result 1 of the graph by"):
        wg.compile(lambda x: (x + 1, x.sin().tanh()), verify="first_call")(wg.ones(3))


def test_a_wrong_plan_is_told_from_a_wrong_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    f = wg.compile(lambda x: x + 1, verify="always")
    f(wg.ones(3))
    ((program,),) = f.programs.values()
    monkeypatch.setattr(program, "run", lambda arrays: [a * 2 for a in program.plan(arrays)])
    with pytest.raises(VerifyError, match="each kernel is right by itself, so that the plan is wrong"):
        f(wg.ones(3))
    counter = itertools.count(1)
    with pytest.raises(VerifyError, match=r"result 0 differs by 1 .*so that the graph that was captured is wrong"):
        wg.compile(lambda x: x * next(counter), verify="first_call")(wg.ones(3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, k: x if k else (x, x), "it returns .* instead of"),
        (lambda x, k: (x, k), "result 1 is 0, and 1 from the function itself"),
        (lambda x, k: x.add_(1) if k else x + 1, r"the function writes into a float32\[3\], and the program does not"),
        (lambda x, k: x + (wg.rand(3) * 0 if k else wg.rand(3) + wg.rand(3) - 1) * 0, "other random numbers"),
        (lambda x, k: (x * x.requires_grad_()).sum().backward() if k else None, "sets .grad"),
    ],
)  # fmt: skip
def test_what_a_function_does_otherwise_the_second_time(change: Any, words: str) -> None:
    counter, x = itertools.count(), wg.ones(3)
    state = wg.get_rng_state().tolist()
    with pytest.raises(VerifyError, match=words):
        wg.compile(lambda x: change(x, next(counter)), verify="first_call")(x)
    assert (x.tolist(), x._version, x.grad, wg.get_rng_state().tolist()) == ([1.0] * 3, 0, None, state)


@pytest.mark.parametrize(("verify", "runs"), [(None, [1, 1, 1]), ("first_call", [2, 2, 2]), ("always", [2, 3, 4])])
def test_how_often_the_function_itself_runs(verify: str | None, runs: list[int]) -> None:
    counter = itertools.count()

    def function(x):
        next(counter)  # when it is captured, and when it is compared
        return x + 1

    compiled, found = wg.compile(function, verify=verify), []
    for _ in range(3):
        assert compiled(wg.ones(2)).tolist() == [2.0, 2.0]
        found.append(int(repr(counter)[6:-1]))
    assert found == runs


def test_an_error_of_the_function_is_its_own() -> None:
    class TiredError(Exception):
        pass

    counter, x = itertools.count(), wg.ones(3)

    def function(x):
        if next(counter) == 1:
            raise TiredError
        return x.add_(1)

    with pytest.raises(TiredError):
        wg.compile(function, verify="first_call")(x)
    assert x.tolist() == [1.0] * 3


def test_what_cannot_be_verified() -> None:
    with pytest.raises(ValueError, match='verify is "first_call", "always" or None, got \'never\''):
        wg.compile(lambda x: x, verify="never")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert wg.compile(lambda x: x[x > 0], verify="first_call")(wg.ones(2)).tolist() == [1.0, 1.0]
