"""The state of a module as a flat dictionary of names and tensors, and back again."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from wengert.core.registry import names_near
from wengert.core.tensor import Tensor
from wengert.nn.parameter import Parameter
from wengert.nn.uninitialized import is_lazy
from wengert.tape.modes import no_grad

__all__ = [
    "IncompatibleKeys", "StateDict", "collect", "collect_own", "get_extra_state", "load", "load_own", "set_extra_state",
]  # fmt: skip

EXTRA = "_extra_state"


class StateDict(OrderedDict[str, Any]):
    """What ``state_dict()`` returns: names and tensors in the order of registration.

    Attributes:
        _metadata: by module path, the version of the layout that the module wrote.
    """

    _metadata: dict[str, dict[str, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._metadata = {}

    def copy(self) -> "StateDict":
        """Return a shallow copy, metadata included."""
        new = StateDict(self)
        new._metadata = dict(self._metadata)
        return new


class IncompatibleKeys(NamedTuple):
    """What ``load_state_dict`` returns: the names that did not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def collect(module: Any, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """Write the state of ``module`` and all below it into ``destination``."""
    if destination is None:
        destination = StateDict()
    hooks = module._hooks
    for hook in () if hooks is None else tuple(hooks.state_pre.values()):
        hook(module, prefix, keep_vars)
    local_metadata = {"version": module._version}
    if isinstance(destination, StateDict):
        destination._metadata[prefix[:-1]] = local_metadata
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name in module._child_names:
        child = module.__dict__[name]
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in () if hooks is None else tuple(hooks.state_post.values()):
        hook(module, destination, prefix, local_metadata)
    return destination


def collect_own(module: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
    """Write the module's own parameters, persistent buffers and extra state into ``destination``."""
    for name, value in persistent(module).items():
        if value is not None:
            destination[prefix + name] = value if keep_vars else value.detach()
    if has_extra_state(module):
        destination[prefix + EXTRA] = module.get_extra_state()


def persistent(module: Any) -> dict[str, Any]:
    """The module's own parameters and persistent buffers by name; absent ones are None."""
    own = module.__dict__
    names = [*module._parameter_names, *(name for name, keep in module._buffer_names.items() if keep)]
    return {name: own[name] for name in names}


def get_extra_state(module: Any) -> Any:
    """Return state beyond parameters and buffers, to be kept in ``state_dict``; overridden where there is some."""
    raise RuntimeError(f"{type(module).__name__} has no extra state; override get_extra_state() and set_extra_state()")


def set_extra_state(module: Any, state: Any) -> None:
    """Take back what :meth:`get_extra_state` gave; a subclass that overrides one overrides both."""
    raise RuntimeError(f"{type(module).__name__} got extra state but does not override set_extra_state()")


def has_extra_state(module: Any) -> bool:
    """True if the class of ``module`` gives state beyond tensors."""
    return type(module).get_extra_state is not get_extra_state


def load(root: Any, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """Copy a state dictionary into ``root``; see ``Module.load_state_dict``."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"load_state_dict() takes a dictionary of names and tensors, got {type(state_dict).__name__}")
    metadata = getattr(state_dict, "_metadata", {})
    found = IncompatibleKeys([], [])
    errors: list[str] = []
    replaced: dict[int, Tensor] | None = {} if assign else None
    _load_tree(root, dict(state_dict), "", metadata, (found, errors, replaced))
    if strict and found.unexpected_keys:
        names = ", ".join(_with_hint(key, found.missing_keys) for key in found.unexpected_keys)
        if any("_orig_mod." in key for key in found.unexpected_keys):
            names += (
                "; names with '_orig_mod.' were saved of a compiled module: load them into one, or take it out of them"
            )
        errors.insert(0, f"unexpected: {names}")
    if strict and found.missing_keys:
        errors.insert(0, f"missing: {', '.join(repr(key) for key in found.missing_keys)}")
    if errors:
        raise RuntimeError(f"load_state_dict() of {type(root).__name__}:\n  " + "\n  ".join(errors))
    return found


def _with_hint(key: str, missing: list[str]) -> str:
    near = names_near(key, missing)
    return f"'{key}' (near the missing '{near[0]}')" if near else repr(key)


def _load_tree(module: Any, state: dict[str, Any], prefix: str, metadata: Any, out: tuple[Any, ...]) -> None:
    found, errors, replaced = out
    local: dict[str, Any] = dict(metadata.get(prefix[:-1], {}))
    if replaced is not None:
        local["assign_to_params_buffers"] = replaced
    module._load_from_state_dict(state, prefix, local, True, found.missing_keys, found.unexpected_keys, errors)
    for name in module._child_names:
        child = module.__dict__[name]
        if child is not None:
            below = f"{prefix}{name}."
            _load_tree(child, {k: v for k, v in state.items() if k.startswith(below)}, below, metadata, out)
    for hook in () if module._hooks is None else tuple(module._hooks.load_post.values()):
        if hook(module, found) is not None:
            raise TypeError("a load_state_dict post-hook must change the key lists in place and return None")


def load_own(
    module: Any, state: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
    missing: list[str], unexpected: list[str], errors: list[str],
) -> None:  # fmt: skip
    """Copy into the module's own parameters, buffers and extra state; note every name that does not match."""
    for hook in () if module._hooks is None else tuple(module._hooks.load_pre.values()):
        hook(module, state, prefix, local_metadata, strict, missing, unexpected, errors)
    own = {name: value for name, value in persistent(module).items() if value is not None}
    replaced = local_metadata.get("assign_to_params_buffers")
    for name, target in own.items():
        key = prefix + name
        if key not in state:
            if strict:
                missing.append(key)
        elif not isinstance(state[key], Tensor):
            errors.append(f"'{key}': expected a Tensor, got {type(state[key]).__name__}")
        elif is_lazy(target) and is_lazy(state[key]):
            continue
        elif state[key].shape != target.shape:
            errors.append(f"'{key}': shape {tuple(state[key].shape)} does not fit {tuple(target.shape)}")
        else:
            _store(module, name, target, state[key], replaced)
    if has_extra_state(module):
        if prefix + EXTRA in state:
            module.set_extra_state(state[prefix + EXTRA])
        elif strict:
            missing.append(prefix + EXTRA)
    if strict:
        known = {*own, *module._child_names, *((EXTRA,) if has_extra_state(module) else ())}
        for key in state:
            name, _, rest = key[len(prefix) :].partition(".")
            if key.startswith(prefix) and (name not in known or bool(rest) != (name in module._child_names)):
                unexpected.append(key)


def _store(module: Any, name: str, target: Any, value: Any, replaced: dict[int, Tensor] | None) -> None:
    """Copy ``value`` into ``target``, or (given ``replaced``) put it in its place, once for tied tensors."""
    if replaced is None:
        with no_grad():
            target.copy_(value)
        return
    new = replaced.get(id(target))
    if new is None:
        new = value
        if isinstance(target, Parameter):
            new = value if isinstance(value, Parameter) else Parameter(value, requires_grad=target.requires_grad)
            new.requires_grad_(target.requires_grad)
        replaced[id(target)] = replaced[id(new)] = new
    setattr(module, name, new)
