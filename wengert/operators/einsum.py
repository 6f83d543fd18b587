"""Sums of products in Einstein's notation, contracted pair by pair with batched matrix products."""

import math
from collections.abc import Sequence
from typing import Any

from wengert.core.families import composite
from wengert.core.registry import ops
from wengert.errors import ShapeError

__all__ = ["einsum"]


@composite(
    samples=lambda s: [
        s("ij,jk->ik", (2, 3), (3, 2)),
        s("ii", (3, 3)),
        s("ii->i", (3, 3)),
        s("...ij,...jk", (2, 2, 3), (3, 2)),
        s("i,j->ij", (2,), (3,)),
        s("bij,bjk,bk->bi", (2, 2, 3), (2, 3, 2), (2, 2)),
        s("ij->j", (2, 3)),
        s("ij->", (2, 3)),
        s("ji", (2, 3)),
        s("i,i", (3,), (3,)),
        s("...i->...", (2, 2, 3)),
        s("ab,cd->abcd", (2, 1), (1, 2)),
        s("ij,ij->ij", (2, 1), (2, 3)),
        s(" i j , j k -> k i ", (2, 3), (3, 2)),
        s.error(RuntimeError, "einsum", "ij,jk->il", (2, 3), (3, 2)),
        s.error(RuntimeError, "size", "ij,jk", (2, 3), (2, 2)),
    ],
)
def einsum(equation: Any, *operands: Any) -> Any:
    """Sum of products in Einstein's notation: ``einsum("bij,bjk->bik", a, b)``.

    Labels are letters; ``...`` stands for broadcast dimensions; a label that occurs twice in one operand takes the
    diagonal; labels missing after ``->`` are summed; without ``->`` those that occur once remain, in alphabetical order.

    Raises:
        ShapeError: naming the equation, the label and the sizes that differ.
    """
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    elif len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    terms, output = _parse(equation, [op.ndim for op in operands])
    tensors = [_diagonalised(t, labels) for t, labels in zip(operands, terms, strict=True)]
    sizes = _label_sizes(equation, tensors)
    for i, (tensor, labels) in enumerate(tensors):
        others = {x for j, (_, ls) in enumerate(tensors) if j != i for x in ls} | set(output)
        tensors[i] = _summed(tensor, labels, [x for x in labels if x not in others])
    for pair in _order(tensors, output, sizes):
        chosen = [tensors[i] for i in pair]
        tensors = [t for i, t in enumerate(tensors) if i not in pair]
        if len(chosen) == 2:
            needed = {x for _, labels in tensors for x in labels} | set(output)
            chosen = [_contract_pair(chosen[0], chosen[1], needed, sizes)]
        tensors.append(chosen[0])
    tensor, labels = tensors[0]
    tensor, labels = _summed(tensor, labels, [x for x in labels if x not in output])
    return ops.permute(tensor, tuple(labels.index(x) for x in output)) if labels != output else tensor


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return NumPy's list form, ``einsum(a, [0, 1], b, [1, 2], [0, 2])``, as an equation."""

    def text(labels: Sequence[Any]) -> str:
        return "".join("..." if x is Ellipsis else chr(65 + x if x < 26 else 71 + x) for x in labels)

    count = len(args) // 2
    equation = ",".join(text(args[2 * i + 1]) for i in range(count))
    if len(args) % 2:
        equation += "->" + text(args[-1])
    return equation, tuple(args[0 : 2 * count : 2])


