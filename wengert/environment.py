"""The variables of the environment that this package reads: what each may be, and what it is.

All are looked at when the package is imported, so that a wrong one is an error there, and not one in a thread that makes
kernels later. ``WENGERT_CACHE_DIR`` is a path, which may be anything.
"""

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["VARIABLES", "bytes_of", "check_environment", "variable"]

UNITS = ("", "K", "M", "G", "T")


class Variable(NamedTuple):
    """A variable: what it is if it is not set or empty, what it must be, and what reads it (ValueError: something else)."""

    default: Any
    allowed: str
    read: Callable[[str], Any]


def bytes_of(text: str | int) -> int:
    """Return a size in bytes, given as a number or as text such as ``"512M"``, ``"1.5 GiB"``; units are powers of 1024.

    Raises:
        ValueError: for anything else, and sizes that are not positive.

    Example:
        >>> from wengert.environment import bytes_of
        >>> bytes_of("1.5G"), bytes_of(4096)
        (1610612736, 4096)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", str(text), re.IGNORECASE)
    size = int(float(found[1]) * 1024 ** UNITS.index(found[2].upper())) if found else 0
    if size <= 0:
        raise ValueError(f"a size in bytes is a positive number or text such as '512M' or '2GiB', got {text!r}")
    return size


def _words(default: Any, *words: str) -> Variable:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Variable(default, f"one of {', '.join(words)}", read)


def _number(default: int | None, allowed: str, low: int = 0, high: int = 1 << 62) -> Variable:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError
        return int(text)

    return Variable(default, allowed, read)


def _flag(default: bool) -> Variable:
    return Variable(default, "0 or 1", lambda text: bool(("0", "1").index(text)))


VARIABLES = {
    "WENGERT_ARRAY_API": _flag(False),
    "WENGERT_BOUNDS_CHECK": _flag(False),
    "WENGERT_CACHE": _flag(True),
    "WENGERT_CACHE_LIMIT": _number(256, "a positive number of MiB", 1),
    "WENGERT_CPU": _words(None, "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
    "WENGERT_CPU_DEVICES": _number(1, "a positive number of devices", 1),
    "WENGERT_MEMORY_LIMIT": Variable(None, "a size such as 512M or 2GiB", bytes_of),
    "WENGERT_NATIVE": _words("auto", "auto", "wait", "off"),
    "WENGERT_NATIVE_SMALLEST": _number(8192, "a number of elements"),
    "WENGERT_NUM_THREADS": _number(None, "a whole number from 1 to 1024", 1, 1024),
    "WENGERT_POOL_DEBUG": _flag(False),
    "WENGERT_VECTOR_BYTES": Variable(None, "16, 32 or 64", {"16": 16, "32": 32, "64": 64}.__getitem__),
}


def variable(name: str) -> Any:
    """Return what a variable says now, or its default.

    Raises:
        ValueError: naming the variable, what it must be, and what it is.

    Example:
        >>> from wengert.environment import variable
        >>> variable("WENGERT_CACHE_LIMIT") >= 1
        True
    """
    default, allowed, read = VARIABLES[name]
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        return read(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name} must be {allowed}, got {text!r}") from None


def check_environment() -> None:
    """Look at all variables.

    Raises:
        ValueError: for the first that has no meaning.
    """
    for name in VARIABLES:
        variable(name)
