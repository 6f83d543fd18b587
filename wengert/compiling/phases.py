"""How long the phases of making a program took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from wengert.codegen.cache import counters

__all__ = ["Phases"]


class Phases(dict[str, float]):
    """Seconds by the name of a phase, in the order in which they came; a phase that comes again is added up.

    Example:
        >>> phases = Phases()
        >>> with phases.of("capture"):
        ...     pass
        >>> list(phases), phases["capture"] < 1
        (['capture'], True)
    """

    @contextmanager
    def of(self, name: str, code: str = "") -> Iterator[None]:
        """Take the time of a block; what of it was spent on machine code counts as the phase ``code``, if that is named."""
        start, before = time.perf_counter(), _spent_on_code() if code else 0.0
        yield
        taken, on_code = time.perf_counter() - start, _spent_on_code() - before if code else 0.0
        self[name] = self.get(name, 0.0) + max(taken - on_code, 0.0)
        if code:
            self[code] = self.get(code, 0.0) + on_code


def _spent_on_code() -> float:
    found = counters()
    return found.compile_seconds + found.link_seconds
