"""Cross-entropy of a linear map's logits, all at once or a few rows at a time.

The logits of a language model are its largest array: (rows, vocabulary). Taken ``chunk`` rows at a time, in the forward
pass and again in the backward pass, only (chunk, vocabulary) numbers of it exist at once.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wengert.core.arguments import Floating, Integer
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.errors import DTypeError, ShapeError
from wengert.operators.class_targets import check_scores, class_targets
from wengert.operators.cross_entropy import weighted_mean
from wengert.operators.reduction import check_reduction

__all__ = ["LinearCrossEntropyOptions", "linear_class_loss", "linear_cross_entropy"]

NAME = "linear_cross_entropy()"


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How :func:`wengert.nn.functional.linear_cross_entropy` takes the rows a few at a time.

    Args:
        batch_chunk_size: rows at a time. Without it ``chunking_method`` decides: ``"aspect_ratio:n"`` takes as many rows
            as give logits of the size of the input, divided by n; ``"auto"`` is ``"aspect_ratio:2"``, None is all rows.
        allow_retain_graph, acc_policy, acc_dtype: accepted for PyTorch's sake. A graph may always be retained, and sums
            are kept in float32 at least.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"batch_chunk_size must be a positive int or None, got {size!r}")
        if method not in (None, "auto"):
            name, _, share = str(method).partition(":")
            if name != "aspect_ratio" or (share and not (share.isdigit() and int(share))):
                raise ValueError(
                    f"chunking_method must be 'auto', 'aspect_ratio', 'aspect_ratio:n' or None, got {method!r}"
                )

    def rows(self, samples: int, features: int, classes: int) -> int:
        """Return how many rows to take at a time."""
        if self.batch_chunk_size is not None or self.chunking_method is None:
            return self.batch_chunk_size or max(samples, 1)
        method = "aspect_ratio:2" if self.chunking_method == "auto" else self.chunking_method
        pieces = -(-classes // max(features, 1))
        size = 1 << max(-(-samples // max(pieces, 1)) - 1, 0).bit_length()
        return max(1, size // int(method.partition(":")[2] or 1))


def _cuts(rows: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each piece."""
    return ((start, min(chunk, rows - start)) for start in range(0, rows, chunk))


def _spec(input: Spec, weight: Spec, target: Spec, bias: Any, *, ignore_index: int, chunk: int) -> Spec:
    return Spec((input.shape[0],), input.dtype)


def _logits(input: Any, weight: Any, target: Any, bias: Any, start: int, length: int) -> tuple[Any, Any, Any]:
    x, y = ops.narrow(input, 0, start, length), ops.narrow(target, 0, start, length)
    return x, y, ops.linear(x, weight, bias)


def _vjp(
    g: Any, needs: Any, input: Any, weight: Any, target: Any, bias: Any, ignore_index: Any, chunk: Any
) -> tuple[Any, ...]:
    to_input, to_weight, to_bias = [], None, None
    for start, length in _cuts(input.shape[0], chunk):
        x, y, logits = _logits(input, weight, target, bias, start, length)
        loss, lse = ops.class_loss(logits, y, ignore_index)
        part = ops.narrow(g, 0, start, length)
        d = ops.class_loss_backward(part, ops.zeros_like(lse), logits, y, loss, lse, ignore_index)
        to_input.append(ops.matmul(d, weight) if needs[0] else None)
        if needs[1]:
            part = ops.matmul(ops.transpose(d, 0, 1), x)
            to_weight = part if to_weight is None else to_weight + part
        if needs[3]:
            part = ops.sum(d, 0)
            to_bias = part if to_bias is None else to_bias + part
    if not to_input:
        return ops.zeros_like(input), ops.zeros_like(weight), None, None if bias is None else ops.zeros_like(bias)
    return ops.cat(to_input, 0) if needs[0] else None, to_weight, None, to_bias


