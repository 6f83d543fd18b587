"""A recurrent layer over time, in one direction: the input is projected in one product, then one step follows the other.

A state is a tuple of tensors (N, …) whose first one is what the layer shows: (h,) or, for an LSTM, (h, c).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wengert.core.registry import ops
from wengert.core.state import thread

__all__ = ["STEPS", "Weights", "over_packed", "over_time", "single_step"]

State = tuple[Any, ...]
Step = Callable[[Any, State], State]


class Weights(NamedTuple):
    """The parameters of one direction of one layer, under PyTorch's names."""

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    weight_hr: Any = None


def _lstm(w: Weights) -> Step:
    across = ops.t(w.weight_hh)

    def step(entering: Any, state: State) -> State:
        i, f, g, o = ops.chunk(ops.addmm(entering, state[0], across), 4, 1)
        cell = ops.lstm_state(i, f, g, state[1])
        hidden = ops.lstm_output(o, cell)
        return (hidden if w.weight_hr is None else ops.linear(hidden, w.weight_hr)), cell

    return step


def _gru(w: Weights) -> Step:
    size = w.weight_hh.shape[1]
    gates, fresh = ops.split(w.weight_hh, (2 * size, size))
    bias = None if w.bias_hh is None else w.bias_hh[2 * size :]
    across = ops.t(gates)

    def step(entering: Any, state: State) -> State:
        gated, own = ops.split(entering, (2 * size, size), 1)
        reset, update = ops.chunk(ops.addmm(gated, state[0], across), 2, 1)
        return (ops.gru_state(reset, update, own, ops.linear(state[0], fresh, bias), state[0]),)

    return step


def _plain(activation: str) -> Callable[[Weights], Step]:
    def make(w: Weights) -> Step:
        across, active = ops.t(w.weight_hh), getattr(ops, activation)
        return lambda entering, state: (active(ops.addmm(entering, state[0], across)),)

    return make


STEPS: dict[str, Callable[[Weights], Step]] = {
    "LSTM": _lstm, "GRU": _gru, "RNN_TANH": _plain("tanh"), "RNN_RELU": _plain("relu"),
}  # fmt: skip


def _entering(mode: str, input: Any, w: Weights) -> Any:
    """Project the input of all steps, and add what every step adds to it."""
    if w.bias_ih is None:
        return ops.linear(input, w.weight_ih)
    bias = w.bias_hh
    if mode == "GRU":  # the reset gate multiplies the last third, so that is not added here
        size = w.weight_hh.shape[1]
        bias = ops.pad(bias[: 2 * size], (0, size))
    return ops.linear(input, w.weight_ih, w.bias_ih + bias)


def single_step(mode: str, input: Any, state: State, w: Weights) -> State:
    """Return the state after one input (N, features)."""
    return STEPS[mode](w)(_entering(mode, input, w), state)


def over_time(mode: str, input: Any, state: State, w: Weights, reverse: bool) -> tuple[Any, State]:
    """Return what a layer shows for an input (T, N, features), (T, N, hidden), and its last state."""
    entering = _entering(mode, input, w)
    if mode == "LSTM" and w.weight_hr is None and thread.state.captures is None:  # a compiled loop is faster by steps
        shown, cells, _ = ops.lstm_layer(entering, w.weight_hh, *state, reverse)
        last = 0 if reverse else -1
        return shown, (shown[last], cells[last])
    return _by_steps(STEPS[mode](w), ops.unbind(entering, 0), state, reverse)


def _by_steps(step: Step, entering: Sequence[Any], state: State, reverse: bool) -> tuple[Any, State]:
    shown = []
    for now in reversed(entering) if reverse else entering:
        state = step(now, state)
        shown.append(state[0])
    return ops.stack(shown[::-1] if reverse else shown), state


def over_packed(
    mode: str, input: Any, sizes: Sequence[int], state: State, w: Weights, reverse: bool
) -> tuple[Any, State]:
    """Return what a layer shows for packed sequences, (elements, hidden), and each sequence's last state.

    The sequences are sorted, the longest first: ``sizes[t]`` of them have a step t. Forwards those that end leave the
    state; backwards each enters it at its own end.
    """
    run = _backwards if reverse else _forwards
    shown, last = run(STEPS[mode](w), ops.split(_entering(mode, input, w), tuple(sizes)), state)
    return ops.cat(shown), last


def _forwards(step: Step, entering: Sequence[Any], state: State) -> tuple[list[Any], State]:
    shown, ended = [], []
    for now in entering:
        size = now.shape[0]
        if size < state[0].shape[0]:
            ended.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        state = step(now, state)
        shown.append(state[0])
    ended.append(state)
    return shown, tuple(ops.cat(parts[::-1]) for parts in zip(*ended, strict=True))


def _backwards(step: Step, entering: Sequence[Any], start: State) -> tuple[list[Any], State]:
    shown: list[Any] = []
    state = tuple(part[:0] for part in start)
    for now in reversed(entering):
        held, size = state[0].shape[0], now.shape[0]
        if held < size:
            state = tuple(ops.cat((part, own[held:size])) for part, own in zip(state, start, strict=True))
        state = step(now, state)
        shown.append(state[0])
    return shown[::-1], state
