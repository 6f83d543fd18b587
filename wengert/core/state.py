"""What a thread is doing: its grad mode, and whether anything asks for the general lane.

Each thread has its own :class:`State`, as in PyTorch. The fast lanes read it once per call.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["State", "local", "thread"]


class State:
    """The modes of one thread.

    Attributes:
        grad: whether operators are recorded.
        inference: whether inference mode is on.
        slow: whether every call must take the general lane (any mode below is on).
        saved_hooks: the stack of (pack, unpack) pairs for saved tensors.
        saved_hooks_error: the text that refuses new saved-tensor hooks, or None.
        anomaly: whether backward checks every gradient for NaN; anomaly_nan whether NaN is an error.
        levels: the running transforms, outermost first (see :mod:`wengert.core.interpret`); watchers: what sees every call.
        casting: how arguments of operators are cast (see :mod:`wengert.core.casting`), or None.
        captures: the level, at the bottom, that also takes operators on plain tensors, because it writes the program down.
        marked: whether new tensors must be marked: inference mode is on, or a program is captured.
        walk: the backward pass that is running, or None.
        generator: what this thread draws from where no generator is given; None: the default one.
        run: calls a NumPy kernel with floating-point warnings off. A context entered once costs a twentieth of
            ``np.errstate`` around each call, and leaves the user's own NumPy settings alone. pooled: whether the arrays it
            makes come from the memory pool.
    """

    __slots__ = (
        "anomaly",
        "anomaly_nan",
        "captures",
        "casting",
        "generator",
        "grad",
        "inference",
        "levels",
        "marked",
        "pooled",
        "run",
        "saved_hooks",
        "saved_hooks_error",
        "slow",
        "walk",
        "watchers",
    )

    def __init__(self) -> None:
        self.grad = True
        self.inference = False
        self.slow = self.marked = False
        self.captures: Any = None
        self.casting: Any = None
        self.levels: list[Any] = []
        self.watchers: tuple[Any, ...] = ()
        self.saved_hooks: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = []
        self.saved_hooks_error: str | None = None
        self.anomaly = False
        self.anomaly_nan = True
        self.walk: Any = None
        self.generator: Any = None
        quiet = contextvars.Context()
        quiet.run(np.seterr, all="ignore")
        self.run = quiet.run
        self.pooled = False

    def update(self) -> None:
        """Recompute ``slow`` after a mode has changed."""
        casts = self.casting is not None and bool(self.casting.rules)
        self.slow = self.inference or casts or bool(self.saved_hooks or self.levels or self.watchers)
        self.captures = self.levels[0] if self.levels and self.levels[0].takes_plain else None
        self.marked = self.inference or self.captures is not None


class Thread:
    """The state of the calling thread, made when first asked for.

    ``local.state`` is what the fast lanes read: a plain ``threading.local`` costs half of a subclass with ``__init__``.
    """

    __slots__ = ()

    @property
    def state(self) -> State:
        """The state of the calling thread."""
        try:
            return local.state
        except AttributeError:
            local.state = State()
            return local.state


local = threading.local()
thread = Thread()


def given_away(tensor: Any, what: str) -> None:
    """Note that the user gets a tensor's memory as an array, which no program that is being captured can keep up with."""
    captures = thread.state.captures
    if captures is not None:
        captures.lent.give(captures, tensor, f"that {what} has given away")
