"""One framework in a fresh process, which builds its work, does the first steps, and then takes samples on demand."""

import importlib
import multiprocessing
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.machine import Watch
from benchmarks.workload import Arrays, Case, Job, Limits, Round, RunnerError, Workload, framework_of

__all__ = ["Process"]

SETUP_SECONDS = 600.0
SAMPLE_SECONDS = 0.002
WARM_SECONDS = 0.05


class Process:
    """A :class:`~benchmarks.workload.Runner` whose framework lives in a process started for it.

    Args:
        workload: found again in the new process by the module that holds it.
        case: one of the workload's cases.
        framework: one of the workload's frameworks.

    Raises:
        RunnerError: if the framework is not installed, or fails in its first steps.
    """

    def __init__(self, workload: Workload, case: Case, framework: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, _module_of(workload), case.name, framework)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.first, self.results = self._receive(SETUP_SECONDS)
        except RunnerError:
            self.close()
            raise

    def round(self, limits: Limits) -> Round:
        """Take samples, while the other frameworks' processes wait.

        Raises:
            RunnerError: if a step fails, or takes far longer than it may.
        """
        self._connection.send(limits)
        return Round(*self._receive(60 + 10 * limits.seconds))

    def close(self) -> None:
        """End the process."""
        self._connection.close()  # the process sees the end of its orders, and returns
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self, seconds: float) -> Any:
        try:
            if not self._connection.poll(seconds):
                raise RunnerError(f"no answer after {seconds:.0f} s")
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(timeout=5)
            raise RunnerError(f"its process ended with status {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise RunnerError(answer)
        return answer


def _module_of(workload: Workload) -> str:
    """Return the module whose ``WORKLOAD`` this is."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "WORKLOAD", None) is workload:
            return name
    raise ValueError(f"no loaded module holds {workload.name} as its WORKLOAD")


def _serve(connection: Connection, module: str, case: str, framework: str) -> None:
    """The work of the new process: answer with results, then with samples, until the other end is closed."""
    try:
        workload: Workload = importlib.import_module(module).WORKLOAD
        first, job = _build(workload, workload.cases[case], framework)
        connection.send((first, {name: np.array(value) for name, value in job.results().items()}))
        while True:
            connection.send(_sample(job, connection.recv()))
    except EOFError:
        return
    except ModuleNotFoundError as error:
        connection.send(f"{error.name} is not installed")
    except Exception as error:
        traceback.print_exc()
        connection.send(f"{type(error).__name__}: {error}")


def _build(workload: Workload, case: Case, framework: str) -> tuple[float, Job]:
    """Return the seconds from the imported framework to the end of the first step, and the job after all steps compared."""
    data: Arrays = workload.data(case)
    framework_of(framework)
    start = time.perf_counter()
    job = workload.builders[framework](case, data, framework)
    job.step()
    first = time.perf_counter() - start
    for _ in range(workload.steps - 1):
        job.step()
    return first, job


def _sample(job: Job, limits: Limits) -> Round:
    """Warm up, then time: a sample is one step, or the mean of enough steps to last two milliseconds."""
    step, clock = job.step, time.perf_counter
    repeats = range(_steps_per_sample(job))
    samples: list[float] = []
    watch, end = Watch(), clock() + limits.seconds
    while len(samples) < limits.samples and (clock() < end or len(samples) < 3):
        start = clock()
        for _ in repeats:
            step()
        samples.append((clock() - start) / len(repeats))
    return Round(samples, watch.others())


def _steps_per_sample(job: Job) -> int:
    """Do steps until caches and clocks have settled; return how many steps fill the time of a sample."""
    clock = time.perf_counter
    fastest, end = float("inf"), clock() + WARM_SECONDS
    while True:
        start = clock()
        job.step()
        now = clock()
        fastest = min(fastest, now - start)
        if now >= end:
            return max(1, round(SAMPLE_SECONDS / max(fastest, 1e-9)))
