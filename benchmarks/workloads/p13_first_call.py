"""P13: the first call of a training step, with nothing in any cache: capture and compilation."""

import os
import tempfile
from pathlib import Path
from unittest import mock

from benchmarks.machine import Watch
from benchmarks.process import Process
from benchmarks.workload import Arrays, Case, Limits, Round, Runner, RunnerError, Workload
from benchmarks.workloads import p06_gpt

CACHES = ("WENGERT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR")

CASES = [
    Case("against jax.jit", must=0.8, aim=0.3, parameters={"peer": "jax"}),
    Case("against torch.compile", must=0.1, aim=0.02, parameters={"peer": "torch compiled"}),
]

WORKLOAD = Workload(
    "P13", "first call", "build, capture, compile and first training step of a GPT, 4 x 128", CASES, lambda case, rng: {},
    tolerance=0.05, from_outside=True,
)  # fmt: skip


class FirstCall:
    """Takes first steps, each in a new process whose caches are empty."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.results: Arrays = {}
        self.first: float | None = self._seconds()

    def round(self, limits: Limits) -> Round:
        """Take one first step."""
        watch = Watch()
        return Round([self._seconds()], watch.others())

    def close(self) -> None:
        """Nothing is kept."""

    def _seconds(self) -> float:
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.dict(os.environ, {name: str(Path(folder) / name) for name in CACHES}):
                process = Process(p06_gpt.WORKLOAD, p06_gpt.CASES[0], self._name)
            self.results = process.results
            process.close()
        return process.first


@WORKLOAD.framework("wengert", "torch compiled", "jax")
def start(case: Case, data: Arrays, name: str) -> Runner:
    """Return what measures a framework.

    Raises:
        RunnerError: if it is not the peer of this case.
    """
    if name not in ("wengert", case.parameters["peer"]):
        raise RunnerError("it is the peer of another case")
    return FirstCall(name)
