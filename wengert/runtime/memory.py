"""Accounts of the memory pools: what is in use, what is kept for reuse, what may be taken at most.

Each logical CPU device has an account from the start, and a pool (:mod:`wengert.runtime.pool`) only once something was
taken from it: asking here starts nothing. The names are those of ``torch.cuda``.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert.array.device import to_device
from wengert.environment import UNITS, bytes_of, variable
from wengert.errors import OutOfMemoryError

__all__ = [
    "Account", "account", "bytes_of", "empty_cache", "live_blocks", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_limit", "memory_reserved", "memory_stats", "out_of_memory", "reset_peak_memory_stats",
    "set_memory_limit",
]  # fmt: skip

UNLIMITED = (1 << 62) - 1


@dataclass
class Account:
    """The account of one device's pool.

    Attributes:
        device: its number. counters: the pool's own counters by name, each with a ``value``; empty before there is a pool.
        limit: the most bytes of all its blocks. trim: gives free blocks back until so many bytes are left.
        blocks: returns (address, bytes, number) of each block in use.
    """

    device: int
    limit: int
    counters: dict[str, Any]
    trim: Callable[[int], None] | None = None
    blocks: Callable[[], list[tuple[int, int, int]]] | None = None

    def __getitem__(self, name: str) -> int:
        counter = self.counters.get(name)
        return 0 if counter is None else int(counter.value)

    @property
    def reserved(self) -> int:
        """Bytes of all blocks, in use or free."""
        return self["used_bytes"] + self["cached_bytes"]


_accounts: dict[int, Account] = {}


def shown(size: int) -> str:
    """Return a size as people read it: ``1.50 GiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.2f} {UNITS[unit]}iB"


def account(device: Any = None) -> Account:
    """Return the account of a device, given as the functions below take it: a device, its name, its number, or None.

    Raises:
        RuntimeError: for a device that does not exist.
    """
    number = device if isinstance(device, int) else to_device(device).index or 0
    found = _accounts.get(number)
    if found is None:
        to_device(f"cpu:{number}")
        limit = min(variable("WENGERT_MEMORY_LIMIT") or UNLIMITED, UNLIMITED)
        found = _accounts.setdefault(number, Account(number, limit, {}))
    return found


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of the arrays that are in use from a device's pool, exactly as large as they are."""
    return account(device)["live_bytes"]


def max_memory_allocated(device: Any = None) -> int:
    """Return the most that :func:`memory_allocated` was since the start or :func:`reset_peak_memory_stats`."""
    return account(device)["peak_bytes"]


def memory_reserved(device: Any = None) -> int:
    """Return the bytes that the pool holds: blocks in use, rounded up to their class, and free ones kept for reuse."""
    return account(device).reserved


def max_memory_reserved(device: Any = None) -> int:
    """Return the most that :func:`memory_reserved` was since the start or :func:`reset_peak_memory_stats`."""
    return account(device)["peak_reserved"]


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return the numbers of a device's pool, under PyTorch's names where it has them.

    ``allocated_bytes`` are those asked for; ``reserved_bytes`` those held, of which ``cached_bytes`` are free for reuse.
    Small arrays, arrays that other libraries made and results of NumPy's own kernels outside the pool are not in it.

    Example:
        >>> from wengert.runtime import pool
        >>> from wengert.runtime.memory import memory_stats
        >>> before = memory_stats()["allocated_bytes.all.current"]
        >>> x = pool.empty((1000, 1000), np.float32)
        >>> memory_stats()["allocated_bytes.all.current"] - before
        4000000
    """
    of = account(device)
    return {
        "allocated_bytes.all.allocated": of["total_bytes"],
        "allocated_bytes.all.current": of["live_bytes"],
        "allocated_bytes.all.freed": of["total_bytes"] - of["live_bytes"],
        "allocated_bytes.all.peak": of["peak_bytes"],
        "allocation.all.allocated": of["allocations"],
        "allocation.all.current": of["live_blocks"],
        "allocation.all.freed": of["allocations"] - of["live_blocks"],
        "allocation.all.peak": of["peak_blocks"],
        "allocation.all.reused": of["reuses"],
        "cached_blocks": of["cached_blocks"],
        "cached_bytes": of["cached_bytes"],
        "num_ooms": of["refusals"],
        "reserved_bytes.all.current": of.reserved,
        "reserved_bytes.all.peak": of["peak_reserved"],
    }


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks start again from what is in use now."""
    of = account(device)
    if of.counters:
        of.counters["peak_bytes"].value = of["live_bytes"]
        of.counters["peak_blocks"].value = of["live_blocks"]
        of.counters["peak_reserved"].value = of.reserved


def empty_cache(device: Any = None) -> None:
    """Give the memory that is kept for reuse back to the system; that of arrays in use stays."""
    of = account(device)
    if of.trim is not None:
        of.trim(0)


def memory_limit(device: Any = None) -> int | None:
    """Return the most bytes that a device's pool may hold, or None if only the machine's memory is the limit."""
    limit = account(device).limit
    return None if limit == UNLIMITED else limit


def set_memory_limit(limit: int | str | None, device: Any = None) -> None:
    """Set the most bytes that a device's pool may hold; None for no limit.

    What is free is given back before a request is refused. The environment variable ``WENGERT_MEMORY_LIMIT`` sets it from
    the start.

    Args:
        limit: bytes, or text such as ``"2G"``.
        device: None for ``cpu:0``.

    Raises:
        ValueError: for a limit that is not a size.
    """
    of = account(device)
    of.limit = UNLIMITED if limit is None else min(bytes_of(limit), UNLIMITED)
    if of.counters:
        of.counters["limit"].value = of.limit
        if of.trim is not None:
            of.trim(max(of.limit - of["used_bytes"], 0))


def live_blocks(device: Any = None) -> list[tuple[int, int, int]]:
    """Return (address, bytes, number) of each block in use, the newest first; numbers count allocations."""
    of = account(device)
    return [] if of.blocks is None else of.blocks()


def out_of_memory(asked: int, device: Any = None) -> OutOfMemoryError:
    """Return the error for a request that was refused: who holds the memory, and what to do."""
    of = account(device)
    limited = of.limit != UNLIMITED
    sizes = sorted((size for _, size, _ in live_blocks(device)), reverse=True)
    lines = [
        f"cannot take {shown(asked)} on cpu:{of.device}: {shown(of['live_bytes'])} are in use by {of['live_blocks']} arrays, "
        + (f"the limit is {shown(of.limit)}" if limited else "and the system has no more"),
    ]
    if sizes:
        lines.append("  largest in use: " + ", ".join(shown(size) for size in sizes[:5]))
    lines.extend(_places())
    lines.append(
        "  to need less: a smaller batch, no_grad() where no gradient is wanted, checkpoint() for activations, del of what is "
        "not needed" + (", or a higher limit: set_memory_limit(), WENGERT_MEMORY_LIMIT" if limited else "")
    )
    return OutOfMemoryError("\n".join(lines))


def _places() -> list[str]:
    """Return the lines of the user's code that hold the most array memory, if they are being traced."""
    if not tracemalloc.is_tracing():
        return ["  (python -X tracemalloc shows here which lines made them)"]
    domain = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    found = tracemalloc.take_snapshot().filter_traces([domain]).statistics("lineno")[:5]
    return [f"  {shown(one.size)} in {one.count} arrays made at {one.traceback[0]}" for one in found]
