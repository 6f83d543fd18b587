"""Activation checkpointing: a function's saved tensors are not kept but computed again when backward asks for them.

The function runs under a pack hook that keeps nothing but an empty :class:`Slot` per saved tensor. The first slot that a
backward unpacks runs the function again, under a second pack hook that fills the slots in the order in which they were
made, and stops as soon as the last one that is still wanted is filled. This is the scheme of PyTorch's
``use_reentrant=False``; the idea is that of T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear
memory cost", arXiv:1604.06174.

What was computed again belongs to one backward pass: it lies in that pass's notes, goes as the graph is freed, and at the
latest when the pass reaches a part of the graph recorded before.
"""

import math
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

from wengert import tree
from wengert.core.interpret import level_of, watching
from wengert.core.node import next_sequence
from wengert.core.place import here
from wengert.core.record import Packed, pack
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array, node_of, version_of
from wengert.errors import InplaceError
from wengert.tape.saved import saved_tensors_hooks
from wengert.transforms.checkpoint_ambient import Ambient
from wengert.transforms.checkpoint_report import Leaves, OperatorLog, Origin, Run, check_saved, fact_of
from wengert.transforms.control_check import check_callable

__all__ = [
    "checkpoint",
    "is_recomputing",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]

Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]


class _Settings(threading.local):
    """What overrides the arguments of :func:`checkpoint` in a thread; None: nothing does."""

    debug: bool | None = None
    early_stop: bool | None = None


_settings = _Settings()


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Override ``debug`` of every :func:`checkpoint` called in the block by this thread; None overrides nothing."""
    outer, _settings.debug = _settings.debug, enabled
    try:
        yield
    finally:
        _settings.debug = outer


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Override ``early_stop`` of every :func:`checkpoint` called in the block by this thread, wherever backward runs."""
    outer, _settings.early_stop = _settings.early_stop, enable
    try:
        yield
    finally:
        _settings.early_stop = outer


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return two contexts that do nothing: the default of ``context_fn``."""
    return nullcontext(), nullcontext()


class Slot:
    """Stands on the tape where a saved tensor would be.

    Attributes:
        kept: the tensor after all, if it belongs to a transform that the function itself runs: another run of the function
            runs another one, whose tensors are not this one's. None otherwise.
    """

    __slots__ = ("__weakref__", "kept")

    def __init__(self, kept: "Value | None") -> None:
        self.kept = kept


class Value(NamedTuple):
    """A tensor that was computed again, its version cell and what that counted when the tensor was saved."""

    tensor: Any
    cell: Any
    version: int

    def checked(self) -> Any:
        """Return the tensor.

        Raises:
            InplaceError: if its memory was written since.
        """
        if self.cell.count != self.version:
            raise InplaceError(
                f"a tensor of shape {tuple(self.tensor.shape)} that backward needs was changed in place inside a checkpointed "
                f"function by {self.cell.first_write_after(self.version)}; change it out of place (x = x * 2 instead of "
                "x *= 2), or save a clone()"
            )
        return self.tensor


def value_of(tensor: Any) -> Value:
    """Return a tensor as it is now, without its history."""
    detached = from_array(tensor._payload)
    detached._cell = cell = version_of(tensor)
    return Value(detached, cell, cell.count)


class Argument:
    """A tensor the function was given, kept as an operator keeps one: as the user's pack hook made it, or itself."""

    __slots__ = ("cell", "held", "node", "version")

    def __init__(self, tensor: Any) -> None:
        state = thread.state
        self.node = node_of(tensor)
        self.held: Any = pack(tensor, state) if state.saved_hooks else tensor
        self.cell = version_of(tensor)
        self.version = self.cell.count

    def tensor(self, origin: Origin) -> Any:
        """Return the tensor as the function got it.

        Raises:
            InplaceError: if its memory was written since.
        """
        held = self.held
        if isinstance(held, Packed):
            found = held.unpack(held.packed)
            out = from_array(found._payload)
            out._cell, out._node = found._cell, self.node
            return out
        if self.cell.count != self.version:
            raise InplaceError(
                f"an argument of a checkpointed function was changed in place before it was computed again.\n"
                f"  given: shape {tuple(held.shape)}, version {self.version}, to {origin}\n"
                f"  changed: by {self.cell.first_write_after(self.version)}, now version {self.cell.count}\n"
                "  change it out of place (x = x * 2 instead of x *= 2), or give the function a clone()"
            )
        return held


