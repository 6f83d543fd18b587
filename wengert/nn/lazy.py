"""Modules that find the sizes of their parameters from the first input."""

from typing import Any

from wengert.core.state import thread
from wengert.core.structure import structure
from wengert.nn.module import Module
from wengert.nn.uninitialized import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(Module):
    """Makes a module lazy: its first call, or a loaded state, gives the parameters their shapes.

    A subclass registers :class:`UninitializedParameter` and :class:`UninitializedBuffer`, and defines
    ``initialize_parameters``, which takes what ``forward`` takes.

    Attributes:
        cls_to_become: the class that the module has afterwards; None: it keeps its own.

    Raises:
        RuntimeError: if something is left uninitialized, or the first call is made while a program is captured.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.LazyLinear(2)
        >>> layer(wg.ones(1, 3)).shape, type(layer).__name__
        (wengert.Size([1, 2]), 'Linear')
    """

    cls_to_become: type[Module] | None = None
    _found: bool = False

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give every parameter and buffer its shape, from the arguments of a call; a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not define initialize_parameters()")

    def has_uninitialized_params(self) -> bool:
        """Say whether any of the module's own parameters and buffers waits for its shape."""
        own = self.__dict__
        return any(is_lazy(own[name]) for name in (*self._parameter_names, *self._buffer_names))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._found:
            self._initialize(args, kwargs)
        return Module.__call__(self, *args, **kwargs)

    def _initialize(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if thread.state.captures is not None:
            raise RuntimeError(
                f"call {type(self).__name__} once before compiling it: its first call makes its parameters"
            )
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(f"initialize_parameters() of {type(self).__name__} left something uninitialized")
        structure.changes += 1
        if self.cls_to_become is None:
            self._found = True
        else:
            object.__setattr__(self, "__class__", self.cls_to_become)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in (*self._parameter_names, *self._buffer_names):
            given = state_dict.get(prefix + name)
            if is_lazy(self.__dict__[name]) and given is not None and not is_lazy(given):
                self.__dict__[name].materialize(given.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
