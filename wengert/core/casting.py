"""Casting the arguments of operators at each call: what ``amp.autocast`` switches on.

A :class:`Casting` stands in the state of a thread. The general lane and the public functions of composites, which look
there anyway, hand it the calls of operators that its rules name; what runs inside such an operator is cast no more. So
it comes before transforms, watchers and the tape, which see the casts as operators like others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from wengert.array.dtype import DType, bfloat16, float16, float32
from wengert.core.node import Leaf
from wengert.core.operator import Op
from wengert.core.registry import ops
from wengert.core.state import State, thread
from wengert.core.tensor import INFERENCE, Tensor

__all__ = [
    "GIVEN", "LOWER", "REFUSED_IN_FLOAT16", "SINGLE", "SINGLE_UNLESS_DTYPE", "WIDEST", "Casting", "afresh", "bound", "uncast",
]  # fmt: skip

LOWER = "lower"  # the dtype of the region
SINGLE = "float32"
SINGLE_UNLESS_DTYPE = "float32 unless dtype is given"
WIDEST = "widest"  # float32 if any tensor is, otherwise as given
GIVEN = "as given"  # and so is what it is made of
REFUSED_IN_FLOAT16 = "refused in float16"

_CAST = (float32, float16, bfloat16)  # float64 is never cast: whoever uses it wants it


class Casting:
    """How arguments are cast in a region.

    Attributes:
        rules: by operator, one of the words above, or a dtype; empty in a region that is switched off.
        dtype: the lower precision. cached: whether casts of parameters are kept for the next operator.
        cache: these casts, shared by the regions inside one another.
    """

    __slots__ = ("cache", "cached", "dtype", "rules")

    def __init__(self, rules: Mapping[str, Any], dtype: DType, cached: bool, cache: dict[Any, Any]) -> None:
        self.rules, self.dtype, self.cached, self.cache = rules, dtype, cached, cache

    @property
    def form(self) -> Any:
        """What tells it from castings that give other results; None where nothing is cast."""
        return (self.dtype.name, self.cached) if self.rules else None

    def fresh(self) -> "Casting":
        """Return the same casting with nothing kept."""
        return Casting(self.rules, self.dtype, self.cached, {})

    def run(self, op: Op, values: Sequence[Any], execute: Callable[[Op, list[Any]], Any]) -> Any:
        """Run an operator on bound values, cast if a rule says so."""
        rule = self.rules.get(op.name)
        if rule is None:
            return uncast(execute, op, values)
        return uncast(self._execute, op, rule, values, execute)

    def _execute(self, op: Op, rule: Any, values: Sequence[Any], execute: Callable[[Op, list[Any]], Any]) -> Any:
        return execute(op, list(self._cast_all(op, rule, values, {})[0]))

    def call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the public function of an operator that a rule names with cast arguments."""
        return uncast(self._call, op, args, kwargs)

    def _call(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("out") is None:
            args, kwargs = self._cast_all(op, self.rules[op.name], args, kwargs)
        return op.function(*args, **kwargs)

    def _cast_all(self, op: Op, rule: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return arguments cast by a rule."""
        target = self._target(op, rule, args, kwargs)
        if target is None:
            return args, kwargs
        state = thread.state
        watchers, state.watchers = state.watchers, ()  # a cast is there or kept: no operator of the function's own
        try:
            cast = [self._cast(v, target, state) for v in args]
            return cast, {k: self._cast(v, target, state) for k, v in kwargs.items()}
        finally:
            state.watchers = watchers

    def _target(self, op: Op, rule: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> DType | None:
        """Return the dtype that a rule wants; None for the arguments as they are."""
        if isinstance(rule, DType):
            return rule
        if rule == LOWER:
            return self.dtype
        if rule == REFUSED_IN_FLOAT16 and self.dtype is float16:
            raise RuntimeError(
                f"{op.name}() is unsafe to autocast to float16, in which its gradient overflows: leave out the sigmoid before "
                "it and use binary_cross_entropy_with_logits(), which is safe; or call it in a region with enabled=False"
            )
        if rule == SINGLE_UNLESS_DTYPE:
            at = op.signature.index["dtype"]
            given = args[at] if at < len(args) else kwargs.get("dtype")
            return float32 if given is None else None
        if rule == GIVEN:
            return None
        if rule == WIDEST:
            found = {t.dtype for v in (*args, *kwargs.values()) for t in _tensors(v)}.intersection(_CAST)
            return float32 if len(found) > 1 else None
        return float32

    def _cast(self, value: Any, target: DType, state: State) -> Any:
        """Return an argument with its tensors cast."""
        if isinstance(value, Tensor):
            dtype = value.dtype
            if dtype is target or dtype not in _CAST:
                return value
            kept = self.cached and dtype is float32 and value._view is None and isinstance(value._node, Leaf)
            return self._kept(value, target, state) if kept else ops.cast(value, target)
        if type(value) is list or type(value) is tuple:
            return type(value)(self._cast(v, target, state) for v in value)
        return value

    def _kept(self, leaf: Any, target: DType, state: State) -> Any:
        """Return the cast of a leaf that requires a gradient: the one that is kept, if nothing has changed since.

        A cast made while nothing is recorded has no history, so grad mode is part of what it is kept by.
        """
        cell = leaf._cell
        if state.inference or cell is INFERENCE:
            return ops.cast(leaf, target)
        key = id(leaf), target, state.grad
        now, version = (leaf._node, leaf._payload, state.captures), 0 if cell is None else cell.count
        held = self.cache.get(key)
        if held is not None and held[1] == version and all(a is b for a, b in zip(held[0], now, strict=True)):
            return held[2]
        cast = ops.cast(leaf, target)
        self.cache[key] = now, version, cast, leaf  # the leaf too: no other tensor may get its identity
        return cast


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, Tensor):
        yield value
    elif type(value) is list or type(value) is tuple:
        yield from (v for v in value if isinstance(v, Tensor))


def uncast(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in which nothing is cast."""
    state = thread.state
    casting, state.casting = state.casting, None
    try:
        return function(*args)
    finally:
        state.casting = casting


def bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for what will be called again, in backward: with the casting of now, and no cast kept beyond it."""
    casting = thread.state.casting
    if casting is None:
        return function

    def called(*args: Any, **kwargs: Any) -> Any:
        with _set(casting.fresh()):
            return function(*args, **kwargs)

    return called


def afresh() -> AbstractContextManager[None]:
    """Cast in a block as around it, but keep no cast that is made there, and take none that was made before."""
    casting = thread.state.casting
    return _set(None if casting is None else casting.fresh())


@contextmanager
def _set(casting: Casting | None) -> Iterator[None]:
    state = thread.state
    before, state.casting = state.casting, casting
    state.update()
    try:
        yield
    finally:
        state.casting = before
        state.update()