def _parse(equation: str, ndims: list[int]) -> tuple[list[list[Any]], list[Any]]:
    """Return the labels of each operand and of the result, the ellipsis written out as numbered labels."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ndims):
        raise ShapeError(
            f"einsum(): the equation {equation!r} has {len(parts)} operands, {len(ndims)} tensors were given"
        )
    terms = []
    for part, ndim in zip(parts, ndims, strict=True):
        before, dots, after = part.partition("...")
        if not (before + after).isalpha() and before + after:
            raise ShapeError(f"einsum(): labels must be letters, got {part!r} in {equation!r}")
        wide = ndim - len(before) - len(after)
        if wide < 0 or (wide and not dots):
            raise ShapeError(f"einsum(): {part!r} in {equation!r} does not fit a tensor of {ndim} dimensions")
        terms.append([*before, *range(-wide, 0), *after] if dots else [*before])
    widest = max((sum(isinstance(x, int) for x in t) for t in terms), default=0)
    flat = [x for t in terms for x in t if isinstance(x, str)]
    if arrow:
        before, dots, after = right.partition("...")
        output: list[Any] = [*before, *(range(-widest, 0) if dots else ()), *after]
    else:
        output = [*range(-widest, 0), *sorted(x for x in set(flat) if flat.count(x) == 1)]
    for x in output:
        if isinstance(x, str) and (x not in flat or output.count(x) > 1):
            raise ShapeError(
                f"einsum(): label {x!r} of the result must occur once there and in some operand: {equation!r}"
            )
    return terms, output


def _diagonalised(tensor: Any, labels: list[Any]) -> tuple[Any, list[Any]]:
    """Take diagonals until every label of the operand occurs once."""
    for x in labels:
        while labels.count(x) > 1:
            i = labels.index(x)
            j = labels.index(x, i + 1)
            if tensor.shape[i] != tensor.shape[j]:
                raise ShapeError(
                    f"einsum(): label {x!r} has sizes {tensor.shape[i]} and {tensor.shape[j]} in one operand"
                )
            tensor = ops.diagonal(tensor, 0, i, j)
            labels = [y for k, y in enumerate(labels) if k not in (i, j)] + [x]
    return tensor, labels


def _label_sizes(equation: str, tensors: list[tuple[Any, list[Any]]]) -> dict[Any, int]:
    sizes: dict[Any, int] = {}
    for tensor, labels in tensors:
        for x, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(x, size) == 1:
                sizes[x] = size
            elif size not in (1, sizes[x]):
                raise ShapeError(
                    f"einsum(): label {x!r} of {equation!r} has size {sizes[x]} in one operand and {size} in another"
                )
    return sizes


def _summed(tensor: Any, labels: list[Any], gone: list[Any]) -> tuple[Any, list[Any]]:
    if not gone:
        return tensor, labels
    return ops.sum(tensor, tuple(labels.index(x) for x in gone)), [x for x in labels if x not in gone]


def _order(tensors: list[tuple[Any, list[Any]]], output: list[Any], sizes: dict[Any, int]) -> list[tuple[int, ...]]:
    """Return which operands to contract, pair by pair: greedily the pair with the smallest result (Smith, Gray, 2018)."""
    remaining = [set(labels) for _, labels in tensors]
    path: list[tuple[int, ...]] = []
    while len(remaining) > 1:
        best: tuple[float, tuple[int, int]] | None = None
        for i in range(len(remaining)):
            for j in range(i + 1, len(remaining)):
                rest = set(output).union(*(r for k, r in enumerate(remaining) if k not in (i, j)))
                size = math.prod(sizes[x] for x in (remaining[i] | remaining[j]) & rest)
                if best is None or size < best[0]:
                    best = (size, (i, j))
        assert best is not None
        i, j = best[1]
        rest = set(output).union(*(r for k, r in enumerate(remaining) if k not in (i, j)))
        merged = (remaining[i] | remaining[j]) & rest
        remaining = [r for k, r in enumerate(remaining) if k not in (i, j)] + [merged]
        path.append((i, j))
    return path


def _contract_pair(a: Any, b: Any, needed: set[Any], sizes: dict[Any, int]) -> tuple[Any, list[Any]]:
    """Contract two operands by one batched matrix product."""
    (x, left), (y, right) = a, b
    shared = [label for label in left if label in right]
    batch = [label for label in shared if label in needed]
    joined = [label for label in shared if label not in needed]
    rows = [label for label in left if label not in shared]
    columns = [label for label in right if label not in shared]
    x = ops.expand(x, tuple(sizes[label] if label in shared else n for label, n in zip(left, x.shape, strict=True)))
    y = ops.expand(y, tuple(sizes[label] if label in shared else n for label, n in zip(right, y.shape, strict=True)))
    width = dict((*zip(left, x.shape, strict=True), *zip(right, y.shape, strict=True)))

    def laid_out(tensor: Any, labels: list[Any], groups: tuple[list[Any], ...]) -> Any:
        flat = ops.permute(tensor, tuple(labels.index(label) for group in groups for label in group))
        lead = [width[label] for label in groups[0]]
        return ops.reshape(flat, (*lead, *[math.prod(width[label] for label in group) for group in groups[1:]]))

    product = ops.matmul(laid_out(x, left, (batch, rows, joined)), laid_out(y, right, (batch, joined, columns)))
    labels = [*batch, *rows, *columns]
    return ops.reshape(product, tuple(width[label] for label in labels)), labels
