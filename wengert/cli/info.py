"""``python -m wengert info``: versions, processor, threads and BLAS — what a bug report should hold."""

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator

import numpy as np

import wengert as wg

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "facts", "run"]

NAME = "info"
HELP = "versions, processor, threads and BLAS"
DESCRIPTION = "Show versions, processor, threads and BLAS: what a bug report should hold."

PACKAGES = ("numpy", "llvmlite", "ml_dtypes", "scipy", "scikit-learn", "safetensors", "matplotlib", "tqdm", "mpi4py")
THREAD_VARIABLES = ("WENGERT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
VECTOR_FEATURES = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512", "amx", "neon", "dotprod", "bf16", "sve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes no options."""


def run(options: argparse.Namespace) -> None:
    """Print one fact per line."""
    rows = list(facts())
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def facts() -> Iterator[tuple[str, str]]:
    """Yield (name, value) for everything that ``info`` prints."""
    yield "wengert", wg.__version__
    yield "python", f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    yield "platform", platform.platform()
    for package in PACKAGES:
        yield package, _version(package)
    yield from _processor()
    yield "cores", f"{_usable_cores()} usable of {os.cpu_count()}"
    for variable in THREAD_VARIABLES:
        if variable in os.environ:
            yield variable, os.environ[variable]
    yield "BLAS", _blas()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> Iterator[tuple[str, str]]:
    """What LLVM, which makes the native code, says of this processor."""
    try:
        from llvmlite import binding
    except ImportError:
        yield "processor", platform.processor() or platform.machine()
        return
    present = [name for name, on in binding.get_host_cpu_features().items() if on]
    yield "processor", f"{binding.get_host_cpu_name()} ({platform.machine()})"
    yield "vectors", " ".join(sorted(name for name in present if name.startswith(VECTOR_FEATURES))) or "none"


def _usable_cores() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _blas() -> str:
    """Which BLAS NumPy was built with."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
