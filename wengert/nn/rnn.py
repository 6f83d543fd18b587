"""Recurrent layers over whole sequences: RNN, LSTM and GRU, in several layers and both directions."""

import math
import warnings
from typing import Any

from wengert.array.shape import as_int
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import unset
from wengert.nn.recurrence import Weights, over_packed, over_time
from wengert.nn.sizes import number
from wengert.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """What recurrent layers share: settings, parameters, and the way through layers and directions.

    Args:
        mode: ``"LSTM"``, ``"GRU"``, ``"RNN_TANH"`` or ``"RNN_RELU"``. The others are those of :class:`LSTM`.

    Raises:
        ValueError, TypeError: for sizes, numbers or flags that make no layer.
    """

    _names: tuple[str, ...] = ("hx",)  # how the parts of a state are called in messages

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"mode must be one of {', '.join(_GATES)}, got {mode!r}")
        self.mode = mode
        self.input_size = _positive(input_size, "input_size")
        self.hidden_size = _positive(hidden_size, "hidden_size")
        self.num_layers = _positive(num_layers, "num_layers")
        self.bias = _flag(bias, "bias")
        self.batch_first = _flag(batch_first, "batch_first")
        self.dropout = float(number(dropout, "dropout"))
        self.bidirectional = bool(bidirectional)
        self.proj_size = as_int(proj_size, "proj_size")
        if not 0 <= self.proj_size < self.hidden_size:
            raise ValueError(f"proj_size must be 0 (no projection) or less than hidden_size, got {proj_size}")
        if proj_size and mode != "LSTM":
            raise ValueError(f"only an LSTM takes proj_size, not {mode}")
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"the probability of dropout must lie between 0 and 1, got {dropout}")
        if self.dropout and num_layers == 1:
            warnings.warn(
                f"dropout={dropout} does nothing with num_layers=1: it is applied between layers", stacklevel=3
            )
        self._all_weights = [
            self._make(layer, suffix, device, dtype) for layer in range(num_layers) for suffix in self._directions()
        ]
        self.reset_parameters()

    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _make(self, layer: int, suffix: str, device: Any, dtype: Any) -> list[str]:
        """Register the parameters of one direction of one layer, and return their names."""
        shown, rows = self.proj_size or self.hidden_size, _GATES[self.mode] * self.hidden_size
        entering = shown * len(self._directions()) if layer else self.input_size
        shapes: dict[str, Any] = {"weight_ih": (rows, entering), "weight_hh": (rows, shown)}
        if self.bias:
            shapes.update(bias_ih=rows, bias_hh=rows)
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            self.register_parameter(f"{name}_l{layer}{suffix}", unset(shape, device, dtype))
        return [f"{name}_l{layer}{suffix}" for name in shapes]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters, a list for each direction of each layer."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Do nothing: on the CPU parameters need not lie in one block of memory."""

    def reset_parameters(self) -> None:
        """Draw new starting values, uniform on [-1/√hidden_size, 1/√hidden_size]."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _sizes(self) -> tuple[int, ...]:
        """The sizes of the parts of a state."""
        return (self.hidden_size,)

    # ---- one call --------------------------------------------------------------------

    def _run(self, input: Any, state: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the output, like the input a tensor or packed, and the last state, a tuple of (layers, N, size)."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, state)
        if input.ndim not in (2, 3):
            raise ValueError(
                f"{type(self).__name__} takes {'(N, T, C)' if self.batch_first else '(T, N, C)'} or (T, C), got shape "
                f"{tuple(input.shape)}"
            )
        alone = input.ndim == 2
        if state is not None:
            state = self._as_batch(state, alone)
        x = ops.unsqueeze(input, 1) if alone else ops.transpose(input, 0, 1) if self.batch_first else input
        self._check_input(x)
        if not x.shape[0]:
            raise RuntimeError(f"{type(self).__name__} takes sequences of at least one step, got none")
        output, last = self._layers(x, None, self._start(x, x.shape[1], state))
        if alone:
            return ops.squeeze(output, 1), tuple(ops.squeeze(part, 1) for part in last)
        return (ops.transpose(output, 0, 1) if self.batch_first else output), last

    def _run_packed(self, packed: PackedSequence, state: Any) -> tuple[Any, tuple[Any, ...]]:
        data, batch_sizes, order, back = packed
        if data.ndim != 2:
            raise RuntimeError(f"the data of a packed input must have 2 dimensions, got shape {tuple(data.shape)}")
        self._check_input(data)
        sizes = [int(size) for size in batch_sizes.tolist()]
        start = self._start(data, sizes[0], state)
        if order is not None and state is not None:
            start = tuple(ops.index_select(part, 1, order) for part in start)
        output, last = self._layers(data, sizes, start)
        if back is not None:
            last = tuple(ops.index_select(part, 1, back) for part in last)
        return PackedSequence(output, batch_sizes, order, back), last

    def _layers(self, x: Any, sizes: Any, start: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Go through all layers and directions."""
        directions, last, k = self._directions(), [], 0
        starts = list(zip(*(ops.unbind(part, 0) for part in start), strict=True))
        for layer in range(self.num_layers):
            shown = []
            for suffix in directions:
                w = Weights(**{n.partition("_l")[0]: getattr(self, n) for n in self._all_weights[k]})
                if sizes is None:
                    out, state = over_time(self.mode, x, starts[k], w, bool(suffix))
                else:
                    out, state = over_packed(self.mode, x, sizes, starts[k], w, bool(suffix))
                shown.append(out)
                last.append(state)
                k += 1
            x = ops.cat(shown, -1) if len(shown) > 1 else shown[0]
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = ops.dropout(x, self.dropout)
        return x, tuple(ops.stack(parts) for parts in zip(*last, strict=True))

    # ---- checks ----------------------------------------------------------------------

    def _check_input(self, input: Any) -> None:
        weight = getattr(self, self._all_weights[0][0])
        if input.dtype is not weight.dtype and thread.state.casting is None:
            raise ValueError(
                f"the input's dtype, {input.dtype}, is not that of the weights, {weight.dtype}; convert the input with "
                f"input.to({weight.dtype}) or the module with module.to({input.dtype})"
            )
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{type(self).__name__} was made for {self.input_size} features, got an input of {input.shape[-1]}"
            )

    def _as_batch(self, state: tuple[Any, ...], alone: bool) -> tuple[Any, ...]:
        """Return the parts of a given state with three dimensions."""
        wanted = 2 if alone else 3
        for name, part in zip(self._names, state, strict=True):
            if part.ndim != wanted:
                raise RuntimeError(
                    f"for {'an unbatched input, of 2' if alone else 'a batched input, of 3'} dimensions, {name} must have "
                    f"{wanted} dimensions too, got shape {tuple(part.shape)}"
                )
        return tuple(ops.unsqueeze(part, 1) for part in state) if alone else tuple(state)

    def _start(self, input: Any, batch: int, state: Any) -> tuple[Any, ...]:
        """Return the state to start from, zeros unless one is given."""
        rows = self.num_layers * len(self._directions())
        shapes = [(rows, batch, size) for size in self._sizes()]
        if state is None:
            return tuple(ops.zeros(shape, dtype=input.dtype, device=input.device) for shape in shapes)
        for name, part, shape in zip(self._names, state, shapes, strict=True):
            if tuple(part.shape) != shape:
                raise RuntimeError(
                    f"{name} must have shape {shape}, (layers · directions, N, size), got {tuple(part.shape)}"
                )
        return tuple(state)

    def extra_repr(self) -> str:
        """Sizes, and every setting that differs from its default."""
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                    "bidirectional": False}  # fmt: skip
        told = [f"{n}={getattr(self, n)}" for n, default in defaults.items() if getattr(self, n) != default]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *told])


