"""Cross-entropy between logits and classes or class probabilities, and the negative log-likelihood.

With p = softmax(x), the loss of one row with class y is -log p_y = log1p(Σ_{c≠m} exp(x_c - x_m)) - (x_y - x_m), x_m
the largest logit. Its gradient is p, less 1 at y; that entry is computed as expm1(-loss). Neither loses digits when
the loss is tiny, and the probabilities are never stored.
"""

import math
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, float32, float64, int64
from wengert.core.arguments import DTypeOrNone, Floating, Int, Integer
from wengert.core.batch import Body
from wengert.core.families import composite, elementwise, nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.errors import ShapeError
from wengert.operators.along import blocks, positions, rows_along
from wengert.operators.class_targets import check_scores, class_targets
from wengert.operators.fold_batch import rows_batch
from wengert.operators.reduction import check_reduction, reduce_loss

__all__ = [
    "class_dim", "class_index", "class_loss", "class_loss_backward", "count_targets", "cross_entropy", "nll_loss",
    "weighted_log", "weighted_mean",
]  # fmt: skip


def class_dim(shape: Any) -> int:
    """Return the dimension of the classes: 1, or 0 for a single unbatched sample."""
    return 1 if len(shape) > 1 else 0


def _target_shape(name: str, shape: Any, target: Any) -> tuple[int, ...]:
    """Return the shape that targets must have for logits of ``shape``.

    Raises:
        ShapeError: if the targets have another one.
    """
    if not shape:
        raise ShapeError(f"{name}(): input must have a dimension of classes, got a 0-d tensor")
    dim = class_dim(shape)
    wanted = (*shape[:dim], *shape[dim + 1 :])
    if tuple(target) != wanted:
        raise ShapeError(
            f"{name}(): input of shape {tuple(shape)} has {shape[dim]} classes and takes class indices of shape "
            f"{wanted}, got a target of shape {tuple(target)}"
        )
    return wanted


def safe_targets(target: Any, classes: int, ignore_index: int | None) -> tuple[Any, Any]:
    """Return the targets with ignored ones as 0, and which are not ignored (None: all of them).

    Raises:
        IndexError: naming a target that is neither a class nor ignored.
    """
    ignores = ignore_index is not None and 0 <= ignore_index < classes
    if target.size and not ignores and target.min() >= 0 and target.max() < classes:
        return target, None
    valid = np.ones_like(target, np.bool_) if ignore_index is None else target != ignore_index
    index = np.where(valid, target, 0)
    if index.size and (index.min() < 0 or (index.max() >= classes and valid.any())):
        bad = index[(index < 0) | (index >= classes)].flat[0]
        ignored = "" if ignore_index is None else f" (and ignore_index={ignore_index})"
        raise IndexError(f"target {bad} is out of range: there are {classes} classes, 0 to {classes - 1}{ignored}")
    return index, valid


@nondifferentiable(
    batch="front",
    spec=lambda target, classes, ignore_index: Spec(target.shape, int64),
    home=(),
    samples=lambda s: [
        s(s.array([0, 2, -100]), 3, -100), s(s.array([[1], [0]]), 2, 0), s(s.array(1), 2, -1),
        s(s.array(np.zeros(0, int)), 3, -100),
        s.error(IndexError, "target 3 is out of range", s.array([0, 3]), 3, -100),
    ],
)  # fmt: skip
def class_index(target: Integer, classes: Int, ignore_index: int | None) -> Any:
    """Return class indices with ignored ones replaced by 0, after checking that the others are classes."""
    return np.array(safe_targets(target, classes, ignore_index)[0], np.int64)


def _counted(target: Any, ignore_index: int, dtype: Any) -> Any:
    return ops.cast(ops.count_nonzero(ops.ne(target, ignore_index)), dtype)


