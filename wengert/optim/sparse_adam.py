"""Adam for sparse gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.layout import strided
from wengert.core.tensor import Tensor
from wengert.optim.elementwise import Array, Elementwise, check_pair, check_range, number
from wengert.optim.optimizer import Group

__all__ = ["SparseAdam"]


class SparseAdam(Elementwise):
    """Adam that changes the rows a sparse gradient has, and their moments; all others stay as they are.

    m ← m + (1 - β₁)(g - m), v ← v + (1 - β₂)(g² - v), p ← p - lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ) · m / (√v + eps), t the number of
    steps. Unlike Adam's, the moments of a row do not decay in the steps in which it has no gradient.

    Args:
        params: see :class:`Optimizer`; their gradients must be sparse. lr, betas, eps: as above.
        maximize: change the sign of the gradient.

    Raises:
        ValueError: for an option outside its range, or a sparse or complex parameter. RuntimeError: in a step with a
            dense gradient.

    Example:
        >>> import wengert as wg
        >>> table = wg.nn.Embedding.from_pretrained(wg.ones(3, 1), freeze=False, sparse=True)
        >>> table(wg.tensor([1])).sum().backward()
        >>> wg.optim.SparseAdam(table.parameters(), lr=0.5).step()
        >>> table.weight.detach().flatten()
        tensor([1.0000, 0.5000, 1.0000])
    """

    takes_dense, takes_sparse = False, True

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:  # fmt: skip
        check_pair("SparseAdam", "betas", betas)
        check_range("SparseAdam", lr=(lr, 0, None), eps=(eps, 0, None))
        check_range("SparseAdam", **{f"betas[{i}]": (beta, 0, 1) for i, beta in enumerate(betas)})
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters: dense and real ones, whose gradients will be sparse."""
        super().add_param_group(param_group)
        for param in self.param_groups[-1]["params"]:
            if param.layout is not strided or param.is_complex():
                kind = param.layout if param.layout is not strided else param.dtype
                raise ValueError(
                    f"SparseAdam takes dense parameters of real numbers, got one of shape {tuple(param.shape)} that is {kind}"
                )

    def moments(self, group: Group) -> tuple[str, ...]:
        """The means of g and g²."""
        return "exp_avg", "exp_avg_sq"

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate with both corrections, the weights of the gradient in the two means, and eps."""
        beta1, beta2 = (number(beta) for beta in group["betas"])
        rate = number(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
        return rate, 1 - beta1, 1 - beta2, group["eps"]

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def adam(p: Array, g: Array, m: Array, v: Array, lr: Array, first: Array, second: Array, eps: Array) -> None:
            m += (g - m) * first
            v += (g * g - v) * second
            p -= m / (np.sqrt(v) + eps) * lr

        return adam
