"""P14: how long an import takes in a fresh interpreter, and how much lies on the disk."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.machine import Watch
from benchmarks.workload import Arrays, Case, Limits, Round, Runner, RunnerError, Workload

__all__ = ["WORKLOAD", "installed_files"]

IMPORTS_PER_ROUND = 3
CODE = "import time; start = time.perf_counter(); import {0}; print(time.perf_counter() - start)"


class FreshImport:
    """Imports a framework in new interpreters."""

    def __init__(self, name: str) -> None:
        self.results: Arrays = {}
        self._command = [sys.executable, "-c", CODE.format(name)]
        self.first: float | None = self._seconds()

    def round(self, limits: Limits) -> Round:
        """Import a few times, each in its own interpreter."""
        watch = Watch()
        return Round([self._seconds() for _ in range(IMPORTS_PER_ROUND)], watch.others())

    def close(self) -> None:
        """Nothing is kept."""

    def _seconds(self) -> float:
        # Compiled modules may be written and read, as they are for every framework that a package manager installs.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        run = subprocess.run(self._command, capture_output=True, text=True, check=False, timeout=120, env=env)
        if run.returncode:
            raise RunnerError(run.stderr.strip().splitlines()[-1])
        return float(run.stdout)


class InstalledSize:
    """Weighs the files of a framework and of everything that it requires."""

    def __init__(self, name: str) -> None:
        self.first: float | None = None
        self.results: Arrays = {}
        try:
            self._megabytes = sum(path.stat().st_size for path in installed_files(name)) / 1e6
        except importlib.metadata.PackageNotFoundError as error:
            raise RunnerError(f"{error.name} is not installed") from None

    def round(self, limits: Limits) -> Round:
        """The size does not change."""
        return Round([self._megabytes], None)

    def close(self) -> None:
        """Nothing is kept."""


def installed_files(name: str) -> set[Path]:
    """Return every file of an installed distribution and of those that it requires, without optional extras.

    Raises:
        PackageNotFoundError: if one of them is not installed.
    """
    files: set[Path] = set()
    seen: set[str] = set()
    todo = [name]
    while todo:
        current = canonicalize_name(todo.pop())
        if current in seen:
            continue
        seen.add(current)
        distribution = importlib.metadata.distribution(current)
        listed = (Path(str(distribution.locate_file(file))) for file in distribution.files or ())
        files.update(path.resolve() for path in (*listed, *_editable_files(current)) if path.is_file())
        required = map(Requirement, distribution.requires or ())
        todo += [r.name for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return files


def _editable_files(name: str) -> Iterator[Path]:
    """Yield the files of a package that is installed in place: its distribution lists only a link to them."""
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    for folder in (found and found.submodule_search_locations) or ():
        yield from Path(folder).rglob("*")


WORKLOAD = Workload(
    "P14",
    "start",
    "import in a fresh interpreter; size on disk with everything required",
    [Case("import", must=0.2, aim=0.1), Case("installed size", must=0.5, aim=0.3, unit="MB")],
    lambda case, rng: {},
    from_outside=True,
)


@WORKLOAD.framework("wengert", "torch")
def start(case: Case, data: Arrays, name: str) -> Runner:
    """Return what measures a framework, by the name under which it is imported and installed."""
    return FreshImport(name) if case.unit == "s" else InstalledSize(name)
