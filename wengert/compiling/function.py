"""``wengert.compile``: a function that is captured when it is first called, and run as a program from then on."""

import functools
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from wengert import tree
from wengert.compiling.capturing import capture
from wengert.compiling.decisions import Different, rewound_unless_done, same
from wengert.compiling.forms import key_of, recogniser
from wengert.compiling.frozen import freeze
from wengert.compiling.program import Program
from wengert.compiling.verify import verified
from wengert.core.interpret import Payload
from wengert.core.place import Place, describe, raised_at, stacklevel
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.errors import CaptureError, TransformError
from wengert.graph.refusals import NeedsValues, NotYet
from wengert.runtime.budget import Budget
from wengert.runtime.policies import Policy

__all__ = ["Compiled", "reason"]


FORMS, PROGRAMS = 256, 32  # that are kept: of arguments, and for each of them
POSTPONED = 8  # times in a row that it is run as it is, to be captured the next time
_TENSORS = {Tensor}
ANEW = 32  # calls in a row for each of which it is captured, past which it is run as it is
WAYS = 16  # through a function for one form of arguments, past which it is run as it is


class AsItIs(Exception):  # noqa: N818 - not an error: the function is run as it is
    """No program is run: the function itself is to be called, with the arguments that were given."""


_functions: WeakSet["Compiled"] = WeakSet()


