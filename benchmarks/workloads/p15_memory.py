"""P15: the most memory that a training step takes, and what half of it costs in time.

The model is built, takes two steps, and is thrown away, so that all code is loaded and compiled. Then it is built again, and
what is measured is how far the resident memory of the process rises above that during three more steps: values, gradients, and
whatever the framework keeps; not the weights. This is done twice, and the lower number counts.
"""

import ctypes
import gc
import importlib
import multiprocessing
import re
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import Watch
from benchmarks.models import (
    Sizes,
    convolutional,
    convolutional_weights,
    gpt,
    gpt_weights,
    normal,
    residual,
    residual_weights,
    scaled,
)
from benchmarks.training import load_weights, moved
from benchmarks.workload import Arrays, Case, Limits, Round, Runner, RunnerError, Workload

__all__ = ["WORKLOAD"]

LAYERS, WIDTH, BATCH = 24, 512, 4096
GPT = Sizes(words=256, context=256, width=384, heads=6, layers=6, batch=4)
CASES = [
    Case("24 x 512 tanh, batch 4096", must=0.9, aim=0.7, parameters={"model": "perceptron"}, unit="MB"),
    Case("the same, budget of half", must=0.5, aim=0.45, parameters={"model": "perceptron", "budget": 0.5}, unit="MB"),
    Case("time with a budget of half", must=1.2, aim=1.15, parameters={"model": "perceptron", "budget": 0.5}),
    Case("CNN, batch 64", must=0.9, aim=0.7, parameters={"model": "cnn"}, unit="MB"),
    Case("residual 4 x 64, batch 16", must=0.9, aim=0.7, parameters={"model": "residual"}, unit="MB"),
    Case("GPT 6 x 384, batch 4", must=0.9, aim=0.7, parameters={"model": "gpt"}, unit="MB"),
]
PLAIN = "without a budget"  # wengert too, as the peer whose time is compared


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights by their names in the model."""
    model = case.parameters["model"]
    if model == "cnn":
        return convolutional_weights(rng)
    if model == "residual":
        return residual_weights(rng, 64, 4)
    if model == "gpt":
        return gpt_weights(GPT, rng)
    weights = {f"{2 * k}.weight": scaled(rng, WIDTH, WIDTH) for k in range(LAYERS)}
    biases = {f"{2 * k}.bias": np.zeros(WIDTH, np.float32) for k in range(LAYERS)}
    return {"x": normal(rng, BATCH, WIDTH), "y": normal(rng, BATCH, WIDTH), **weights, **biases}


WORKLOAD = Workload(
    "P15", "memory", "peak memory of a training step, SGD", CASES, data, tolerance=0.05, from_outside=True
)


@WORKLOAD.framework("wengert", "torch", PLAIN)
def start(case: Case, data: Arrays, name: str) -> Runner:
    """Return what measures a framework in a process of its own."""
    if case.unit == {"torch": "s", PLAIN: "MB"}.get(name):
        raise RunnerError("no peer in this case")
    return Child(case, name)


class Child:
    """A process that has measured its memory, and takes the time of steps."""

    def __init__(self, case: Case, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, case.name, name), daemon=True)
        self._process.start()
        theirs.close()
        answer = self._receive(600)
        self.first: float | None = answer[0]
        self.results: Arrays = answer[1]
        self._megabytes, self._timed = answer[2], case.unit == "s"

    def round(self, limits: Limits) -> Round:
        """Take the time of steps; the memory does not change."""
        if not self._timed:
            return Round([self._megabytes], None)
        watch = Watch()
        self._connection.send(limits)
        return Round(self._receive(60 + 10 * limits.seconds), watch.others())

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            raise RunnerError(f"no answer after {seconds:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RunnerError("its process ended") from None
        if isinstance(answer, str):
            raise RunnerError(answer)
        return answer


def _serve(connection: Connection, case_name: str, name: str) -> None:
    """The work of the process."""
    case = WORKLOAD.cases[case_name]
    try:
        begun = time.perf_counter()
        step, _ = _build(case, name)
        step()
        first = time.perf_counter() - begun
        step()
        del step
        risen = []
        for _ in range(2):
            _give_back(name)
            step, results = _build(case, name)
            risen.append(_rise(step, name))
        connection.send((first, results(), min(risen)))
        with suppress(EOFError):
            while True:
                connection.send(_times(step, connection.recv()))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def _build(case: Case, name: str) -> tuple[Callable[[], None], Callable[[], Arrays]]:
    """Return a training step, and what it has come to."""
    framework = importlib.import_module("torch" if name == "torch" else "wengert")
    nn, arrays = framework.nn, WORKLOAD.data(case)
    models = {
        "perceptron": lambda: nn.Sequential(*[m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]),
        "cnn": lambda: convolutional(nn), "residual": lambda: residual(nn, 64, 4), "gpt": lambda: gpt(framework, GPT),
    }  # fmt: skip
    model = models[case.parameters["model"]]()
    loss_of = nn.functional.mse_loss if case.parameters["model"] == "perceptron" else nn.functional.cross_entropy
    load_weights(framework, model, arrays)
    optimizer = framework.optim.SGD(model.parameters(), lr=0.1)
    x, y = framework.tensor(arrays["x"]), framework.tensor(arrays["y"])
    last: list[Any] = [None]

    def training(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = training
    if name != "torch":
        budget = None if name == PLAIN else case.parameters.get("budget")
        run = framework.compile(training, fullgraph=True, memory_budget=budget)

    def step() -> None:
        last[0] = run(x, y)

    def results() -> Arrays:
        weights = {k: p.detach().numpy() for k, p in model.named_parameters()}
        return {"loss": np.array(last[0].detach().numpy()), "moved": moved(weights, arrays)}

    return step, results


def _rise(step: Callable[[], None], name: str) -> float:
    """Return how many megabytes the resident memory rises above what it is now, during some steps."""
    _give_back(name)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins again
    for _ in range(3):
        step()
    return _resident("VmHWM") - before


def _give_back(name: str) -> None:
    """Give free memory back to the system."""
    gc.collect()
    if name != "torch":
        importlib.import_module("wengert.runtime.memory").empty_cache()
    ctypes.CDLL(None).malloc_trim(0)


def _resident(key: str) -> float:
    """Return a number of ``/proc/self/status`` in megabytes.

    Raises:
        RunnerError: where there is no such file.
    """
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        raise RunnerError("resident memory is read from /proc, which this system does not have") from None
    (kilobytes,) = re.findall(rf"{key}:\s+(\d+)", text)
    return int(kilobytes) * 1.024e-3


def _times(step: Callable[[], None], limits: Limits) -> list[float]:
    samples: list[float] = []
    end = time.perf_counter() + limits.seconds
    while len(samples) < limits.samples and (time.perf_counter() < end or len(samples) < 3):
        begun = time.perf_counter()
        step()
        samples.append(time.perf_counter() - begun)
    return samples
