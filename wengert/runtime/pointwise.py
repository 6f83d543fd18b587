"""Element-wise operators, derivative rules and updates on large arrays: one native loop for all of an expression."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from wengert.codegen.target import host
from wengert.loops.layout import Space, space
from wengert.loops.pointwise import BLOCK, pointwise
from wengert.loops.scalar import BINARY_MATH, DTYPES, UNARY_MATH, Scalar, fingerprint
from wengert.loops.tracing import Untraceable, name_of
from wengert.runtime.ahead import Ahead
from wengert.runtime.launch import Launcher, number_bits, pointer
from wengert.runtime.pool import empty
from wengert.runtime.recent import Recent

__all__ = ["Expression", "Plan", "Pointwise", "computed", "expression"]

TASK = 16384  # elements that one thread takes at a time: 64 KiB of float32 for each array
PLANS = 1024  # how many shapes a function remembers
SHORT = 8  # nodes of an expression that is little work
VARIANTS = 64  # kernels of one function for different constants, past which NumPy is used

_NUMBERS = (float, int, bool)
ndarray = np.ndarray

Axes = tuple[int, ...] | None
Traced = Sequence[tuple[Scalar, Any]]


class Expression:
    """Scalar expressions of array elements, computed in one loop, with a kernel for each way the arrays can lie.

    Args:
        name: of the kernels. results: the expressions and their NumPy dtypes. kinds: for each argument the NumPy dtype of its
            placeholder, or None if there is no array. numbers: the positions of those that are numbers given with the call.
    """

    def __init__(self, name: str, results: Traced, kinds: Sequence[Any], numbers: Sequence[int]) -> None:
        self.name = name
        self.scalars, self.dtypes = (tuple(column) for column in zip(*results, strict=True))
        self.kinds = tuple(None if k is None else name_of(k) for k in kinds)
        self.numbers = tuple((i, self.kinds[i] or "") for i in numbers)
        self.arrays = tuple(i for i, k in enumerate(kinds) if k is not None and i not in numbers)
        self.lanes, self.unroll = _shape(self.scalars)
        shape = self.dtypes, self.kinds, self.numbers, self.lanes, self.unroll
        self.key = f"pointwise {fingerprint(*self.scalars)} {shape}"
        self.kernels: Recent[Any, Ahead[Launcher]] = Recent(VARIANTS)

    def plan(self, arguments: Sequence[Any], outs: Sequence[Any] | None) -> "Plan | None":
        """Return how to run on arrays of these shapes and strides; None where NumPy is to."""
        arrays = [arguments[i] for i in self.arrays]
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        if not math.prod(shape):
            return None
        if outs is not None and not _writable(outs, self.dtypes, arrays, shape):
            return None
        made = [_laid_out(shape, d, _axes(arrays, shape)) for d in self.dtypes] if outs is None else outs
        if not all(a.flags.aligned for a in (*arrays, *made)):
            return None
        where = space(shape, [*made, *arrays])
        kernel = self.kernels.get(where.pattern)
        if kernel is None:
            kernel = self.kernels[where.pattern] = Ahead(lambda: self._launcher(where))
        return Plan(self, shape, _axes(arrays, shape), where, kernel)

    def _launcher(self, where: Space) -> Launcher:
        def build() -> Any:
            inputs = [(i, kind, kind) for i in self.arrays if (kind := self.kinds[i])]
            names = [name_of(d) for d in self.dtypes]
            return pointwise(self.name, self.scalars, names, inputs, where, self.numbers, self.lanes, self.unroll)

        return Launcher(f"{self.key} {where.pattern}", build)


class Plan:
    """How an expression runs on arrays of given shapes and strides: all that does not depend on where they are.

    Args:
        expression: the expression. shape: of the results. axes: how they lie. where: the iteration space. kernel: what is
            being made for it.
    """

    __slots__ = ("_axes", "_count", "_expression", "_grain", "_kernel", "_places", "_shape", "_slots")

    def __init__(
        self, expression: Expression, shape: tuple[int, ...], axes: Axes, where: Space, kernel: Ahead[Launcher]
    ) -> None:
        self._expression, self._shape, self._axes, self._kernel = expression, shape, axes, kernel
        self._slots: list[int] = []
        self._places: list[int] = []
        for strides, pattern in zip(where.strides, where.pattern, strict=True):
            self._places.append(len(self._slots))
            self._slots += [0, *(s for s, p in zip(strides, pattern, strict=True) if p is None)]
        self._slots += where.sizes
        *outer, inner = where.sizes
        self._count = math.prod(outer) * -(-inner // BLOCK)
        self._grain = max(1, TASK // max(1, min(BLOCK, inner)))

    def __call__(self, arguments: Sequence[Any], outs: Sequence[Any] | None) -> Any:
        """Return the list of results; NotImplemented while there is no kernel."""
        launch = self._kernel.get()
        if launch is None:
            return NotImplemented
        expression = self._expression
        if outs is None:
            outs = [_laid_out(self._shape, d, self._axes) for d in expression.dtypes]
        slots = self._slots.copy()
        places = iter(self._places)
        for out in outs:
            slots[next(places)] = pointer(out)
        for i in expression.arrays:
            slots[next(places)] = pointer(arguments[i])
        for i, dtype in expression.numbers:
            slots.append(number_bits(arguments[i], dtype))
        launch(slots, self._count, self._grain)
        return outs


def _axes(arrays: Sequence[Any], shape: tuple[int, ...]) -> Axes:
    """Return the dimensions of the result in the order in which they lie in memory, outermost first, as NumPy would have it.

    None if that is their own order.
    """
    if all(a.flags.c_contiguous for a in arrays):
        return None
    flags: Any = [["readonly"]] * len(arrays) + [["writeonly", "allocate"]]
    dtypes = [*(a.dtype for a in arrays), np.dtype(np.uint8)]
    with np.nditer([*arrays, None], ["refs_ok"], flags, dtypes, order="K") as iterator:
        strides = iterator.operands[-1].strides
    axes = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], d)))
    return None if axes == tuple(range(len(shape))) else axes


def _laid_out(shape: tuple[int, ...], dtype: Any, axes: Axes) -> Any:
    """Return an array from the pool whose dimensions lie in an order."""
    if axes is None:
        return empty(shape, dtype)
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    return empty(tuple(shape[d] for d in axes), dtype).transpose(inverse)


def _writable(outs: Sequence[Any], dtypes: Sequence[Any], arrays: Sequence[Any], shape: tuple[int, ...]) -> bool:
    """Whether results can be written to these arrays while the arguments are read: no two overlap, but the same ones."""
    for out, dtype in zip(outs, dtypes, strict=True):
        if out.shape != shape or out.dtype != dtype:
            return False
        for a in arrays:
            if np.may_share_memory(out, a) and not (
                pointer(a) == pointer(out) and a.strides == out.strides and a.shape == out.shape
            ):
                return False
    return True


def _shape(scalars: Sequence[Scalar]) -> tuple[int, int]:
    """Return how many elements of the widest dtype in expressions a vector holds, and how many vectors a step takes.

    Short expressions take several, so that the loop itself costs little. Long ones wait for results more than for a unit to
    compute them: two vectors at once fill the gaps, and more would not find registers.
    """
    widest, stack, seen = 8, list(scalars), set(scalars)
    while stack:
        node = stack.pop()
        widest = max(widest, DTYPES[node.dtype])
        stack += [a for a in node.args if a not in seen]
        seen.update(node.args)
    short = len(seen) <= SHORT and not any(n.op in UNARY_MATH or n.op in BINARY_MATH for n in seen)
    return max(2, host().vector_bytes * 8 // widest), 4 if short else 2


@lru_cache(maxsize=PLANS)
def expression(
    name: str, results: tuple[Any, ...], kinds: tuple[Any, ...], numbers: tuple[int, ...] = ()
) -> Expression:
    """Return an :class:`Expression`, and the same one again: with it come the kernels that were made for it."""
    return Expression(name, results, kinds, numbers)


def computed(name: str, result: Scalar, dtype: Any, *arguments: Any) -> Any:
    """Return an expression of the elements of arrays, in one array.

    Args:
        result: of ``placeholder(i, …)`` for argument number i. arguments: arrays, or numbers in the dtype of the result.

    Returns:
        NotImplemented while there is no kernel, or for arrays that none is made for.
    """
    kinds = tuple(a.dtype if isinstance(a, ndarray) else dtype for a in arguments)
    numbers = tuple(i for i, a in enumerate(arguments) if not isinstance(a, ndarray))
    plan = expression(name, ((result, dtype),), kinds, numbers).plan(arguments, None)
    found = NotImplemented if plan is None else plan(arguments, None)
    return found if found is NotImplemented else found[0]


class Pointwise:
    """A function of arrays that has an expression for each combination of dtypes and constants it is called with.

    Args:
        name: of its kernels. trace: ``(arguments, dtypes) -> [(expression, NumPy dtype), …]``. inputs: which arguments are
            arrays or numbers in their place, which are given with each call; the others are constants.
        yields: if it cannot be traced with numbers that are not known, take them as constants from then on.
    """

    def __init__(self, name: str, trace: Callable[..., Traced], inputs: Sequence[int], yields: bool = False) -> None:
        self.name, self.trace, self.inputs, self.yields = name, trace, frozenset(inputs), yields
        self.expressions: dict[Any, Expression | None] = {}
        self.plans: dict[Any, Plan | None] = {}

    def __call__(self, arguments: Sequence[Any], outs: Sequence[Any] | None = None) -> Any:
        """Return the list of results, or NotImplemented where NumPy must compute them."""
        key = self._key(arguments)
        if outs is not None:
            return self._into(arguments, outs, key)
        try:
            plan = self.plans[tuple(key)]
        except TypeError:  # an argument that cannot be a key is none that a kernel can be made for
            return NotImplemented
        except KeyError:
            plan = self._plan(arguments, None, key)
            if len(self.plans) >= PLANS:
                self.plans.clear()
            self.plans[tuple(key)] = plan
        return NotImplemented if plan is None else plan(arguments, None)

    def _key(self, arguments: Sequence[Any]) -> list[Any]:
        """Return what a plan depends on."""
        inputs = self.inputs
        return [
            (a.dtype, a.shape, a.strides, a.flags.aligned) if type(a) is ndarray
            else type(a) if i in inputs and type(a) in _NUMBERS else _constant(a)
            for i, a in enumerate(arguments)
        ]  # fmt: skip

    def _into(self, arguments: Sequence[Any], outs: Sequence[Any], key: Sequence[Any]) -> Any:
        """Write the results where the caller says; whether that is possible depends on where the arrays lie."""
        plan = self._plan(arguments, outs, key)
        return NotImplemented if plan is None else plan(arguments, outs)

    def _plan(self, arguments: Sequence[Any], outs: Sequence[Any] | None, key: Sequence[Any]) -> Plan | None:
        arrays = [a for a in arguments if type(a) is ndarray and a.ndim]
        if not arrays:
            return None
        marks = tuple((a.dtype, bool(a.ndim)) if type(a) is ndarray else k for a, k in zip(arguments, key, strict=True))
        try:
            found = self.expressions[marks]
        except KeyError:
            if len(self.expressions) >= VARIANTS:
                return None
            try:
                found = self._expression(arguments, marks, arrays[0].dtype)
            except Untraceable:
                if self.yields and any(m in _NUMBERS for m in marks):
                    self.inputs, self.yields = frozenset(), False
                    self.plans.clear()
                    return self._plan(arguments, outs, self._key(arguments))
                found = None
            self.expressions[marks] = found
        return None if found is None else found.plan(arguments, outs)

    def _expression(self, arguments: Sequence[Any], marks: Sequence[Any], common: Any) -> Expression | None:
        """Return the expression for these dtypes; 0-d arrays and numbers are given with each call."""
        kinds: list[Any] = []
        numbers: list[int] = []
        for i, (a, mark) in enumerate(zip(arguments, marks, strict=True)):
            is_number = mark in _NUMBERS
            if is_number and not _holds(common, mark):
                return None
            if is_number or (type(a) is np.ndarray and not a.ndim):
                numbers.append(i)
            kinds.append(common if is_number else a.dtype if type(a) is np.ndarray else None)
        return Expression(self.name, self.trace(arguments, kinds), kinds, numbers)


def _constant(value: Any) -> Any:
    """Return what an argument that shapes the code is known by: zeros of both signs differ, and one NaN is like another."""
    return type(value), repr(value) if type(value) is float else value


def _holds(dtype: Any, number: type) -> bool:
    """Whether a Python number of a type takes the dtype of the array beside it."""
    return dtype.kind in "fV" or (dtype.kind in "iu" and number is not float)
