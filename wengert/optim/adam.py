"""Adam and its variants: steps scaled by running moments of the gradient."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor, raw
from wengert.optim.elementwise import Array, Elementwise, check_pair, check_range, number
from wengert.optim.optimizer import Group

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]


def _check(owner: str, lr: Any, betas: Any, eps: float, weight_decay: float) -> None:
    check_pair(owner, "betas", betas)
    check_range(
        owner, lr=(lr, 0, None), eps=(eps, 0, None), beta1=(betas[0], 0, 1), beta2=(betas[1], 0, 1),
        weight_decay=(weight_decay, 0, None),
    )  # fmt: skip


class _Moments(Elementwise):
    """Keeps running means of the gradient (m) and of its square (v)."""

    def moments(self, group: Group) -> tuple[str, ...]:
        """The two means."""
        return "exp_avg", "exp_avg_sq"


def _advance(g: Array, m: Array, v: Array, one_less_beta1: Array, beta2: Array, one_less_beta2: Array) -> None:
    """Move the running means towards the gradient and its square."""
    m += (g - m) * one_less_beta1
    v *= beta2
    v += g * g * one_less_beta2


class Adam(_Moments):
    """p ← p - lr · m̂ / (√v̂ + eps), m̂ and v̂ the running means of g and g² without the bias of their start.

    Kingma & Ba, ICLR 2015. ``weight_decay · p`` is added to the gradient, or (``decoupled_weight_decay``) p shrinks by
    1 - lr · weight_decay first. ``amsgrad`` uses the largest v̂ so far (Reddi et al., ICLR 2018).

    Args:
        params: see :class:`Optimizer`. lr: the rate. betas: how slowly the two means move. eps: as above.
        maximize: go up instead of down. foreach, fused: accepted for PyTorch's sake.
        capturable, differentiable: not supported.

    Raises:
        ValueError: for a negative option or a beta outside [0, 1).

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.Adam([p], lr=0.5).step()
        >>> p.item()
        0.5
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        _check(type(self).__name__, lr, betas, eps, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The two means, and with amsgrad the largest second one."""
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rates of the means, and step size and eps with both bias corrections in them."""
        beta1, beta2 = map(number, group["betas"])
        root = math.sqrt(1 - beta2**step)
        return 1 - beta1, beta2, 1 - beta2, number(group["lr"]) * root / (1 - beta1**step), group["eps"] * root

    def formula(self, group: Group) -> Callable[..., None]:
        """The update; m̂ / (√v̂ + eps) is computed as c · m / (√v + c' · eps)."""

        def adam(p: Array, g: Array, m: Array, v: Array, *rest: Array) -> None:
            *means, size, eps = rest
            _advance(g, m, v, *means)
            p -= m / (np.sqrt(v) + eps) * size

        def amsgrad(p: Array, g: Array, m: Array, v: Array, largest: Array, *rest: Array) -> None:
            *means, size, eps = rest
            _advance(g, m, v, *means)
            np.maximum(largest, v, out=largest)
            p -= m / (np.sqrt(largest) + eps) * size

        return amsgrad if group["amsgrad"] else adam


class AdamW(Adam):
    """:class:`Adam` with decoupled weight decay (Loshchilov & Hutter, ICLR 2019), 0.01 by default.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.AdamW([p], lr=0.5, weight_decay=0.5).step()
        >>> p.item()
        0.25
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip


class NAdam(_Moments):
    """Adam with Nesterov's look-ahead (Dozat, ICLR workshop 2016): the mean m is mixed with the gradient itself.

    Args:
        momentum_decay: how fast the momentum grows to beta1. The others are those of :class:`Adam`.

    Raises:
        ValueError: as for :class:`Adam`.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.NAdam([p], lr=0.1).step()
        >>> p.item() < 1
        True
    """

    per_parameter = True
    scalars = ("step", "mu_product")

    def __init__(
        self, params: Any, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        _check("NAdam", lr, betas, eps, weight_decay)
        check_range("NAdam", momentum_decay=(momentum_decay, 0, None))
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        })  # fmt: skip

    def begin(self, state: dict[str, Any], group: Group) -> None:
        """The product of the momenta of all steps so far."""
        state["mu_product"] = ops.ones(())

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rates of the means, the weights of gradient and mean in the step, and eps."""
        beta1, beta2 = map(number, group["betas"])
        lr, decay = number(group["lr"]), group["momentum_decay"]
        mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (k * decay)) for k in (step, step + 1))
        product = raw(state["mu_product"])
        product[()] *= mu
        past = product.item()
        root = math.sqrt(1 - beta2**step)
        sizes = lr * (1 - mu) / (1 - past) * root, lr * mu_next / (1 - past * mu_next) * root
        return 1 - beta1, beta2, 1 - beta2, *sizes, group["eps"] * root

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def nadam(p: Array, g: Array, m: Array, v: Array, *rest: Array) -> None:
            *means, of_gradient, of_mean, eps = rest
            _advance(g, m, v, *means)
            p -= (g * of_gradient + m * of_mean) / (np.sqrt(v) + eps)

        return nadam


class RAdam(_Moments):
    """Adam that steps by the mean gradient alone until v is known well enough (Liu et al., ICLR 2020).

    Args:
        The options are those of :class:`Adam`.

    Raises:
        ValueError: as for :class:`Adam`.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.RAdam([p], lr=0.25).step()
        >>> p.item()
        0.25
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        _check("RAdam", lr, betas, eps, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        })  # fmt: skip

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rates of the means, the step size, eps, and whether v is used: its average must be longer than 5."""
        beta1, beta2 = map(number, group["betas"])
        size = number(group["lr"]) / (1 - beta1**step)
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * step * beta2**step / (1 - beta2**step)
        if rho <= 5:
            return 1 - beta1, beta2, 1 - beta2, size, 0.0, 0.0
        rectified = math.sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))
        return 1 - beta1, beta2, 1 - beta2, size * rectified * math.sqrt(1 - beta2**step), group["eps"], 1.0

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def radam(p: Array, g: Array, m: Array, v: Array, *rest: Array) -> None:
            *means, size, eps, adaptive = rest
            _advance(g, m, v, *means)
            p -= (m / (np.sqrt(v) + eps) if adaptive else m) * size

        return radam


class Adamax(Elementwise):
    """Adam with the infinity norm: p ← p - lr / (1 - beta1ᵗ) · m / u, u ← max(beta2 · u, |g| + eps).

    Args:
        The options are those of :class:`Adam` (Kingma & Ba, ICLR 2015, section 7).

    Raises:
        ValueError: as for :class:`Adam`.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.Adamax([p], lr=0.5).step()
        >>> p.item()
        0.5
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        _check("Adamax", lr, betas, eps, weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The mean and the infinity norm."""
        return "exp_avg", "exp_inf"

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rates of mean and norm, the step size and eps."""
        beta1, beta2 = map(number, group["betas"])
        return 1 - beta1, beta2, number(group["lr"]) / (1 - beta1**step), group["eps"]

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def adamax(p: Array, g: Array, m: Array, u: Array, rate: Array, beta2: Array, size: Array, eps: Array) -> None:
            m += (g - m) * rate
            u *= beta2
            np.maximum(u, abs(g) + eps, out=u)
            p -= m / u * size

        return adamax
