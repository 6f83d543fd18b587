"""Checks of values that kernels rely on: made now, or, while kernels are recorded, by native code at each call."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.loops.scalar import Scalar, cast, const, make
from wengert.loops.tracing import placeholder
from wengert.runtime.pointwise import computed
from wengert.runtime.recording import at_each_call, current
from wengert.runtime.reduction import reduce

__all__ = ["in_range", "known_inside"]


def in_range(index: Any, size: int, ignored: int | None, complain: Callable[[], Any]) -> None:
    """See to it that every element of an array lies in 0 ≤ x < ``size``, or is ``ignored``.

    Args:
        complain: looks at the array itself, and raises an error that names the element; called now if nothing is recorded,
            and else at a call that has such an element, before anything behind it is run.
    """
    mine = current()
    if mine is None:
        complain()
        return
    key = id(index), size, ignored
    if key in mine.checked:
        return
    mine.checked.add(key)
    mine.kept.append(index)

    def outside(x: Scalar, _: Scalar) -> tuple[Scalar, ...]:
        wrong = make("or", (make("lt", (x, const(0, x.dtype))), make("ge", (x, const(size, x.dtype)))))
        if ignored is not None:
            wrong = make("and", (wrong, make("ne", (x, const(ignored, x.dtype)))))
        return (cast(wrong, "i64"),)

    found: Any = NotImplemented
    if index.dtype == np.int64:
        found = reduce(index, None, "max", np.dtype(np.int64), outside, f"not below {size} nor {ignored}")
    if index.dtype == np.int64 and index.size == 1:
        element = placeholder(0, "i64")
        found = [computed("outside", outside(element, element)[0], index.dtype, index.reshape(1))]
    if found is NotImplemented:
        at_each_call(complain)
    else:
        mine.require(found[0], complain)


def known_inside(index: Any, size: int) -> None:
    """Take note, while kernels are recorded, that every element of an array that they fill lies in 0 ≤ x < ``size``."""
    mine = current()
    if mine is not None:
        mine.checked.add((id(index), size, None))
        mine.kept.append(index)
