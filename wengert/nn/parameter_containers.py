"""A list and a dictionary of parameters. Tensors put in become parameters; other values are kept as they are."""

from collections.abc import Iterable, Iterator
from typing import Any, Self

from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.nn.sizes import pairs_of

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key: Any, value: Any) -> str:
    """How a container shows one of its values."""
    if not isinstance(value, Tensor):
        return f"({key}): Object of type: {type(value).__name__}"
    size = "x".join(str(size) for size in value.shape)
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"({key}): {kind} containing: [{value.dtype} of size {size}]"


class ParameterList(Module):
    """A list of parameters that are registered under "0", "1", …

    Example:
        >>> import wengert as wg
        >>> weights = wg.nn.ParameterList([wg.ones(2), wg.ones(3)])
        >>> [tuple(w.shape) for w in weights]
        [(2,), (3,)]
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name(self, index: Any) -> str:
        number = index.__index__()
        if not -self._size <= number < self._size:
            raise IndexError(f"index {number} is out of range: the list holds {self._size} values")
        return str(number % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self.__dict__[self._name(index)]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self.__dict__[str(number)] for number in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Self:
        """Add a value at the end and return the list."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end and return the list.

        Raises:
            TypeError: if ``values`` is a single tensor or not iterable.
        """
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise TypeError(f"extend() takes several values, got a {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def pop(self, index: int = -1) -> Any:
        """Take out and return the value at ``index``."""
        values = list(self)
        taken = values.pop(int(self._name(index)))
        for number in range(self._size):
            delattr(self, str(number))
        self._size = 0
        self.extend(values)
        return taken

    def extra_repr(self) -> str:
        """One line for each value."""
        return "\n".join("  " + _line(number, value) for number, value in enumerate(self))

    def __repr__(self) -> str:
        return f"{self._get_name()}(\n" + _block(self.extra_repr()) + ")"


class ParameterDict(Module):
    """A dictionary of parameters that are registered, in the order of insertion.

    Example:
        >>> import wengert as wg
        >>> weights = wg.nn.ParameterDict({"a": wg.ones(2)})
        >>> weights["a"].requires_grad, "b" in weights
        (True, False)
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self.__dict__[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._keys and hasattr(self, key):
            raise KeyError(f"cannot use the key '{key}': ParameterDict already has an attribute of that name")
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        if key not in self._keys:
            raise KeyError(key)
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._keys))

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __or__(self, other: Any) -> "ParameterDict":
        merged = self.copy()
        merged.update(other)
        return merged

    def copy(self) -> "ParameterDict":
        """Return a new dictionary of the same parameters."""
        return ParameterDict(dict(self.items()))

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of ``key``, which is set to ``default`` if it is not there."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> "ParameterDict":
        """Return a new dictionary with the given keys, all of the same value."""
        return ParameterDict(dict.fromkeys(keys, default))

    def clear(self) -> None:
        """Take out all values."""
        for key in self:
            del self[key]

    def pop(self, key: str) -> Any:
        """Take out and return a value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out and return the pair inserted last."""
        key = next(reversed(list(self._keys)))
        return key, self.pop(key)

    def keys(self) -> Iterable[str]:
        """The keys."""
        return list(self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self.__dict__[key] for key in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """The keys with their values."""
        return [(key, self.__dict__[key]) for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Add or replace values from a dictionary or from (key, value) pairs.

        Raises:
            TypeError: if it is neither.
        """
        for key, value in pairs_of(parameters):
            self[key] = value

    def extra_repr(self) -> str:
        """One line for each value."""
        return "\n".join("  " + _line(key, value) for key, value in self.items())

    def __repr__(self) -> str:
        return f"{self._get_name()}(\n" + _block(self.extra_repr()) + ")"


def _block(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.split("\n")) if text else ""
