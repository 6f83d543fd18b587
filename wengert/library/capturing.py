"""Custom operators in a program that is being captured: each call is one node, whose function Python calls at each run."""

from collections.abc import Sequence
from typing import Any

from wengert.array.device import devices, index_of
from wengert.core.interpret import write
from wengert.core.operator import Spec
from wengert.core.place import here
from wengert.core.tensor import Tensor
from wengert.graph.operations import Callback
from wengert.graph.storage import located, spec_of
from wengert.library.opaque import grouped

__all__ = ["entered"]


def entered(definition: Any, level: Any, counts: tuple[Any, ...], flat: tuple[Any, ...]) -> Any:
    """Enter a call of a custom operator, and return its results, tensors of the program.

    What it changes in place becomes further results of the node, which are written into the arguments.

    Args:
        definition: the :class:`~wengert.library.custom.CustomOpDef`. level: the capture. counts, flat: its arguments, see
            :func:`~wengert.library.opaque.grouped`.

    Raises:
        CaptureError: if it has no shape rule, or if it changes memory that two of its arguments share.
    """
    written = {id(t) for t in definition.changed(grouped(counts, flat))}
    changed = list({id(v): i for i, v in enumerate(flat) if id(v) in written}.values())
    arguments = tuple(level.value_of(v) if isinstance(v, Tensor) else v for v in flat)
    tensors = [v for v in flat if isinstance(v, Tensor)]
    _check_apart(definition.name, level, [flat[i] for i in changed], tensors)
    single, specs = _results(definition, level, counts, flat)

    def run(*given: Any) -> list[Any]:
        found = definition.invoke(counts, given)
        return [*([found] if isinstance(found, Tensor) else found), *(given[i] for i in changed)]

    promised = [*specs, *(spec_of(flat[i]) for i in changed)]
    results = level.call(Callback(definition.name, run, promised), arguments, [(s, None) for s in promised], here(1))
    if devices.several:
        results = located(results, next((i for t in tensors if (i := index_of(t._payload.dtype)) is not None), None))
    for i, result in zip(changed, results[len(specs) :], strict=True):
        write(definition.name, flat[i], result)
    return results[0] if single else results[: len(specs)]


def _results(definition: Any, level: Any, counts: tuple[Any, ...], flat: tuple[Any, ...]) -> tuple[bool, list[Spec]]:
    """Return whether the operator returns one tensor alone, and shapes and dtypes, by its shape rule."""
    if definition.returns_nothing:
        return False, []
    if not definition.has_fake:
        level.refuse(f"{definition.name}, which has no shape rule (register_fake gives it one),")
    specs = grouped(counts, [spec_of(v) for v in flat])
    given = [v if n is None else tuple(v) for v, n in zip(specs, counts, strict=True)]
    with level.outside():
        found = definition.op.infer(given)
    listed = [found] if isinstance(found, Spec) else list(found)
    return isinstance(found, Spec), listed


def _check_apart(name: str, level: Any, changed: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Refuse a tensor that is changed and whose memory another argument shares, which the function would see change."""
    for one in changed:
        storage = level.payload_of(one).storage
        if any(other is not one and level.payload_of(other).storage is storage for other in tensors):
            level.refuse(f"{name}, which changes an argument that shares memory with another one,")