@nondifferentiable(
    batch=Body(_counted),
    spec=lambda target, ignore_index, dtype: Spec((), dtype),
    home=(),
    samples=lambda s: [
        s(s.array([0, 2, -100]), -100, "float32"), s(s.array([[1], [0]]), 0, "float64"), s(s.array(1), -1, "float16"),
        s(s.array(np.zeros(0, int)), -100, "float32"),
    ],
)  # fmt: skip
def count_targets(target: Integer, ignore_index: Int, dtype: DTypeOrNone) -> Any:
    """Return the number of targets that are not ignored, as a number of ``dtype``: what a mean loss is divided by."""
    return np.asarray(np.count_nonzero(target != ignore_index), dtype.numpy)


# ---- the loss of each row


def _class_loss_spec(input: Spec, target: Spec, ignore_index: Any) -> tuple[Spec, Spec]:
    shape = _target_shape("cross_entropy", input.shape, target.shape)
    return Spec(shape, input.dtype), Spec(shape, float64)


def _columns(array: Any, dim: int, shape: Any) -> Any:
    """Return an array without the dimension of classes as (before, 1, after), to go with ``rows_along``."""
    return np.ascontiguousarray(array).reshape(math.prod(shape[:dim]), 1, math.prod(shape[dim + 1 :]))


def _wide(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _class_loss_vjp(g: Any, input: Any, target: Any, loss: Any, lse: Any, ignore_index: Any) -> Any:
    return ops.class_loss_backward(g[0], g[1], input, target, loss, lse, ignore_index)


def _class_loss_jvp(t: Any, input: Any, target: Any, lse: Any, ignore_index: Any) -> tuple[Any, Any]:
    dim = class_dim(input.shape)
    total = ops.sum(ops.cast(ops.exp(input - ops.unsqueeze(lse, dim)), t.dtype) * t, dim)
    index = ops.unsqueeze(ops.class_index(target, input.shape[dim], ignore_index), dim)
    picked = ops.squeeze(ops.gather(t, dim, index), dim)
    return ops.where(ops.ne(target, ignore_index), total - picked, 0.0), ops.cast(total, lse.dtype)


@operator(
    outputs=("loss", "lse"),
    vjp={"input": _class_loss_vjp},
    jvp={"input": _class_loss_jvp},
    batch=rows_batch,
    spec=_class_loss_spec,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3, 4), s.array([0, 3, 1]), -100), s((3, 4), s.array([0, -100, 1]), -100),
        s((2, 3, 2), s.array([[0, 2], [1, 1]]), 1), s((4,), s.array(2), -100),
        s((0, 3), s.array(np.zeros(0, int)), -100), s((2, 1), s.array([0, 0]), -100),
        s(s.array([[40.0, 0.0], [-1e4, 1e4], [1e4, 1e4 - 1]]), s.array([0, 1, 1]), -100, grad=False),
        s.error(IndexError, "target 4 is out of range", (3, 4), s.array([0, 4, 1]), -100),
        s.error(ValueError, "takes class indices", (3, 4), s.array([0, 1]), -100),
    ],
)  # fmt: skip
def class_loss(input: Floating, target: Integer, ignore_index: Int) -> Any:
    """Return (loss, lse): -log softmax(input)[target] of each row, 0 for ignored ones, and its logsumexp in float64.

    The latter is kept instead of the probabilities. In float64 it leaves exp(x - lse) accurate at any offset of x.
    """
    shape, dim = input.shape, class_dim(input.shape)
    _target_shape("cross_entropy", shape, target.shape)
    x = rows_along(_wide(input), dim)
    index, valid = safe_targets(_columns(target, dim, shape), shape[dim], ignore_index)
    loss, lse = np.empty(index.shape, x.dtype), np.empty(index.shape, np.float64)
    for block in blocks(len(x), x[:1].size):
        rows = x[block]
        first = positions(rows.argmax(axis=1)[:, None], shape[dim])
        peak = rows.reshape(-1)[first].reshape(len(rows), 1, -1)
        below = rows - peak
        flat = below.reshape(-1)
        at_class = flat[positions(index[block], shape[dim])].reshape(peak.shape)
        np.exp(below, out=below)
        flat[first] = 0
        tail = np.log1p(np.add.reduce(below, axis=1, keepdims=True))
        np.subtract(tail, at_class, out=loss[block])
        np.add(peak, tail, out=lse[block], dtype=np.float64)
    if valid is not None:
        loss[~valid] = 0
    return loss.reshape(target.shape).astype(input.dtype, copy=False), lse.reshape(target.shape)


