"""``python -m wengert machine``: how fast this machine computes and moves memory."""

import argparse
from collections.abc import Iterator

from wengert.codegen.cache import store
from wengert.codegen.target import host
from wengert.runtime.machine import Machine, measure

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "run", "table"]

NAME = "machine"
HELP = "measure peak arithmetic, memory bandwidth and call overhead"
DESCRIPTION = """Measure how fast this machine multiplies and adds, reads and copies memory at each level, and is called from
Python. The numbers are kept beside the compiled kernels; cost models read them there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--seconds", type=_seconds, default=4.0, help="how long to measure, about (default: 4)")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 600:
        raise argparse.ArgumentTypeError(f"must be a number of seconds up to 600, got {text}")
    return value


def run(options: argparse.Namespace) -> None:
    """Measure, print the table, and keep the numbers.

    Raises:
        LookupError: if a variable of the environment is wrong.
    """
    try:
        target, files = host(), store()
    except ValueError as error:
        raise LookupError(str(error)) from error
    print(f"{target.cpu}, vectors of {target.vector_bytes} bytes, {target.registers} registers")
    for row in table(measure(options.seconds, keep=True)):
        print("".join([f"{row[0]:16}", *(f"{value:>18}" for value in row[1:])]).rstrip())
    if trouble := files.trouble():
        print(f"The numbers are not kept, since the directory of the cache is not used: {trouble}")


def table(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the table: what, on one thread, on all of them."""
    yield "", "one thread", f"{machine.threads} threads"
    yield "float32", _flops(machine.float32), _flops(machine.float32_all)
    yield "float64", _flops(machine.float64), _flops(machine.float64_all)
    levels = (("L1", machine.l1), ("L2", machine.l2), ("L3", machine.l3))
    for what in ("read", "copy"):
        for level, size in levels:
            yield f"{what} {level} {_size(size)}", _bytes(getattr(machine, f"{what}_{level.lower()}")), ""
        yield f"{what} memory", _bytes(getattr(machine, f"{what}_memory")), _bytes(getattr(machine, f"{what}_all"))
    yield "call", f"{machine.call * 1e6:.2f} µs", f"{machine.parallel * 1e6:.2f} µs"


def _flops(rate: float) -> str:
    return f"{rate / 1e9:.1f} Gflop/s"


def _bytes(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s"


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
