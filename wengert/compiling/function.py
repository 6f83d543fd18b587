"""``wengert.compile``: a function that is captured when it is first called, and run as a program from then on."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from wengert import tree
from wengert.compiling.program import Program, capture
from wengert.compiling.sources import form_of
from wengert.core.interpret import Payload
from wengert.core.place import describe, here
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.graph.capture import NeedsValues, NotCapturable, NotYet
from wengert.settings import settings

__all__ = ["Compiled"]


class Compiled:
    """A function that runs as captured programs; see :func:`wengert.compile`."""

    def __init__(self, function: Callable[..., Any], *, fullgraph: bool, backend: str) -> None:
        functools.update_wrapper(self, function)
        self.function, self.fullgraph, self.backend = function, fullgraph, backend
        self.programs: dict[Any, list[Program]] = {}
        self.retraces: list[str] = []
        self._given_up = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = thread.state
        if state.levels or self._given_up:
            return self.function(*args, **kwargs)
        leaves, structure = tree.flatten((args, kwargs))
        if any(isinstance(leaf, Tensor) and isinstance(leaf._payload, Payload) for leaf in leaves):
            return self.function(*args, **kwargs)
        key = (structure, _forms(leaves), state.grad, state.inference, settings.default_dtype)
        known = self.programs.get(key, ())
        why = ""
        for program in known:
            broken = program.guards.broken(leaves)
            if broken is None:
                return program(leaves)
            why = broken
        return self._captured(key, leaves, structure, why)

    def _captured(self, key: Any, leaves: Sequence[Any], structure: Any, why: str) -> Any:
        args, kwargs = tree.unflatten(leaves, structure)
        try:
            program = capture(self.function, leaves, structure)
        except NotYet:
            return self.function(*args, **kwargs)
        except (NeedsValues, NotCapturable) as error:
            if self.fullgraph:
                raise
            warnings.warn(f"{self.function.__qualname__} is run as it is, not compiled: {error}", RuntimeWarning, stacklevel=3)
            self._given_up = True
            return self.function(*args, **kwargs)
        program.prepare(self.backend, leaves)
        if why:
            self.retraces.append(why)
        self.programs.setdefault(key, []).insert(0, program)
        return program(leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def _forms(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return what of the arguments a program is made for: forms of tensors, which are the same, and other values."""
    seen: dict[int, int] = {}
    found: list[Any] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            found.append((seen.setdefault(id(leaf), i), form_of(leaf)))
        elif isinstance(leaf, int | float | bool | str | bytes | complex | None):
            found.append((type(leaf), leaf))
        else:
            found.append(id(leaf))
    return tuple(found)
