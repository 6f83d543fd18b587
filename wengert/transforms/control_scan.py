"""Loops over the slices of trees of tensors: ``scan``, which carries a state along, and ``map``, which does not."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert import tree
from wengert.array.shape import as_int, axis_of
from wengert.core.apply import as_tensor
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError
from wengert.tape.modes import no_grad
from wengert.transforms.checkpoint import checkpoint as rerun_in_backward
from wengert.transforms.control_check import Pattern, Watch, check_callable, watch

__all__ = ["map", "scan"]


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    *,
    dim: int = 0,
    reverse: bool = False,
    checkpoint: bool | int = False,
) -> tuple[Any, Any]:
    """Carry a state along the slices of ``xs``: ``carry, y = combine_fn(carry, x)`` for each, the outputs stacked.

    Args:
        combine_fn: takes the carry and a slice, returns the next carry (of the same structure, shapes and dtypes) and an
            output, any tree. init: the first carry, a tree of tensors; numbers become tensors.
        xs: a tree of tensors with one size along ``dim``, or None for a loop of ``length`` steps without input.
        length: the number of steps; needed where ``xs`` has no tensors.
        dim: the dimension to take slices of, and to stack the outputs along (dimension 0 for outputs with fewer
            dimensions). A negative one counts from the end of the first leaf of ``xs``.
        reverse: go from the last slice to the first; the outputs stay at the places of their slices.
        checkpoint: False keeps what every step saves for backward. True keeps the carries between about sqrt(n) segments of
            sqrt(n) steps, and runs each segment again in backward: memory O(sqrt(n)) steps, time one more forward. A
            number is the length of a segment.

    Returns:
        (the last carry, the stacked outputs). Without any step the outputs are empty; ``combine_fn`` is then called once
        on zeros, unrecorded, for their shapes.

    Raises:
        TypeError: for arguments of the wrong kind, or if the carry's (or the output's) structure changes; ShapeError,
            DTypeError: or a leaf of it; ShapeError: if the sizes along ``dim`` differ. InplaceError: if ``combine_fn``
            changes in place a tensor that it was given or refers to.

    Example:
        >>> import wengert as wg
        >>> total, sums = wg.func.scan(lambda s, x: (s + x, s + x), 0.0, wg.tensor([1.0, 2.0, 3.0]))
        >>> total, sums
        (tensor(6.), tensor([1., 3., 6.]))
    """
    return _scan("scan", combine_fn, init, xs, length, dim, reverse, checkpoint)


def map(  # noqa: A001 - PyTorch's name
    f: Callable[..., Any], xs: Any, *args: Any, dim: int = 0, checkpoint: bool | int = False
) -> Any:
    """Return ``f(x, *args)`` of each slice ``x`` of ``xs``, stacked: one slice after the other, unlike ``vmap``.

    Args:
        f: returns a tree, of the same structure, shapes and dtypes for each slice. xs: a tree of tensors with one size
            along ``dim``. args: further arguments. dim: the dimension to take slices of and to stack along.
        checkpoint: as in :func:`scan`.

    Raises:
        As :func:`scan`.

    Example:
        >>> import wengert as wg
        >>> wg.func.map(lambda pair: pair[0] @ pair[1], (wg.ones(3, 2, 2), wg.arange(3.0)[:, None].expand(3, 2)))
        tensor([[0., 0.],
                [2., 2.],
                [4., 4.]])
    """
    check_callable("map", f=f)
    guard = watch([f], {"args": args})
    ys = _scan("map", lambda _, x: ((), f(x, *args)), (), xs, None, dim, False, checkpoint)[1]
    guard.check("map(): f")
    return ys


def _scan(
    name: str, combine_fn: Any, init: Any, xs: Any, length: int | None, dim: int, reverse: bool, checkpoint: bool | int
) -> tuple[Any, Any]:
    check_callable(name, combine_fn=combine_fn)
    leaves, spec = tree.flatten(xs)
    dim = _dimension(name, leaves, dim)
    count = _count(name, leaves, tree.paths(xs), length, dim)
    carry, carry_spec = tree.flatten(init)
    carry = [_tensor(v) for v in carry]
    steps = _Steps(name, combine_fn, (carry, carry_spec), spec, dim, reverse)
    if count == 0:
        return tree.unflatten(carry, carry_spec), steps.nothing(carry, leaves)
    size = _segment(name, checkpoint, count)
    if size is None:
        carry, ys = steps.run(carry, leaves, count)
        return tree.unflatten(carry, carry_spec), steps.output(ys)
    carry, ys = _in_segments(steps, carry, leaves, count, size)
    return tree.unflatten(carry, carry_spec), steps.output(ys)


def _in_segments(
    steps: "_Steps", carry: list[Any], xs: list[Any], count: int, size: int
) -> tuple[list[Any], list[Any]]:
    """Run steps in segments that keep nothing but the carry between them, and run again in backward."""
    counts = [min(size, count - start) for start in range(0, count, size)]
    parts = [[None] * len(counts) if x is None else ops.split(x, size, steps.dim) for x in xs]
    segments = list(zip(zip(*parts, strict=True) if parts else [()] * len(counts), counts, strict=True))
    stacked = []
    for segment, number in reversed(segments) if steps.reverse else segments:
        carry, ys = rerun_in_backward(steps.run, carry, list(segment), number)
        stacked.append(ys)
    columns = zip(*(reversed(stacked) if steps.reverse else stacked), strict=True)
    return carry, [_joined(column, ops.cat, steps.dim, 1) for column in columns]


class _Steps:
    """The body of a scan and what it is held to.

    Attributes:
        title, carry_title, output_title: name the body and what it returns.
        carry: the pattern of the carry. outputs: that of an output, None before the first step.
    """

    def __init__(self, name: str, body: Any, init: tuple[Any, Any], spec: tree.Spec, dim: int, reverse: bool) -> None:
        self.name, self.body, self.spec, self.dim, self.reverse = name, body, spec, dim, reverse
        self.title = f"{name}(): {'f' if name == 'map' else 'combine_fn'}"
        self.carry_title, self.output_title = f"{name}(): the carry that combine_fn returns", f"{name}(): an output"
        self.carry = Pattern(*init)
        self.outputs: Pattern | None = None
        self.carry_names = ["the carry" + path for path in tree.paths(tree.unflatten(*init))]
        self.xs_names = ["xs" + path for path in tree.paths(tree.unflatten([None] * spec.count, spec))]

    def run(self, carry: list[Any], xs: list[Any], count: int) -> tuple[list[Any], list[Any]]:
        """Return the leaves of the last carry and of the stacked outputs of ``count`` steps."""
        slices = [[None] * count if x is None else ops.unbind(x, self.dim) for x in xs]
        rows: Any = list(zip(*slices, strict=True)) if slices else [()] * count
        held = watch([self.body], {})
        guard = Watch([*held.names, *self.xs_names], [*held.values, *xs])
        found = []
        for row in reversed(rows) if self.reverse else rows:
            carry, ys = self.step(carry, row)
            guard.check(self.title)
            found.append(ys)
        columns = zip(*(reversed(found) if self.reverse else found), strict=True)
        return carry, [_joined(column, ops.stack, self.dim, 0) for column in columns]

    def step(self, carry: list[Any], row: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the leaves of the next carry and of the output."""
        guard = Watch(self.carry_names, carry)
        result = self.body(tree.unflatten(carry, self.carry.spec), tree.unflatten(row, self.spec))
        guard.check(self.title)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise TypeError(f"{self.name}(): combine_fn must return (carry, output), got {type(result).__name__}"
                            f"{f' of {len(result)}' if isinstance(result, tuple | list) else ''}")  # fmt: skip
        carry = self.carry.match(result[0], self.carry_title, "init", _tensor)
        if self.outputs is not None:
            return carry, self.outputs.match(result[1], self.output_title, "the output of the first step", _tensor)
        leaves, spec = tree.flatten(result[1])
        leaves = [_tensor(v) for v in leaves]
        self.outputs = Pattern(leaves, spec)
        return carry, leaves

    def output(self, leaves: list[Any]) -> Any:
        """Return leaves as a tree of the structure of an output."""
        assert self.outputs is not None
        return tree.unflatten(leaves, self.outputs.spec)

    def nothing(self, carry: list[Any], xs: list[Any]) -> Any:
        """Return the outputs of no step: as those of a step on zeros, of size 0 along the dimension."""
        with no_grad():
            row = [None if x is None else ops.zeros(_without(x.shape, self.dim), dtype=x.dtype) for x in xs]
            ys = self.step([v if v is None else v.detach() for v in carry], row)[1]
            empty = [_joined((y,), ops.stack, self.dim, 0) for y in ys]
            ys = [None if y is None else ops.narrow(y, _place(self.dim, y.ndim - 1), 0, 0).clone() for y in empty]
        return self.output(ys)


