"""The arithmetic of kernels: narrow floating point is computed in float32, and infinities and NaN come silently."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is a floating type narrower than float32; the types of ml_dtypes have kind 'V' or 'f'.

    >>> is_narrow(np.dtype(np.float16)), is_narrow(np.dtype(np.float32))
    (True, False)
    """
    return dtype.kind in "fV" and dtype.itemsize <= 2


def in_float32(kernel: Callable[P, R]) -> Callable[P, R]:
    """Give ``kernel`` narrow floating arrays as float32, and cast its floating results back to the narrow type.

    Only positional arguments are looked at. Integer results (indices) pass through. Overflow and invalid operations
    give what IEEE 754 says, without NumPy's warnings.
    """

    @functools.wraps(kernel)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        narrow = next((a.dtype for a in args if isinstance(a, np.ndarray) and is_narrow(a.dtype)), None)
        with np.errstate(all="ignore"):
            if narrow is None:
                return kernel(*args, **kwargs)
            wide: Any = [_widened(a) for a in args]
            result: R = _cast_results(narrow, kernel(*wide, **kwargs))
            return result

    return run


def _widened(value: object) -> object:
    return value.astype(np.float32) if isinstance(value, np.ndarray) and is_narrow(value.dtype) else value


def _cast_results(dtype: np.dtype[Any], result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_cast_results(dtype, part) for part in result)
    return result.astype(dtype) if result.dtype == np.float32 else result
