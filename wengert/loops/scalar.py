"""Scalar expressions: what a kernel computes for one element, as a graph of typed nodes.

Equal expressions are one object, so a value that is named twice is computed once. The operations are those of a
machine (``add``, ``fma``, ``select``, ``bits`` …) and mathematical functions (``exp``, ``lgamma`` …), which code
generation expands to machine operations and the evaluator gives to NumPy.
"""

import math
import operator
import os
import struct
import threading
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

__all__ = [
    "BINARY_MATH", "DTYPES", "OPS", "UNARY_MATH", "Row", "Scalar", "as_scalar", "bits", "cast", "const", "fingerprint", "index",
    "is_float", "is_integer", "lookup", "make", "param", "postorder", "rarely", "select", "size_of", "substitute",
    "var", "width",
]  # fmt: skip

# The dtypes of elements, by the names that kernels print; ``index`` (a signed 64-bit integer) is "i64".
DTYPES: Final[dict[str, int]] = {
    "bool": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
}  # fmt: skip

UNARY_MATH: Final = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "rsqrt", "cbrt", "sigmoid", "softplus",
    "log_sigmoid", "gelu", "gelu_tanh", "silu", "ndtr", "sinc",
)  # fmt: skip
BINARY_MATH: Final = ("pow", "atan2", "hypot", "fmod", "logaddexp")


class Row(NamedTuple):
    """An operation: how many arguments it takes, the dtype of its result, and how it prints (empty: as a call)."""

    arity: int
    result: str  # "same" as the first argument, "bool", "second" (as the second) or "given"
    symbol: str = ""


OPS: Final[dict[str, Row]] = {
    # leaves: their ``data`` says which
    "const": Row(0, "given"), "var": Row(0, "given"), "index": Row(0, "given"), "param": Row(0, "given"),
    "size": Row(0, "given"),
    # arithmetic; integers wrap; ``quotient`` and ``remainder`` round towards minus infinity, and give 0 for a divisor of 0
    "add": Row(2, "same", "+"), "sub": Row(2, "same", "-"), "mul": Row(2, "same", "*"), "div": Row(2, "same", "/"),
    "quotient": Row(2, "same", "//"), "remainder": Row(2, "same", "%"),
    "neg": Row(1, "same", "-"), "abs": Row(1, "same"), "sqrt": Row(1, "same"), "fma": Row(3, "same"),
    "minimum": Row(2, "same"), "maximum": Row(2, "same"),  # a NaN wins; of equals the second
    "floor": Row(1, "same"), "ceil": Row(1, "same"), "trunc": Row(1, "same"), "rint": Row(1, "same"),
    "copysign": Row(2, "same"),
    # bits; ``shr`` is arithmetic for signed integers
    "and": Row(2, "same", "&"), "or": Row(2, "same", "|"), "xor": Row(2, "same", "^"), "not": Row(1, "same", "~"),
    "shl": Row(2, "same", "<<"), "shr": Row(2, "same", ">>"),
    # comparisons; those with a NaN are false, but for ``ne``
    "eq": Row(2, "bool", "=="), "ne": Row(2, "bool", "!="), "lt": Row(2, "bool", "<"), "le": Row(2, "bool", "<="),
    "gt": Row(2, "bool", ">"), "ge": Row(2, "bool", ">="),
    # choice: select(condition, a, b); rarely(condition, a, b) is the same, but a is computed only where some lane needs it
    "select": Row(3, "second"), "rarely": Row(3, "second"),
    # cast converts the value; bits keeps the bits, between dtypes of one width. Integers wrap; of a float the whole part counts
    # as one of 32 bits, or of 64 for u32, i64 and u64, and the least of these stands for what they have no room for (and NaN)
    "cast": Row(1, "given"), "bits": Row(1, "given"),
    # lookup(i) reads a constant table, its ``data``; i must be inside
    "lookup": Row(1, "given"),
    # load(i, j, …) reads the buffer that ``data`` names; with one argument more, a guard: where it is false the result is 0
    "load": Row(-1, "given"),
}  # fmt: skip
OPS.update({name: Row(1, "same") for name in UNARY_MATH})
OPS.update({name: Row(2, "same") for name in BINARY_MATH})

_nodes: "WeakValueDictionary[Any, Scalar]" = WeakValueDictionary()
_lock = threading.RLock()  # a collection inside of it may run code that makes nodes


