"""Connectionist temporal classification: -log of the probability that some alignment of frames spells the target.

The states of a sample with labels y are blank, y_1, blank, …, y_L, blank. In each frame a path stays, moves on by one
or skips a blank between different labels. With e the log-probability of the state's label (the emission), forward sums
α_t(s) end in state s with frame t; backward sums β_t(s) go on from there. The derivative of log p in e_t(s) is the
posterior γ_t(s) = exp(α_t(s) + β_t(s) - log p), and where log p is -inf it is 0.

Source: Graves, Fernández, Gomez & Schmidhuber, "Connectionist Temporal Classification" (2006), section 4.
"""

from typing import Any

import numpy as np

from wengert.array.dtype import INTEGER, bool_, int64
from wengert.core.apply import as_tensor, execute
from wengert.core.arguments import Boolean, Floating, Integer
from wengert.core.batch import in_front
from wengert.core.families import composite, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array, raw
from wengert.errors import DTypeError, MissingRuleError, ShapeError
from wengert.operators.checks import all_values, anywhere, wrong_values
from wengert.operators.fold_batch import merged, parted
from wengert.operators.reduction import check_reduction, reduce_loss

__all__ = ["alignment_likelihood", "alignment_posterior", "alignment_posterior_tangent", "ctc_loss"]


# ---- sums over alignments


def _shifted(a: Any, by: int) -> Any:
    """Return the states moved up (by > 0) or down, -inf moving in."""
    out = np.full_like(a, -np.inf)
    if by > 0:
        out[:, by:] = a[:, :-by]
    else:
        out[:, :by] = a[:, -by:]
    return out


def _sources(a: Any, skips: Any, towards: int) -> Any:
    """Return, for each state, the three it can come from (``towards`` 1) or go to (-1), stacked."""
    two = np.where(skips, a, -np.inf) if towards < 0 else a
    two = _shifted(two, 2 * towards) if a.shape[1] > 2 else np.full_like(a, -np.inf)
    if towards > 0:
        two = np.where(skips, two, -np.inf)
    return np.stack((a, _shifted(a, towards), two))


def _gathered(sources: Any, tangents: Any) -> tuple[Any, Any]:
    """Return the log-sum of the sources, and its tangent."""
    total = np.logaddexp.reduce(sources, axis=0)
    if tangents is None:
        return total, None
    weights = np.exp(sources - np.where(np.isfinite(total), total, 0))
    return total, np.add.reduce(weights * np.where(np.isfinite(tangents), tangents, 0), axis=0)


def _ends(shape: Any, target_lengths: Any) -> Any:
    """Return 0 at the two states in which a path may end, else -inf."""
    state, last = np.arange(shape[2]), 2 * target_lengths[:, None]
    return np.where((state == last) | ((state == last - 1) & (last > 0)), 0.0, -np.inf)


def _forward(e: Any, skips: Any, tangent: Any) -> tuple[Any, Any]:
    """Return α for every frame, and its tangent."""
    alpha = np.full_like(e, -np.inf)
    moved = None if tangent is None else np.zeros_like(e)
    for t in range(len(e)):
        if t:
            steps = None if moved is None else _sources(moved[t - 1], skips, 1)
            total, pushed = _gathered(_sources(alpha[t - 1], skips, 1), steps)
        else:
            total, pushed = np.where(np.arange(e.shape[2]) < 2, 0.0, -np.inf), 0.0
        alpha[t] = total + e[t]
        if moved is not None:
            moved[t] = pushed + tangent[t]
    return alpha, moved


def _backward(e: Any, skips: Any, frames: Any, ends: Any, tangent: Any) -> tuple[Any, Any]:
    """Return β for every frame, and its tangent."""
    beta = np.full_like(e, -np.inf)
    moved = None if tangent is None else np.zeros_like(e)
    for t in range(len(e) - 1, -1, -1):
        if t + 1 < len(e):
            steps = None if moved is None else _sources(moved[t + 1] + tangent[t + 1], skips, -1)
            beta[t], pushed = _gathered(_sources(beta[t + 1] + e[t + 1], skips, -1), steps)
            if moved is not None:
                moved[t] = pushed
        ending = frames == t + 1
        beta[t, ending] = ends[ending]
    return beta, moved