def _tensor(leaf: Any) -> Any:
    """Return a leaf of a carry or an output as a tensor; None stays."""
    if leaf is None or isinstance(leaf, Tensor):
        return leaf
    if not isinstance(leaf, bool | int | float | complex | np.generic | np.ndarray):
        kind = type(leaf).__name__
        raise TypeError(
            f"scan(), map(): the leaves of a carry and an output must be tensors, numbers or None, got {kind}"
        )
    return as_tensor(leaf)


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def _place(dim: int, ndim: int) -> int:
    """Return where outputs of ``ndim`` dimensions are stacked."""
    return dim if dim <= ndim else 0


def _joined(column: Sequence[Any], join: Callable[..., Any], dim: int, extra: int) -> Any:
    """Return outputs (with ``extra`` dimensions, 1 for stacked ones) as one tensor."""
    if column[0] is None:
        return None
    return join(list(column), _place(dim, column[0].ndim - extra))


def _dimension(name: str, leaves: list[Any], dim: int) -> int:
    for leaf in leaves:
        if leaf is not None and not isinstance(leaf, Tensor):
            raise TypeError(f"{name}(): the leaves of xs must be tensors, got {type(leaf).__name__}")
    first = next((v for v in leaves if v is not None), None)
    return 0 if first is None else axis_of(dim, first.ndim)


