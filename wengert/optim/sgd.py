"""Stochastic gradient descent."""

from typing import Any

from wengert.core.tensor import Tensor
from wengert.operators.create import empty_like
from wengert.optim.elementwise import Elementwise, check_range, number
from wengert.optim.optimizer import Group

__all__ = ["SGD"]


class SGD(Elementwise):
    """p ← p - lr · b with b ← momentum · b + (1 - dampening) · g; b is g in the first step and without momentum.

    With ``nesterov`` the step uses g + momentum · b instead of b (Sutskever et al., ICML 2013). ``weight_decay · p`` is
    added to the gradient g first; ``maximize`` changes its sign.

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

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
        nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
        fused: bool | None = None,
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
