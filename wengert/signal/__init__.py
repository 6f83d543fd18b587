"""``wengert.signal``: tools for signals; so far :mod:`wengert.signal.windows`."""

from wengert.signal import windows

__all__ = ["windows"]
