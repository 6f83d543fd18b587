"""``python -m wengert cache``: the compiled kernels that are kept on disk."""

import argparse
import os
from collections.abc import Iterator

from wengert.codegen.cache import environment, store
from wengert.codegen.store import Store

__all__ = ["DESCRIPTION", "HELP", "NAME", "add_arguments", "facts", "run"]

NAME = "cache"
HELP = "show, verify or clear the compiled kernels on disk"
DESCRIPTION = """Compiled kernels are kept on disk, so that a process need not compile what another one has. `show` says
where, how many and how often they were used; `verify` names the files that are damaged, which are never loaded; `clear`
removes them all. WENGERT_CACHE_DIR says where they are, WENGERT_CACHE_LIMIT how many MiB to keep, WENGERT_CACHE=0 keeps
none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", nargs="?", default="show", choices=("show", "verify", "clear"))


def run(options: argparse.Namespace) -> None:
    """Show, verify or clear.

    Raises:
        LookupError: if ``verify`` finds a file that is not as it was written, or a variable of the environment is wrong.
        OSError: if ``clear`` cannot remove one.
    """
    try:
        files = store()
    except ValueError as error:
        raise LookupError(str(error)) from error
    {"show": _show, "verify": _verify, "clear": _clear}[options.action](files)


def facts(files: Store) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for everything that ``show`` prints."""
    yield "directory", str(files.directory or "none")
    yield "in use", _state(files)
    kernels = list(files.files())
    here = [kernel for kernel in kernels if kernel.environment == environment()]
    yield "kernels", f"{len(kernels)}, {_mib(sum(k.size for k in kernels))} of at most {_mib(files.limit)}"
    yield "for this machine and version", str(len(here))
    yield "hits", str(sum(kernel.uses for kernel in kernels))
    yield "damaged", str(sum(bool(kernel.fault) for kernel in kernels))


def _state(files: Store) -> str:
    if trouble := files.trouble(create=True):
        return f"no: {trouble}"
    if files.directory is not None and not os.access(files.directory, os.W_OK):
        return "to read only: it cannot be written to"
    return "yes"


def _show(files: Store) -> None:
    rows = list(facts(files))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def _verify(files: Store) -> None:
    kernels = list(files.files())
    damaged = [kernel for kernel in kernels if kernel.fault]
    for kernel in damaged:
        print(f"{kernel.path}: {kernel.fault}")
    if damaged:
        raise LookupError(
            f"{len(damaged)} of {len(kernels)} kernels are damaged; they are never loaded, and `cache clear` removes them"
        )
    print(f"{len(kernels)} kernels, all as they were written")


def _clear(files: Store) -> None:
    print(f"removed {files.clear()} files from {files.directory}")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
