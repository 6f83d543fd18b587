"""Lion: steps of one size, in the direction that gradient and momentum agree on."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.tensor import Tensor
from wengert.optim.elementwise import Array, Elementwise, check_pair, check_range, number
from wengert.optim.optimizer import Group

__all__ = ["Lion"]


class Lion(Elementwise):
    """p ← (1 - lr · weight_decay) p - lr · sign(β₁ m + (1 - β₁) g), then m ← β₂ m + (1 - β₂) g.

    Chen et al., NeurIPS 2023, algorithm 2. The rate is usually a third to a tenth of AdamW's, and the decay larger by as much.

    Args:
        params: see :class:`Optimizer`. lr, betas, weight_decay: as above. maximize, foreach: as in :class:`SGD`.

    Raises:
        ValueError: for a negative rate or decay, or betas outside of [0, 1).

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([30.0])
        >>> wg.optim.Lion([p], lr=0.25).step()
        >>> p.item()
        0.75
    """

    counts = False

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0,
        *, maximize: bool = False, foreach: bool | None = None,
    ) -> None:  # fmt: skip
        check_pair("Lion", "betas", betas)
        check_range(
            "Lion", lr=(lr, 0, None), weight_decay=(weight_decay, 0, None),
            **{"betas[0]": (betas[0], 0, 1), "betas[1]": (betas[1], 0, 1)},
        )  # fmt: skip
        super().__init__(params, {
            "lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach,
            "decoupled_weight_decay": True,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The mean of the gradients."""
        return ("exp_avg",)

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate, and the weights of momentum in the direction and in the mean."""
        return number(group["lr"]), *map(number, group["betas"])

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def lion(p: Array, g: Array, m: Array, rate: Array, share: Array, kept: Array) -> None:
            p -= rate * np.sign(m * share + g * (1 - share))
            m *= kept
            m += g * (1 - kept)

        return lion
