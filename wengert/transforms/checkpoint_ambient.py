"""What a checkpointed function found around it when it was called, so that its recomputation finds the same."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from wengert.core.generator import Generator, default_generator
from wengert.core.interpret import Level
from wengert.core.state import State, thread

__all__ = ["Ambient"]


class Ambient:
    """The modes of a thread that change what operators give, as they are now.

    This is the one place where such modes are noted: a mode that is a field of :class:`~wengert.core.state.State` joins
    ``FIELDS``; one that is a watcher (see :mod:`wengert.core.interpret`) says so with an attribute ``ambient = True``.
    Grad mode needs no note: nothing is checkpointed while it is off. Levels (the running transforms) that have ended by
    the time of a recomputation take place once more for it: the arguments may be theirs.

    Args:
        values: the function's arguments; generators among them are put back too.
        random: whether random numbers are to be drawn again, from the thread's generator (the default one if it has none of
            its own) and those among ``values``.
    """

    FIELDS: tuple[str, ...] = ()

    def __init__(self, values: Iterable[Any], random: bool) -> None:
        state = thread.state
        self.fields: dict[str, Any] = {name: getattr(state, name) for name in self.FIELDS}
        self.casting = state.casting
        self.levels: tuple[Level, ...] = tuple(state.levels)
        self.around: tuple[Any, ...] | None = state.watchers
        self.modes = tuple(w for w in state.watchers if _is_ambient(w))
        self.generators: list[tuple[Generator, Any]] = []
        if random:
            self.fields["generator"] = state.generator
            own = state.generator or default_generator
            found = dict.fromkeys((own, *(v for v in values if isinstance(v, Generator))))
            self.generators = [(g, g.get_state()) for g in found]

    def settle(self) -> None:
        """Note that the function has ended: what looked on from around it is held no longer."""
        self.around = None

    def watchers(self) -> tuple[Any, ...]:
        """Return who sees the recomputation: who looks on now, and the modes of then.

        While the function itself is still running, what it has put on the stack does not see its recomputation.
        """
        now = thread.state.watchers if self.around is None else self.around
        return (*(w for w in now if not _is_ambient(w)), *self.modes)

    @contextmanager
    def restored(self, **changes: Any) -> Iterator[None]:
        """Put the modes back for a block, and change further fields of the thread's state; afterwards all is as it was."""
        state = thread.state
        casting = None if self.casting is None else self.casting.fresh()  # no cast outlives the recomputation
        changes = {**self.fields, "levels": list(self.levels), "casting": casting, **changes}
        before = {name: getattr(state, name) for name in changes}
        positions = [(g, g.get_state()) for g, _ in self.generators]
        ended = [level for level in self.levels if not level.alive]
        try:
            _set(state, changes)
            for level in ended:
                level.alive = True
            for generator, position in self.generators:
                generator.set_state(position)
            yield
        finally:
            for generator, position in positions:
                generator.set_state(position)
            for level in reversed(ended):
                level.alive = False
                level.end()
            _set(state, before)


def _is_ambient(watcher: Any) -> bool:
    return bool(getattr(watcher, "ambient", False))


def _set(state: State, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(state, name, value)
    state.update()
