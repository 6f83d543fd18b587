"""What a sparse tensor holds: a pattern and the entries. Two recorded steps lead into such a tensor and out of it.

``made`` puts entries, an ordinary tensor, into a pattern; ``entries`` takes them out again. Each is the other's derivative,
so everything else that there is for sparse tensors is written with dense operators on entries, and differentiated as such.
The gradient of a sparse tensor therefore lies on its own pattern, where each position stands once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.layout import sparse_coo, sparse_csr
from wengert.core.arguments import Anything
from wengert.core.interpret import Layout, Payload, highest
from wengert.core.operator import Op, Spec
from wengert.core.place import here
from wengert.core.record import record
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, alias, from_array, version_of
from wengert.errors import SparseError
from wengert.sparse.pattern import Pattern

__all__ = ["CAPTURED", "RULES", "SPARSE", "Sparse", "apply", "entries", "is_sparse", "made", "read", "refuse_dense"]

RULES: dict[str, Callable[..., Any]] = {}  # what operators mean for sparse tensors, by name
IN_PATTERN = ("empty_like", "full_like", "ones_like", "randn_like")  # of compressed rows, in PyTorch, too
CAPTURED: dict[str, Callable[..., Any]] = {}  # what they mean while a program is captured


class Sparse(Payload):
    """Entries in a pattern.

    Attributes:
        pattern: where they are. entries: a tensor without history, (count, *dense dimensions).
    """

    __slots__ = ("entries", "pattern")

    def __init__(self, pattern: Pattern, entries: Any) -> None:
        self.level, self.pattern, self.entries = SPARSE, pattern, entries
        self.shape = pattern.shape
        # It equals the dtype of the entries and is another object, so that code which asks by identity for the commonest
        # dtypes of arrays leaves it alone.
        self.dtype = np.dtype(entries._payload.dtype, copy=True)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The entries."""
        return (self.entries,)

    def values(self, what: str) -> Any:
        """Refuse: the elements between the entries are not stored."""
        raise SparseError(
            f"{what} needs all elements of a tensor, and this one, of shape {tuple(self.shape)}, is {self.pattern.layout}; "
            "use .to_dense(), or its .values()"
        )

    exported = values

    def stored(self) -> "Sparse":
        """Itself: its pattern and its entries are pickled."""
        return self

    def __reduce__(self) -> Any:
        return Sparse, (self.pattern, self.entries)

    def refused(self, what: str) -> Any:
        """Return the error for what asks for the array itself."""
        return SparseError(f"{what} needs the memory of a dense tensor, and this one is sparse; use .to_dense()")

    def detached(self) -> "Sparse":
        """Itself: entries have no history."""
        return self

    def copy(self) -> "Sparse":
        """Return it with entries of its own."""
        return Sparse(self.pattern, from_array(self.entries._payload.copy()))

    def shown(self, dtype: str) -> str:
        """Return its parts as PyTorch prints them."""
        return self.pattern.shown(self.entries._payload, dtype)


class Sparseness(Layout):
    """The level of sparse tensors."""

    title = "a sparse tensor"

    def call(self, op: Op, values: list[Any]) -> Any:
        """Return what an operator means for sparse tensors.

        Raises:
            SparseError: if it has no meaning for them.
        """
        captures = thread.state.captures
        rule = (RULES if captures is None else CAPTURED).get(op.name)
        found = NotImplemented if rule is None else rule(*values)
        if found is NotImplemented:
            if captures is not None:
                captures.refuse(f"{op.name}() of a sparse tensor")
            raise SparseError(f"{op.name}() has no meaning for these sparse tensors; use .to_dense(): {op.signature}")
        return found

    def owned(self, tensor: Any, source: Any) -> Any:
        """Refuse a new tensor like a sparse one."""
        raise SparseError("a new tensor like a sparse one would be dense; give its shape and dtype instead")

    def like(self, name: str, tensor: Any, make: Callable[[Any], Any]) -> Any:
        """Return a tensor without entries, or one in the same pattern of compressed rows, as PyTorch does.

        Raises:
            SparseError: for any other, which would be dense.
        """
        pattern, own = tensor._payload.pattern, tensor._payload.entries
        if name == "zeros_like" or (name == "empty_like" and pattern.layout is sparse_coo):
            return made(make(from_array(own._payload[:0])), pattern.without_entries())
        if name in IN_PATTERN and pattern.layout is sparse_csr:
            return made(make(own), pattern)
        raise SparseError(
            f"{name}() of a tensor with layout {pattern.layout} would be dense; give layout=wengert.strided, or make it of "
            "its .values()"
        )

    def admit(self, name: str, tensor: Any, source: Any) -> None:
        """Refuse to write a sparse tensor into a dense one."""
        raise SparseError(f"{name}(): a sparse tensor cannot be written into a dense one; use .to_dense()")

    def write(self, name: str, tensor: Any, result: Any) -> None:
        """Let a sparse tensor hold the result; the memory of its former entries stays as it is."""
        if not is_sparse(result):
            raise SparseError(f"{name}(): a dense tensor cannot be written into a sparse one")
        tensor._payload, tensor._cell = result._payload, version_of(result)
        tensor._cell.bump(name, here(1))

    def lift(self, tensor: Any) -> Any:
        """Return a dense tensor as it is: operators take both."""
        return tensor


