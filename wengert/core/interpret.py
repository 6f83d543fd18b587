"""The interpreter stack: what else running an operator may mean.

An ordinary tensor's payload is a NumPy array, and running an operator runs its kernel. Inside a transform a tensor's
payload may be a :class:`Payload` of an active :class:`Level` (a dual number, a batch), whose interpreter runs the
operator on tensors of the levels below. The highest level among the arguments decides; arguments from below are lifted
to it first, so that an interpreter sees its own tensors alone. Recording happens at whichever level a tensor carries a
node, so derivatives and interpreters nest in any order.

A *watcher* sees every call that goes through the general lane, and runs it: profilers, selective checkpointing are
watchers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from wengert.core.operator import Op
from wengert.core.record import record
from wengert.core.state import State, thread
from wengert.core.tensor import INFERENCE, Tensor, View, alias, from_array, node_of, version_of
from wengert.errors import TransformError

__all__ = [
    "Layout",
    "Level",
    "Payload",
    "Watcher",
    "admitted",
    "entered",
    "given_back",
    "has_history",
    "has_history_below",
    "highest",
    "level_of",
    "lifted",
    "memory_of",
    "owned_like",
    "top",
    "watched",
    "watching",
    "wrapped",
    "write",
]


class Payload:
    """What a tensor of a level holds in place of an array.

    Attributes:
        level: whose it is. shape, dtype: of the tensor as its level's code sees it (the NumPy dtype).
    """

    __slots__ = ("dtype", "level", "shape")

    level: "Level"
    shape: tuple[int, ...]
    dtype: Any

    @property
    def parts(self) -> tuple[Any, ...]:
        """The tensors of levels below that it consists of; the first one holds the memory."""
        raise NotImplementedError

    @property
    def carrier(self) -> Any:
        """The tensor that holds the memory."""
        return self.parts[0]

    def values(self, what: str) -> Any:
        """Return the array of values; ``what`` asks for it.

        Raises:
            TransformError: where the tensor has no values of its own.
        """
        raise TransformError(self.level.refusal(what))

    def exported(self, what: str) -> Any:
        """Return the array for code outside wengert, which shares it.

        Raises:
            TransformError: where a derivative or the examples would be lost.
        """
        raise TransformError(self.level.refusal(what))

    def stored(self) -> Any:
        """Return what a pickle holds of it. Errors as of :meth:`values`."""
        return self.values("pickling")

    def placed(self, index: int) -> "Payload":
        """Return it as what lies on the logical device of a number.

        Raises:
            TransformError: where a level has tensors of the first device only.
        """
        raise TransformError(f"{self.level.title} makes no new tensors on cpu:{index}; make them outside, or use .to()")

    def check_alive(self) -> None:
        """Refuse to be used after the end of the level."""
        if not self.level.alive:
            raise TransformError(escaped(self))

    def refused(self, what: str) -> TransformError:
        """Return the error for what asks for the array itself."""
        return self.level.error(self.level.refusal(what)) if self.level.alive else TransformError(escaped(self))

    def detached(self) -> "Payload":
        """Return the payload without history and tangents."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        raise self.refused(ufunc.__name__)

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise self.refused("a NumPy function")

    @property
    def stand_in(self) -> Any:
        """An array of any values that lies in memory as the tensor does; None where several lie behind it."""
        return None

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    def shown(self, dtype: str) -> str | None:
        """Return its parts, and ``dtype`` among them, as text between parentheses; None: it has a text of its own."""
        return None

    def copy(self) -> Any:
        """Return an array, or a payload, with memory of its own."""
        return self.values("a copy of its memory").copy()

    @property
    def flags(self) -> Any:
        """The flags of the memory."""
        return self.carrier._payload.flags

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            raise self.refused(f"the attribute {name}")
        raise AttributeError(name)

    def __getitem__(self, key: Any) -> Any:
        raise self.refused("indexing its memory")

    def __len__(self) -> int:
        return self.shape[0]