def _parts(input: Any, target: Any, loss: Any, lse: Any, ignore_index: Any) -> tuple[Any, Any, Any, Any]:
    """Return the dimension of classes, where the class of each row is, p elsewhere (0 there), and p there."""
    dim = class_dim(input.shape)
    classes = ops.reshape(ops.arange(input.shape[dim]), (-1,) + (1,) * (input.ndim - dim - 1))
    valid = ops.ne(target, ignore_index)
    there = ops.logical_and(ops.eq(classes, ops.unsqueeze(target, dim)), ops.unsqueeze(valid, dim))
    others = ops.where(there, -math.inf, input - ops.unsqueeze(ops.cast(lse, input.dtype), dim))
    return dim, there, ops.exp(others), ops.where(valid, ops.exp(-loss), 0.0)


def _backward_vjp(
    h: Any, needs: Any, g: Any, g_lse: Any, input: Any, target: Any, loss: Any, lse: Any, ignore_index: Any
) -> tuple[Any, ...]:
    """With s the cotangent of a row's loss and q that of its lse, the result is p (s + q), less s at the class."""
    dim, there, others, own = _parts(input, target, loss, lse, ignore_index)
    s, q = ops.where(ops.ne(target, ignore_index), g, 0.0), ops.cast(g_lse, g.dtype)
    at_class = ops.sum(ops.where(there, h, 0.0), dim)
    weighed = ops.sum(h * others, dim)
    slope = h * others * ops.unsqueeze(s + q, dim)
    to_g = ops.where(ops.ne(target, ignore_index), weighed + at_class * (own - 1), 0.0)
    return to_g, weighed + at_class * own, slope, None, -at_class * own * (s + q), -ops.sum(slope, dim)


def _backward_jvp(
    tangents: Any, g: Any, g_lse: Any, input: Any, target: Any, loss: Any, lse: Any, ignore_index: Any
) -> Any:
    dim, there, others, own = _parts(input, target, loss, lse, ignore_index)

    def tangent(name: str, like: Any) -> Any:
        found = tangents[name]
        return ops.zeros_like(like) if found is None else ops.cast(found, like.dtype)

    valid = ops.ne(target, ignore_index)
    s, ds = ops.where(valid, g, 0.0), ops.where(valid, tangent("g", g), 0.0)
    q, dq = ops.cast(g_lse, g.dtype), ops.cast(tangent("g_lse", g_lse), g.dtype)
    shift = tangent("input", input) - ops.unsqueeze(ops.cast(tangent("lse", lse), input.dtype), dim)
    elsewhere = others * (shift * ops.unsqueeze(s + q, dim) + ops.unsqueeze(ds + dq, dim))
    at_class = own * (ds + dq - (s + q) * tangent("loss", loss)) - ds
    return ops.where(there, ops.unsqueeze(at_class, dim), elsewhere)


