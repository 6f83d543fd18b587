"""What ``wengert.compile`` makes of a module: a module again, whose calls are compiled."""

from typing import Any

from wengert.core.state import thread
from wengert.core.structure import structure
from wengert.nn.module import Module

__all__ = ["CompiledModule"]

OWN = frozenset({"_orig_mod", "compiled", "_hooks"})
INNER = "_orig_mod."


class CompiledModule(Module):
    """A module whose calls are compiled; everything else is that of the module in it, its child ``_orig_mod``.

    Attributes that are set or deleted are those of the inner module. As in PyTorch, names of parameters begin with
    ``_orig_mod.``; a state dictionary of the module as it was before is taken as well.

    Attributes:
        compiled: the compiled function; ``compiled.retraces`` says why it was captured again.

    Args:
        module: the module. calls: what runs in its place when it is called.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.Linear(2, 1)
        >>> fast = wg.compile(layer)
        >>> type(fast).__name__, fast.weight is layer.weight, list(fast.state_dict())
        ('CompiledModule', True, ['_orig_mod.weight', '_orig_mod.bias'])
    """

    def __init__(self, module: Module, calls: Any) -> None:
        super().__init__()
        del self.__dict__["training"]  # which is the inner module's
        self._orig_mod, self.compiled = module, calls

    @property
    def training(self) -> bool:
        """Whether the module is in training mode."""
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, mode: bool) -> None:
        self._orig_mod.training = mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is not None:
            return super().__call__(*args, **kwargs)
        captures = thread.state.captures
        if captures is not None:
            captures.module(self)
        return self.forward(*args, **kwargs)  # hooks on all modules run for the one in it

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, compiled."""
        return self.compiled(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile calls of the module in it, in place; calls of this one are compiled as they are."""
        self._orig_mod.compile(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in OWN:  # while it is being made
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'", name=name, obj=self)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self) -> Any:
        return type(self.compiled).of_module, (self._orig_mod, self.compiled.options)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        inner = prefix + INNER
        if not any(key.startswith(inner) for key in state_dict):
            for key in [key for key in state_dict if key.startswith(prefix)]:
                state_dict[inner + key[len(prefix) :]] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __repr__(self) -> str:
        return f"compiled {self._orig_mod!r}"


structure.compiled = CompiledModule
