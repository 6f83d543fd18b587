"""The damages that mutation testing does: to each rule of a declaration, one at a time, undone afterwards whatever happens."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from wengert.array.dtype import COMPLEX, FLOAT, int8, int16
from wengert.core.apply import call
from wengert.core.batch import RULES, Body
from wengert.core.operator import Op, Spec
from wengert.core.plan import Rules
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["Effect", "Mutation", "mutations"]


class Effect:
    """What became of a damage.

    Attributes:
        ran: what is damaged was called. seen: some result differed from what it would have been.
    """

    ran = False
    seen = False


class Mutation(NamedTuple):
    """One damage: of which operator, of what kind of rule, what exactly, and how it is done and undone."""

    op: Op
    kind: str
    what: str
    damage: Callable[[], AbstractContextManager[Effect]]

    def __str__(self) -> str:
        return f"{self.op.name}: {self.kind}, {self.what}"


# ---- what is done to values


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a rule's result with every tensor in it changed."""
    if isinstance(value, list | tuple):
        made = [each(v, change) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return None if value is None else change(value)


def one_of(value: Any, place: int, change: Callable[[Any], Any]) -> Any:
    """Return a joint rule's result with one member of it changed."""
    return type(value)([each(v, change) if k == place else v for k, v in enumerate(value)])


def noticed(effect: Effect, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a change that notes whether it changes anything."""

    def changed(value: Any) -> Any:
        found = change(value)
        effect.ran = True
        held = getattr(value, "_payload", value)
        effect.seen = effect.seen or not isinstance(held, np.ndarray) or bool(np.any(held != 0))
        return found

    return changed


def is_inexact(value: Any) -> bool:
    """True for a tensor of floating-point or complex numbers."""
    return isinstance(value, Tensor) and value.dtype.category >= FLOAT


CHANGES: dict[str, Callable[[Any], Any]] = {"a factor of 1.5": lambda v: v * 1.5, "the wrong sign": lambda v: -v}


# ---- replacing and restoring


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute another value for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def damaged_rules(table: Rules, change: Callable[[], None]) -> Iterator[None]:
    """Change reverse-mode rules for a while, in the plans made from them as well (the fast lanes hold these)."""
    before = dict(table.rules), table.joint, table.holomorphic, dict(table.plans)
    plans = {key: plan.rules for key, plan in table.plans.items()}
    try:
        change()
        for key, plan in table.plans.items():
            plan.rules = table.make(key >> 1, bool(key & 1) and table.holomorphic).rules
        yield
    finally:
        table.rules, table.joint, table.holomorphic, table.plans = before
        for key, rules in plans.items():
            table.plans[key].rules = rules


class Renamed:
    """A forward-mode rule that does something to the result of another, and names the same arguments."""

    def __init__(self, rule: Any, change: Callable[[Any], Any]) -> None:
        self.rule, self.change, self.__code__ = rule, change, rule.__code__

    def __call__(self, *args: Any) -> Any:
        return each(self.rule(*args), self.change)


# ---- the kinds


def of_vjp(op: Op) -> Iterator[Mutation]:
    """Damages of each reverse-mode rule."""
    table: Any = op.rules
    names = op.signature.names
    places = range(len(table.inputs)) if table.joint is not None else table.rules
    for place in places:
        name = names[table.inputs[place]] if table.joint is not None else names[place]
        slots = table.joint[1] if table.joint is not None else table.rules[place][1]
        for title, change in CHANGES.items():
            yield Mutation(op, "vjp", f"{title} in '{name}'", _vjp_result(table, place, change))
        yield Mutation(op, "vjp", f"'{name}' does not depend on g", _vjp_detached(table, place, by_g=True))
        if any(0 <= s < len(names) + len(table.outputs) for s in slots) and (table.joint is None or place == 0):
            yield Mutation(op, "vjp", f"'{name}' does not depend on arguments", _vjp_detached(table, place, by_g=False))
    if table.holomorphic and any(_may_be_complex(op, s) for _, slots in table.rules.values() for s in slots):
        yield Mutation(op, "vjp", "the conjugate dropped", lambda: _unconjugated(table))


def _may_be_complex(op: Op, slot: int) -> bool:
    """True if a rule that names this slot may see a complex tensor there: an argument or a result."""
    signature = op.signature
    if slot < len(signature.slots):
        mark = signature.slots[slot].input
        return mark is not None and COMPLEX in mark.categories
    first = signature.slots[signature.inputs[0]].input
    return slot < len(signature.slots) + len(op.outputs) and first is not None and COMPLEX in first.categories


def _set_rule(table: Any, place: int, made: Callable[[Any], Any]) -> Callable[[], None]:
    """Return what replaces the rule of one argument (or the joint one)."""

    def change() -> None:
        if table.joint is not None:
            table.joint = (made(table.joint[0]), table.joint[1])
        else:
            table.rules[place] = (made(table.rules[place][0]), table.rules[place][1])

    return change


def _vjp_result(table: Any, place: int, change: Callable[[Any], Any]) -> Callable[[], Any]:
    @contextmanager
    def damage() -> Iterator[Effect]:
        effect = Effect()
        do = noticed(effect, change)

        def made(rule: Any) -> Any:
            def wrong(g: Any, *args: Any) -> Any:
                effect.ran = True
                found = rule(g, *args)
                return each(found, do) if table.joint is None else one_of(found, place, do)

            return wrong

        with damaged_rules(table, _set_rule(table, place, made)):
            yield effect

    return damage


def tensors(value: Any) -> list[Any]:
    """Return the tensors of a rule's result."""
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors(v)]
    return [value] if isinstance(value, Tensor) else []


def detached(value: Any) -> Any:
    """Return a value (a tensor, a sequence of them, anything else) without history."""
    if isinstance(value, tuple):
        return tuple(map(detached, value))
    return ops.detach(value) if isinstance(value, Tensor) else value


def _vjp_detached(table: Any, place: int, by_g: bool) -> Callable[[], Any]:
    """Damage a rule so that its result does not depend on the cotangent (``by_g``), or on all else, when differentiated."""

    @contextmanager
    def damage() -> Iterator[Effect]:
        effect = Effect()
        member = place if table.joint is not None and by_g else None

        def part(found: Any) -> Any:
            return found if member is None else found[member]

        def made(rule: Any) -> Any:
            def wrong(g: Any, *args: Any) -> Any:
                effect.ran = True
                without_g, with_g = rule(detached(g), *args), rule(g, *map(detached, args))
                kept, lost = (without_g, with_g) if by_g else (with_g, without_g)
                effect.seen = effect.seen or any(
                    t.requires_grad and (not by_g or _different(t, t * 0)) for t in tensors(part(lost))
                )
                if member is None:
                    return kept
                return type(lost)(
                    [k if i == member else o for i, (k, o) in enumerate(zip(kept, rule(g, *args), strict=True))]
                )

            return wrong

        with damaged_rules(table, _set_rule(table, place, made)):
            yield effect

    return damage


@contextmanager
def _unconjugated(table: Any) -> Iterator[Effect]:
    effect = Effect()
    effect.ran = effect.seen = True

    def change() -> None:
        table.holomorphic = False

    with damaged_rules(table, change):
        yield effect


def of_jvp(op: Op) -> Iterator[Mutation]:
    """Damages of each forward-mode rule that is written down."""
    if isinstance(op.jvp, dict):
        for name in op.jvp:
            for title, change in CHANGES.items():
                yield Mutation(op, "jvp", f"{title} in '{name}'", _jvp_result(op, name, change))
    elif callable(op.jvp):
        for title, change in CHANGES.items():
            yield Mutation(op, "jvp", title, _jvp_result(op, None, change))


def _jvp_result(op: Op, name: str | None, change: Callable[[Any], Any]) -> Callable[[], Any]:
    @contextmanager
    def damage() -> Iterator[Effect]:
        effect = Effect()
        do = noticed(effect, change)
        made = Renamed(op.jvp, do) if name is None else {**op.jvp, name: Renamed(op.jvp[name], do)}
        with replaced(op, "jvp", made):
            yield effect

    return damage


def of_batch(op: Op) -> Iterator[Mutation]:
    """Damages of the batching rule."""
    if op.batch == "refuse" or not op.signature.inputs:
        return
    if isinstance(op.batch, Body):
        yield Mutation(op, "batch", "a wrong body", lambda: _wrong_body(op))
        return
    yield Mutation(op, "batch", "examples mixed", _batch_result(op, lambda t: ops.flip(t, 0)))
    yield Mutation(op, "batch", "the batch elsewhere",
                   _batch_result(op, lambda t: ops.movedim(t, 0, -1) if t.ndim > 1 else ops.flip(t, 0)))  # fmt: skip
    if len(op.signature.inputs) > 1 or op.signature.many:
        yield Mutation(op, "batch", "a shared argument changed", lambda: _batch_shared(op))


def _different(before: Any, after: Any) -> bool:
    held, made = before._payload, after._payload
    if not (isinstance(held, np.ndarray) and isinstance(made, np.ndarray)):
        return True
    return held.shape != made.shape or not np.array_equal(held, made, equal_nan=held.dtype.kind in "fc")


def _batch_result(op: Op, change: Callable[[Any], Any]) -> Callable[[], Any]:
    @contextmanager
    def damage() -> Iterator[Effect]:
        effect, rule = Effect(), RULES.get(op.batch, op.batch)

        def do(tensor: Any) -> Any:
            effect.ran = True
            found = change(tensor)
            effect.seen = effect.seen or _different(tensor, found)
            return found

        with replaced(op, "batch", lambda *args: each(rule(*args), do)):
            yield effect

    return damage


@contextmanager
def _batch_shared(op: Op) -> Iterator[Effect]:
    effect, rule = Effect(), RULES.get(op.batch, op.batch)

    def changed(value: Any, batched: Any) -> Any:
        if isinstance(value, tuple):
            flags = batched if isinstance(batched, tuple) else (False,) * len(value)
            return tuple(changed(v, b) for v, b in zip(value, flags, strict=True))
        if batched or not is_inexact(value) or not value.numel():
            return value
        effect.seen = True
        return value * 1.5 + 0.25

    def wrong(op: Op, values: Any, batched: Any, size: int) -> Any:
        effect.ran = True
        inputs = op.signature.inputs
        given = [changed(v, batched[i]) if i in inputs else v for i, v in enumerate(values)]
        return rule(op, given, batched, size)

    with replaced(op, "batch", wrong):
        yield effect


@contextmanager
def _wrong_body(op: Op) -> Iterator[Effect]:
    effect, function = Effect(), op.batch.function

    def change(tensor: Any) -> Any:
        effect.ran = True
        effect.seen = effect.seen or bool(tensor.numel())
        return (
            tensor * 1.5 + 0.25
            if is_inexact(tensor)
            else ops.eq(tensor, 0)
            if tensor.dtype.category == 0
            else tensor + 1
        )

    with replaced(op, "batch", Body(lambda *args: each(function(*args), change))):
        yield effect


def of_spec(op: Op) -> Iterator[Mutation]:
    """Damages of the shape and dtype rule."""
    yield Mutation(op, "spec", "an axis more", _spec_result(op, lambda s: Spec((*s.shape, 1), s.dtype)))
    yield Mutation(op, "spec", "another dtype",
                   _spec_result(op, lambda s: Spec(s.shape, int16 if s.dtype is int8 else int8)))  # fmt: skip


def _spec_result(op: Op, change: Callable[[Spec], Spec]) -> Callable[[], Any]:
    @contextmanager
    def damage() -> Iterator[Effect]:
        effect, spec = Effect(), op.spec

        def wrong(*args: Any, **kwargs: Any) -> Any:
            found = spec(*args, **kwargs)
            effect.ran = effect.seen = True
            return change(found) if isinstance(found, Spec) else (change(found[0]), *found[1:])

        with replaced(op, "spec", wrong):
            yield effect

    return damage


def of_kernel(op: Op) -> Iterator[Mutation]:
    """Damage of the kernel: one element of its result off."""
    yield Mutation(op, "kernel", "one element off", lambda: _wrong_kernel(op))


def _off(array: Any) -> Any:
    made = np.array(array)
    first = made.reshape(-1)[:1]
    if made.dtype.kind in "fcV":
        made.reshape(-1)[:1] = (first * 1.5 + 0.25).astype(made.dtype)
    else:
        made.reshape(-1)[:1] = ~first if made.dtype.kind == "b" else first + 1
    return made


@contextmanager
def _wrong_kernel(op: Op) -> Iterator[Effect]:
    effect, kernel, function = Effect(), op.kernel, op.function

    def wrong(*args: Any, **kwargs: Any) -> Any:
        found = kernel(*args, **kwargs)
        effect.ran = True
        first = found[0] if isinstance(found, tuple | list) else found
        effect.seen = effect.seen or bool(np.size(first))
        if not np.size(first):
            return found
        return type(found)([_off(first), *found[1:]]) if isinstance(found, tuple | list) else _off(found)

    def general(*args: Any, **kwargs: Any) -> Any:
        return call(op, args, kwargs)  # a fast lane holds the ufunc

    general.__dict__.update(function.__dict__)
    with replaced(op, "kernel", wrong), replaced(op, "function", general):
        yield effect


def of_flags(op: Op) -> Iterator[Mutation]:
    """Damages of what is said about memory: a view that is not declared, an in-place twin that does not write."""
    if op.view:
        yield Mutation(op, "view", "not declared", lambda: _certain(replaced(op, "view", False)))
    if op.name + "_" in vars(ops):
        yield Mutation(
            op, "inplace", "nothing written", lambda: _certain(replaced(ops, op.name + "_", lambda t, *_, **__: t))
        )
        yield Mutation(
            op, "inplace", "another tensor returned", lambda: _certain(replaced(ops, op.name + "_", op.function))
        )


@contextmanager
def _certain(change: AbstractContextManager[None]) -> Iterator[Effect]:
    effect = Effect()
    effect.ran = effect.seen = True
    with change:
        yield effect


def mutations(op: Op) -> list[Mutation]:
    """Return every damage of an operator; none of a composite, which has no rules of its own."""
    if op.composite:
        return []
    found = [*of_spec(op), *of_kernel(op), *of_flags(op), *of_batch(op)]
    if op.rules is not None:
        found += [*of_vjp(op), *of_jvp(op)]
    return found
