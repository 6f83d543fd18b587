"""``wengert.backends``: the switch of native code, and PyTorch's backends, of which none is there, for scripts that ask.

Example:
    >>> import wengert as wg
    >>> wg.backends.native.mode in ("auto", "wait", "off")
    True
    >>> wg.backends.mps.is_available(), wg.backends.cudnn.is_available()
    (False, False)
"""

import importlib

from wengert.core.native import OFF, SMALLEST
from wengert.core.native import native as door
from wengert.settings import NATIVE_MODES, settings

__all__ = ["cuda", "cudnn", "mps", "native"]


class Backend:
    """A backend that this version does not have."""

    __slots__ = ()

    def is_available(self) -> bool:
        """Return False."""
        return False

    def is_built(self) -> bool:
        """Return False."""
        return False


class Cudnn(Backend):
    """cuDNN's switches. They may be set, as in PyTorch without a GPU, and change nothing there is."""

    __slots__ = ("benchmark", "deterministic", "enabled")

    def __init__(self) -> None:
        self.benchmark, self.deterministic, self.enabled = False, False, True


class Native:
    """Native code for large arrays: kernels that wengert compiles in this process.

    Example:
        >>> import wengert as wg
        >>> before = wg.backends.native.mode
        >>> wg.backends.native.mode = "wait"  # the same digits in every run
        >>> wg.backends.native.mode = before
    """

    __slots__ = ()

    @property
    def mode(self) -> str:
        """How kernels are made: "auto" (in the background; NumPy's result is used meanwhile, so that the last digits of a
        result may depend on when), "wait" (when first needed) or "off". ``WENGERT_NATIVE`` sets it from outside.
        """
        return settings.native

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in NATIVE_MODES:
            raise ValueError(f"backends.native.mode must be one of {', '.join(map(repr, NATIVE_MODES))}, got {mode!r}")
        settings.native = mode
        door.smallest = OFF if mode == "off" else SMALLEST

    @property
    def smallest(self) -> int:
        """Arrays with fewer elements stay with NumPy."""
        return door.smallest

    def is_available(self) -> bool:
        """Return True unless it is switched off."""
        return settings.native != "off"

    def finish(self) -> None:
        """Wait until every kernel that was asked for is made."""
        if settings.native != "off":
            door.loaded()
            importlib.import_module("wengert.runtime.ahead").finish()


cuda, mps, cudnn = Backend(), Backend(), Cudnn()
native = Native()
