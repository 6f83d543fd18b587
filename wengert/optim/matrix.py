"""Optimisers that see a matrix as a whole: Muon and Adafactor, written with operators."""

import math
from collections.abc import Sequence
from typing import Any

from wengert.array.dtype import finfo
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.optim.elementwise import check_pair, check_range, number
from wengert.optim.optimizer import Group, Optimizer, refuse_unsupported
from wengert.settings import get_default_dtype
from wengert.sparse.payload import is_sparse

__all__ = ["Adafactor", "Muon"]


class _Rates:
    """The numbers of a group that may change from step to step without changing what is computed."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def __call__(self) -> tuple[float, ...]:
        rate = number(self.group["lr"])
        return rate, 1.0 - rate * self.group["weight_decay"]

    peek = __call__


class _Whole(Optimizer):
    """An optimiser that handles one parameter after the other, with operators."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        refuse_unsupported(type(self).__name__, defaults)
        super().__init__(params, defaults)

    def update(self, group: Group) -> None:
        """Change the parameters of the group that have a gradient."""
        captures, rates = thread.state.captures, _Rates(group)
        if captures is not None:
            captures.guard(
                lambda: (*map(id, group["params"]), *(group[n] for n in sorted(self.defaults) if n not in _FREE))
            )
        found: dict[Any, Sequence[Any]] = {}
        for param in group["params"]:
            if captures is not None:
                captures.touched(param)
            grad = param.grad
            if grad is None:
                continue
            if is_sparse(grad):
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
            if param.dtype.is_complex:
                raise RuntimeError(f"{type(self).__name__} does not support complex parameters")
            if captures is not None and not self.state[param]:
                captures.postpone(f"{type(self).__name__} makes its state in the first step")
            if param.dtype not in found:
                found[param.dtype] = rates() if captures is None else captures.hosted(rates, param.dtype.numpy)
            self.change(param, grad, group, self.state[param], found[param.dtype])

    def change(self, param: Tensor, grad: Tensor, group: Group, state: dict[str, Any], rates: Sequence[Any]) -> None:
        """Change one parameter; ``rates`` are the learning rate, and the factor of decoupled weight decay."""
        raise NotImplementedError


_FREE = ("lr", "weight_decay")