class Options(NamedTuple):
    """How a region is recomputed: see :func:`checkpoint`."""

    check: bool
    debug: bool
    early_stop: bool


class Stop(BaseException):
    """Leaves the function once nothing more of it is wanted. No ``except Exception`` of the function's may catch it."""


class Region:
    """One call of a checkpointed function: the slots it left on the tape, and how to fill them.

    The tape holds the region through its slots' unpack hook; the region holds the slots weakly. So it goes when they go.

    Attributes:
        first, last: positions in the order of recording before and after its nodes (infinite while it runs).
    """

    def __init__(
        self, function: Any, args: Any, kwargs: Any, options: Options, random: bool, again: AbstractContextManager[Any]
    ) -> None:
        leaves, self.structure = tree.flatten((args, kwargs))
        self.function, self.options, self.again = function, options, again
        self.origin = Origin(function, here())
        self.ambient = Ambient(leaves, random)
        self.leaves = [Argument(v) if isinstance(v, Tensor) else v for v in leaves]
        self.slots: list[weakref.ref[Slot]] = []
        self.run = Run(OperatorLog() if options.check or options.debug else None)
        self.used: Leaves | None = None
        self.first, self.last = next_sequence(), math.inf

    @property
    def is_running(self) -> bool:
        """Whether the function has not ended yet: it runs a backward itself."""
        return self.last == math.inf

    def end(self) -> None:
        """Note that the function has ended."""
        self.last = next_sequence()
        self.ambient.settle()
        self.used = None if self.run.log is None else Leaves(self.origin, self.run.log)

    def pack(self, tensor: Any) -> Slot:
        """Keep an empty slot instead of a saved tensor."""
        level = level_of(tensor)
        slot = Slot(None if level is None or level in self.ambient.levels else value_of(tensor))
        self.slots.append(weakref.ref(slot))
        self.run.saved.append(fact_of(tensor, self.run.log))
        return slot

    def unpack(self, slot: Slot) -> Any:
        """Return the tensor a slot stands for, computing the function again if this backward has not yet."""
        if slot.kept is not None:
            return slot.kept.checked()
        values = self.values()
        if slot not in values:
            self.recompute(values)
        return values[slot].checked()

    def values(self) -> "weakref.WeakKeyDictionary[Slot, Value]":
        """Return what the running backward has computed again; let go of what it will not ask for any more.

        A backward visits nodes in the reverse order of recording: a region behind this one is done with.
        """
        walk = thread.state.walk
        if walk is None:
            return weakref.WeakKeyDictionary()
        regions: dict[int, Any] = walk.notes.setdefault(Region, {})
        if self.first not in regions:
            for first in [first for first in regions if first > self.last]:
                del regions[first]
            regions[self.first] = weakref.WeakKeyDictionary()
        return regions[self.first]

    def recompute(self, values: "weakref.WeakKeyDictionary[Slot, Value]") -> None:
        """Run the function again and fill the slots that are still on the tape.

        Raises:
            CheckpointError: if it saves other tensors than before.
        """
        if self.used is not None:
            self.used.check()
        args, kwargs = tree.unflatten(
            [v.tensor(self.origin) if isinstance(v, Argument) else v for v in self.leaves], self.structure
        )
        filling = Filling(self, values)
        modes = self.ambient.restored(
            grad=True, inference=False, saved_hooks=[(filling.pack, Value.checked)], saved_hooks_error=None,
            watchers=self.ambient.watchers(),
        )  # fmt: skip
        _recomputing.depth += 1
        try:
            with modes, self.again, _logging(filling.run.log):
                self.function(*args, **kwargs)
        except Stop:
            filling.run.stopped = True
        except Exception as error:
            error.add_note(f"while computing again, for backward, {self.origin}")
            raise
        finally:
            _recomputing.depth -= 1
        if self.used is not None:
            self.used.renew()
        options = self.options
        check_saved(
            self.origin, self.run, filling.run, facts=options.check, whole=options.debug, open_ended=self.is_running
        )


