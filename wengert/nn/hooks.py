"""Hooks on modules: who is called, in which order, and what each may replace.

A module without hooks has no hook table at all, so calling it costs one look at an attribute.
"""

import warnings
from collections.abc import Callable
from typing import Any

from wengert.nn.boundary import Boundary
from wengert.tape.hooks import RemovableHandle, add_hook

__all__ = [
    "ForwardHook",
    "ModuleHooks",
    "add_hook",
    "call_with_hooks",
    "everywhere",
    "hook_functions",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

Hook = Callable[..., Any]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class ForwardHook:
    """A forward (pre-)hook and how it wants to be called."""

    __slots__ = ("always_call", "call", "with_kwargs")

    def __init__(self, call: Hook, with_kwargs: bool = False, always_call: bool = False) -> None:
        if not callable(call):
            raise TypeError(f"a hook must be callable, got {type(call).__name__}")
        self.call, self.with_kwargs, self.always_call = call, with_kwargs, always_call

    def __call__(self, module: Any, args: Any, kwargs: Any, *output: Any) -> Any:
        """Call the hook with or without the keyword arguments."""
        return self.call(module, args, kwargs, *output) if self.with_kwargs else self.call(module, args, *output)


class ModuleHooks:
    """The hooks of one module (or of all modules), each table in the order of calling."""

    __slots__ = (
        "armed", "backward", "backward_pre", "forward", "forward_pre", "load_post", "load_pre", "state_post",
        "state_pre",
    )  # fmt: skip

    def __init__(self) -> None:
        self.forward_pre: dict[int, ForwardHook] = {}
        self.forward: dict[int, ForwardHook] = {}
        self.backward_pre: dict[int, Hook] = {}
        self.backward: dict[int, Hook] = {}
        self.state_pre: dict[int, Hook] = {}
        self.state_post: dict[int, Hook] = {}
        self.load_pre: dict[int, Hook] = {}
        self.load_post: dict[int, Hook] = {}
        self.armed = False  # whether a call must look here at all

    def told(self) -> tuple[Any, ...]:
        """Return which hooks there are, for comparison."""
        return tuple(tuple(getattr(self, name)) for name in self.__slots__ if name != "armed")

    def on_call(self) -> bool:
        """True if any hook concerns a call of the module."""
        return bool(self.forward_pre or self.forward or self.backward_pre or self.backward)


everywhere = ModuleHooks()


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``module.forward`` with every hook around it, in PyTorch's order."""
    own: ModuleHooks | None = module._hooks
    if not everywhere.on_call() and (own is None or not own.on_call()):
        return module.forward(*args, **kwargs)
    called: set[int] = set()
    result: Any = None
    try:
        args, kwargs = _run_pre_hooks(module, args, kwargs)
        boundary = Boundary.around(module, _hooks(module, "backward_pre"), _hooks(module, "backward"))
        if boundary is None:
            result = _run_forward_hooks(module, args, kwargs, module.forward(*args, **kwargs), called)
        else:
            args, kwargs, result = boundary.call(args, kwargs)
            result = boundary.leave(_run_forward_hooks(module, args, kwargs, result, called))
    except Exception:
        _run_always_hooks(module, args, kwargs, result, called)
        raise
    return result


def _hooks(module: Any, table: str) -> dict[int, Any]:
    """The hooks of one kind: those of all modules, then the module's own."""
    own = {} if module._hooks is None else getattr(module._hooks, table)
    return {**getattr(everywhere, table), **own}


def hook_functions(module: Any) -> list[Hook]:
    """Return the functions of the hooks, the module's own and those of all modules, that a call or its backward runs."""
    found = [h for t in ("forward_pre", "forward", "backward_pre", "backward") for h in _hooks(module, t).values()]
    return [h.call if isinstance(h, ForwardHook) else h for h in found]


def _run_pre_hooks(module: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    for hook in _hooks(module, "forward_pre").values():
        new = hook(module, args, kwargs)
        if new is None:
            continue
        if not hook.with_kwargs:
            args = new if isinstance(new, tuple) else (new,)
        elif isinstance(new, tuple) and len(new) == 2:
            args, kwargs = new
        else:
            raise RuntimeError(f"a forward pre-hook with kwargs must return None or (args, kwargs), got {new!r}")
    return args, kwargs


def _run_forward_hooks(module: Any, args: Args, kwargs: Kwargs, result: Any, called: set[int]) -> Any:
    for key, hook in _hooks(module, "forward").items():
        called.add(key)
        new = hook(module, args, kwargs, result)
        if new is not None:
            result = new
    return result


def _run_always_hooks(module: Any, args: Args, kwargs: Kwargs, result: Any, called: set[int]) -> None:
    """After an error: the hooks registered with ``always_call`` still run; their own errors become warnings."""
    for key, hook in _hooks(module, "forward").items():
        if not hook.always_call or key in called:
            continue
        try:
            hook(module, args, kwargs, result)
        except Exception as error:
            warnings.warn(
                f"a forward hook with always_call=True raised {error!r} while another error was being handled",
                stacklevel=2,
            )


def _add_everywhere(table: dict[int, Any], hook: Any) -> RemovableHandle:
    everywhere.armed = True
    return add_hook(table, hook)


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, args)`` before the forward of every module; it may return new arguments."""
    return _add_everywhere(everywhere.forward_pre, ForwardHook(hook))


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after the forward of every module; it may return a new output."""
    return _add_everywhere(everywhere.forward, ForwardHook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` before the backward of every module; it may return new gradients."""
    return _add_everywhere(everywhere.backward_pre, hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` after the backward of every module."""
    return _add_everywhere(everywhere.backward, hook)