class Level:
    """One running transform that gives operators another meaning.

    Attributes:
        depth: its position on the stack of the thread. alive: whether it is on the stack. adopted: tensors from outside
            that it made its own because something of it was written into them; they get back what they were at its end.
        title: what it is called in messages. error: what is raised where the array of a tensor is asked for.
    """

    title = "a transform"
    error = TransformError
    takes_plain = False  # whether operators on plain tensors are its business, too

    def __init__(self) -> None:
        self.depth, self.alive = -1, False
        self.adopted: list[Any] = []

    def run(self, op: Op, values: list[Any]) -> tuple[Any, ...]:
        """Run an operator whose tensor arguments are all of this level; return its results, tensors of this level."""
        raise NotImplementedError

    def lift(self, tensor: Any) -> Any:
        """Return a tensor of a level below as one of this level: a constant."""
        raise NotImplementedError

    def owned(self, tensor: Any, source: Any) -> Any:
        """Return a plain tensor with memory of its own for everything that ``source``, which is of this level, stands for."""
        return owned_like(tensor, source._payload.carrier)

    def write(self, name: str, tensor: Any, result: Any) -> None:
        """Write a result into a tensor, both of this level and of one shape."""
        raise NotImplementedError

    def admit(self, name: str, tensor: Any, source: Any) -> None:
        """Make a tensor from below one of this level, because ``source``, which is of it, will be written into it."""
        raise NotImplementedError

    def call_function(self, function: Any, args: tuple[Any, ...]) -> Any:
        """Return what a user's ``autograd.Function`` gives for arguments of this level, as tensors of this level."""
        raise NotImplementedError

    def enclose(self, tensor: Any) -> None:
        """Make a tensor from below one of this level, because it is to be a leaf inside.

        Raises:
            TransformError: for a view.
        """
        if isinstance(tensor._payload, Payload) and tensor._payload.level is self:
            return
        if tensor._view is not None:
            raise TransformError(
                f"requires_grad_() inside {self.title}: a view from outside cannot be a leaf; clone() it"
            )
        inner = alias(tensor)
        inner._node = tensor._node
        tensor._payload, tensor._cell = self.lift(inner)._payload, version_of(inner)
        self.adopted.append(tensor)

    def drawing(self, name: str) -> int | None:
        """Return how many examples a random operator draws different numbers for; None: one draw serves all there are.

        Raises:
            RuntimeError: where it was not said which.
        """
        return None

    def sampled(self, name: str, generator: Any, sampler: Any, shape: tuple[int, ...], parameters: Any) -> Any:
        """Return what a level that takes plain tensors makes of a random draw."""
        raise NotImplementedError

    def stacked(self, tensor: Any) -> Any:
        """Return a tensor of levels below, which has the examples in front, as one of this level."""
        raise NotImplementedError

    def keep(self, gradient: Any, leaf: Any) -> None:
        """Take note of a gradient of this level that becomes the ``.grad`` of a leaf from below."""
        leaf._grad = None
        raise TransformError(
            f"backward() inside {self.title} gives a leaf of shape {tuple(leaf.shape)} from outside a gradient that exists "
            "only inside; use func.grad, or autograd.grad on tensors made inside"
        )

    def end(self) -> None:
        """Give tensors from outside back what they were."""
        for tensor in reversed(self.adopted):
            given_back(tensor)
        self.adopted.clear()

    def refusal(self, what: str) -> str:
        """Return why the values of a tensor of this level cannot be had."""
        return f"{what} needs the values of a tensor of {self.title}, which it does not have"


class Layout(Level):
    """A way to store elements in which operators mean something else: no transform, so it is below all of them and lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = True

    def call(self, op: Op, values: list[Any]) -> Any:
        """Return what an operator gives for tensors some of which are of this layout, with its history."""
        raise NotImplementedError

    def like(self, name: str, tensor: Any, make: Callable[[Any], Any]) -> Any:
        """Return what ``name`` gives for a tensor of this layout, if ``make`` gives what it does for a dense one."""
        raise NotImplementedError

    def keep(self, gradient: Any, leaf: Any) -> None:
        """Let a leaf have a gradient of this layout."""


class Watcher(Protocol):
    """Sees every operator call while it is on the stack."""

    def around(self, op: Op, values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        """Return the result of the call; ``run(values)`` runs the operator."""


def level_of(tensor: Any) -> Level | None:
    """Return the level a tensor belongs to; None for a plain one.

    Raises:
        TransformError: if that level has ended.
    """
    payload = tensor._payload
    if type(payload) is np.ndarray or not isinstance(payload, Payload):
        return None
    level = payload.level
    if not level.alive:
        raise TransformError(escaped(payload))
    return level


def escaped(payload: Payload) -> str:
    """Return the message about a tensor that outlived its level."""
    return (
        f"a tensor of shape {tuple(payload.shape)} was kept after the end of {payload.level.title}, which made it: return it "
        "from the transformed function instead of storing it outside"
    )


def _tensors(op: Op, values: Sequence[Any]) -> Iterator[Any]:
    for i in op.signature.inputs:
        value = values[i]
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, Tensor))


def highest(tensors: Any) -> Level | None:
    """Return the highest level among tensors, or None if all are plain."""
    best: Level | None = None
    for tensor in tensors:
        if type(tensor._payload) is not np.ndarray:
            level = level_of(tensor)
            if level is not None and (best is None or level.depth > best.depth):
                best = level
    return best


def intercepted(op: Op, values: list[Any], run: Callable[[Op, list[Any]], Any], state: State) -> Any:
    """Let the stack run an operator; NotImplemented if its arguments are all plain. ``run`` runs any operator."""
    if state.watchers:
        return watched(op, values, lambda given: run(op, given), state)
    level = highest(_tensors(op, values)) or state.captures
    return interpret(level, op, values, state) if level is not None else NotImplemented


def watched(op: Op, values: list[Any], run: Callable[[list[Any]], Any], state: State) -> Any:
    """Let the innermost watcher run a call by ``run(values)``, which the watchers around it see in turn."""
    outer = state.watchers
    state.watchers = outer[:-1]
    try:
        return outer[-1].around(op, values, run)
    finally:
        state.watchers = outer


def interpret(level: Level, op: Op, values: list[Any], state: State) -> Any:
    """Run an operator at a level, record it there, and return its result."""
    if isinstance(level, Layout):
        return level.call(op, values)
    given = [_lifted(level, v) if i in op.signature.inputs else v for i, v in enumerate(values)]
    results = list(level.run(op, given))
    if op.view:
        _link_views(op, given, results, state)
    if state.grad and op.family != "nondifferentiable":
        record(op, given, results)
    if op.single:
        return results[0]
    return tuple(results) if op.variable else op.result_type(*results)


def _lifted(level: Level, value: Any) -> Any:
    if isinstance(value, Tensor):
        return lifted(level, value)
    if isinstance(value, tuple):
        return tuple(_lifted(level, v) for v in value)
    return value


def lifted(level: Level, tensor: Any) -> Any:
    """Return a tensor of ``level`` or below as one of ``level``."""
    payload = tensor._payload
    if type(payload) is not np.ndarray:
        if payload.level is level:
            return tensor
        _refuse_layout(payload, level)
    return level.lift(tensor)


def _refuse_layout(payload: Any, level: Level) -> None:
    """Refuse a tensor of a layout of its own as part of one of a level above."""
    if isinstance(payload, Payload) and isinstance(payload.level, Layout):
        raise level.error(f"{payload.level.title} cannot be used inside {level.title}; use .to_dense() outside of it")


def memory_of(tensor: Any) -> Any:
    """Return the array below all levels: under vmap, that of all examples; of a dual number, the primal's."""
    held = tensor._payload
    return memory_of(held.carrier) if isinstance(held, Payload) else held