@operator(
    vjp=_backward_vjp,
    jvp=_backward_jvp,
    batch=rows_batch,
    spec=lambda g, g_lse, input, target, loss, lse, ignore_index: input,
    widen=False,
    home=(),
    samples=lambda s: [
        s((3,), (3,), (3, 4), s.array([0, 3, 1]), (3,), (3,), -100),
        s((3,), (3,), (3, 4), s.array([0, -100, 1]), (3,), (3,), -100),
        s((2, 2), (2, 2), (2, 3, 2), s.array([[0, 2], [1, 1]]), (2, 2), (2, 2), 1),
        s((), (), (4,), s.array(2), (), (), -100), s((0,), (0,), (0, 3), s.array(np.zeros(0, int)), (0,), (0,), -100),
    ],
)  # fmt: skip
def class_loss_backward(
    g: Floating, g_lse: Floating, input: Floating, target: Integer, loss: Floating, lse: Floating, ignore_index: Int
) -> Any:
    """Return the vjp of class_loss: p (g + g_lse), but expm1(-loss) g + exp(-loss) g_lse at the class."""
    shape, dim = input.shape, class_dim(input.shape)
    x = rows_along(_wide(input), dim)
    index, valid = safe_targets(_columns(target, dim, shape), shape[dim], ignore_index)
    s, minus = (_columns(_wide(a), dim, shape).astype(x.dtype, copy=False) for a in (g, -loss))
    if valid is not None:
        s = np.where(valid, s, 0)
    both, at_class = s, np.expm1(minus) * s
    if g_lse.any():
        q = _columns(_wide(g_lse), dim, shape).astype(x.dtype, copy=False)
        both, at_class = s + q, at_class + np.exp(minus) * q
    total = _columns(lse, dim, shape)
    high = total.astype(x.dtype)
    low = (total - high).astype(x.dtype)
    out = np.empty_like(x)
    for block in blocks(len(x), x[:1].size):
        p = out[block]
        np.subtract(x[block], high[block], out=p)
        np.subtract(p, low[block], out=p)
        np.multiply(np.exp(p, out=p), both[block], out=p)
        flat, there = p.reshape(-1), positions(index[block], shape[dim])
        own = at_class[block].reshape(-1)
        flat[there] = own if valid is None else np.where(valid[block].reshape(-1), own, flat[there])
        if not both[block].all():
            np.copyto(p, 0, where=(both[block] == 0) & (s[block] == 0))  # rows without weight, whatever is in them
    return out.reshape(shape).astype(input.dtype, copy=False)


# ---- the losses


def _mean(loss: Any, counts: Any, target: Any, ignore_index: int) -> Any:
    """Return Σ loss / Σ counts (None: the number of targets that are not ignored), of halves in float32."""
    dtype = loss.dtype
    if dtype.is_half:
        loss, counts = ops.cast(loss, float32), counts if counts is None else ops.cast(counts, float32)
        return ops.cast(_mean(loss, counts, target, ignore_index), dtype)
    return ops.sum(loss) / (ops.count_targets(target, ignore_index, dtype) if counts is None else ops.sum(counts))


def weighted_mean(loss: Any, weight: Any, target: Any, index: Any, ignore_index: int, reduction: str) -> Any:
    """Weigh the loss of each row by the weight of its class; a mean is over the weights of the rows that count."""
    counts = None
    if weight is not None:
        counts = ops.where(ops.ne(target, ignore_index), ops.cast(weight[index], loss.dtype), 0.0)
        loss = loss * counts
    return _mean(loss, counts, target, ignore_index) if reduction == "mean" else reduce_loss(loss, reduction)


def _check_weight(name: str, weight: Any, classes: int) -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"{name}(): weight must hold one number for each of the {classes} classes, got shape {tuple(weight.shape)}"
        )


def _picked(logp: Any, index: Any, target: Any, ignore_index: int) -> Any:
    """Return -logp at each row's class; 0, and no gradient, where it is ignored."""
    dim = class_dim(logp.shape)
    found = ops.squeeze(ops.gather(logp, dim, ops.unsqueeze(index, dim)), dim)
    return ops.where(ops.ne(target, ignore_index), -found, 0.0)


