"""What a checkpointed function did, in the forward and again for backward; and what to say if the two differ."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any, NamedTuple

from wengert.array.dtype import dtype_of
from wengert.core.node import Leaf
from wengert.core.operator import Op
from wengert.core.place import Place, describe, here
from wengert.core.tensor import Tensor, version_of
from wengert.errors import InplaceError

__all__ = [
    "CheckpointError",
    "Fact",
    "Leaves",
    "OperatorLog",
    "Origin",
    "Run",
    "check_saved",
    "fact_of",
    "tensors_among",
]

BEFORE, AFTER = 3, 8  # operators shown around the first difference where debug is off
LONGEST = 2000  # operators behind the first difference that are aligned


class CheckpointError(RuntimeError):
    """A checkpointed function did something else when it was computed again; the message shows where it first differs."""


class Origin(NamedTuple):
    """A function that was checkpointed, and the user's line that did it; in messages, both in words."""

    function: Any
    place: Place

    def __str__(self) -> str:
        title = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{title}, called at {describe(self.place)}"


class Fact(NamedTuple):
    """What is remembered of a saved tensor.

    Attributes:
        shape, dtype: its own (the NumPy dtype). op: the operator that saved it; None if none did, or none is noted.
    """

    shape: tuple[int, ...]
    dtype: Any
    op: Op | None = None

    def __str__(self) -> str:
        owner = f" saved by {self.op.name}()" if self.op is not None else ""
        return f"{dtype_of(self.dtype).name} {tuple(self.shape)}{owner}"


class Call:
    """One operator call.

    Attributes:
        op, place: the operator and the user's line.
        results: shape and dtype of each result; None if it was left before it had any.
    """

    __slots__ = ("op", "place", "results")

    def __init__(self, op: Op, place: Place) -> None:
        self.op, self.place = op, place
        self.results: tuple[Fact, ...] | None = None

    def __str__(self) -> str:
        results = ", ".join(map(str, self.results or ()))
        return f"{self.op.name:<12} {results:<20} {describe(self.place)}"


class OperatorLog:
    """A watcher that notes every operator call in order.

    Attributes:
        calls: the calls so far. current: the operator that is running, or None. leaves: the version cell of each leaf that
            an operator was given, with the first call that was.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.leaves: dict[Any, Call] = {}
        self.current: Op | None = None

    def around(self, op: Op, values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """Run the operator and note it."""
        call = Call(op, here())
        self.calls.append(call)
        for tensor in tensors_among(op, values):
            if type(tensor._node) is Leaf:
                self.leaves.setdefault(version_of(tensor), call)
        self.current = op
        try:
            result = run(values)
        finally:
            self.current = None
        results = result if isinstance(result, tuple) else (result,)
        call.results = tuple(Fact(r._payload.shape, r._payload.dtype) for r in results)
        return result


def tensors_among(op: Op, values: Sequence[Any]) -> Iterator[Any]:
    """Give the tensors among an operator's arguments."""
    for i in op.signature.inputs:
        value = values[i]
        yield from (v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Tensor))


class Run:
    """One run of a checkpointed function.

    Attributes:
        saved: what it saved for backward, in order. log: the operators it called, if they are noted.
        stopped: whether it was left as soon as it had saved what was wanted.
    """

    def __init__(self, log: OperatorLog | None) -> None:
        self.saved: list[Fact] = []
        self.log, self.stopped = log, False


def fact_of(tensor: Any, log: OperatorLog | None) -> Fact:
    """Return what is remembered of a saved tensor."""
    payload = tensor._payload
    return Fact(payload.shape, payload.dtype, None if log is None else log.current)


