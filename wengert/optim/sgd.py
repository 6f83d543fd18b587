"""Stochastic gradient descent, and its average."""

from collections.abc import Callable
from typing import Any

from wengert.core.registry import ops
from wengert.core.tensor import Tensor, raw
from wengert.optim.elementwise import Array, Elementwise, check_range, number
from wengert.optim.optimizer import Group
from wengert.sparse.payload import is_sparse
from wengert.sparse.rows import add_into, increase

__all__ = ["ASGD", "SGD"]


class SGD(Elementwise):
    """p ← p - lr · b with b ← momentum · b + (1 - dampening) · g; b is g in the first step and without momentum.

    With ``nesterov`` the step uses g + momentum · b instead of b (Sutskever et al., ICML 2013). ``weight_decay · p`` is
    added to the gradient g first; ``maximize`` changes its sign. The velocity of
    sparse gradients is sparse.

    Args:
        params: see :class:`Optimizer`. lr, momentum, dampening, weight_decay, nesterov, maximize: as above.
        foreach, fused: accepted for PyTorch's sake. differentiable: not supported.

    Raises:
        ValueError: for a negative option, or ``nesterov`` without momentum or with dampening.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([2.0])
        >>> wg.optim.SGD([p], lr=0.25).step()
        >>> p.item()
        0.5
    """

    counts = False
    takes_sparse = True

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_range("SGD", lr=(lr, 0, None), momentum=(momentum, 0, None), weight_decay=(weight_decay, 0, None))
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("SGD: nesterov needs momentum above 0 and no dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("momentum_buffer",) if group["momentum"] else ()

    def start(self, name: str, param: Tensor, group: Group) -> Tensor:
        """The velocity before the first step: sparse where the gradient is."""
        grad = param.grad
        return ops.zeros_like(param) if grad is None or not is_sparse(grad) else ops.mul(grad, 0)

    def update_rows(
        self, param: Tensor, grad: Tensor, state: dict[str, Any], group: Group, constants: tuple[Array, ...]
    ) -> None:
        """Subtract the gradient's rows. The velocity, which is sparse too, has every row that a gradient ever had."""
        rate, momentum, weight = (float(c) for c in constants[2:])
        step = grad
        if group["momentum"]:
            step = state["momentum_buffer"] = state["momentum_buffer"] * momentum + grad * weight
            if step.is_sparse:
                step = state["momentum_buffer"] = step.coalesce()
            if group["nesterov"]:
                step = grad + step * momentum
        add_into(param, step, rate if group["maximize"] else -rate)

    def enter_rows(
        self, captures: Any, entered: Callable[..., None], param: Tensor, state: dict[str, Any], group: Group,
        numbers: list[Tensor],
    ) -> None:  # fmt: skip
        """Enter the same in a program. The velocity would have more rows at each step, so that a program has none."""
        if group["momentum"]:
            captures.refuse("momentum of SGD with sparse gradients")
        rate = numbers[2]
        increase("SGD.step", param, param.grad, rate if group["maximize"] else ops.neg(rate))

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate, the momentum, and the weight of the gradient."""
        return number(group["lr"]), group["momentum"], 1.0 if step == 1 else 1.0 - group["dampening"]

    def formula(self, group: Group) -> Callable[..., None]:
        """The update, with or without velocity."""
        nesterov = group["nesterov"]

        def plain(p: Array, g: Array, lr: Array, momentum: Array, weight: Array) -> None:
            p -= g * lr

        def heavy_ball(p: Array, g: Array, b: Array, lr: Array, momentum: Array, weight: Array) -> None:
            b *= momentum
            b += g * weight
            p -= (g + b * momentum if nesterov else b) * lr

        return heavy_ball if group["momentum"] else plain


class ASGD(Elementwise):
    """Gradient descent that also keeps the average of the parameters (Polyak & Juditsky, 1992), in state "ax".

    p ← (1 - lambd · eta) · p - eta · g with eta = lr / (1 + lambd · lr · step)^alpha; ax moves towards p by
    1 / max(1, step - t0).

    Args:
        params: see :class:`Optimizer`. lr, lambd, alpha, t0: as above. weight_decay, maximize, foreach,
            differentiable: as in :class:`SGD`. capturable: not supported.

    Raises:
        ValueError: for a negative option.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([2.0])
        >>> wg.optim.ASGD([p], lr=0.25, lambd=0.0).step()
        >>> p.item()
        0.5
    """

    per_parameter = True
    scalars = ("step", "eta", "mu")

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        check_range(
            "ASGD", lr=(lr, 0, None), lambd=(lambd, 0, None), alpha=(alpha, 0, None), t0=(t0, 0, None),
            weight_decay=(weight_decay, 0, None),
        )  # fmt: skip
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The average."""
        return ("ax",)

    def begin(self, state: dict[str, Any], group: Group) -> None:
        """The rate and the weight of the average for the first step."""
        state["eta"] = ops.tensor(number(group["lr"]))
        state["mu"] = ops.ones(())

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate, the decay and the weight of the average; those of the next step are put into the state."""
        eta, mu = state["eta"].item(), state["mu"].item()
        lr, lambd = number(group["lr"]), group["lambd"]
        raw(state["eta"])[()] = lr / (1 + lambd * lr * step) ** group["alpha"]
        raw(state["mu"])[()] = 1 / max(1.0, step - group["t0"])
        return eta, 1 - lambd * eta, mu

    def formula(self, group: Group) -> Callable[..., None]:
        """The update of the parameter and of its average."""

        def averaged(p: Array, g: Array, ax: Array, eta: Array, shrink: Array, mu: Array) -> None:
            p *= shrink
            p -= g * eta
            if mu == 1:
                ax[...] = p
            else:
                ax += (p - ax) * mu

        return averaged
