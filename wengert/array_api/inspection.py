"""The standard's inspection interface: what this library can do, its devices and dtypes."""

from typing import Any

from wengert.array.device import CPU, device, to_device
from wengert.array.dtype import DType, complex_of, int64, to_dtype
from wengert.array_api.data_types import KINDS
from wengert.settings import settings

__all__ = ["Info", "__array_namespace_info__"]


class Info:
    """What ``__array_namespace_info__()`` returns.

    Example:
        >>> import wengert.array_api as xp
        >>> xp.__array_namespace_info__().default_dtypes()["integral"]
        wengert.int64
    """

    def capabilities(self) -> dict[str, Any]:
        """Return what is supported: boolean indexing, shapes that depend on data, how many dimensions at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> device:
        """Return the device on which arrays are made: the CPU."""
        return CPU

    def devices(self) -> tuple[device, ...]:
        """Return all devices: the CPU."""
        return (CPU,)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Return the dtypes of arrays that are made without naming one; see :func:`wengert.set_default_dtype`."""
        to_device(device)
        real = settings.default_dtype
        return {"real floating": real, "complex floating": complex_of(real), "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Return the standard's dtypes by name: all, or those of a kind or of one of several kinds in a tuple.

        Raises:
            ValueError: for an unknown kind.
        """
        to_device(device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        unknown = [k for k in kinds if k not in KINDS]
        if unknown:
            raise ValueError(f"dtypes(): unknown kind {unknown[0]!r}; kinds are {', '.join(map(repr, KINDS))}")
        return {name: to_dtype(name) for k in kinds for name in KINDS[k]}


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Return the inspection interface."""
    return Info()