def _jvp(tangents: Any, input: Any, weight: Any, target: Any, bias: Any, ignore_index: Any, chunk: Any) -> Any:
    moved = []
    for start, length in _cuts(input.shape[0], chunk):
        x, y, logits = _logits(input, weight, target, bias, start, length)
        parts = [
            None if tangents["input"] is None else ops.linear(ops.narrow(tangents["input"], 0, start, length), weight),
            None if tangents["weight"] is None else ops.linear(x, tangents["weight"]),
            tangents["bias"],
        ]
        t = sum(part for part in parts if part is not None)
        t = ops.expand(t, logits.shape)
        index = ops.unsqueeze(ops.class_index(y, logits.shape[1], ignore_index), 1)
        found = ops.sum(ops.softmax(logits, 1) * t, 1) - ops.squeeze(ops.gather(t, 1, index), 1)
        moved.append(ops.where(ops.eq(y, ignore_index), 0, found))
    return ops.cat(moved, 0) if moved else input.new_zeros(0)


def _row_losses(logits: Any, target: Any, ignore_index: int) -> Any:
    """Return log(Σ exp(x)) - x_y of each row, 0 where the target is ignored; the largest logit apart from the sum."""
    classes = logits.shape[1]
    kept = target != ignore_index
    wrong = target[kept & ((target < 0) | (target >= classes))]
    if wrong.size:
        raise IndexError(f"{NAME}: target {wrong.flat[0]} is out of range for {classes} classes")
    rows, y = np.arange(len(logits)), np.where(kept, target, 0)
    top = logits.argmax(1)
    logits = logits - logits[rows, top][:, np.newaxis]
    own = logits[rows, y]
    terms = np.exp(logits, out=logits)
    terms[rows, top] = 0
    return np.where(kept, np.log1p(terms.sum(1)) - own, 0)


@operator(
    vjp=_vjp,
    jvp=_jvp,
    spec=_spec,
    promote=None,
    batch="loop",
    home=(),
    samples=lambda s: [
        s((5, 2), (3, 2), s.array([0, 2, 1, 1, 0]), (3,), ignore_index=-100, chunk=2),
        s((3, 2), (3, 2), s.array([0, 1, 2]), ignore_index=1, chunk=3),
        s((2, 2), (4, 2), s.array([3, 0]), (4,), ignore_index=-100, chunk=5),
        s.error(IndexError, "target 3", (2, 2), (3, 2), s.array([3, 0]), ignore_index=-100, chunk=2),
    ],
)
def linear_class_loss(
    input: Floating, weight: Floating, target: Integer, bias: Floating = None, *, ignore_index: Any, chunk: Any
) -> Any:
    """Return the cross-entropy of each row of ``input @ weight.T + bias`` with its class, ``chunk`` rows at a time."""
    out = np.empty(len(input), input.dtype)
    for start, length in _cuts(len(input), chunk):
        piece = slice(start, start + length)
        logits = input[piece] @ weight.T
        if bias is not None:
            logits += bias
        out[piece] = _row_losses(logits, target[piece], ignore_index)
    return out


def _check(input: Any, weight: Any, bias: Any) -> None:
    for argument, tensor in (("input", input), ("linear_weight", weight)):
        check_scores(NAME[:-2], tensor, "features and weights", argument)
    if input.dtype is not weight.dtype and thread.state.casting is None:  # autocast gives them one
        raise DTypeError(
            f"{NAME}: input and linear_weight must have the same dtype, got {input.dtype} and {weight.dtype}; convert one with "
            ".to(dtype)"
        )
    shapes = f"input {tuple(input.shape)}, linear_weight {tuple(weight.shape)}"
    if input.ndim not in (1, 2) or weight.ndim < 2 or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(f"{NAME}: takes input (N, D) or (D) and linear_weight (C, …, D), got {shapes}")
    if input.ndim == 1 and weight.ndim > 2:
        raise ShapeError(f"{NAME}: a linear_weight of more than 2 dimensions needs input (N, D), got {shapes}")
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise ShapeError(f"{NAME}: linear_bias must have shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}")