def _forget_other_threads() -> None:
    """Begin anew in the child of a fork, where the thread that held the lock does not exist."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


class Scalar:
    """A node of a scalar expression.

    Python's operators build expressions; a Python number takes the dtype of the other operand. ``==`` and hashing are
    by identity (equal expressions are one object); comparisons are the methods ``eq``, ``ne``, ``lt``, ``le``, ``gt``, ``ge``.

    Attributes:
        op: a key of ``OPS``. args: its arguments. dtype: a key of ``DTYPES``. data: what a leaf holds: the value of a
            const, the name of a var, index, param or size, the buffer of a load, the table of a lookup.
    """

    __slots__ = ("__weakref__", "args", "data", "dtype", "op")

    op: str
    args: "tuple[Scalar, ...]"
    dtype: str
    data: Any

    def __repr__(self) -> str:
        inner = ", ".join([*([repr(self.data)] if self.data is not None else []), *map(repr, self.args)])
        return f"{self.op}.{self.dtype}({inner})"

    def _with(self, op: str, other: Any, swap: bool = False) -> "Scalar":
        other = as_scalar(other, self.dtype)
        return make(op, (other, self)) if swap else make(op, (self, other))

    def __add__(self, other: Any) -> "Scalar":
        return self._with("add", other)

    def __radd__(self, other: Any) -> "Scalar":
        return self._with("add", other, True)

    def __sub__(self, other: Any) -> "Scalar":
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> "Scalar":
        return self._with("sub", other, True)

    def __mul__(self, other: Any) -> "Scalar":
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> "Scalar":
        return self._with("mul", other, True)

    def __truediv__(self, other: Any) -> "Scalar":
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> "Scalar":
        return self._with("div", other, True)

    def __floordiv__(self, other: Any) -> "Scalar":
        return self._with("quotient", other)

    def __mod__(self, other: Any) -> "Scalar":
        return self._with("remainder", other)

    def __neg__(self) -> "Scalar":
        return make("neg", (self,))

    def __abs__(self) -> "Scalar":
        return make("abs", (self,))

    def __and__(self, other: Any) -> "Scalar":
        return self._with("and", other)

    def __or__(self, other: Any) -> "Scalar":
        return self._with("or", other)

    def __xor__(self, other: Any) -> "Scalar":
        return self._with("xor", other)

    def __invert__(self) -> "Scalar":
        return make("not", (self,))

    def __lshift__(self, other: Any) -> "Scalar":
        return self._with("shl", other)

    def __rshift__(self, other: Any) -> "Scalar":
        return self._with("shr", other)

    def eq(self, other: Any) -> "Scalar":
        """Return self == other."""
        return self._with("eq", other)

    def ne(self, other: Any) -> "Scalar":
        """Return self != other."""
        return self._with("ne", other)

    def lt(self, other: Any) -> "Scalar":
        """Return self < other."""
        return self._with("lt", other)

    def le(self, other: Any) -> "Scalar":
        """Return self <= other."""
        return self._with("le", other)

    def gt(self, other: Any) -> "Scalar":
        """Return self > other."""
        return self._with("gt", other)

    def ge(self, other: Any) -> "Scalar":
        """Return self >= other."""
        return self._with("ge", other)

    def __bool__(self) -> bool:
        raise TypeError("a scalar expression has no truth value while a kernel is built; use select(condition, a, b)")


def make(op: str, args: tuple[Scalar, ...] = (), dtype: str = "", data: Any = None) -> Scalar:
    """Return the node of an operation; ``dtype`` is needed where the operation does not give it.

    Raises:
        TypeError: for the wrong number of arguments, or operands of different dtypes.
    """
    row = OPS[op]
    if row.arity >= 0 and len(args) != row.arity:
        raise TypeError(f"{op} takes {row.arity} arguments, got {len(args)}")
    if row.result != "given":
        dtype = _result(op, row, args)
    key = (op, tuple(map(id, args)), dtype, _key(data))
    node = _nodes.get(key)
    if node is not None:
        return node
    with _lock:  # of two threads that need the same node, the second finds that of the first
        node = _nodes.get(key)
        if node is None:
            node = object.__new__(Scalar)
            node.op, node.args, node.dtype, node.data = op, args, dtype, data
            _nodes[key] = node
    return node


def _key(data: Any) -> Any:
    """What makes two constants the same: their bits, so that 0.0 and -0.0 are two, and every NaN is one."""
    if isinstance(data, float):
        return "nan" if math.isnan(data) else struct.pack("<d", data)
    if isinstance(data, tuple):
        return tuple(map(_key, data))
    return (type(data), data) if isinstance(data, int) else data


def _result(op: str, row: Row, args: tuple[Scalar, ...]) -> str:
    if op in ("select", "rarely"):
        if args[0].dtype != "bool" or args[1].dtype != args[2].dtype:
            raise TypeError(f"{op} takes a bool and two values of one dtype, got {[a.dtype for a in args]}")
        return args[1].dtype
    if any(a.dtype != args[0].dtype for a in args):
        raise TypeError(f"{op} takes operands of one dtype, got {[a.dtype for a in args]}")
    return "bool" if row.result == "bool" else args[0].dtype


def is_float(dtype: str) -> bool:
    """True for f16, bf16, f32, f64."""
    return dtype[0] == "f" or dtype == "bf16"


def is_integer(dtype: str) -> bool:
    """True for integers of either sign (not bool)."""
    return dtype[0] in "iu"


def width(dtype: str) -> int:
    """Return the bits of an element."""
    return DTYPES[dtype]


def size_of(dtype: str) -> int:
    """Return the bytes an element takes in memory."""
    return max(1, DTYPES[dtype] // 8)


def const(value: Any, dtype: str) -> Scalar:
    """Return a constant, rounded to its dtype."""
    if dtype == "bool":
        return make("const", (), dtype, bool(value))
    if is_float(dtype):
        value = float(value)
        if dtype == "f32":
            with np.errstate(all="ignore"):
                value = float(np.float32(value))
        return make("const", (), dtype, value)
    bound = 1 << DTYPES[dtype]
    value = operator.index(value) % bound
    return make("const", (), dtype, value - bound if dtype[0] == "i" and value >= bound // 2 else value)


def as_scalar(value: Any, dtype: str) -> Scalar:
    """Return an expression as it is, and a number as a constant of ``dtype``."""
    return value if isinstance(value, Scalar) else const(value, dtype)


def var(name: str, dtype: str, part: int = 0) -> Scalar:
    """Return a value bound by a Let, or (``part`` of) the result of a fold."""
    return make("var", (), dtype, (name, part))


def index(name: str) -> Scalar:
    """Return the value of a loop variable."""
    return make("index", (), "i64", name)


def param(name: str, dtype: str) -> Scalar:
    """Return a number that is given when the kernel is called."""
    return make("param", (), dtype, name)


def cast(x: Scalar, dtype: str) -> Scalar:
    """Return the value converted to a dtype."""
    return x if x.dtype == dtype else make("cast", (x,), dtype)


def bits(x: Scalar, dtype: str) -> Scalar:
    """Return the same bits as another dtype of the same width."""
    if DTYPES[x.dtype] != DTYPES[dtype]:
        raise TypeError(f"bits: {x.dtype} and {dtype} differ in width")
    return x if x.dtype == dtype else make("bits", (x,), dtype)


def select(condition: Scalar, a: Any, b: Any) -> Scalar:
    """Return ``a`` where the condition holds, else ``b``; both are computed."""
    a = as_scalar(a, b.dtype) if not isinstance(a, Scalar) else a
    return make("select", (condition, a, as_scalar(b, a.dtype)))


def rarely(condition: Scalar, a: Any, b: Any) -> Scalar:
    """Return ``a`` where the condition holds, else ``b``; ``a`` is computed only if some lane of a vector needs it."""
    a = as_scalar(a, b.dtype) if not isinstance(a, Scalar) else a
    return make("rarely", (condition, a, as_scalar(b, a.dtype)))


def lookup(table: tuple[Any, ...], i: Scalar, dtype: str) -> Scalar:
    """Return ``table[i]`` of a constant table; ``i`` must be inside it."""
    return make("lookup", (i,), dtype, table)


def postorder(roots: Iterable[Scalar]) -> list[Scalar]:
    """Return every node of some expressions once, arguments before what uses them."""
    done: dict[Scalar, None] = {}
    stack = list(roots)[::-1]
    while stack:
        node = stack[-1]
        waiting = [a for a in node.args if a not in done]
        if node in done or not waiting:
            done[stack.pop()] = None
        else:
            stack.extend(reversed(waiting))
    return list(done)


def substitute(x: Scalar, known: dict[Scalar, Scalar]) -> Scalar:
    """Return an expression with nodes replaced; ``known`` maps old to new, and is filled with what was rebuilt."""
    stack = [x]
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
            continue
        waiting = [a for a in node.args if a not in known]
        if waiting:
            stack.extend(waiting)
            continue
        args = tuple(known[a] for a in node.args)
        known[node] = node if args == node.args else make(node.op, args, node.dtype, node.data)
        stack.pop()
    return known[x]


def fingerprint(*expressions: Scalar) -> str:
    """Return a text that two lists of expressions share if, and only if, they are the same."""
    numbers: dict[Scalar, int] = {}
    lines = []
    stack = list(reversed(expressions))
    while stack:
        node = stack[-1]
        waiting = [a for a in node.args if a not in numbers]
        if node in numbers or not waiting:
            stack.pop()
            if node not in numbers:
                numbers[node] = len(numbers)
                lines.append(f"{node.op}.{node.dtype}{[numbers[a] for a in node.args]}{_key(node.data)!r}")
        else:
            stack += reversed(waiting)
    return ";".join([*lines, repr([numbers[e] for e in expressions])])