class Muon(_Whole):
    """Momentum whose update is made orthogonal (Jordan et al. 2024, "Muon"; Liu et al., arXiv 2502.16982, for the rates).

    Meant for the weight matrices inside of a network; embeddings, biases and the like go to another optimiser.

    Args:
        params: matrices. lr: the rate. weight_decay: decoupled. momentum, nesterov: of the gradients' moving average.
        ns_coefficients: a, b, c of a step X ← aX + (bXXᵀ + c(XXᵀ)²)X, of which ``ns_steps`` follow one another in bfloat16.
        eps: the least norm that a gradient is divided by. adjust_lr_fn: how the rate depends on the shape (m, n):
            "original" (None) is √max(1, m/n), "match_rms_adamw" is 0.2·√max(m, n).

    Raises:
        ValueError: for a parameter that is no matrix, or an option out of its range.

    Example:
        >>> import wengert as wg
        >>> w = wg.nn.Parameter(wg.eye(3) * 2)
        >>> optimizer = wg.optim.Muon([w], lr=0.1, weight_decay=0.0)
        >>> (w**2).sum().backward()
        >>> optimizer.step()
        >>> bool((w.diagonal() < 2).all())
        True
    """

    def __init__(
        self, params: Any, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_range("Muon", lr=(lr, 0, None), weight_decay=(weight_decay, 0, None), momentum=(momentum, 0, None))
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Muon: adjust_lr_fn must be 'original', 'match_rms_adamw' or None, got {adjust_lr_fn!r}")
        if not isinstance(ns_steps, int) or not 0 <= ns_steps < 100:
            raise ValueError(f"Muon: ns_steps must be a number from 0 to 99, got {ns_steps!r}")
        if len(tuple(ns_coefficients)) != 3:
            raise ValueError(f"Muon: ns_coefficients must be three numbers, got {ns_coefficients!r}")
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of matrices."""
        super().add_param_group(param_group)
        for param in self.param_groups[-1]["params"]:
            if param.ndim != 2:
                del self.param_groups[-1]
                raise ValueError(
                    f"Muon takes matrices, got a parameter of shape {tuple(param.shape)}; give it to another optimizer"
                )

    def change(self, param: Tensor, grad: Tensor, group: Group, state: dict[str, Any], rates: Sequence[Any]) -> None:
        """Move the parameter along the orthogonalised average of its gradients."""
        if not state:
            state["momentum_buffer"] = ops.zeros_like(grad)
        average = state["momentum_buffer"]
        average.lerp_(grad, 1 - group["momentum"])
        update = grad.lerp(average, group["momentum"]) if group["nesterov"] else average
        update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        rate, kept = rates
        param.mul_(kept).sub_(update.to(param.dtype) * (rate * _ratio(group["adjust_lr_fn"], *param.shape)))


def _orthogonal(matrix: Tensor, coefficients: Sequence[float], steps: int, eps: float) -> Tensor:
    """Return about UVᵀ for a matrix USVᵀ, by Newton-Schulz iteration in bfloat16."""
    a, b, c = coefficients
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = ops.addmm(x, ops.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _ratio(kind: str | None, rows: int, columns: int) -> float:
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


class Adafactor(_Whole):
    """Adam's second moment, of a matrix as the product of its rows' and columns' means (Shazeer & Stern 2018, algorithms 4, 5).

    Its state is a row and a column for each matrix. As in PyTorch ``lr`` bounds the relative step size, decays the weights,
    and the moments are means.

    Args:
        params: tensors; more than two dimensions are stacks of matrices. lr: the bound. beta2_decay: the rate of the second
            moment is 1 - step**beta2_decay. eps: the least divisor (None: that of the dtype), and the least size of a parameter
            that the step is relative to. d: the update's root mean square that is not clipped. weight_decay: decoupled.

    Raises:
        ValueError: for an option out of its range.

    Example:
        >>> import wengert as wg
        >>> w = wg.nn.Parameter(wg.ones(4, 3))
        >>> optimizer = wg.optim.Adafactor([w], lr=0.1)
        >>> (w**2).sum().backward()
        >>> optimizer.step()
        >>> {name: tuple(value.shape) for name, value in optimizer.state[w].items()}
        {'step': (), 'row_var': (4, 1), 'col_var': (1, 3)}
    """

    def __init__(
        self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        check_pair("Adafactor", "eps", (0.0 if eps[0] is None else eps[0], *eps[1:]))
        check_range(
            "Adafactor", lr=(lr, 0, None), d=(d, 1, None), weight_decay=(weight_decay, 0, None),
            **{"eps[0]": (0.0 if eps[0] is None else eps[0], 0, None), "eps[1]": (eps[1], 0, None)},
        )  # fmt: skip
        if not beta2_decay <= 0:
            raise ValueError(f"Adafactor: beta2_decay must be at most 0, got {beta2_decay}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize,
        })  # fmt: skip

    def change(self, param: Tensor, grad: Tensor, group: Group, state: dict[str, Any], rates: Sequence[Any]) -> None:
        """Move the parameter by a step whose size is relative to its own."""
        grad = -grad if group["maximize"] else grad
        if not state:
            _begin(state, grad)
        rate, kept = rates
        least, smallest = group["eps"]
        least = finfo(param.dtype).eps if least is None else least
        step = state["step"].add_(1).double()
        size = (param.norm() / math.sqrt(param.numel())).double().clamp(min=smallest)
        size = size * ops.clamp(step.rsqrt(), max=rate)
        if group["weight_decay"] != 0:
            param.mul_(kept)
        variance = _variance(grad, state, (step ** group["beta2_decay"]).to(grad.dtype), least)
        update = variance.clamp(min=least * least).rsqrt() * grad
        excess = (update.norm() / (math.sqrt(update.numel()) * group["d"])).clamp(min=1.0)
        param.sub_(update * (size.to(grad.dtype) / excess))


def _begin(state: dict[str, Any], grad: Tensor) -> None:
    state["step"] = ops.tensor(0.0, dtype=get_default_dtype())
    if grad.ndim > 1:
        *stack, rows, columns = grad.shape
        state["row_var"], state["col_var"] = grad.new_zeros((*stack, rows, 1)), grad.new_zeros((*stack, 1, columns))
    else:
        state["variance"] = ops.zeros_like(grad)


def _variance(grad: Tensor, state: dict[str, Any], weight: Tensor, least: float) -> Tensor:
    """Take a gradient into the second moment, and return that, of a matrix from its rows and columns."""
    squares = grad * grad
    if grad.ndim <= 1:
        return state["variance"].lerp_(squares, weight)
    rows = state["row_var"].lerp_(squares.mean(-1, keepdim=True), weight)
    columns = state["col_var"].lerp_(squares.mean(-2, keepdim=True), weight)
    return rows @ columns / rows.mean(-2, keepdim=True).clamp(min=least)
