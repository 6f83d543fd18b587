"""``wengert.cuda``: says that there is no GPU, so that scripts written for both choose the CPU.

Example:
    >>> import wengert as wg
    >>> "cuda" if wg.cuda.is_available() else "cpu"
    'cpu'
"""

from typing import Any

from wengert.core.registry import MissingNameError

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


def is_available() -> bool:
    """Return False: this version computes on the CPU only."""
    return False


def is_initialized() -> bool:
    """Return False: there is no GPU to prepare."""
    return False


def device_count() -> int:
    """Return 0, the number of GPUs that can be used."""
    return 0


def empty_cache() -> None:
    """Do nothing: no memory of a GPU is held."""


def manual_seed(seed: int) -> None:
    """Do nothing, as in PyTorch without a GPU; :func:`wengert.manual_seed` seeds the CPU's generator."""


def manual_seed_all(seed: int) -> None:
    """Do nothing, as in PyTorch without a GPU; :func:`wengert.manual_seed` seeds the CPU's generator."""


def __getattr__(name: str) -> Any:
    raise MissingNameError("module 'wengert.cuda', which has no GPU to work on,", name, __all__)
