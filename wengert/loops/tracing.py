"""The NumPy kernel of an element-wise operator as a scalar expression: it is called with symbols in place of arrays.

So the body of a kernel, which is NumPy's own functions on its arguments, is also the operator's meaning for native code,
and neither can drift from the other. A kernel that does what one element cannot know (its shape, its truth, writes in
place) raises :class:`Untraceable` here and stays a NumPy kernel.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from wengert.loops.scalar import DTYPES, UNARY_MATH, Scalar, bits, cast, const, is_float, make, select, var

__all__ = ["DTYPE_NAMES", "Symbol", "Untraceable", "computed", "name_of", "placeholder", "symbols"]

DTYPE_NAMES: Final[dict[str, str]] = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip


class Untraceable(Exception):  # noqa: N818 - not a failure: the kernel stays what it is
    """What a kernel does has no meaning for one element."""


@lru_cache(maxsize=64)
def name_of(dtype: Any) -> str:
    """Return the name kernels have for a NumPy dtype.

    Raises:
        Untraceable: for complex numbers, foreign byte order and other dtypes that kernels do not have.
    """
    if dtype.name not in DTYPE_NAMES or not dtype.isnative:
        raise Untraceable(f"kernels have no dtype {dtype}")
    return DTYPE_NAMES[dtype.name]


def placeholder(position: int, dtype: str) -> Scalar:
    """Return what stands for an element of an argument."""
    return var(f"argument {position}", dtype)


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """An element of an array that is not there yet: NumPy's functions of it build an expression."""

    __slots__ = ("dtype", "scalar")
    ndim = 0

    def __init__(self, scalar: Scalar, dtype: Any) -> None:
        self.scalar, self.dtype = scalar, dtype

    @property
    def real(self) -> "Symbol":
        """The value itself, which is real."""
        return self

    def astype(self, dtype: Any, **options: Any) -> "Symbol":
        """Return the value converted."""
        target = np.dtype(dtype)
        return Symbol(cast(self.scalar, name_of(target)), target)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write the element in place."""
        if key is not Ellipsis:
            raise Untraceable("a part of an element")
        self.scalar = cast(
            _scalar(value, value.dtype if isinstance(value, Symbol) else self.dtype), name_of(self.dtype)
        )

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, dtype: Any = None, out: Any = None, **options: Any
    ) -> Any:
        if method != "__call__" or options:
            raise Untraceable(f"{ufunc.__name__} with {method} {list(options)}")
        rule = UFUNCS.get(ufunc.__name__)
        if rule is None:
            raise Untraceable(ufunc.__name__)
        given = tuple(_kind(x) for x in inputs)
        kinds = (*given, *(None,) * ufunc.nout)
        found = ufunc.resolve_dtypes(kinds, **_signature(ufunc, dtype))
        scalars = [computed(_scalar(x, d)) for x, d in zip(inputs, found, strict=False)]
        result = Symbol(cast(rule(*scalars), name_of(found[-1])), found[-1])
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Symbol):
            raise Untraceable("an element written into an array")
        target[...] = result
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = FUNCTIONS.get(function.__name__)
        if rule is None:
            raise Untraceable(function.__name__)
        return rule(*args, **kwargs)

    def __bool__(self) -> bool:
        raise Untraceable("the truth of an element")

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"the attribute {name} of an element")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise Untraceable("an element as an array")


def symbols(arguments: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """Return arguments with a symbol in the place of each that has a dtype; it stands for ``placeholder(position, …)``."""
    return [
        a if d is None else Symbol(placeholder(i, name_of(d)), d)
        for i, (a, d) in enumerate(zip(arguments, dtypes, strict=True))
    ]


def _signature(ufunc: Any, dtype: Any) -> dict[str, Any]:
    return {} if dtype is None else {"signature": (*(None,) * ufunc.nin, *(np.dtype(dtype),) * ufunc.nout)}


def _kind(x: Any) -> Any:
    """Return how an operand takes part in promotion: by its dtype, or weakly as a Python number."""
    if isinstance(x, Symbol):
        return x.dtype
    if type(x) is bool:
        return np.dtype(bool)
    if type(x) in (int, float):
        return type(x)
    array = np.asarray(x)
    if array.ndim:
        raise Untraceable("an array beside an element")
    return array.dtype


def _scalar(x: Any, dtype: Any) -> Scalar:
    name = name_of(dtype)
    if isinstance(x, Symbol):
        return cast(x.scalar, name)
    value = np.asarray(x)[()]
    return const(float(value) if is_float(name) else bool(value) if name == "bool" else operator.index(value), name)


# ---- what NumPy's functions mean


def _nan(x: Scalar) -> Scalar:
    return x.ne(x) if is_float(x.dtype) else const(False, "bool")


def _add(x: Scalar, y: Scalar) -> Scalar:
    return x | y if x.dtype == "bool" else x + y


def _mul(x: Scalar, y: Scalar) -> Scalar:
    return x & y if x.dtype == "bool" else x * y


def _fmod(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the sign of the dividend."""
    if is_float(x.dtype):
        return make("fmod", (x, y))
    rest = x % y
    return select(rest.ne(0) & (x.lt(0) ^ y.lt(0)), rest - y, rest) if x.dtype[0] == "i" else rest