class Leaves:
    """The leaves that a checkpointed function uses, with what their version cells counted when it ended.

    A leaf that is written by others before the function is computed again gives other values, even where backward does
    not need the leaf itself. What the function writes is its own affair.
    """

    def __init__(self, origin: Origin, log: OperatorLog) -> None:
        self.origin, self.calls = origin, log.leaves
        self.renew()

    def renew(self) -> None:
        """Note the counts of now: the function has ended, or been computed again."""
        self.counts = [cell.count for cell in self.calls]

    def check(self) -> None:
        """Refuse to go on if one was written since.

        Raises:
            InplaceError: naming the operator that uses it and the line that changed it.
        """
        for (cell, call), before in zip(self.calls.items(), self.counts, strict=True):
            if cell.count != before:
                raise InplaceError(
                    f"a leaf that a checkpointed function uses was changed in place before the function was computed again.\n"
                    f"  function: {self.origin}\n"
                    f"  used: by {call.op.name}(), version {before}, at {describe(call.place)}\n"
                    f"  changed: by {cell.first_write_after(before)}, now version {cell.count}\n"
                    "  run backward first, and change it then (optimizer.step() after loss.backward())"
                )


def check_saved(origin: Origin, forward: Run, again: Run, *, facts: bool, whole: bool, open_ended: bool) -> None:
    """Compare what the two runs saved.

    Args:
        origin: the function and its call. forward, again: the runs.
        facts: compare operators, shapes and dtypes, not the number alone. whole: show every operator in the message.
        open_ended: the forward had not ended when it was computed again, which may then have saved more.

    Raises:
        CheckpointError: if they differ.
    """
    pairs = zip(forward.saved, again.saved, strict=False)
    different = next((i for i, (a, b) in enumerate(pairs) if facts and a != b), None)
    fewer = len(again.saved) < len(forward.saved) and not again.stopped
    more = len(again.saved) > len(forward.saved) and not open_ended
    if different is None and not fewer and not more:
        return
    lines = [f"a checkpointed function did something else when it was computed again for backward: {origin}"]
    if fewer or more:
        lines.append(
            f"  it saved {len(forward.saved)} tensors in the forward and {len(again.saved)} when computed again"
        )
    if different is not None:
        a, b = forward.saved[different], again.saved[different]
        lines.append(f"  saved tensor {different} is {a} in the forward, {b} when computed again")
    if forward.log is not None and again.log is not None:
        _complete(again.log.calls, forward.log.calls)
        lines += _compared(forward.log.calls, again.log.calls, again.stopped, whole)
    lines.append(
        "  What it reads besides its arguments (the state of a module, a cache, a global) must be the same in backward."
    )
    raise CheckpointError("\n".join(lines))


def _complete(again: list[Call], forward: list[Call]) -> None:
    """Take the call in which the second run was left to have given what it gave the first time."""
    if again and again[-1].results is None and len(again) <= len(forward):
        again[-1].results = forward[len(again) - 1].results


def _compared(forward: list[Call], again: list[Call], stopped: bool, whole: bool) -> list[str]:
    """Return the two lists of operators under each other, the first difference marked."""
    keys = [[(c.op.name, c.results) for c in calls] for calls in (forward, again)]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*keys, strict=False)))
    if same == len(forward) == len(again) or (stopped and same == len(again)):
        return ["  the operators it called are the same both times"]
    lines = [f"  the first operator that differs is number {same} (- forward only, + computed again only):"]
    start = 0 if whole else max(0, same - BEFORE)
    if start:
        lines.append(f"        … {start} more before, the same both times")
    lines += [f"        {call}" for call in forward[start:same]]
    tail = list(_difference(forward[same:], again[same:], keys[0][same:], keys[1][same:], stopped))
    shown = tail if whole else tail[:AFTER]
    lines += [f"    {'>' if i == 0 else ' '} {line}" for i, line in enumerate(shown)]
    if len(shown) < len(tail):
        lines.append(f"        … {len(tail) - len(shown)} more; checkpoint(…, debug=True) shows them all")
    return lines


def _difference(a: list[Call], b: list[Call], keys_a: list[Any], keys_b: list[Any], stopped: bool) -> Iterable[str]:
    matcher = SequenceMatcher(None, keys_a[:LONGEST], keys_b[:LONGEST], autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            yield from (f"  {call}" for call in a[i:i_end])
            continue
        if not (stopped and tag == "delete" and j == len(b)):  # what the second run was not let come to
            yield from (f"- {call}" for call in a[i:i_end])
        yield from (f"+ {call}" for call in b[j:j_end])