class _OneState(RNNBase):
    """A layer whose state is what it shows."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Return (output, last state) for an input, a tensor or packed, and the state to start from (default: 0)."""
        if hx is not None and not isinstance(hx, Tensor):
            raise TypeError(f"{type(self).__name__} takes one tensor as state, got {type(hx).__name__}")
        output, (last,) = self._run(input, None if hx is None else (hx,))
        return output, last


class RNN(_OneState):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh) at each step (Elman, 1990).

    Args:
        nonlinearity: ``"tanh"`` or ``"relu"``. The others, and the shapes, are those of :class:`LSTM`.

    Raises:
        ValueError: for another non-linearity.

    Example:
        >>> import wengert as wg
        >>> output, h = wg.nn.RNN(3, 4, nonlinearity="relu")(wg.zeros(5, 2, 3))
        >>> output.shape, h.shape
        (wengert.Size([5, 2, 4]), wengert.Size([1, 2, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


class GRU(_OneState):
    """A layer of gated recurrent units (Cho et al., EMNLP 2014); arguments and shapes as :class:`LSTM`.

    With r and z = σ(W_ih x + b_ih + W_hh h + b_hh) and n = tanh(W_in x + b_in + r ∘ (W_hn h + b_hn)) at each step,
    h' = (1 - z) ∘ n + z ∘ h. The weights hold r, z and n one above the other.

    Example:
        >>> import wengert as wg
        >>> output, h = wg.nn.GRU(3, 4, num_layers=2, batch_first=True)(wg.zeros(2, 5, 3))
        >>> output.shape, h.shape
        (wengert.Size([2, 5, 4]), wengert.Size([2, 2, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


class LSTM(RNNBase):
    """A layer of long short-term memory (Hochreiter & Schmidhuber, 1997; projections: Sak et al., 2014).

    With i, f, o = σ(W_ih x + b_ih + W_hh h + b_hh) and g = tanh(…) at each step, c' = f ∘ c + i ∘ g and
    h' = o ∘ tanh(c'), or W_hr times that. The weights hold i, f, g and o one above the other.

    Args:
        input_size, hidden_size: features of the input, and of the state. num_layers: each takes what the one below shows.
        bias: whether to add b_ih and b_hh. batch_first: tensors are (N, T, features) instead of (T, N, features).
        dropout: in training, the probability of dropping elements of what a layer shows to the next.
        bidirectional: a second direction, from the end, beside the first. proj_size: size of h, if projected.

    Shape:
        input (T, N, input_size), (T, input_size) or packed; states (layers · directions, N, size), without N for an
        unbatched input; output (T, N, directions · size). ``weight_ih_l0`` is (4 · hidden_size, input_size),
        ``weight_hh_l0`` (4 · hidden_size, size); those of the other direction end in ``_reverse``.

    Raises:
        ValueError, TypeError: for settings that make no layer, or an input of another dtype or number of dimensions.
        RuntimeError: for shapes of input or state that do not fit.

    Example:
        >>> import wengert as wg
        >>> output, (h, c) = wg.nn.LSTM(3, 4, bidirectional=True, proj_size=2)(wg.zeros(5, 2, 3))
        >>> output.shape, h.shape, c.shape
        (wengert.Size([5, 2, 4]), wengert.Size([2, 2, 2]), wengert.Size([2, 2, 4]))
    """

    _names = ("h_0", "c_0")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip

    def _sizes(self) -> tuple[int, ...]:
        return self.proj_size or self.hidden_size, self.hidden_size

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, tuple[Any, ...]]:
        """Return (output, (h, c)) for an input, a tensor or packed, and the state (h_0, c_0) to start from (default: 0)."""
        if hx is not None and (isinstance(hx, Tensor) or len(hx) != 2):
            raise TypeError("LSTM takes a pair of tensors, (h_0, c_0), as state")
        return self._run(input, hx)


def _positive(value: Any, name: str) -> int:
    if as_int(value, name) <= 0:
        raise ValueError(f"{name} must be greater than zero, got {value}")
    return int(value)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return value
