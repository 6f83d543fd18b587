"""NumPy lives with tensors: ``np.sin(t)``, ``ndarray * t`` and ``np.linalg.solve(a, t)`` call operators and record gradients.

NumPy asks ``__array_ufunc__`` for its ufuncs and ``__array_function__`` for the rest; both look the operator up by
NumPy's name. A NumPy function that has no operator raises TypeError: tensors never turn into arrays silently. Ufuncs of
other libraries are those of ``scipy.special``: ``scipy.special.gammaln(t)`` calls ``wengert.special.gammaln``. Code
written for the array API standard asks ``__array_namespace__``.
"""

import importlib
import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, result_dtype
from wengert.core.apply import as_tensor
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.operators.numpy_functions import FUNCTIONS, RENAMED, UNSUPPORTED
from wengert.settings import settings

__all__ = ["UFUNCS"]

# NumPy's ufunc names that differ from the operators'.
UFUNCS = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "bitwise_count": None, "cbrt": None, "conjugate": "conj", "degrees": "rad2deg",
    "divide": "div",
    "equal": "eq", "fabs": "abs", "float_power": "float_power", "greater": "gt", "greater_equal": "ge", "invert": "bitwise_not",
    "left_shift": "bitwise_left_shift", "less": "lt", "less_equal": "le", "mod": "remainder", "multiply": "mul",
    "negative": "neg", "radians": "deg2rad",
    "not_equal": "ne", "power": "pow", "remainder": "remainder", "right_shift": "bitwise_right_shift",
    "rint": "round", "subtract": "sub", "true_divide": "div",
}  # fmt: skip
_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


def array_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
    """Run a NumPy ufunc on tensors as the operator of that name."""
    if kwargs.pop("where", True) is not True:
        raise TypeError(f"np.{ufunc.__name__}(where=…) is not supported on tensors; use wengert.where")
    if method == "__call__":
        name = UFUNCS.get(ufunc.__name__, ufunc.__name__) if _is_numpys(ufunc) else f"special_{ufunc.__name__}"
    elif method in ("reduce", "accumulate"):
        table = _REDUCTIONS if method == "reduce" else _ACCUMULATIONS
        name = table.get(ufunc.__name__)
        axis = kwargs.pop("axis", 0)
        kwargs["dim"] = axis
        kwargs = {k: v for k, v in kwargs.items() if v is not None or k == "dim"}
    else:
        name = None
    function = ops.__dict__.get(name) if name is not None else None
    if function is None:
        library = "np" if _is_numpys(ufunc) else "scipy.special"
        raise _unsupported(f"{library}.{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
    result = function(*[as_tensor(v) if isinstance(v, np.ndarray) else v for v in _ordered(inputs)], **kwargs)
    return result if out is None else _write(out[0], result)


def _is_numpys(ufunc: Any) -> bool:
    return hasattr(np, ufunc.__name__)


def _ordered(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inputs with a number in first place made a 0-d tensor of the dtype it takes beside the other."""
    if len(inputs) == 2 and not isinstance(inputs[0], Tensor | np.ndarray):
        number, other = inputs[0].item() if isinstance(inputs[0], np.generic) else inputs[0], as_tensor(inputs[1])
        if other.dtype.category < FLOAT:
            return as_tensor(number), other
        return ops.full((), number, dtype=result_dtype([other.dtype], [], [number], settings.default_dtype)), other
    return inputs


def _write(out: Any, result: Any) -> Any:
    if isinstance(out, Tensor):
        return out.copy_(result)
    np.copyto(out, result.numpy())
    return out


def _unsupported(name: str) -> TypeError:
    return TypeError(
        f"{name} has no operator on tensors; use a wengert function, or convert with tensor.detach().numpy() "
        "(the gradient ends there)"
    )


# NumPy's names of optional arguments that the operators call otherwise.
ARGUMENTS = {"axis": "dim", "axes": "dim", "keepdims": "keepdim", "axis1": "dim1", "axis2": "dim2", "k": "diagonal"}


def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a NumPy function on tensors as the operator of that name."""
    module = function.__module__.removeprefix("numpy").strip(".")
    name = function.__name__
    args, kwargs = [_lifted(a) for a in args], {k: _lifted(v) for k, v in kwargs.items() if v is not np._NoValue}
    if not module and name in FUNCTIONS:
        return FUNCTIONS[name](*args, **kwargs)
    found = ops.__dict__.get(f"{module}_{name}" if module in ("linalg", "fft") else RENAMED.get(name, name))
    if found is None or (not module and name in UNSUPPORTED):
        raise _unsupported(f"np.{module + '.' if module else ''}{name}")
    args, kwargs = _renamed(function, args, kwargs)
    out = kwargs.pop("out", None)
    result = found(*args, **kwargs)
    return result if out is None else _write(out, result)


@cache
def _parameters(function: Any) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def _renamed(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a NumPy function as the operator takes them.

    What NumPy requires stays in place, what it has a default for goes by the operator's name, and is left out where it
    has its default. An argument the operator does not know is refused there.
    """
    placed: list[Any] = []
    named: dict[str, Any] = {}
    given = dict(kwargs)
    values = list(args)
    for parameter in _parameters(function):
        if parameter.kind is parameter.VAR_POSITIONAL:
            placed.extend(values)
            values = []
        elif values and parameter.kind is not parameter.KEYWORD_ONLY:
            _place(parameter, values.pop(0), placed, named)
        elif parameter.name in given:
            _place(parameter, given.pop(parameter.name), placed, named)
    return placed + values, {**named, **given}


def _place(parameter: inspect.Parameter, value: Any, placed: list[Any], named: dict[str, Any]) -> None:
    default = parameter.default
    if default is parameter.empty:
        placed.append(value)
    elif value is not default and not (isinstance(value, bool | int | float | str) and value == default):
        named[ARGUMENTS.get(parameter.name, parameter.name)] = value


def _lifted(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return as_tensor(value)
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor | np.ndarray) for v in value):
        return type(value)(_lifted(v) for v in value)
    return value


# Versions of the Python array API standard that code may ask for; each later one extends the ones before.
ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def array_namespace(self: Any, /, *, api_version: str | None = None) -> Any:
    """Return :mod:`wengert.array_api`, the functions of the Python array API standard; it is imported when first asked for.

    Raises:
        ValueError: for a version of the standard that is not supported.
    """
    if api_version not in (None, *ARRAY_API_VERSIONS):
        listed = ", ".join(ARRAY_API_VERSIONS)
        raise ValueError(f"version {api_version!r} of the array API standard is not supported; supported are {listed}")
    return importlib.import_module("wengert.array_api")


attach("__array_namespace__", array_namespace)
attach("__array_ufunc__", array_ufunc)
attach("__array_function__", array_function)