def _nll_samples(s: Any) -> list[Any]:
    y = s.array([0, 3, 1])
    return [
        s((3, 4), y), s((3, 4), y, reduction="sum"), s((3, 4), y, reduction="none"),
        s((3, 4), y, (4,), kind="positive"), s((3, 4), s.array([0, -100, 1]), (4,), kind="positive"),
        s((3, 4), y, ignore_index=3), s((4,), s.array(2)),
        s((4,), s.array(2), (4,), reduction="none", kind="positive"),
        s((2, 3, 2), s.array([[0, 2], [1, 1]]), (3,), kind="positive"),
        s((2, 3, 2), s.array([[0, 2], [1, 1]]), ignore_index=1, reduction="sum"),
        s((2, 3), s.array([-100, -100]), grad=False),
        s.error(IndexError, "target 4 is out of range", (3, 4), s.array([0, 4, 1])),
        s.error(IndexError, "target -4 is out", (3, 4), s.array([0, -4, 1]), reduction="none", ignore_index=-1),
        s.error(ValueError, "takes class indices", (3, 4), s.array([0, 1])),
        s.error(ValueError, "one number for each", (3, 4), y, (3,)),
        s.error(TypeError, "reduction=", (3, 4), y, size_average=True),
        s.error(ValueError, "'none', 'mean' or 'sum'", (3, 4), y, reduction="max"),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_nll_samples)