SPARSE = Sparseness()


def is_sparse(tensor: Any) -> bool:
    """Whether a tensor is sparse."""
    return type(tensor._payload) is Sparse


def refuse_dense(name: str, *tensors: Any) -> None:
    """Refuse tensors that a function needs sparse."""
    for tensor in tensors:
        if not is_sparse(tensor):
            raise SparseError(
                f"{name}() is for sparse tensors, got a dense one of shape {tuple(tensor.shape)}; use .to_sparse()"
            )


def apply(op: Op, *values: Any, captured: bool = False) -> Any:
    """Run and record an operator that takes or gives sparse tensors.

    Args:
        captured: whether it has a meaning in a program that is captured.
    """
    state = thread.state
    if state.captures is not None and not captured:
        state.captures.refuse(f"{op.name}(), which makes sparse tensors,")
    level = highest(v for v in values if isinstance(v, Tensor))
    if level is not None and level is not state.captures and not isinstance(level, Layout):
        raise level.error(f"{op.name}(): sparse tensors cannot be used inside {level.title}; use dense ones there")
    result = op.kernel(*values)
    if state.grad:
        record(op, list(values), [result])
    return result


def _made(values: Anything, pattern: Any) -> Any:
    """Return a sparse tensor from its entries."""
    out = from_array(Sparse(pattern, alias(values)))
    if not out.is_inference():
        out._cell = version_of(values)
    return out


def _entries(input: Anything, pattern: Any) -> Any:
    """Return the entries of a sparse tensor."""
    return alias(input._payload.entries)


def _linear(kernel: Any, name: str, spec: Any, transpose: Any) -> Op:
    return Op(kernel, "operator", name=name, vjp=transpose, jvp={}, spec=spec, batch="refuse", samples=())


MADE = _linear(
    _made, "sparse_coo_tensor", lambda values, pattern: Spec(pattern.shape, values.dtype),
    {"values": lambda g, pattern: read(g, pattern)},
)  # fmt: skip
ENTRIES = _linear(
    _entries, "values", lambda input, pattern: Spec((pattern.count, *pattern.dense_shape), input.dtype),
    {"input": lambda g, pattern: _placed(g, pattern)},
)  # fmt: skip


def made(values: Any, pattern: Pattern) -> Any:
    """Return the sparse tensor with entries ``values``, (count, *dense dimensions), in a pattern; it shares their memory."""
    return apply(MADE, values, pattern, captured=pattern.captured)


def _placed(g: Any, pattern: Pattern) -> Any:
    """Return the gradient of entries as that of their tensor: entries at one position have it in common, once."""
    if not pattern.coalesced:
        merged, groups = pattern.coo.merged
        if merged.count < pattern.count:
            first = np.empty(merged.count, np.int64)
            first[groups[::-1]] = np.arange(pattern.count)[::-1]
            return made(ops.take_rows(g, from_array(first)), merged)
    return made(g, pattern)


def entries(tensor: Any) -> Any:
    """Return the entries of a sparse tensor, which share its memory."""
    return apply(ENTRIES, tensor, tensor._payload.pattern)


def read(tensor: Any, pattern: Pattern) -> Any:
    """Return the elements of a tensor, dense or sparse, at the positions of a pattern of its shape."""
    if not is_sparse(tensor):
        flat = ops.reshape(tensor, (pattern.places, *pattern.dense_shape))
        return ops.take_rows(flat, from_array(pattern.coo.keys))
    own = tensor._payload.pattern
    if own is pattern:
        return entries(tensor)
    merged, groups = own.coo.merged
    values = ops.add_rows(entries(tensor), from_array(groups), merged.count)
    values = ops.cat((values, ops.zeros((1, *own.dense_shape), dtype=values.dtype)), 0)
    wanted = pattern.coo.keys
    found = np.searchsorted(merged.keys, wanted)
    there = np.append(merged.keys, -1)[found] == wanted
    return ops.take_rows(values, from_array(np.where(there, found, merged.count)))
