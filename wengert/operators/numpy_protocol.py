"""NumPy lives with tensors: ``np.sin(t)``, ``ndarray * t`` and ``np.linalg.solve(a, t)`` call operators and record gradients.

NumPy asks ``__array_ufunc__`` for its ufuncs and ``__array_function__`` for the rest; both look the operator up by
NumPy's name. A NumPy function that has no operator raises TypeError: tensors never turn into arrays silently.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.apply import as_tensor
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor

__all__ = ["FUNCTIONS", "UFUNCS"]

# NumPy's ufunc names that differ from the operators'.
UFUNCS = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "bitwise_count": None, "cbrt": None, "conjugate": "conj", "divide": "div",
    "equal": "eq", "fabs": "abs", "float_power": "float_power", "greater": "gt", "greater_equal": "ge", "invert": "bitwise_not",
    "left_shift": "bitwise_left_shift", "less": "lt", "less_equal": "le", "mod": "remainder", "multiply": "mul",
    "negative": "neg", "not_equal": "ne", "power": "pow", "remainder": "remainder", "right_shift": "bitwise_right_shift",
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
        name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
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
        raise _unsupported(f"{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
    result = function(*[as_tensor(v) if isinstance(v, np.ndarray) else v for v in _ordered(inputs)], **kwargs)
    return result if out is None else _write(out[0], result)


def _ordered(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inputs with a number in first place made a 0-d tensor of a dtype that does not widen the other."""
    if len(inputs) == 2 and not isinstance(inputs[0], Tensor | np.ndarray):
        return (as_tensor(inputs[0].item() if isinstance(inputs[0], np.generic) else inputs[0]), inputs[1])
    return inputs


def _write(out: Any, result: Any) -> Any:
    if isinstance(out, Tensor):
        return out.copy_(result)
    np.copyto(out, result.numpy())
    return out


def _unsupported(name: str) -> TypeError:
    return TypeError(
        f"np.{name} has no operator on tensors; use a wengert function, or convert with tensor.detach().numpy() "
        "(the gradient ends there)"
    )


def _spread(name: str) -> Callable[..., Any]:
    """NumPy's std and var: ddof instead of correction, 0 by default."""

    def function(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
    ) -> Any:
        return getattr(ops, name)(as_tensor(a), dim=axis, correction=ddof, keepdim=keepdims)

    return function


def _transpose(a: Any, axes: Any = None) -> Any:
    return ops.permute(a, tuple(range(a.ndim))[::-1] if axes is None else axes)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **kwargs: Any) -> Any:
    return ops.clamp(a, kwargs.get("min", a_min), kwargs.get("max", a_max))


def _where(condition: Any, *args: Any) -> Any:
    return ops.where(as_tensor(condition), *[as_tensor(a) if isinstance(a, np.ndarray) else a for a in args])


def _amax(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return ops.amax(a, dim=() if axis is None else axis, keepdim=keepdims)


def _amin(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return ops.amin(a, dim=() if axis is None else axis, keepdim=keepdims)


def _einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
    return ops.einsum(subscripts, *[as_tensor(x) for x in operands])


def _take(a: Any, indices: Any, axis: Any = None, **options: Any) -> Any:
    indices = as_tensor(np.asarray(indices))
    return ops.take(a, indices) if axis is None else ops.take_along_dim(a, indices, axis) if indices.ndim > 1 else (
        ops.index_select(a, axis, indices))  # fmt: skip


# NumPy functions whose name or arguments differ; all others are looked up by their own name.
FUNCTIONS: dict[str, Callable[..., Any] | str] = {
    "amax": _amax, "amin": _amin, "max": _amax, "min": _amin, "clip": _clip, "concatenate": "cat", "cross": "linalg_cross",
    "einsum": _einsum, "expand_dims": "unsqueeze", "ndim": lambda a: a.ndim, "permute_dims": _transpose,
    "shape": lambda a: tuple(a.shape), "size": lambda a, axis=None: a.numel() if axis is None else a.shape[axis],
    "sort": lambda a, axis=-1, **options: ops.sort(a, dim=axis)[0], "split": "tensor_split", "array_split": "tensor_split",
    "std": _spread("std"), "take": _take, "transpose": _transpose, "var": _spread("var"), "where": _where,
    "copy": lambda a, **options: ops.clone(a), "real": lambda val: ops.real(val), "imag": lambda val: ops.imag(val),
}  # fmt: skip


def array_function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a NumPy function on tensors as the operator of that name."""
    module = function.__module__.removeprefix("numpy").strip(".")
    name = function.__name__
    if module in ("linalg", "fft"):
        found: Any = ops.__dict__.get(f"{module}_{name}")
    else:
        found = FUNCTIONS.get(name, name)
        if isinstance(found, str):
            found = ops.__dict__.get(found)
    if found is None:
        raise _unsupported(f"{module + '.' if module else ''}{name}")
    return found(*[_lifted(a) for a in args], **{k: _lifted(v) for k, v in kwargs.items() if v is not np._NoValue})


def _lifted(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return as_tensor(value)
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor | np.ndarray) for v in value):
        return type(value)(_lifted(v) for v in value)
    return value


attach("__array_ufunc__", array_ufunc)
attach("__array_function__", array_function)