def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return the negative log-likelihood -input[target], for log-probabilities ``input``.

    Args:
        input: log-probabilities of shape (N, C), (N, C, d1, …) or (C).
        target: class indices of shape (N), (N, d1, …) or ().
        weight: one weight per class; a mean is divided by the weights of the targets.
        ignore_index: a target that counts nothing. reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Raises:
        IndexError: for a target that is neither a class nor ignored; ShapeError for shapes that do not fit.
        DTypeError: for log-probabilities that are not floating-point, or targets that are not integers.
    """
    check_reduction("nll_loss", reduction, size_average, reduce)
    check_scores("nll_loss", input, "log-probabilities")
    _target_shape("nll_loss", input.shape, target.shape)
    target = class_targets("nll_loss", target)
    classes = input.shape[class_dim(input.shape)]
    _check_weight("nll_loss", weight, classes)
    index = ops.class_index(target, classes, ignore_index)
    loss = _picked(input, index, target, ignore_index)
    return weighted_mean(loss, weight, target, index, ignore_index, reduction)


@elementwise(
    derivative={"target": lambda g, logp: g * logp, "logp": lambda g, target: g * target},
    home=(),
    inplace=False,
    samples=lambda s: [
        s((2, 3), (2, 3)), s((2, 3), (3,)), s(s.array([0.0, 0.0, 1.0]), s.array([-np.inf, 2.0, -np.inf]), grad=False),
    ],
)  # fmt: skip
def weighted_log(target: Floating, logp: Floating) -> Any:
    """Return ``target * logp``, 0 where the target is 0, also at logp = -inf."""
    return np.where(target == 0, 0, target * logp).astype(logp.dtype, copy=False)


def _soft_targets(input: Any, target: Any, weight: Any, reduction: str, smoothing: float) -> Any:
    """Cross-entropy with class probabilities."""
    dim = class_dim(input.shape)
    classes = input.shape[dim]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    terms = ops.weighted_log(target, ops.log_softmax(input, dim))
    if weight is not None:
        terms = terms * ops.reshape(weight, (-1,) + (1,) * (input.ndim - dim - 1))
    if reduction == "none":
        return -ops.sum(terms, dim)
    total = -ops.sum(terms)
    return total * (classes / input.numel() if input.numel() else math.inf) if reduction == "mean" else total


def _smoothed(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, smoothing: float) -> Any:
    """Cross-entropy with class indices, of which a share ``smoothing`` is spread evenly over all classes."""
    dim = class_dim(input.shape)
    classes = input.shape[dim]
    logp = ops.log_softmax(input, dim)
    index = ops.class_index(target, classes, ignore_index)
    valid = ops.ne(target, ignore_index)
    loss = _picked(logp, index, target, ignore_index)
    counts = None
    if weight is not None:
        logp = logp * ops.reshape(weight, (-1,) + (1,) * (input.ndim - dim - 1))
        counts = ops.where(valid, ops.cast(weight[index], loss.dtype), 0.0)
        loss = loss * counts
    evenly = ops.where(valid, -ops.sum(logp, dim), 0.0)
    loss = loss * (1 - smoothing) + evenly * (smoothing / classes)
    return _mean(loss, counts, target, ignore_index) if reduction == "mean" else reduce_loss(loss, reduction)


def _soft_samples(s: Any) -> list[Any]:
    y, q = s.array([0, 3, 1]), s.array([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    w = s.array([0.5, 1.0, 2.0, 1.5])
    return [
        *_nll_samples(s), s((3, 4), y, label_smoothing=0.1), s((3, 4), s.array([0, -100, 1]), w, label_smoothing=0.2),
        s((3, 4), y, w, label_smoothing=0.2, reduction="none"), s((3, 4), y, w, label_smoothing=1.0, reduction="sum"),
        s((2, 3, 2), s.array([[0, 2], [1, 1]]), label_smoothing=0.1), s((4,), s.array(2), label_smoothing=0.1),
        s((3, 4), q), s((3, 4), q, w), s((3, 4), q, w, reduction="none"),
        s((3, 4), q, reduction="sum", label_smoothing=0.3), s((2, 3, 2), (2, 3, 2), low=0.1, high=1.0),
        s((4,), (4,), low=0.1, high=1.0),
        s(s.array([[40.0, 0.0], [-1e4, 1e4], [1e4, 1e4 - 1]]), s.array([0, 1, 1]), grad=False),
        s.error(ValueError, "label_smoothing", (3, 4), y, label_smoothing=1.5),
        s.error(ValueError, "is for class indices", (3, 4), q, ignore_index=1),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_soft_samples)
def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Return the cross-entropy between the softmax of logits and class indices, or class probabilities.

    Args:
        input: logits of shape (N, C), (N, C, d1, …) or (C).
        target: class indices of shape (N), (N, d1, …) or (); or floats of the logits' shape: probabilities.
        weight: one weight per class; with indices, a mean is divided by the weights of the targets.
        ignore_index: an index that counts nothing. reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        label_smoothing: the share of the target, 0 to 1, that is spread evenly over all classes.

    Raises:
        IndexError: for an index that is neither a class nor ignored; ShapeError for shapes that do not fit.
        ValueError: for an ``ignore_index`` of a class beside probabilities, which have no index.
        DTypeError: for logits that are not floating-point, or targets that are neither indices nor probabilities.

    Example:
        >>> import wengert as wg
        >>> wg.nn.functional.cross_entropy(wg.tensor([[2.0, 0.0], [0.0, 0.0]]), wg.tensor([0, 1]))
        tensor(0.4100)
    """
    check_reduction("cross_entropy", reduction, size_average, reduce)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy(): label_smoothing must lie between 0 and 1, got {label_smoothing}")
    check_scores("cross_entropy", input, "logits")
    target = class_targets("cross_entropy", target, tuple(input.shape))
    soft = target.dtype.category == FLOAT
    if not soft and weight is None and not label_smoothing:
        return weighted_mean(
            ops.class_loss(input, target, ignore_index)[0], None, target, None, ignore_index, reduction
        )
    if not soft:
        _target_shape("cross_entropy", input.shape, target.shape)
    _check_weight("cross_entropy", weight, input.shape[class_dim(input.shape)])
    if soft:
        if ignore_index >= 0:
            raise ValueError(
                f"cross_entropy(): ignore_index={ignore_index} is for class indices, the target holds probabilities; give the "
                "class a weight of 0, or leave its samples out"
            )
        return _soft_targets(input, target, weight, reduction, label_smoothing)
    if label_smoothing:
        return _smoothed(input, target, weight, ignore_index, reduction, label_smoothing)
    loss = ops.class_loss(input, target, ignore_index)[0]
    index = None if weight is None else ops.class_index(target, len(weight), ignore_index)
    return weighted_mean(loss, weight, target, index, ignore_index, reduction)