def _log_likelihood(alpha: Any, frames: Any, target_lengths: Any) -> Any:
    """Return log p: the forward sums of the last frame over the states in which a path may end."""
    ends = _ends(alpha.shape, target_lengths)
    if not len(alpha):
        return np.where(target_lengths == 0, 0.0, -np.inf)
    last = alpha[np.maximum(frames - 1, 0), np.arange(len(frames))]
    total = np.logaddexp.reduce(last + ends, axis=1)
    return np.where(frames > 0, total, np.where(target_lengths == 0, 0.0, -np.inf))


def _posterior(e: Any, skips: Any, frames: Any, target_lengths: Any, tangent: Any = None) -> tuple[Any, Any]:
    """Return γ, and its tangent for the tangent of the emissions."""
    alpha, up = _forward(e, skips, tangent)
    beta, down = _backward(e, skips, frames, _ends(e.shape, target_lengths), tangent)
    logp = _log_likelihood(alpha, frames, target_lengths)[:, None]
    gamma = np.exp(alpha + beta - np.where(np.isfinite(logp), logp, 0))
    gamma[:, ~np.isfinite(logp[:, 0])] = 0
    if up is None or down is None:
        return gamma, None
    mean = np.sum(gamma * np.where(gamma > 0, tangent, 0), axis=(0, 2))[:, None]
    return gamma, gamma * np.where(gamma > 0, up + down - mean, 0)


# ---- the operators: emissions (T, N, S), skips (N, S), frames (N) and target_lengths (N)


