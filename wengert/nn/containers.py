"""Modules that hold other modules, and containers of parameters."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from wengert.nn.module import Module
from wengert.nn.sizes import pairs_of

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


class _Numbered(Module):
    """A sequence of modules whose names are their positions: "0", "1", …"""

    def __len__(self) -> int:
        return len(self._child_names)

    def __iter__(self) -> Iterator[Any]:
        own = self.__dict__
        return iter([own[name] for name in self._child_names])

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _name(self, index: Any) -> str:
        """The name of the module at an index that may be negative."""
        number = index.__index__()
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range: {type(self).__name__} holds {len(self)} modules")
        return list(self._child_names)[number]

    def _refill(self, modules: Iterable[Any]) -> None:
        """Hold exactly ``modules``, named by their positions."""
        modules = list(modules)
        for name in list(self._child_names):
            delattr(self, name)
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._child_names)
        dropped = names[index] if isinstance(index, slice) else [self._name(index)]
        self._refill([self.__dict__[name] for name in names if name not in dropped])

    def append(self, module: Module) -> Self:
        """Add ``module`` at the end and return the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add ``modules`` at the end and return the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put ``module`` before the one at ``index`` and return the container.

        Raises:
            IndexError: if the index is out of range.
        """
        if not isinstance(module, Module):
            raise TypeError(f"insert() takes a Module, got {type(module).__name__}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range: {type(self).__name__} holds {len(self)} modules")
        modules = list(self)
        modules.insert(index, module)
        self._refill(modules)
        return self

    def pop(self, key: int) -> Any:
        """Take out and return the module at an index."""
        module = self.__dict__[self._name(key)]
        del self[key]
        return module


class Sequential(_Numbered):
    """Modules called one after the other, each with the output of the one before.

    Args:
        modules: the modules, or one ordered dictionary of names and modules.

    Example:
        >>> import wengert as wg
        >>> model = wg.nn.Sequential(wg.nn.Linear(2, 3), wg.nn.ReLU())
        >>> model(wg.ones(1, 2)).shape
        wengert.Size([1, 3])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        modules = args[0].items() if len(args) == 1 and isinstance(args[0], Mapping) else enumerate(args)
        for name, module in modules:
            self.add_module(str(name), module)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)({name: self.__dict__[name] for name in list(self._child_names)[index]})
        return self.__dict__[self._name(index)]

    def forward(self, input: Any) -> Any:
        """Pass ``input`` through all modules."""
        own = self.__dict__
        value = input
        for name in self._child_names:
            value = own[name](value)
        return value

    def __add__(self, other: "Sequential") -> "Sequential":
        return Sequential(*self, *_sequential(other))

    def __iadd__(self, other: "Sequential") -> Self:
        return self.extend(_sequential(other))

    def __mul__(self, times: Any) -> "Sequential":
        if not isinstance(times, int) or times <= 0:
            raise ValueError(f"a Sequential can be repeated a positive number of times, got {times!r}")
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__

    def __imul__(self, times: Any) -> Self:
        self._refill(self * times)
        return self


def _sequential(other: Any) -> Any:
    if not isinstance(other, Sequential):
        raise ValueError(f"only another Sequential can be added to a Sequential, got {type(other).__name__}")
    return other


class ModuleList(_Numbered):
    """A list of modules that are registered.

    Example:
        >>> import wengert as wg
        >>> layers = wg.nn.ModuleList([wg.nn.Linear(2, 2) for _ in range(3)])
        >>> len(layers), len(list(layers.parameters()))
        (3, 6)
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self.__dict__[self._name(index)]

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        texts = [repr(module) for module in self]
        if not texts:
            return f"{self._get_name()}()"
        lines, start = [], 0
        for stop in range(1, len(texts) + 1):
            if stop == len(texts) or texts[stop] != texts[start]:
                text = texts[start].replace("\n", "\n  ")
                same = stop - start
                lines.append(f"({start}-{stop - 1}): {same} x {text}" if same > 1 else f"({start}): {text}")
                start = stop
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules that are registered, in the order of insertion.

    Example:
        >>> import wengert as wg
        >>> heads = wg.nn.ModuleDict({"a": wg.nn.Linear(2, 1), "b": wg.nn.Identity()})
        >>> list(heads), heads["a"](wg.zeros(1, 2)).shape
        (['a', 'b'], wengert.Size([1, 1]))
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        if key not in self._child_names:
            raise KeyError(key)
        return self.__dict__[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        if key not in self._child_names:
            raise KeyError(key)
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._child_names)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._child_names))

    def __contains__(self, key: str) -> bool:
        return key in self._child_names

    def clear(self) -> None:
        """Take out all modules."""
        for key in self:
            delattr(self, key)

    def pop(self, key: str) -> Any:
        """Take out and return a module."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Iterable[str]:
        """The names."""
        return list(self._child_names)

    def values(self) -> Iterable[Any]:
        """The modules."""
        return [self.__dict__[key] for key in self._child_names]

    def items(self) -> Iterable[tuple[str, Any]]:
        """The names with their modules."""
        return [(key, self.__dict__[key]) for key in self._child_names]

    def update(self, modules: Any) -> None:
        """Add or replace modules from a dictionary or from (name, module) pairs.

        Raises:
            TypeError: if it is neither.
        """
        for key, module in pairs_of(modules):
            self[key] = module
