"""Modules as functions of their parameters: ``functional_call``, ``stack_module_state``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.structure import structure
from wengert.core.tensor import Tensor

__all__ = ["functional_call", "stack_module_state"]


def functional_call(
    module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call a module with other parameters and buffers in place of its own.

    Args:
        module: the module. parameter_and_buffer_dicts: a dictionary from names (``"layer.weight"``) to tensors, or several
            with distinct names; what is not named keeps its own value.
        args, kwargs: the arguments of the call; ``args`` is a tuple, or a single argument.
        tie_weights: a value given for one name of a parameter that the module has under several names counts for all.
        strict: require all names and no others.

    Raises:
        RuntimeError: with ``strict``, for missing or unexpected names. KeyError: for a name the module does not have.
        ValueError: for a name in two dictionaries, or two values for tied names. TypeError: for a value that is no tensor.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.Linear(1, 1)
        >>> wg.func.functional_call(layer, {"weight": wg.tensor([[2.0]]), "bias": wg.tensor([1.0])}, wg.tensor([3.0]))
        tensor([7.])
    """
    values = _merged(parameter_and_buffer_dicts)
    if thread.state.captures is not None:
        thread.state.captures.module(module)  # as it is before it is given other tensors
    given = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, values, tie_weights, strict):
        return module(*given, **(kwargs or {}))


def _merged(dicts: Any) -> dict[str, Any]:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, Sequence) or not all(isinstance(d, dict) for d in dicts):
        raise ValueError(
            "functional_call(): parameters must be a dictionary or a sequence of dictionaries, "
            f"got {type(dicts).__name__}"
        )
    merged: dict[str, Any] = {}
    for d in dicts:
        both = merged.keys() & d.keys()
        if both:
            raise ValueError(f"functional_call(): {sorted(both)} are in several dictionaries")
        merged.update(d)
    return merged


@contextmanager
def _swapped(module: Any, values: dict[str, Any], tie: bool, strict: bool) -> Iterator[None]:
    """Let the module have other tensors inside the block."""
    own = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    missing, unexpected = sorted(own.keys() - values.keys()), sorted(values.keys() - own.keys())
    if strict and (missing or unexpected):
        raise RuntimeError(f"functional_call(): missing names: {missing}; unexpected names: {unexpected}")
    if unexpected:
        raise KeyError(
            f"functional_call(): {type(module).__name__} has no parameter or buffer {unexpected}; it has {sorted(own)}"
        )
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"functional_call(): '{name}' must be a tensor, got {type(value).__name__}")
    places = [(*_owner(module, name), value) for name, value in _with_tied(own, values, tie).items()]
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            owner.__dict__[name] = value
        structure.changes += 1  # what is compiled looks whether modules are what they were
        yield
    finally:
        for owner, name, value in before:
            owner.__dict__[name] = value
        structure.changes += 1


def _with_tied(own: dict[str, Any], values: dict[str, Any], tie: bool) -> dict[str, Any]:
    """Return the values with those of tied names filled in."""
    if not tie:
        return values
    groups: dict[int, list[str]] = {}
    for name, tensor in own.items():
        groups.setdefault(id(tensor), []).append(name)
    found = dict(values)
    for names in groups.values():
        named = [n for n in names if n in values]
        if len({id(values[n]) for n in named}) > 1:
            raise ValueError(f"functional_call(): {names} are one tied tensor, but were given different values; "
                             "give one of them, or pass tie_weights=False")  # fmt: skip
        if named:
            found.update(dict.fromkeys(names, values[named[0]]))
    return found


def _owner(module: Any, name: str) -> tuple[Any, str]:
    *path, last = name.split(".")
    for part in path:
        module = getattr(module, part)
    return module, last


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (parameters, buffers) of several modules of one architecture, stacked along a new dimension 0, for ``vmap``.

    The stacked parameters are new leaves that require grad where the originals do.

    Raises:
        RuntimeError: if there are no modules, or they differ in class, mode or shapes.

    Example:
        >>> import wengert as wg
        >>> models = [wg.nn.Linear(3, 2) for _ in range(4)]
        >>> params, _ = wg.func.stack_module_state(models)
        >>> params["weight"].shape
        wengert.Size([4, 2, 3])
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state(): give at least one module")
    if len({type(m) for m in models}) > 1:
        names = sorted({type(m).__name__ for m in models})
        raise RuntimeError(f"stack_module_state(): the modules must be of one class, got {', '.join(names)}")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state(): the modules must all be in training mode or all in evaluation mode")
    return _all_stacked([dict(m.named_parameters()) for m in models]), _all_stacked(
        [dict(m.named_buffers()) for m in models]
    )


def _all_stacked(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the dictionaries hold under each name, stacked."""
    names = dict.fromkeys(name for state in states for name in state)
    return {name: _stacked(name, [state.get(name) for state in states]) for name in names}


def _stacked(name: str, tensors: list[Any]) -> Any:
    shapes = {None if t is None else tuple(t.shape) for t in tensors}
    if len(shapes) > 1:
        raise RuntimeError(
            f"stack_module_state(): '{name}' differs between the modules: shapes {sorted(map(str, shapes))}"
        )
    wanted = {t.requires_grad for t in tensors}
    if len(wanted) > 1:
        raise RuntimeError(f"stack_module_state(): '{name}' requires grad in some modules only")
    return ops.stack([t.detach() for t in tensors]).requires_grad_(wanted.pop())