def _samples(s: Any) -> list[Any]:
    options, classes = LinearCrossEntropyOptions(batch_chunk_size=2), s.array([0, 2, 1])
    return [
        s((3, 2), (3, 2), classes), s((2,), (3, 2), s.array(1), linear_bias=s.tensor((3,))),
        s((3, 2), (3, 2), classes, weight=s.tensor((3,), low=0.5), reduction="sum", ignore_index=1),
        s((2, 2), (3, 2), s.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])), s((3, 2), (3, 2), classes, label_smoothing=0.1),
        s((2, 2), (3, 2, 2), s.array([[0, 1], [2, 2]]), linear_bias=s.tensor((3, 2))),
        s((3, 2), (3, 2), classes, options=options, weight=s.tensor((3,), low=0.5)),
        s((3, 2), (3, 2), classes, options=options, linear_bias=s.tensor((3,)), reduction="none", ignore_index=2),
        s((2,), (3, 2), s.array(1), options=options),
        s.error(ValueError, "linear_weight", (3, 2), (3, 4), classes),
        s.error(ValueError, "reduction must be", (3, 2), (3, 2), classes, reduction="all", options=options),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_samples)
def linear_cross_entropy(
    input: Any, linear_weight: Any, target: Any, *, linear_bias: Any = None, weight: Any = None, reduction: str = "mean",
    ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
) -> Any:  # fmt: skip
    """Return the :func:`cross_entropy` of ``linear(input, linear_weight, linear_bias)``.

    Args:
        input: (N, D) or (D). linear_weight: (C, D), or (C, d1, …, D) for a loss of further dimensions.
        target: classes (N, d1, …), or probabilities (N, C, d1, …). weight: one weight per class.
        ignore_index: a class that counts nothing, -100 by default.
        options: a :class:`wengert.nn.LinearCrossEntropyOptions`; then the logits never exist all at once.

    Raises:
        ShapeError: for shapes that do not fit. ValueError: for an ``ignore_index`` beside probabilities.
        DTypeError: for targets that are neither indices nor probabilities, or an input and a weight of different dtypes.

    Warns:
        UserWarning: that options are ignored: for probabilities, ``label_smoothing`` and losses of further dimensions.
    """
    _check(input, linear_weight, linear_bias)
    check_reduction("linear_cross_entropy", reduction)
    further = linear_weight.shape[1:-1]
    logits_shape = (*input.shape[:-1], linear_weight.shape[0], *further)
    target = class_targets(NAME[:-2], target, logits_shape)
    soft = target.is_floating_point()
    if soft and ignore_index is not None:
        raise ValueError(f"{NAME}: ignore_index has no meaning for targets that are probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None and (soft or label_smoothing or further):
        warnings.warn(
            f"{NAME}: options are ignored for targets that are probabilities, label_smoothing and losses of further "
            "dimensions: all logits are computed at once", stacklevel=3,
        )  # fmt: skip
    elif options is not None:
        return _chunked(input, linear_weight, target, linear_bias, weight, reduction, ignored, options)
    flat = ops.reshape(linear_weight, (-1, linear_weight.shape[-1]))
    logits = ops.linear(input, flat, None if linear_bias is None else ops.reshape(linear_bias, (-1,)))
    if further:
        logits = ops.reshape(logits, logits_shape)
    return ops.cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def _chunked(
    input: Any, linear_weight: Any, target: Any, bias: Any, weight: Any, reduction: str, ignored: int, options: Any
) -> Any:
    rows, classes = (input, target) if input.ndim == 2 else (ops.unsqueeze(input, 0), ops.unsqueeze(target, 0))
    if tuple(classes.shape) != (rows.shape[0],):
        raise ShapeError(f"{NAME}: target must hold one class for each row of input, got shape {tuple(target.shape)}")
    chunk = options.rows(rows.shape[0], rows.shape[1], linear_weight.shape[0])
    loss = ops.linear_class_loss(rows, linear_weight, classes, bias, ignore_index=ignored, chunk=chunk)
    if input.ndim == 1:
        loss = ops.reshape(loss, ())
    index = None if weight is None else ops.class_index(target, len(weight), ignored)
    return weighted_mean(loss, weight, target, index, ignored, reduction)
