"""The loop IR: a kernel as a tree of loops around scalar expressions.

::

    kernel softmax(x: f32[n, d: 1], out y: f32[n, d: 1])
      parallel i in 0:n
        fold j in 0:d by 8 lanes
          m = max(x[i, j])
        fold j in 0:d by 8 lanes
          s = sum(exp(x[i, j] - m))
        for j in 0:d by 8 lanes
          y[i, j] = exp(x[i, j] - m) / s

Sizes are names whose values come with the call, so one kernel serves every shape of its structure. A buffer's
dimensions are sizes; its strides come with the call too, except where the structure fixes them: 1 (neighbours in
memory) or 0 (one element for all). An index is an expression of loop variables.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from wengert.loops.scalar import Scalar, const, index, make, var

__all__ = [
    "MONOIDS", "Buffer", "Fold", "Kernel", "Let", "Loop", "Monoid", "Param", "Stage", "Statement", "Store", "Update",
    "bound", "load", "monoid", "size", "walk",
]  # fmt: skip

Stride = int | None  # 1, 0, or None: given with the call


@dataclass(frozen=True)
class Buffer:
    """An array argument.

    Attributes:
        name: how the kernel calls it. dtype: of its elements, a key of ``scalar.DTYPES``. dims: names of sizes, or numbers.
        strides: per dimension 1, 0 or None. role: "in", "out" (every element is written before it is read), or "inout".
    """

    name: str
    dtype: str
    dims: tuple[str | int, ...]
    strides: tuple[Stride, ...]
    role: str = "in"


@dataclass(frozen=True)
class Param:
    """A number argument."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Monoid:
    """A way to reduce: an identity, and an associative way to combine two states.

    Attributes:
        name: how kernels print it. parts: how many values a state has. identity: dtype of the first part → one constant
            per part. combine: two states → a state. dtypes: dtype of the folded value → dtype per part.
    """

    name: str
    parts: int
    identity: Callable[[str], tuple[Scalar, ...]]
    combine: Callable[[tuple[Scalar, ...], tuple[Scalar, ...]], tuple[Scalar, ...]]
    dtypes: Callable[[str], tuple[str, ...]]


MONOIDS: Final[dict[str, Monoid]] = {}


def monoid(name: str, *, parts: int = 1, dtypes: Callable[[str], tuple[str, ...]] | None = None) -> Any:
    """Declare a monoid: the decorated function is its ``combine``, its attribute ``identity`` must be set with it.

    Used as ``monoid("sum")(identity, combine)``.
    """

    def declare(identity: Callable[[str], tuple[Scalar, ...]], combine: Any) -> Monoid:
        MONOIDS[name] = Monoid(name, parts, identity, combine, dtypes or (lambda dtype: (dtype,) * parts))
        return MONOIDS[name]

    return declare


@dataclass(frozen=True)
class Fold:
    """A value that a loop accumulates: its name, the dtype of the folded value, and the monoid's name."""

    name: str
    dtype: str
    monoid: str

    @property
    def results(self) -> tuple[Scalar, ...]:
        """The parts of the result, for use after the loop."""
        dtypes = MONOIDS[self.monoid].dtypes(self.dtype)
        return tuple(var(self.name, dtype, part) for part, dtype in enumerate(dtypes))


@dataclass(frozen=True)
class Let:
    """Name a value: ``name = value``."""

    name: str
    value: Scalar


@dataclass(frozen=True)
class Store:
    """Write an element: ``buffer[index] = value`` (``add``: ``+=``), where the guard holds."""

    buffer: str
    index: tuple[Scalar, ...]
    value: Scalar
    guard: Scalar | None = None
    add: bool = False


@dataclass(frozen=True)
class Update:
    """Fold values (one per part of the monoid's state) into the fold ``name`` of an enclosing loop."""

    name: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Stage:
    """Memory of this iteration alone, for ``size`` elements: a buffer of one dimension with stride 1."""

    name: str
    dtype: str
    size: Scalar


@dataclass(frozen=True)
class Loop:
    """Run the body for ``variable`` = start, start + step, … while below stop.

    Attributes:
        start, stop: index expressions of sizes and outer loop variables. step: a positive number.
        folds: what the loop accumulates; known after it. parallel: its iterations may run at once, on several threads; only
            the outermost loop of a kernel, and without folds.
        lanes: how many iterations run as one vector (1: none). unroll: how many of these steps are written out.
    """

    variable: str
    start: Scalar
    stop: Scalar
    body: tuple["Statement", ...]
    folds: tuple[Fold, ...] = ()
    step: int = 1
    parallel: bool = False
    lanes: int = 1
    unroll: int = 1


Statement = Loop | Let | Store | Update | Stage


@dataclass(frozen=True)
class Kernel:
    """A kernel: arguments, and statements.

    Attributes:
        name: for people. sizes: names of the numbers that dimensions and loop bounds are made of.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: tuple[Statement, ...]
    params: tuple[Param, ...] = ()
    _buffers: dict[str, Buffer] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._buffers.update({b.name: b for b in self.buffers})

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of a name."""
        return self._buffers[name]

    def with_body(self, body: tuple[Statement, ...]) -> "Kernel":
        """Return the kernel with other statements."""
        return replace(self, body=body)


def size(name: str) -> Scalar:
    """Return the value of a size."""
    return make("size", (), "i64", name)


def bound(value: Scalar | str | int) -> Scalar:
    """Return a loop bound from a number, the name of a size, or an expression."""
    if isinstance(value, str):
        return size(value)
    return const(value, "i64") if isinstance(value, int) else value


def load(buffer: Buffer | Stage, *indices: Scalar | str | int, guard: Scalar | None = None) -> Scalar:
    """Return ``buffer[indices]``; a string is the name of a loop variable."""
    args = tuple(index(i) if isinstance(i, str) else bound(i) for i in indices)
    return make("load", args if guard is None else (*args, guard), buffer.dtype, (buffer.name, guard is not None))


def walk(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield every statement, outer before inner."""
    for statement in statements:
        yield statement
        if isinstance(statement, Loop):
            yield from walk(statement.body)
