"""Element-wise operators and derivative rules on large arrays: one native loop for all of an expression."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.codegen.target import host
from wengert.loops.layout import Space, space
from wengert.loops.pointwise import BLOCK, pointwise
from wengert.loops.scalar import DTYPES, Scalar, fingerprint
from wengert.loops.tracing import Untraceable, name_of
from wengert.runtime.ahead import Ahead
from wengert.runtime.launch import Launcher, number_bits, pointer
from wengert.runtime.pool import empty

__all__ = ["Expression", "Pointwise"]

GRAIN = 8  # blocks: what one thread takes at a time; 64 KiB of float32 per array
VARIANTS = 64  # kernels of one operator for different constants, past which NumPy is used

Traced = tuple[Scalar, Any]


class Expression:
    """A scalar expression of array elements, with a kernel for each way the arrays can lie.

    Args:
        name: of the kernels. scalar: the expression; dtype: its NumPy dtype. kinds: for each argument the NumPy dtype of its
            placeholder, or None if there is no array. numbers: the positions of those that are numbers given with the call.
    """

    def __init__(self, name: str, scalar: Scalar, dtype: Any, kinds: Sequence[Any], numbers: Sequence[int]) -> None:
        self.name, self.scalar, self.dtype = name, scalar, dtype
        self.kinds = tuple(None if k is None else name_of(k) for k in kinds)
        self.numbers = tuple(numbers)
        self.arrays = tuple(i for i, k in enumerate(kinds) if k is not None and i not in numbers)
        self.lanes = _lanes(scalar)
        self.key = f"pointwise {fingerprint(scalar)} -> {dtype} numbers {self.numbers} lanes {self.lanes}"
        self.kernels: dict[Any, Ahead[Launcher]] = {}

    def __call__(self, arguments: Sequence[Any], out: Any = None) -> Any:
        """Return the values for arrays that broadcast together; NotImplemented while there is no kernel."""
        arrays = [arguments[i] for i in self.arrays]
        first = arrays[0]
        shape = first.shape
        if any(a.shape != shape for a in arrays):
            shape = np.broadcast_shapes(*[a.shape for a in arrays])
        if out is None:
            out = empty(shape, self.dtype)
        where = space(shape, [out, *arrays])
        kernel = self.kernels.get(where.pattern)
        if kernel is None:
            kernel = self.kernels[where.pattern] = Ahead(lambda: self._launcher(where))
        launch = kernel.get()
        if launch is None:
            return NotImplemented
        slots: list[int] = []
        for array, strides, pattern in zip((out, *arrays), where.strides, where.pattern, strict=True):
            slots.append(pointer(array))
            slots += [s for s, p in zip(strides, pattern, strict=True) if p is None]
        slots += where.sizes
        for i in self.numbers:
            slots.append(number_bits(arguments[i], self.kinds[i] or ""))
        blocks = -(-where.sizes[-1] // BLOCK)
        launch(
            slots, math.prod(where.sizes[:-1]) * blocks, max(1, GRAIN * BLOCK // max(1, min(BLOCK, where.sizes[-1])))
        )
        return out

    def _launcher(self, where: Space) -> Launcher:
        def build() -> Any:
            inputs = [(i, kind, kind) for i in self.arrays if (kind := self.kinds[i])]
            numbers = [(i, kind) for i in self.numbers if (kind := self.kinds[i])]
            return pointwise(self.name, [self.scalar], [name_of(self.dtype)], inputs, where, numbers, self.lanes)

        return Launcher(f"{self.key} {where.pattern}", build)


def _lanes(scalar: Scalar) -> int:
    """Return how many elements of the widest dtype in an expression a vector holds."""
    widest, stack, seen = 8, [scalar], {scalar}
    while stack:
        node = stack.pop()
        widest = max(widest, DTYPES[node.dtype])
        stack += [a for a in node.args if a not in seen]
        seen.update(node.args)
    return max(2, host().vector_bytes * 8 // widest)


class Pointwise:
    """A function of arrays that has an expression for each combination of dtypes and constants it is called with.

    Args:
        name: of its kernels. trace: ``(arguments, dtypes) -> (expression, NumPy dtype)``. inputs: which arguments are
            arrays (or numbers in their place); the others are constants. key: says which function it is.
    """

    def __init__(self, name: str, trace: Callable[..., Traced], inputs: Sequence[int]) -> None:
        self.name, self.trace, self.inputs = name, trace, frozenset(inputs)
        self.expressions: dict[Any, Expression | None] = {}

    def __call__(self, arguments: Sequence[Any], out: Any = None) -> Any:
        """Return the result, or NotImplemented where NumPy must compute it."""
        marks: list[Any] = []
        common: Any = None
        for i, a in enumerate(arguments):
            if type(a) is np.ndarray:
                if not a.flags.aligned:
                    return NotImplemented
                if a.ndim:
                    common = a.dtype
                marks.append((a.dtype, bool(a.ndim)))
            elif i in self.inputs and type(a) in (float, int, bool):
                marks.append(type(a))
            else:
                marks.append((a,))
        if common is None:
            return NotImplemented
        marks_key = tuple(marks)
        try:
            found = self.expressions[marks_key]
        except TypeError:  # an argument that cannot be a key is none that a kernel can be made for
            return NotImplemented
        except KeyError:
            if len(self.expressions) >= VARIANTS:
                return NotImplemented
            found = self.expressions[marks_key] = self._expression(arguments, marks_key, common)
        return NotImplemented if found is None else found(arguments, out)

    def _expression(self, arguments: Sequence[Any], marks: tuple[Any, ...], common: Any) -> Expression | None:
        """Return the expression for these dtypes; 0-d arrays and numbers are given with each call."""
        kinds: list[Any] = []
        numbers: list[int] = []
        for i, (a, mark) in enumerate(zip(arguments, marks, strict=True)):
            kinds.append(a.dtype if type(a) is np.ndarray else common if isinstance(mark, type) else None)
            if isinstance(mark, type) or (type(a) is np.ndarray and not a.ndim):
                numbers.append(i)
                if isinstance(mark, type) and (common.kind == "b" or (common.kind in "iu" and mark is float)):
                    return None
        try:
            scalar, dtype = self.trace(arguments, kinds)
            return Expression(self.name, scalar, dtype, kinds, numbers)
        except Untraceable:
            return None
