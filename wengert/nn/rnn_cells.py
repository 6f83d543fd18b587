"""Single steps of recurrent layers: RNNCell, LSTMCell and GRUCell."""

import math
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn import init
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter, unset
from wengert.nn.recurrence import Weights, single_step

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """What the cells share: parameters, checks, and inputs with and without a batch.

    Args:
        num_chunks: how many rows of the weights belong to each element of the state.
    """

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.register_parameter("weight_ih", unset((rows, input_size), device, dtype))
        self.register_parameter("weight_hh", unset((rows, hidden_size), device, dtype))
        self.register_parameter("bias_ih", unset(rows, device, dtype, bias))
        self.register_parameter("bias_hh", unset(rows, device, dtype, bias))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new starting values, uniform on [-1/√hidden_size, 1/√hidden_size]."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        """Sizes, and every setting that differs from its default."""
        told = f"{self.input_size}, {self.hidden_size}" + (f", bias={self.bias}" if self.bias is not True else "")
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return told + (f", nonlinearity={nonlinearity}" if nonlinearity != "tanh" else "")

    def _step(self, mode: str, input: Any, state: Any, parts: int = 1) -> tuple[Any, ...]:
        """Return the next state for an input (N, C) or (C,)."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name} takes (N, {self.input_size}) or ({self.input_size},), got {tuple(input.shape)}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"{name} was made for {self.input_size} features, got an input of {input.shape[-1]}")
        alone = input.ndim == 1
        x = ops.unsqueeze(input, 0) if alone else input
        shape = (x.shape[0], self.hidden_size)
        if state is None:
            start = (ops.zeros(shape, dtype=x.dtype, device=x.device),) * parts
        else:
            start = tuple(self._fitted(part, shape, alone) for part in state)
        w = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        found = single_step(mode, x, start, w)
        return tuple(ops.squeeze(part, 0) for part in found) if alone else found

    def _fitted(self, part: Any, shape: tuple[int, int], alone: bool) -> Any:
        """Return a part of a given state with two dimensions."""
        if part.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__} takes a state of 1 or 2 dimensions, got shape {tuple(part.shape)}")
        batched = ops.unsqueeze(part, 0) if alone and part.ndim == 1 else part
        if tuple(batched.shape) != shape:
            raise RuntimeError(
                f"{type(self).__name__}: the state must have shape {shape[1:] if alone else shape}, got "
                f"{tuple(part.shape)}"
            )
        return batched


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), a single step of :class:`RNN`.

    Args:
        input_size, hidden_size: features of input and state. bias: whether to add b_ih and b_hh.
        nonlinearity: ``"tanh"`` or ``"relu"``.

    Shape:
        input (N, input_size), state (N, hidden_size), both also without N.

    Raises:
        ValueError: for another number of dimensions. RuntimeError: for another non-linearity, or shapes that do not fit.

    Example:
        >>> import wengert as wg
        >>> wg.nn.RNNCell(3, 4)(wg.zeros(2, 3)).shape
        wengert.Size([2, 4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state; ``hx`` is the present one (default: 0)."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"nonlinearity must be 'tanh' or 'relu', got {self.nonlinearity!r}")
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,))[0]


class GRUCell(RNNCellBase):
    """A single step of :class:`GRU`; arguments, shapes and errors as :class:`RNNCell`.

    Example:
        >>> import wengert as wg
        >>> wg.nn.GRUCell(3, 4)(wg.zeros(3)).shape
        wengert.Size([4])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state; ``hx`` is the present one (default: 0)."""
        return self._step("GRU", input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """A single step of :class:`LSTM`; arguments, shapes and errors as :class:`RNNCell`.

    Example:
        >>> import wengert as wg
        >>> h, c = wg.nn.LSTMCell(3, 4)(wg.zeros(2, 3))
        >>> h.shape, c.shape
        (wengert.Size([2, 4]), wengert.Size([2, 4]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """Return the next (h, c); ``hx`` is the present pair (default: 0)."""
        if hx is not None and (isinstance(hx, Tensor) or len(hx) != 2):
            raise TypeError("LSTMCell takes a pair of tensors, (h_0, c_0), as state")
        hidden, cell = self._step("LSTM", input, hx, 2)
        return hidden, cell
