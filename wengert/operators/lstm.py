"""An LSTM over time as one operator, for eager code: its steps are NumPy's, and all weight gradients one product.

With the gates a_t = (i, f, g, o) after their non-linearities, c_t = f c_{t-1} + i g and h_t = o tanh(c_t). Backward, with
dh_t and dc_t what arrives at h_t and c_t, and s_t the slopes of the non-linearities at a_t,

    dc_t += dh_t o (1 - tanh² c_t),   dx_t = s_t (dc_t g, dc_t c_{t-1}, dc_t i, dh_t tanh c_t),
    dh_{t-1} += dx_t W,   dc_{t-1} = dc_t f,   dW = Σ dx_tᵀ h_{t-1}.

The same formulas, written with operators, serve transforms, derivatives of higher order and capture.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from wengert.core.arguments import Floating
from wengert.core.batch import Body
from wengert.core.families import nondifferentiable, operator
from wengert.core.operator import Spec
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.errors import ShapeError

__all__ = ["lstm_layer", "lstm_layer_backward"]


def _check(entering: Any, weight: Any, hidden: Any, cell: Any) -> None:
    size = weight[-1]
    fit = len(entering) == 3 and weight == (4 * size, size) and entering[2] == 4 * size and entering[0] > 0
    if not fit or hidden != (entering[1], size) or cell != hidden:
        raise ShapeError(
            "lstm_layer() takes inputs (T, N, 4 H), a weight (4 H, H) and states (N, H), got shapes "
            f"{entering}, {weight}, {hidden} and {cell}"
        )


def _spec(entering: Spec, weight: Spec, hidden: Spec, cell: Spec, reverse: Any = False) -> tuple[Spec, Spec, Spec]:
    _check(tuple(entering.shape), tuple(weight.shape), tuple(hidden.shape), tuple(cell.shape))
    shown = Spec((*entering.shape[:2], weight.shape[1]), entering.dtype)
    return shown, shown, entering


def _steps(count: int, reverse: bool) -> Iterator[tuple[int, int | None]]:
    """Return each step, in the order in which they run, and the one before it (None at the start)."""
    order = range(count)[::-1] if reverse else range(count)
    return zip(order, [None, *order[:-1]], strict=True)


# ---- with operators


def _body(entering: Any, weight: Any, hidden: Any, cell: Any, reverse: Any = False) -> tuple[Any, Any, Any]:
    _check(*(tuple(t.shape) for t in (entering, weight, hidden, cell)))
    across, found = ops.t(weight), {}
    for step, _ in _steps(entering.shape[0], reverse):
        i, f, g, o = ops.chunk(ops.addmm(entering[step], hidden, across), 4, 1)
        gates = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(g), ops.sigmoid(o)
        cell = gates[1] * cell + gates[0] * gates[2]
        hidden = gates[3] * ops.tanh(cell)
        found[step] = hidden, cell, ops.cat(gates, 1)
    shown, cells, kept = zip(*(found[step] for step in range(entering.shape[0])), strict=True)
    return ops.stack(shown), ops.stack(cells), ops.stack(kept)


def _slopes(gates: tuple[Any, ...]) -> tuple[Any, ...]:
    i, f, g, o = gates
    return i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)


def _shifted(start: Any, values: Any, reverse: bool) -> Any:
    """Return what each step came from."""
    if reverse:
        return ops.cat((values[1:], ops.unsqueeze(start, 0)))
    return ops.cat((ops.unsqueeze(start, 0), values[:-1]))


def _vjp(
    g: Any, needs: Any, weight: Any, hidden: Any, cell: Any, shown: Any, cells: Any, gates: Any, reverse: Any
) -> tuple[Any, ...]:
    state = thread.state
    if not state.grad and not state.levels:
        return tuple(ops.lstm_layer_backward(*g, weight, hidden, cell, shown, cells, gates, reverse))
    before, steps, back = _shifted(cell, cells, reverse), {}, list(_steps(shown.shape[0], reverse))[::-1]
    to_hidden, to_cell = ops.zeros_like(hidden), ops.zeros_like(cell)
    for step, _ in back:
        i, f, c, o = parts = ops.chunk(gates[step], 4, -1)
        tanh, from_above = ops.tanh(cells[step]), g[0][step] + to_hidden
        to_cell = to_cell + g[1][step] + from_above * o * (1 - tanh * tanh)
        to_gates = ops.cat((to_cell * c, to_cell * before[step], to_cell * i, from_above * tanh), -1) + g[2][step]
        steps[step] = to_gates * ops.cat(_slopes(parts), -1)
        to_hidden, to_cell = ops.matmul(steps[step], weight), to_cell * f
    to_entering = ops.stack([steps[k] for k in range(shown.shape[0])])
    wide, came = ops.flatten(to_entering, 0, 1), ops.flatten(_shifted(hidden, shown, reverse), 0, 1)
    to_weight = ops.matmul(ops.t(wide), came)
    return to_entering, to_weight, to_hidden, to_cell


def _jvp(
    tangents: Any, weight: Any, hidden: Any, cell: Any, shown: Any, cells: Any, gates: Any, reverse: Any
) -> tuple[Any, Any, Any]:
    def tangent(name: str, like: Any) -> Any:
        return ops.zeros_like(like) if tangents[name] is None else tangents[name]

    t_hidden, t_cell, t_entering = tangent("hidden", hidden), tangent("cell", cell), tangent("entering", gates)
    across, t_across = ops.t(weight), ops.t(tangent("weight", weight))
    found, came, held = {}, _shifted(hidden, shown, reverse), _shifted(cell, cells, reverse)
    for step, _ in _steps(shown.shape[0], reverse):
        entering = t_entering[step] + ops.matmul(t_hidden, across) + ops.matmul(came[step], t_across)
        i, f, g, o = parts = ops.chunk(gates[step], 4, -1)
        moved = entering * ops.cat(_slopes(parts), -1)
        ti, tf, tg, to = ops.chunk(moved, 4, -1)
        tanh = ops.tanh(cells[step])
        t_cell = tf * held[step] + f * t_cell + ti * g + i * tg
        t_hidden = to * tanh + o * (1 - tanh * tanh) * t_cell
        found[step] = t_hidden, t_cell, moved
    columns = zip(*(found[k] for k in range(shown.shape[0])), strict=True)
    first, second, third = (ops.stack(column) for column in columns)
    return first, second, third


# ---- kernels


def _samples(s: Any) -> list[Any]:
    def sample(steps: int, batch: int, size: int, **options: Any) -> Any:
        return s((steps, batch, 4 * size), (4 * size, size), (batch, size), (batch, size), **options)

    return [
        sample(3, 2, 2), sample(2, 1, 3, reverse=True), sample(1, 2, 1), sample(2, 0, 2),
        s.error(RuntimeError, "takes inputs", (2, 2, 8), (8, 2), (2, 2), (2, 3)),
        s.error(RuntimeError, "takes inputs", (0, 2, 8), (8, 2), (2, 2), (2, 2)),
    ]  # fmt: skip


@operator(
    outputs=("shown", "cells", "gates"),
    vjp=_vjp,
    jvp=_jvp,
    batch=Body(_body),
    spec=_spec,
    promote="same",
    home=(),
    samples=_samples,
)
def lstm_layer(entering: Floating, weight: Floating, hidden: Floating, cell: Floating, reverse: Any = False) -> Any:
    """Return h_t, c_t and the gates of every step, for projected inputs (T, N, 4 H) and the states to start from."""
    _check(entering.shape, weight.shape, hidden.shape, cell.shape)
    size, dtype = weight.shape[1], entering.dtype
    shown, cells = (np.empty((*entering.shape[:2], size), dtype) for _ in range(2))
    gates, across = np.empty(entering.shape, dtype), np.ascontiguousarray(weight.T)
    # σ(x) = (1 + tanh(x / 2)) / 2, so that one tanh serves all gates
    scale = np.repeat(np.array([0.5, 0.5, 1, 0.5], dtype), size)
    shift = np.repeat(np.array([0.5, 0.5, 0, 0.5], dtype), size)
    product = np.empty_like(cell, order="C")
    for step, _ in _steps(len(entering), reverse):
        a = gates[step]
        np.matmul(hidden, across, out=a)
        np.add(a, entering[step], out=a)
        np.multiply(a, scale, out=a)
        np.tanh(a, out=a)
        np.multiply(a, scale, out=a)
        np.add(a, shift, out=a)
        i, f, g, o = (a[:, k * size : (k + 1) * size] for k in range(4))
        np.multiply(i, g, out=product)
        cell = np.add(np.multiply(f, cell, out=cells[step]), product, out=cells[step])
        hidden = np.multiply(np.tanh(cell, out=shown[step]), o, out=shown[step])
    return shown, cells, gates


def _backward_samples(s: Any) -> list[Any]:
    def sample(steps: int, batch: int, size: int, reverse: bool = False) -> Any:
        line, state = (steps, batch, size), (batch, size)
        wide = (steps, batch, 4 * size)
        return s(line, line, wide, (4 * size, size), state, state, line, line, wide, reverse)

    return [sample(3, 2, 2), sample(2, 1, 3, True), sample(2, 0, 2)]


@nondifferentiable(
    outputs=("to_entering", "to_weight", "to_hidden", "to_cell"),
    spec=lambda g_shown, g_cells, g_gates, weight, hidden, cell, *_: (g_gates, weight, hidden, cell),
    batch="loop",
    promote="same",
    home=(),
    samples=_backward_samples,
)
def lstm_layer_backward(
    g_shown: Floating, g_cells: Floating, g_gates: Floating, weight: Floating, hidden: Floating, cell: Floating,
    shown: Floating, cells: Floating, gates: Floating, reverse: Any = False,
) -> Any:  # fmt: skip
    """Return the cotangents of lstm_layer's arguments, for a walk that nobody differentiates."""
    size, steps = weight.shape[1], np.empty(gates.shape, gates.dtype)
    slopes = gates * (1 - gates)
    middle = gates[..., 2 * size : 3 * size]
    slopes[..., 2 * size : 3 * size] = 1 - middle * middle
    tanh = np.tanh(cells)
    through = gates[..., 3 * size :] * (1 - tanh * tanh)  # from h_t to c_t
    to_hidden, to_cell = np.zeros_like(hidden), np.zeros_like(cell)
    extra_cells, extra_gates = bool(g_cells.any()), bool(g_gates.any())
    for step, before in reversed(list(_steps(len(gates), reverse))):
        i, f, g, _ = (gates[step, :, k * size : (k + 1) * size] for k in range(4))
        di, df, dg, do = (steps[step, :, k * size : (k + 1) * size] for k in range(4))
        above = np.add(g_shown[step], to_hidden, out=to_hidden)
        to_cell += above * through[step]
        if extra_cells:
            to_cell += g_cells[step]
        np.multiply(to_cell, g, out=di)
        np.multiply(to_cell, cell if before is None else cells[before], out=df)
        np.multiply(to_cell, i, out=dg)
        np.multiply(above, tanh[step], out=do)
        if extra_gates:
            steps[step] += g_gates[step]
        steps[step] *= slopes[step]
        to_hidden = np.matmul(steps[step], weight)
        to_cell *= f
    parts = [shown[1:], hidden[None]] if reverse else [hidden[None], shown[:-1]]
    came = np.concatenate(parts).reshape(shown.shape[0] * shown.shape[1], size)
    return steps, np.matmul(steps.reshape(len(came), 4 * size).T, came), to_hidden, to_cell
