"""Selective checkpointing: which operators' results a checkpointed function keeps after all.

A policy is asked after every operator of the forward. The results it keeps are handed out when the function is computed
again, where the operator is then recorded but not run. Inside transforms (``vmap``, ``jvp``) that is decided for the
operators they run on plain tensors: on a whole batch, on values and tangents.
"""

import enum
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from wengert.core.generator import Generator, default_generator
from wengert.core.interpret import highest, interpret, watching
from wengert.core.operator import Op
from wengert.core.place import Place, describe, here
from wengert.core.record import record
from wengert.core.registry import names_near, operators
from wengert.core.state import thread
from wengert.core.tensor import from_array, version_of
from wengert.errors import InplaceError
from wengert.transforms.checkpoint_report import CheckpointError, tensors_among

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What becomes of an operator's results.

    ``SAVE`` keeps them and ``RECOMPUTE`` does not. ``MUST`` and ``PREFER`` differ only for what plans memory on its own.
    ``CPU_OFFLOAD`` keeps them in main memory, where all tensors are, so it is the same as ``SAVE``; to keep them in files
    see :class:`wengert.autograd.graph.save_on_disk`.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_RECOMPUTED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


class SelectiveCheckpointContext:
    """What a policy is told besides the operator and its arguments.

    Attributes:
        is_recompute: False; a policy is asked in the forward alone. op_output: what the operator returned.
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


Policy = Callable[..., CheckpointPolicy | bool]


class Kept(NamedTuple):
    """A result that was kept: its payload, its version cell and what that counted then."""

    payload: Any
    cell: Any
    version: int


class Entry(NamedTuple):
    """One operator call of the forward.

    Attributes:
        op, place: the operator and the user's line. results: what was kept of it, or None. make: builds what it returns of
            its results. draws: by how much it moved each generator on.
    """

    op: Op
    place: Place
    results: tuple[Kept, ...] | None = None
    make: Callable[[list[Any]], Any] | None = None
    draws: tuple[tuple[Generator, int], ...] = ()


class _Plain:
    """A watcher of the operators that run on plain tensors: a transform's are taken apart first."""

    def around(self, op: Op, values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """Return the result of a call."""
        level = highest(tensors_among(op, values))
        if level is None:
            return self.around_plain(op, values, run)
        with watching(self):
            return interpret(level, op, values, thread.state)

    def around_plain(self, op: Op, values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """Return the result of a call on plain tensors."""
        raise NotImplementedError


class _Keeping(_Plain):
    """The watcher of the forward: asks the policy about every call and keeps results."""

    def __init__(self, policy: Policy, entries: list[Entry]) -> None:
        self.policy, self.entries = policy, entries

    def around_plain(self, op: Op, values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """Run the operator, and keep its results if the policy says so."""
        generators = _generators(values)
        before = [g.offset for g in generators]
        result = run(values)
        results = result if isinstance(result, tuple) else (result,)
        if not _asks_to_save(self.policy, op, values, result) or not _can_keep(results):
            self.entries.append(Entry(op, here()))
            return result
        kept = tuple(Kept(r._payload, version_of(r), version_of(r).count) for r in results)
        draws = tuple((g, g.offset - n) for g, n in zip(generators, before, strict=True) if g.offset != n)
        self.entries.append(Entry(op, here(), kept, _maker(result), draws))
        return result


def _generators(values: Iterable[Any]) -> list[Generator]:
    """Return the generators an operator may draw from."""
    return [thread.state.generator or default_generator, *(v for v in values if isinstance(v, Generator))]


def _asks_to_save(policy: Policy, op: Op, values: list[Any], result: Any) -> bool:
    at = op.signature.positional
    context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
    choice = policy(context, op.function, *values[:at], **dict(zip(op.keywords, values[at:], strict=True)))
    if isinstance(choice, CheckpointPolicy):
        return choice not in _RECOMPUTED
    if isinstance(choice, bool):
        return choice
    raise TypeError(f"a policy must return a CheckpointPolicy or a bool, got {type(choice).__name__} for {op.name}()")


def _can_keep(results: Iterable[Any]) -> bool:
    """False for views, which cost nothing to take again, and for results of inference mode, which have no version."""
    return not thread.state.inference and all(r._view is None for r in results)


def _maker(result: Any) -> Callable[[list[Any]], Any]:
    if not isinstance(result, tuple):
        return lambda results: results[0]
    kind = type(result)
    return (lambda results: kind(*results)) if hasattr(result, "_fields") else tuple


class _Replaying(_Plain):
    """The watcher of a recomputation: hands out what was kept, and lets run what was not."""

    def __init__(self, entries: Sequence[Entry], allow_mutation: bool) -> None:
        self.entries, self.allow_mutation = entries, allow_mutation
        self.position = 0

    def around_plain(self, op: Op, values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """Return the kept results, recorded as the operator's; or run it."""
        entry = self.entries[self.position] if self.position < len(self.entries) else None
        if entry is None or entry.op is not op:
            raise _another(op, entry, self.position)
        self.position += 1
        if entry.results is None or entry.make is None:
            return run(values)
        for generator, moved in entry.draws:
            generator.offset += moved
        results = [self._handed_out(entry, kept) for kept in entry.results]
        if thread.state.grad and op.family != "nondifferentiable":
            record(op, values, results)
        return entry.make(results)

    def _handed_out(self, entry: Entry, kept: Kept) -> Any:
        if kept.cell.count != kept.version and not self.allow_mutation:
            raise InplaceError(
                f"a result that selective checkpointing keeps was changed in place.\n"
                f"  kept: of {entry.op.name}(), shape {tuple(kept.payload.shape)}, at {describe(entry.place)}\n"
                f"  changed: by {kept.cell.first_write_after(kept.version)}\n"
                f"  change it out of place, do not keep {entry.op.name}(), or pass allow_cache_entry_mutation=True if the "
                "change is wanted"
            )
        result = from_array(kept.payload)
        result._cell = kept.cell
        return result


def _another(op: Op, entry: Entry | None, number: int) -> CheckpointError:
    then = f"{entry.op.name}() at {describe(entry.place)}" if entry is not None else "none any more"
    return CheckpointError(
        f"selective checkpointing: a function called another operator when it was computed again.\n"
        f"  operator {number} of the forward: {then}\n"
        f"  computed again: {op.name}() at {describe(here())}\n"
        "  What the function reads besides its arguments (the state of a module, a cache, a global) must be the same in "
        "backward."
    )


class _Forward(AbstractContextManager[None]):
    """The context of the forward; it serves one call."""

    def __init__(self, policy: Policy, entries: list[Entry]) -> None:
        self.policy, self.entries = policy, entries
        self.used = False

    def __enter__(self) -> None:
        if self.used:
            raise RuntimeError(
                "the contexts of selective checkpointing serve one call: let context_fn make new ones, such as "
                "functools.partial(create_selective_checkpoint_contexts, policy)"
            )
        self.used = True
        self.watching = watching(_Keeping(self.policy, self.entries))
        self.watching.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.watching.__exit__(*error)


class _Again(threading.local, AbstractContextManager[None]):
    """The context of the recomputations; it may be entered any number of times, by any thread."""

    def __init__(self, entries: Sequence[Entry], allow_mutation: bool) -> None:
        self.entries, self.allow_mutation = entries, allow_mutation
        self.entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self.entered.append(watching(_Replaying(self.entries, self.allow_mutation)))
        self.entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self.entered.pop().__exit__(*error)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts with which a checkpoint keeps the results of some operators.

    Args:
        policy_fn_or_list: the operators to keep, each as its function (``wg.matmul``) or by name; or a policy, called as
            ``policy(ctx, op, *args, **kwargs)`` after each operator ``op`` (its function) with a
            :class:`SelectiveCheckpointContext`, that returns a :class:`CheckpointPolicy` (or a bool: keep it).
        allow_cache_entry_mutation: hand out kept results even if they were changed in place since.

    Returns:
        The context of the forward and that of the recomputation. Views are not kept: they are taken again, which costs
        nothing. Backward may run any number of times.

    Raises:
        ValueError: for something that is no operator. TypeError: for neither a policy nor a list.

    Example:
        >>> from functools import partial
        >>> import wengert as wg
        >>> from wengert.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
        >>> w = wg.eye(2, requires_grad=True)
        >>> contexts = partial(create_selective_checkpoint_contexts, [wg.matmul])
        >>> checkpoint(lambda w: (w @ w).exp(), w, context_fn=contexts).sum().backward()
    """
    if hasattr(policy_fn_or_list, "op"):
        raise TypeError(f"a list of operators is expected: pass [{policy_fn_or_list.__name__}]")  # type: ignore[union-attr]
    if callable(policy_fn_or_list):
        policy: Policy = policy_fn_or_list
    elif isinstance(policy_fn_or_list, Iterable) and not isinstance(policy_fn_or_list, str):
        kept = {_operator(o) for o in policy_fn_or_list}

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op.op in kept else CheckpointPolicy.PREFER_RECOMPUTE
    else:
        raise TypeError(f"expected a policy function or a list of operators, got {type(policy_fn_or_list).__name__}")
    entries: list[Entry] = []
    return _Forward(policy, entries), _Again(entries, allow_cache_entry_mutation)


def _operator(given: Any) -> Op:
    """Return the operator given as its function, itself or its name."""
    op = operators().get(given) if isinstance(given, str) else getattr(given, "op", given)
    if not isinstance(op, Op):
        near = names_near(given, operators()) if isinstance(given, str) else []
        hint = (
            f"; the nearest are: {', '.join(near)}" if near else "; give a function such as wengert.matmul, or its name"
        )
        raise ValueError(f"{given!r} is no operator{hint}")
    if op.composite:
        raise ValueError(f"{op.name}() is made of other operators and keeps nothing itself: name those")
    return op
