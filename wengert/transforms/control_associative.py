"""Prefix sums of any associative operation, in a logarithmic number of calls on whole arrays."""

from collections.abc import Callable
from typing import Any

from wengert import tree
from wengert.array.shape import axis_of
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.errors import ShapeError
from wengert.transforms.control_check import Pattern, Watch, check_callable, watch
from wengert.transforms.vmap import vmap

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int = 0, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Return all the prefixes ``x0, x0 * x1, x0 * x1 * x2, ...`` of an associative operation ``*`` along a dimension.

    Args:
        combine_fn: the operation: two trees like ``xs`` to one. xs: a tree of tensors with one size along ``dim``.
        dim: the dimension; a negative one counts from the end of the first leaf. reverse: prefixes from the last slice.
        combine_mode: "pointwise" calls ``combine_fn`` on many pairs at once, the dimension in place (and of another
            size): it must treat the slices along it independently, as element-wise operations do, or as ``matmul`` does its
            leading dimensions. "generic" maps it over the dimension with ``vmap``: it sees single slices.

    With n slices ``combine_fn`` is called at most 2 log2(n) times on fewer than 2 n pairs in all. The pairs are grouped
    otherwise than from left to right, so that rounding differs from a loop's. Differentiable in both modes to any order.

    The odd-even recursion: combine neighbours, scan the n/2 results (they are the odd prefixes), and combine these with
    the slices after them to the even ones (Ladner and Fischer, Parallel prefix computation, J. ACM 27(4), 1980; Blelloch,
    Prefix sums and their applications, CMU-CS-90-190, 1990).

    Raises:
        TypeError: for arguments of the wrong kind, or if the result's structure differs from that of ``xs``; ShapeError,
            DTypeError: or a leaf of it; ShapeError: if the sizes along ``dim`` differ. ValueError: for another mode, or
            if ``xs`` has no leaves. InplaceError: if ``combine_fn`` changes in place a tensor it was given or refers to.

    Example:
        A linear recurrence h = a h + b, in parallel:

        >>> import wengert as wg
        >>> a, b = wg.tensor([0.5, 0.5, 0.5, 0.5]), wg.ones(4)
        >>> combine = lambda left, right: (left[0] * right[0], left[1] * right[0] + right[1])
        >>> wg.func.associative_scan(combine, (a, b), 0)[1]
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    check_callable("associative_scan", combine_fn=combine_fn)
    leaves, spec = tree.flatten(xs)
    dim = _dimension(leaves, tree.paths(xs), dim)
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"associative_scan(): combine_mode must be 'pointwise' or 'generic', got {combine_mode!r}")
    function = vmap(combine_fn, dim, dim) if combine_mode == "generic" else combine_fn
    combine = _Combine(function, spec, dim, ["xs" + path for path in tree.paths(xs)])
    if reverse:
        leaves = [ops.flip(v, dim) for v in leaves]
    found = _prefixes(combine, leaves)
    if reverse:
        found = [ops.flip(v, dim) for v in found]
    return tree.unflatten(found, spec)


class _Combine:
    """The operation on lists of leaves, checked."""

    def __init__(self, function: Callable[[Any, Any], Any], spec: tree.Spec, dim: int, names: list[str]) -> None:
        self.function, self.spec, self.dim, self.names = function, spec, dim, names
        self.held = watch([function], {})

    def __call__(self, left: list[Any], right: list[Any]) -> list[Any]:
        guard = Watch([*self.names, *self.names], [*left, *right])
        result = self.function(tree.unflatten(left, self.spec), tree.unflatten(right, self.spec))
        for seen in (guard, self.held):
            seen.check("associative_scan(): combine_fn")
        return Pattern(left, self.spec).match(
            result, "associative_scan(): what combine_fn returns", "what it was given"
        )


def _prefixes(combine: _Combine, leaves: list[Any]) -> list[Any]:
    dim, count = combine.dim, leaves[0].shape[combine.dim]
    if count < 2:
        return [v.clone() for v in leaves]
    pairs = count // 2
    odds = _prefixes(combine, combine(_every_other(leaves, dim, 0, pairs), _every_other(leaves, dim, 1, pairs)))
    first = [ops.narrow(v, dim, 0, 1) for v in leaves]
    rest = (count - 1) // 2
    if rest == 0:
        evens = first
    else:
        before = [ops.narrow(v, dim, 0, rest) for v in odds]
        after = combine(before, _every_other(leaves, dim, 2, rest))
        evens = [ops.cat([a, b], dim) for a, b in zip(first, after, strict=True)]
    return [_interleaved(a, b, dim) for a, b in zip(evens, odds, strict=True)]


def _every_other(leaves: list[Any], dim: int, start: int, count: int) -> list[Any]:
    """Return slices start, start + 2, ..., ``count`` of them."""
    front = (slice(None),) * dim
    return [v[(*front, slice(start, start + 2 * count - 1, 2))] for v in leaves]


def _interleaved(evens: Any, odds: Any, dim: int) -> Any:
    """Return even0, odd0, even1, odd1, ...; there may be one even more."""
    pairs = odds.shape[dim]
    paired = evens if evens.shape[dim] == pairs else ops.narrow(evens, dim, 0, pairs)
    joined = ops.flatten(ops.stack([paired, odds], dim + 1), dim, dim + 1)
    return joined if paired is evens else ops.cat([joined, ops.narrow(evens, dim, pairs, 1)], dim)


def _dimension(leaves: list[Any], paths: list[str], dim: int) -> int:
    """Return the dimension counted from the front, once the leaves are checked."""
    if not leaves:
        raise ValueError("associative_scan(): xs has no leaves")
    for path, leaf in zip(paths, leaves, strict=True):
        if not isinstance(leaf, Tensor):
            raise TypeError(f"associative_scan(): the leaves of xs must be tensors, xs{path} is {type(leaf).__name__}")
    dim = axis_of(dim, leaves[0].ndim)
    for path, leaf in zip(paths, leaves, strict=True):
        shape = tuple(leaf.shape)
        if leaf.ndim <= dim:
            raise ShapeError(f"associative_scan(): xs{path} has shape {shape}, there is no dimension {dim} to scan")
        if shape[dim] != leaves[0].shape[dim]:
            raise ShapeError(f"associative_scan(): xs{path} has size {shape[dim]} in dimension {dim} (shape {shape}), "
                             f"xs{paths[0]} has {leaves[0].shape[dim]}; all must have the same number of slices")  # fmt: skip
    return dim
