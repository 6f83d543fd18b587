"""What a captured call gives: shapes, dtypes and memory orders; or the error that the plain call would raise.

A rule for shapes trusts its arguments, and a kernel complains of those that make no sense. While a program is captured no
kernel runs, so where a rule fails, or arguments are of a kind that kernels may refuse, the call is tried on numbers.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from wengert.array.dtype import DType, dtype_of
from wengert.core.apply import execute
from wengert.core.explain import FAILURES, explained, misfit
from wengert.core.operator import Op, Spec
from wengert.core.tensor import Tensor, from_array
from wengert.errors import TransformError
from wengert.graph.outside import outside
from wengert.graph.storage import memory_order, spec_of
from wengert.tape.modes import no_grad

__all__ = ["inferred", "refusal", "tried"]

LARGEST = 1 << 20  # elements of arguments, up to which a call is tried
PLAIN = (int, float, complex, bool, str, type(None), DType)


def inferred(op: Op, values: list[Any]) -> list[tuple[Spec, tuple[int, ...] | None]]:
    """Return shape, dtype and memory order of each result.

    Raises:
        NeedsValues: if the shape depends on values. Exception: what the plain call raises for arguments of this kind.
    """
    found = op.infer([spec_of(v) for v in values])
    specs = (found,) if isinstance(found, Spec) else tuple(found)
    elementwise = op.single and op.batch == "broadcast" and op.family != "operator"  # not solve_matrices
    if _is_ours(op) and (misfit(op, values) is not None or _is_refused(op, values, elementwise)):
        error = tried(op, values)
        if error is not None:
            raise error
    order = memory_order(op, values, specs[0].shape) if elementwise else None
    return [(s, order) for s in specs]


def refusal(op: Op, values: list[Any], error: Exception) -> Exception:
    """Return what the plain call raises, for a call that could not be captured because of an error."""
    if isinstance(error, TransformError):
        return error
    return (tried(op, values) if _is_ours(op) else None) or explained(op, values, error)


def tried(op: Op, values: Sequence[Any]) -> Exception | None:
    """Return the error of a plain call with other elements in place of each tensor's; None if there is none.

    Which these are does not matter: an error with ones that zeros do not raise is one of the values (1 as an index).
    """
    tensors = [t for v in values for t in (v if isinstance(v, tuple) else (v,)) if isinstance(t, Tensor)]
    if sum(t._payload.size for t in tensors) > LARGEST:
        return None
    found = None
    for fill in (np.ones, np.zeros):
        try:
            with outside(), no_grad():
                execute(op, [_filled(v, fill) for v in values])
        except FAILURES as error:
            found = found or error
        else:
            return None
    return found


def _filled(value: Any, fill: Any) -> Any:
    if isinstance(value, Tensor):
        held = value._payload
        return from_array(fill(held.shape, dtype_of(held.dtype).numpy))
    return tuple(_filled(v, fill) for v in value) if isinstance(value, tuple) else value


def _is_ours(op: Op) -> bool:
    """Whether a call has no effect but its result: an operator of a user's own is not called for a trial."""
    room = str(op.kernel.__module__).split(".")[:2]
    return room[0] in ("numpy", "wengert") and room != ["wengert", "library"]


def _is_refused(op: Op, values: list[Any], elementwise: bool) -> bool:
    """Whether an operator on elements refuses arguments for what they are: dtypes, numbers and options."""
    if not elementwise and not any(type(values[i]) in PLAIN[:4] for i in op.signature.inputs):
        return False
    kinds = tuple(
        (Tensor, dtype_of(v._payload.dtype), bool(v._payload.shape)) if isinstance(v, Tensor) else (type(v), v)
        for v in values
    )
    return all(kind is Tensor or issubclass(kind, PLAIN) for kind, *_ in kinds) and _is_kind_refused(op, kinds)


@lru_cache(1 << 14)
def _is_kind_refused(op: Op, kinds: tuple[Any, ...]) -> bool:
    values = [from_array(np.ones((1,) * k[2], k[1].numpy)) if k[0] is Tensor else k[1] for k in kinds]
    return tried(op, values) is not None