def _alignment_batch(op: Any, values: list[Any], batched: Any, size: int) -> Any:
    """Let the examples be further samples."""
    given = in_front(op, values, batched, size)
    found = execute(op, [merged(t, 1 if t.ndim == 4 else 0) for t in given])
    return parted(found, found.ndim // 2, size)


def _alignments(s: Any) -> list[Any]:
    skips = s.array([[False, False, False, True, False], [False] * 5])
    return [
        s((3, 2, 5), skips, s.array([3, 2]), s.array([2, 1])),
        s((2, 1, 1), s.array([[False]]), s.array([2]), s.array([0])),
        s((4, 2, 3), s.array(np.zeros((2, 3), bool)), s.array([4, 4]), s.array([1, 1])),
        s((3, 2, 5), skips, s.array([0, 1]), s.array([2, 2]), grad=False),
    ]  # fmt: skip


@operator(
    vjp={
        "emissions": lambda g, emissions, skips, frames, target_lengths: (
            ops.reshape(g, (1, -1, 1)) * ops.alignment_posterior(emissions, skips, frames, target_lengths)
        )
    },
    jvp={
        "emissions": lambda t, emissions, skips, frames, target_lengths: ops.sum(
            t * ops.alignment_posterior(emissions, skips, frames, target_lengths), (0, 2)
        )
    },
    batch=_alignment_batch,
    spec=lambda emissions, skips, frames, target_lengths: Spec(emissions.shape[1:2], emissions.dtype),
    home=(),
    samples=_alignments,
)
def alignment_likelihood(emissions: Floating, skips: Boolean, frames: Integer, target_lengths: Integer) -> Any:
    """Return log p of each sample: the log-sum over all paths of the sum of their emissions."""
    alpha, _ = _forward(emissions, skips, None)
    return _log_likelihood(alpha, frames, target_lengths).astype(emissions.dtype)


def _curvature(h: Any, emissions: Any, skips: Any, frames: Any, target_lengths: Any) -> Any:
    return ops.alignment_posterior_tangent(emissions, h, skips, frames, target_lengths)


@operator(
    vjp={"emissions": _curvature},  # the second derivative of log p is symmetric: vjp and jvp are one
    jvp={"emissions": _curvature},
    batch=_alignment_batch,
    spec=lambda emissions, skips, frames, target_lengths: emissions,
    home=(),
    samples=lambda s: _alignments(s)[3:],
)
def alignment_posterior(emissions: Floating, skips: Boolean, frames: Integer, target_lengths: Integer) -> Any:
    """Return γ: the probability that the path is in each state at each frame, 0 after a sample's last frame."""
    return _posterior(emissions, skips, frames, target_lengths)[0].astype(emissions.dtype)


def _third(g: Any) -> Any:
    raise MissingRuleError("ctc_loss() has derivatives of first and second order; its third ones are not available")


@operator(
    vjp={"emissions": _third, "tangent": _curvature},  # symmetric as well
    jvp={"emissions": _third, "tangent": _curvature},
    batch=_alignment_batch,
    spec=lambda emissions, tangent, skips, frames, target_lengths: emissions,
    home=(),
    samples=lambda s: [
        s((3, 2, 5), (3, 2, 5), s.tensor((2, 5), kind="boolean"), s.array([3, 2]), s.array([2, 1]), grad=False)
    ],
)
def alignment_posterior_tangent(
    emissions: Floating, tangent: Floating, skips: Boolean, frames: Integer, target_lengths: Integer
) -> Any:
    """Return the second derivative of log p applied to a tangent; its derivatives by the emissions are not available."""
    return _posterior(emissions, skips, frames, target_lengths, tangent)[1].astype(emissions.dtype)


# ---- the loss


def _lengths(name: str, lengths: Any, count: int, most: int) -> Any:
    """Return lengths given as a tensor, a sequence or a number, as a tensor of ints."""
    given = lengths if isinstance(lengths, Tensor) else from_array(np.asarray(lengths))
    if given.dtype.category != INTEGER:
        raise DTypeError(f"ctc_loss(): {name} must be integers, got {given.dtype}")
    if given.numel() != count:
        raise ShapeError(f"ctc_loss(): {name} must hold one number for each of {count} samples, got {given.numel()}")
    bad = wrong_values(given, lambda lengths: (lengths < 0) | (lengths > most))
    if bad.size:
        raise ValueError(f"ctc_loss(): {name} must lie between 0 and {most}, got {bad[0]}")
    return ops.cast(ops.reshape(given, (count,)), int64)


def _padded(targets: Any, lengths: Any) -> Any:
    """Return the targets as rows (N, S): given so, or joined one after another."""
    if targets.ndim == 2:
        return targets
    counts = raw(lengths, "ctc_loss() with targets of all samples joined")
    if targets.shape[0] != counts.sum():
        raise ShapeError(
            f"ctc_loss(): {targets.shape[0]} joined targets do not fit target_lengths, which sum to {counts.sum()}"
        )
    inside = np.arange(counts.max(initial=0)) < counts[:, None]
    rows = ops.zeros(inside.shape, dtype=targets.dtype)
    return ops.put(rows, from_array(np.flatnonzero(inside)), targets)


def _states(rows: Any, lengths: Any, blank: int, classes: int) -> tuple[Any, Any]:
    """Return the label of every state, and into which states a path may skip."""
    count, most = rows.shape
    inside = ops.arange(most) < ops.unsqueeze(lengths, 1)
    outside = ops.logical_and(inside, ops.logical_or(rows < 0, rows >= classes))
    if anywhere(outside):
        bad = all_values(ops.where(outside, rows, 0))[all_values(outside)][0]
        raise IndexError(f"ctc_loss(): target {bad} is out of range for {classes} classes, 0 to {classes - 1}")
    labels = ops.where(inside, ops.cast(rows, int64), blank)
    pairs = ops.reshape(ops.stack([ops.full_like(labels, blank), labels], 2), (count, 2 * most))
    states = ops.cat([pairs, ops.full((count, 1), blank)], 1)
    if not most:
        return states, ops.zeros((count, 1), dtype=bool_)
    here, before = ops.narrow(states, 1, 2, 2 * most - 1), ops.narrow(states, 1, 0, 2 * most - 1)
    skips = ops.logical_and(here != blank, here != before)
    return states, ops.cat([ops.zeros((count, 2), dtype=bool_), skips], 1)


def _ctc_samples(s: Any) -> list[Any]:
    y, lengths = s.array([[1, 2], [2, 2]]), s.array([2, 1])
    return [
        s((4, 2, 3), y, s.array([4, 3]), lengths), s((4, 2, 3), s.array([1, 2, 2]), [4, 3], [2, 1], reduction="sum"),
        s((4, 3), s.array([1, 2]), [4], [2]),
        s((4, 2, 3), s.array([[0, 1], [1, 1]]), [4, 4], [2, 2], blank=2, reduction="none"),
        s((2, 1, 3), s.array([[1, 1]]), [2], [2], zero_infinity=True, grad=False),
        s((2, 2, 3), s.array([[1, 1], [1, 2]]), [2, 2], [2, 0], reduction="none", grad=False),
        s((3, 1, 2), s.array(np.zeros((1, 0), int)), [3], [0]),
        s.error(IndexError, "target 3 is out of range", (4, 1, 3), s.array([[3]]), [4], [1]),
        s.error(ValueError, "input_lengths", (4, 1, 3), s.array([[1]]), [5], [1]),
        s.error(ValueError, "blank", (4, 1, 3), s.array([[1]]), [4], [1], blank=3),
        s.error(ValueError, "one number for each", (4, 2, 3), s.array([[1], [2]]), [4], [1, 1]),
    ]  # fmt: skip


@composite(home="nn.functional", samples=_ctc_samples, batch="refuse")  # joined targets of different lengths
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """Return -log of the probability that the frames spell the targets, summed over all alignments.

    Args:
        log_probs: log-probabilities of shape (T, N, C) or (T, C). targets: classes of shape (N, S), or those of all
            samples joined; (S) if unbatched. input_lengths, target_lengths: frames and labels of each sample.
        blank: the class of the blank. reduction: a mean is over samples, after division by their target lengths.
        zero_infinity: take 0, with gradient 0, for a sample that no alignment fits (its loss is inf otherwise).

    Raises:
        IndexError: for a target that is no class; ValueError or ShapeError for lengths or shapes that do not fit.

    The gradient is that of the loss in ``log_probs`` as independent numbers; twice differentiable.
    """
    check_reduction("ctc_loss", reduction)
    single = log_probs.ndim == 2
    if single:
        log_probs = ops.unsqueeze(log_probs, 1)
    if log_probs.ndim != 3 or targets.ndim not in (1, 2):
        raise ShapeError(
            f"ctc_loss(): takes log_probs of shape (T, N, C) or (T, C) and targets of 1 or 2 dimensions, got "
            f"{tuple(log_probs.shape)} and {tuple(targets.shape)}"
        )
    frames, count, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise ValueError(f"ctc_loss(): blank must be one of the {classes} classes, got {blank}")
    labels = as_tensor(targets)
    most = labels.shape[1] if labels.ndim == 2 else labels.numel()
    of_input = _lengths("input_lengths", input_lengths, count, frames)
    of_target = _lengths("target_lengths", target_lengths, count, most)
    states, skips = _states(_padded(labels, of_target), of_target, blank, classes)
    index = ops.expand(states, (frames, *states.shape))
    emissions = ops.gather(log_probs, 2, index)
    loss = -ops.alignment_likelihood(emissions, skips, of_input, of_target)
    if zero_infinity:
        loss = ops.where(ops.isinf(loss), 0.0, loss)
    if reduction == "mean":
        return ops.mean(loss / ops.clamp_min(of_target, 1))
    return reduce_loss(loss[0] if single else loss, reduction)