def has_history(tensor: Any) -> bool:
    """True if a tensor is recorded, or one of those below that it consists of."""
    return node_of(tensor) is not None or has_history_below(tensor)


def has_history_below(tensor: Any) -> bool:
    """True if a tensor of a level below, of which this one consists, is recorded."""
    held = tensor._payload
    return isinstance(held, Payload) and any(map(has_history, held.parts))


def owned_like(tensor: Any, source: Any) -> Any:
    """Return a plain new tensor as one that can take what is computed of ``source``: under vmap, one for each example."""
    payload = source._payload
    return payload.level.owned(tensor, source) if isinstance(payload, Payload) else tensor


def wrapped(payload: Payload) -> Any:
    """Return a tensor with a payload of a level; it shares the version of the memory below."""
    carrier = payload.carrier
    if type(carrier._payload) is not np.ndarray:
        _refuse_layout(carrier._payload, payload.level)
    out = from_array(payload)
    out._cell = INFERENCE if carrier._cell is INFERENCE else version_of(carrier)
    return out


def _link_views(op: Op, values: list[Any], results: list[Any], state: State) -> None:
    """Link results that share the first argument's memory to their base, at this level."""
    source = values[op.signature.inputs[0]]
    mode = "" if state.grad else "inference" if state.inference else "no_grad"
    for k, out in enumerate(results):
        if out._cell is INFERENCE or out._cell is not source._cell or not isinstance(out._payload, Payload):
            continue
        problem = f"it is one of several views returned by {op.name}()" if not op.single else None
        if mode and problem is None:
            problem = f"it was made in {mode} mode"
        origin = source._view
        step = (op, [None, *values[1:]], None if op.single else k)
        if origin is not None:
            problem = problem or origin.problem
        out._view = View(
            source if origin is None else origin.base, (step,) if origin is None else (*origin.chain, step), problem
        )


def admitted(name: str, tensor: Any, source: Any) -> None:
    """Make a plain tensor one of the level of what is about to be written into a part of it, if that is higher."""
    level = highest((tensor, source))
    if level is not None and (type(tensor._payload) is np.ndarray or tensor._payload.level is not level):
        level.admit(name, tensor, source)


def write(name: str, tensor: Any, result: Any) -> None:
    """Write a result into a tensor where either is of a level."""
    level = highest((tensor, result))
    assert level is not None
    admitted(name, tensor, result)
    level.write(name, tensor, lifted(level, result))


def top(state: State | None = None) -> Level | None:
    """Return the innermost running level of the thread, or None."""
    levels = (state or thread.state).levels
    return levels[-1] if levels else None


@contextmanager
def entered(level: Level) -> Iterator[Level]:
    """Run a block with ``level`` on the stack; whatever happens, it is taken off again."""
    state = thread.state
    level.depth, level.alive = len(state.levels), True
    state.levels.append(level)
    state.update()
    try:
        yield level
    finally:
        if level in state.levels[level.depth :]:
            del state.levels[level.depth :]
        level.alive = False
        level.end()
        state.update()


def given_back(tensor: Any) -> None:
    """Make a tensor from outside again what it was before its level adopted it."""
    carrier = tensor._payload.carrier
    tensor._payload, tensor._node, tensor._view, tensor._cell = (
        carrier._payload, carrier._node, carrier._view, carrier._cell,
    )  # fmt: skip


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let ``watcher`` see every operator call of this thread in a block."""
    state = thread.state
    outer = state.watchers
    state.watchers = (*outer, watcher)
    state.update()
    try:
        yield
    finally:
        state.watchers = outer
        state.update()