class Filling:
    """One recomputation of a region: fills its slots in the order in which they were made."""

    def __init__(self, region: Region, values: "weakref.WeakKeyDictionary[Slot, Value]") -> None:
        self.slots, self.values = region.slots, values
        self.run = Run(OperatorLog() if region.run.log is not None else None)
        wanted = [i for i, ref in enumerate(self.slots) if (slot := ref()) is not None and slot.kept is None]
        self.end = wanted[-1] if region.options.early_stop else -1

    def pack(self, tensor: Any) -> Value:
        """Fill the next slot; the function's own graph keeps the same tensor.

        Raises:
            Stop: after the last slot that is wanted.
        """
        saved = self.run.saved
        number = len(saved)
        saved.append(fact_of(tensor, self.run.log))
        value = value_of(tensor)
        slot = self.slots[number]() if number < len(self.slots) else None
        if slot is not None:
            self.values[slot] = value
        if number == self.end:
            raise Stop
        return value


class _Depth(threading.local):
    depth = 0


_recomputing = _Depth()


def is_recomputing() -> bool:
    """Return True while this thread computes a checkpointed function again.

    For functions with a lasting effect (a running average, a counter) that is to happen once per step.
    """
    return _recomputing.depth > 0


def _logging(log: OperatorLog | None) -> AbstractContextManager[Any]:
    return nullcontext() if log is None else watching(log)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    preserve_rng_state: bool = True,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Return ``function(*args, **kwargs)`` without keeping what its backward needs: backward computes it again.

    This takes about one more forward and saves the memory of everything between the arguments and the results. The
    gradients are the same, of any order; checkpoints nest. In a compiled function it does nothing: what is computed again
    there is decided for the whole program, by the ``memory_budget`` of :func:`wengert.compile`.

    Args:
        function: any function or module. It must do the same both times: what it reads besides its arguments may not
            change before backward.
        args, kwargs: its arguments, trees of tensors and other values. The tensors among them are kept.
        use_reentrant: None or False; the reentrant variant does not exist.
        context_fn: returns two contexts, for the forward and for the recomputation; see
            :func:`~wengert.utils.checkpoint.create_selective_checkpoint_contexts`.
        determinism_check: ``"default"`` compares number, shape and dtype of what both runs save; ``"none"`` the number alone,
            and saves the note that is otherwise taken of every operator.
        debug: show every operator of both runs, not those near the first difference, if they differ.
        preserve_rng_state: draw the same random numbers again, and leave the generators as they were. Threads that compute
            again at the same time must not share one.
        early_stop: leave the recomputation as soon as everything wanted is computed.

    Raises:
        TypeError: for something that is no function, or a ``context_fn`` that returns no two contexts.
        ValueError: for ``use_reentrant=True`` or an unknown ``determinism_check``.
        CheckpointError: in backward, if the function did something else when it was computed again.
        InplaceError: in backward, if an argument or a leaf it uses was changed in place since.

    Example:
        >>> import wengert as wg
        >>> from wengert.utils.checkpoint import checkpoint
        >>> x = wg.tensor([0.0, 1.0], requires_grad=True)
        >>> checkpoint(lambda x: x.sin().exp(), x).sum().backward()
        >>> x.grad
        tensor([1.0000, 1.2534])
    """
    check_callable("checkpoint", function=function, context_fn=context_fn)
    if use_reentrant:
        raise ValueError(
            "checkpoint(use_reentrant=True) is not supported: the reentrant variant runs a backward inside backward and loses "
            "keyword arguments, autograd.grad and inputs without gradients; pass use_reentrant=False"
        )
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check must be 'default' or 'none', got {determinism_check!r}")
    if not thread.state.grad or thread.state.captures is not None:
        return function(*args, **kwargs)
    options = Options(
        determinism_check == "default",
        debug if _settings.debug is None else _settings.debug,
        early_stop if _settings.early_stop is None else _settings.early_stop,
    )
    contexts: Any = context_fn()
    if not isinstance(contexts, tuple | list) or len(contexts) != 2:
        given = type(contexts).__name__
        raise TypeError(f"checkpoint(): context_fn must return two contexts, of forward and recomputation, got {given}")
    forward, again = contexts
    region = Region(function, args, kwargs, options, preserve_rng_state, again)
    result = region  # nothing a function could return
    with saved_tensors_hooks(region.pack, region.unpack), forward, _logging(region.run.log):
        result = function(*args, **kwargs)
    if result is region:
        raise RuntimeError("the forward context of context_fn suppressed an exception of the checkpointed function")
    region.end()
    return result