def _remainder(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the sign of the divisor."""
    if not is_float(x.dtype):
        return x % y
    rest = make("fmod", (x, y))
    moved = select((rest.lt(0) ^ y.lt(0)) & rest.ne(0), rest + y, rest)
    return select(rest.eq(0), make("copysign", (rest, y)), moved)


def _floor_divide(x: Scalar, y: Scalar) -> Scalar:
    """⌊x / y⌋, from the exact remainder, so that no rounding of the quotient crosses a whole number."""
    if not is_float(x.dtype):
        return x // y
    rest = make("fmod", (x, y))
    quotient = (x - rest) / y
    quotient = select(rest.ne(0) & (y.lt(0) ^ rest.lt(0)), quotient - 1, quotient)
    low = make("floor", (quotient,))
    low = select((quotient - low).gt(0.5), low + 1, low)
    low = select(quotient.eq(0), make("copysign", (const(0, x.dtype), x / y)), low)
    return select(y.eq(0), x / y, low)


def _extreme(name: str, join: str) -> Callable[[Scalar, Scalar], Scalar]:
    return lambda x, y: make(join if x.dtype == "bool" else name, (x, y))


def _ignoring_nan(name: str, join: str) -> Callable[[Scalar, Scalar], Scalar]:
    pick = _extreme(name, join)
    return lambda x, y: select(_nan(x), y, select(_nan(y), x, pick(x, y)))


def _sign(x: Scalar) -> Scalar:
    one, zero = const(1, x.dtype), const(0, x.dtype)
    if x.dtype[0] == "u":
        return select(x.ne(0), one, zero)
    found = select(x.gt(0), one, select(x.lt(0), -one, zero))
    return select(_nan(x), x, found)


def _signbit(x: Scalar) -> Scalar:
    if not is_float(x.dtype):
        return x.lt(0) if x.dtype[0] == "i" else const(False, "bool")
    return bits(x, f"i{DTYPES[x.dtype]}").lt(0)


def _magnitude(x: Scalar) -> Scalar:
    return x if x.dtype == "bool" else abs(x)


def _power(x: Scalar, y: Scalar) -> Scalar:
    if not is_float(x.dtype):
        raise Untraceable("powers of integers")
    if y.op == "const" and y.data in _POWERS:
        return _POWERS[y.data](x)
    return make("pow", (x, y))


_POWERS: Final[dict[float, Callable[[Scalar], Scalar]]] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    -1.0: lambda x: 1 / x,
}


def _logic(name: str) -> Callable[..., Scalar]:
    return lambda *args: make(name, tuple(cast(a, "bool") for a in args))


def _heaviside(x: Scalar, at_zero: Scalar) -> Scalar:
    found = select(x.gt(0), const(1, x.dtype), const(0, x.dtype))
    return select(_nan(x), x, select(x.eq(0), at_zero, found))


def _logaddexp2(x: Scalar, y: Scalar) -> Scalar:
    top = make("maximum", (x, y))
    gap = make("exp2", (-abs(x - y),))
    return select(x.eq(y), x + 1, top + make("log1p", (gap,)) * (1 / math.log(2)))


def _rounding(name: str) -> Callable[[Scalar], Scalar]:
    return lambda x: make(name, (x,)) if is_float(x.dtype) else x


def _clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return make("minimum", (make("maximum", (x, low)), high))


_RENAMED = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "arctan2": "atan2",
}  # fmt: skip
_COMPARED = {
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip

UFUNCS: Final[dict[str, Callable[..., Scalar]]] = {
    **{name: (lambda x, name=name: make(name, (x,))) for name in UNARY_MATH},
    **{name: (lambda *xs, op=op: make(op, xs)) for name, op in {**_RENAMED, **_COMPARED}.items()},
    "hypot": lambda x, y: make("hypot", (x, y)),
    "logaddexp": lambda x, y: make("logaddexp", (x, y)),
    "logaddexp2": _logaddexp2,
    "sqrt": lambda x: make("sqrt", (x,)),
    "add": _add, "subtract": lambda x, y: x - y, "multiply": _mul, "divide": lambda x, y: x / y,
    "floor_divide": _floor_divide, "remainder": _remainder, "fmod": _fmod, "power": _power,
    "maximum": _extreme("maximum", "or"), "minimum": _extreme("minimum", "and"),
    "fmax": _ignoring_nan("maximum", "or"), "fmin": _ignoring_nan("minimum", "and"), "clip": _clip,
    "absolute": _magnitude, "fabs": _magnitude, "negative": lambda x: -x, "positive": lambda x: x,
    "conjugate": lambda x: x, "sign": _sign, "signbit": _signbit, "square": lambda x: _mul(x, x),
    "reciprocal": lambda x: 1 / x, "copysign": lambda x, y: make("copysign", (x, y)),
    "floor": _rounding("floor"), "ceil": _rounding("ceil"), "trunc": _rounding("trunc"), "rint": _rounding("rint"),
    "isnan": _nan, "isinf": lambda x: abs(x).eq(math.inf) if is_float(x.dtype) else const(False, "bool"),
    "isfinite": lambda x: abs(x).lt(math.inf) if is_float(x.dtype) else const(True, "bool"),
    "logical_and": _logic("and"), "logical_or": _logic("or"), "logical_xor": _logic("xor"), "logical_not": _logic("not"),
    "bitwise_and": lambda x, y: x & y, "bitwise_or": lambda x, y: x | y, "bitwise_xor": lambda x, y: x ^ y,
    "invert": lambda x: ~x, "left_shift": lambda x, y: x << y, "right_shift": lambda x, y: x >> y,
    "deg2rad": lambda x: x * (math.pi / 180), "rad2deg": lambda x: x * (180 / math.pi), "heaviside": _heaviside,
}  # fmt: skip


def computed(x: Scalar) -> Scalar:
    """Return a value in the dtype that arithmetic is done in: a half in float32."""
    return cast(x, "f32") if x.dtype in ("f16", "bf16") else x


def _where(condition: Any, x: Any, y: Any) -> Symbol:
    kinds = [_kind(v) for v in (x, y)]
    dtype = np.result_type(*[0 if k is int else 0.0 if k is float else k for k in kinds])
    chosen = cast(_scalar(condition, _kind(condition)), "bool")
    return Symbol(select(chosen, _scalar(x, dtype), _scalar(y, dtype)), dtype)


def _clipped(x: Any, low: Any = None, high: Any = None, **options: Any) -> Any:
    found = x
    if low is not None:
        found = np.maximum(found, low)
    return found if high is None else np.minimum(found, high)


def _full_like(x: Any, value: Any, dtype: Any = None) -> Symbol:
    kind = x.dtype if dtype is None else np.dtype(dtype)
    return Symbol(_scalar(value, kind), kind)


def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if not is_float(name_of(x.dtype)):
        return x
    limits = np.finfo(x.dtype)
    kind = x.dtype.type
    found = np.where(np.isnan(x), kind(nan), x)
    found = np.where(found == math.inf, limits.max if posinf is None else kind(posinf), found)
    return np.where(found == -math.inf, limits.min if neginf is None else kind(neginf), found)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "where": _where, "clip": _clipped, "nan_to_num": _nan_to_num, "full_like": _full_like,
    "zeros_like": lambda x, dtype=None: _full_like(x, 0, dtype), "ones_like": lambda x, dtype=None: _full_like(x, 1, dtype),
    "isneginf": lambda x: x == -math.inf, "isposinf": lambda x: x == math.inf, "real": lambda x: x,
    "isreal": lambda x: _full_like(x, True, np.bool_), "iscomplexobj": lambda x: False, "isrealobj": lambda x: True,
}  # fmt: skip