def _count(name: str, leaves: list[Any], paths: list[str], length: int | None, dim: int) -> int:
    """Return the number of steps.

    Raises:
        TypeError, ValueError: if nothing says it. ShapeError: if the sizes or the length contradict each other.
    """
    if length is not None:
        length = as_int(length, f"{name}(): length")
        if length < 0:
            raise ValueError(f"{name}(): length must not be negative, got {length}")
    said = "length" if length is not None else ""
    for path, leaf in zip(paths, leaves, strict=True):
        if leaf is None:
            continue
        where = f"xs{path}"
        if leaf.ndim <= dim:
            raise ShapeError(
                f"{name}(): {where} has shape {tuple(leaf.shape)}, there is no dimension {dim} to loop over"
            )
        if length is not None and leaf.shape[dim] != length:
            raise ShapeError(f"{name}(): {where} has size {leaf.shape[dim]} in dimension {dim} (shape {tuple(leaf.shape)}), "
                             f"{said} is {length}; all must have the same number of slices")  # fmt: skip
        if length is None:
            length, said = leaf.shape[dim], f"that of {where}"
    if length is None:
        raise ValueError(f"{name}(): xs has no tensors, so that nothing says the number of steps"
                         f"{'; give length' if name == 'scan' else ''}")  # fmt: skip
    return length


def _segment(name: str, checkpoint: bool | int, count: int) -> int | None:
    """Return the length of a segment that is run again in backward, or None for none."""
    if isinstance(checkpoint, bool):
        return math.isqrt(count - 1) + 1 if checkpoint else None
    size = as_int(checkpoint, f"{name}(): checkpoint, if it is neither True nor False,")
    if size < 1:
        raise ValueError(f"{name}(): checkpoint must be True, False or the length of a segment, got {checkpoint!r}")
    return size