class Compiled:
    """A function that runs as captured programs; see :func:`wengert.compile`."""

    def __init__(
        self, function: Callable[..., Any], *, fullgraph: bool, backend: str, verify: str | None = None,
        budget: Budget | None = None, policy: str | Policy = "priority", background: bool = False, frozen: bool = False,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self.function, self.fullgraph, self.backend, self.verify = function, fullgraph, backend, verify
        self.budget, self.policy, self.background, self.frozen = budget, policy, background, frozen
        self.programs: dict[Any, list[Program]] = {}
        self.retraces: list[str] = []
        self.fallback = ""
        self._given_up, self._postponed, self._anew = False, 0, 0
        self._latest: tuple[Any, Any, list[Program]] = (None, None, [])  # the key, the structure, and the programs
        self._alike: Callable[[Sequence[Any]], bool] | None = None  # whether other arguments have the latest key
        self._plain: dict[int, Any] = {}
        self._lock, self._running = threading.RLock(), False
        _functions.add(self)

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with."""
        return {
            "fullgraph": self.fullgraph, "backend": self.backend, "verify": self.verify, "budget": self.budget,
            "policy": self.policy, "background": self.background, "frozen": self.frozen,
        }  # fmt: skip

    def __reduce__(self) -> Any:
        return _compiled, (self.function, self.options)

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Sequence[Any], Any]:
        """Return the leaves of the arguments, and their structure, which for tensors alone is known by their number."""
        if not kwargs and set(map(type, args)) <= _TENSORS:
            structure = self._plain.get(len(args))
            if structure is None:
                structure = self._plain[len(args)] = tree.structure((args, kwargs))
            return args, structure
        return tree.flatten((args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread.state.levels or self._given_up:
            return self.function(*args, **kwargs)
        with self._lock:  # the memory of a program is for one call at a time
            if self._running:  # called by what it calls
                return self.function(*args, **kwargs)
            self._running = True
            try:
                try:
                    return self._called(args, kwargs)
                except AsItIs:
                    pass
                return self.function(*args, **kwargs)
            finally:
                self._running = False

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not kwargs and (alike := self._alike) is not None and alike(args):
            return self._among(args, *self._latest)
        leaves, structure = self._flat(args, kwargs)
        key = key_of(leaves, structure)
        if key != self._latest[0]:
            if any(isinstance(leaf, Tensor) and isinstance(leaf._payload, Payload) for leaf in leaves):
                raise AsItIs
            self._latest, self._alike = (key, structure, self.programs.setdefault(key, [])), None
        elif self._alike is None and leaves is args:
            self._alike = recogniser(args)
        return self._among(leaves, *self._latest)

    def _among(self, leaves: Sequence[Any], key: Any, structure: Any, known: list[Program]) -> Any:
        """Run that of the programs for one form of arguments that is right, or a new one."""
        why = ""
        for program in known:
            broken = program.guards.broken(leaves)
            if broken is None:
                self._anew = 0
                return self._run(key, program, leaves, structure)
            why = broken
        self._anew += bool(why)
        if self._anew > ANEW and not self.fullgraph:
            self._give_up(f"{why}, as something did before each of {ANEW} calls; pass what changes as a tensor")
            raise AsItIs
        return self._captured(key, leaves, structure, why)

    def program(self, leaves: Sequence[Any], structure: Any) -> Program:
        """Capture the function, and return what runs it; nothing outside changes.

        Raises:
            TransformError: if it cannot be captured. ValueError: for a memory budget that cannot be met.
        """
        program = capture(self.function, leaves, structure)
        program.budget, program.policy = self.budget, self.policy
        if self.frozen:
            freeze(program)
        if self.background:
            program.prepare_behind(self.backend)
        else:
            program.prepare(self.backend)
        return program

    def known(self, leaves: Sequence[Any], structure: Any) -> list[Program]:
        """Return the programs that a call with these arguments may run, the latest first: one for each way."""
        with self._lock:
            programs = self.programs.get(key_of(leaves, structure), [])
            return [program for program in programs if program.guards.broken(leaves) is None]

    def _run(self, key: Any, program: Program, leaves: Sequence[Any], structure: Any) -> Any:
        """Run a program, or the one of the way that the values decide for."""
        if not program.decisions:
            return self._execute(program, leaves)
        tried = [program]
        while True:
            try:
                with rewound_unless_done(program) as done:
                    result = self._execute(program, leaves)
                    done()
                self.programs[key].remove(program)
                self.programs[key].insert(0, program)
                return result
            except Different as met:
                found, place = self._other_way(key, program, met, leaves, tried), program.decisions[met.number].place
            if found is None:
                return self._captured(
                    key, leaves, structure, f"the value asked for at {describe(place)} was another", place
                )
            program = found
            tried.append(program)

    def _execute(self, program: Program, leaves: Sequence[Any]) -> Any:
        if not program.ready:
            raise AsItIs
        if self.verify == "always" or (self.verify and not program.verified):
            return verified(program, leaves, self.name)
        return program(leaves)

    def _other_way(
        self, key: Any, program: Program, different: Different, leaves: Sequence[Any], tried: list[Program]
    ) -> Program | None:
        """Return a program that took the same way until it met the decision that came out otherwise."""
        number, answer = different.number, different.answer
        before = [d.answer for d in program.decisions[:number]]
        for other in self.programs[key]:
            answers = [d.answer for d in other.decisions[: number + 1]]
            if (
                other not in tried and len(answers) == number + 1 and same(answers[number], answer)
                and all(map(same, answers, before)) and other.guards.broken(leaves) is None
            ):  # fmt: skip
                return other
        return None

    def _captured(self, key: Any, leaves: Sequence[Any], structure: Any, why: str, place: Place | None = None) -> Any:
        if place is not None and len(self.programs[key]) >= WAYS:
            self._give_up(
                f"what is asked for at {describe(place)} had more than {WAYS} values; keep it a tensor, with where() or "
                "cond(), give loops a fixed length, or leave this part out of the compiled function"
            )
            raise AsItIs
        self._drop_outdated()
        try:
            program = self.program(leaves, structure)
        except NotYet as error:
            self._postponed += not error.patient
            if self._postponed > POSTPONED:
                self._give_up(str(error))
            raise AsItIs from None
        except TransformError as error:  # of the capture, or, if it is the function's own, raised again when that runs
            if self.fullgraph:
                raise
            self._give_up(reason(error))
            raise AsItIs from None
        self._postponed = 0
        if why:
            self.retraces.append(why)
        known = self.programs[key] = self.programs.pop(key, [])  # the latest is the last to go
        self._latest = key, structure, known
        known.insert(0, program)
        del known[PROGRAMS:]
        while len(self.programs) > FORMS:
            del self.programs[next(iter(self.programs))]
        program.first = program.ready
        with program.seconds.of("first run"):
            return self._run(key, program, leaves, structure)

    def _drop_outdated(self) -> None:
        """Drop programs of all forms with constants that are no longer right, before others take their memory again."""
        for programs in self.programs.values():
            programs[:] = [program for program in programs if not program.guards.outdated]

    def _give_up(self, why: str) -> None:
        """Run the function as it is from now on, and say so once.

        Raises:
            CaptureError: if that is not wanted.
        """
        if self.fullgraph:
            raise CaptureError(f"{self.name} cannot be compiled: {why}")
        warnings.warn(f"{self.name} is run as it is, not compiled: {why}", RuntimeWarning, stacklevel=stacklevel())
        self._given_up, self.fallback = True, why

    @property
    def name(self) -> str:
        """What the function is called."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def _begin_anew() -> None:
    """Begin anew in the child of a fork: a thread that is no longer there may have been in the middle of a call."""
    for one in list(_functions):
        one._lock, one._running = threading.RLock(), False
        one.programs.clear()
        one._latest, one._alike = (None, None, []), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _compiled(function: Callable[..., Any], options: dict[str, Any]) -> Compiled:
    """Return a compiled function without programs: what a pickled or copied one becomes."""
    return Compiled(function, **options)


def reason(error: Exception) -> str:
    """Return why a function could not be captured, with the line."""
    place = None if isinstance(error, NeedsValues) else raised_at(error)
    return str(error) if place is None else f"{error} (at {describe(place)})"
