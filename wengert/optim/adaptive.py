"""Optimisers that give each element a rate of its own: Adagrad, RMSprop, Adadelta, Rprop."""

from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.optim.elementwise import Array, Elementwise, check_pair, check_range, number
from wengert.optim.optimizer import Group

__all__ = ["Adadelta", "Adagrad", "RMSprop", "Rprop"]


class Adagrad(Elementwise):
    """p ← p - lr / (1 + (step - 1) · lr_decay) · g / (√s + eps), s the sum of all g² (Duchi et al., JMLR 2011).

    Args:
        params: see :class:`Optimizer`. lr, lr_decay, eps: as above. initial_accumulator_value: where s starts.
        weight_decay, maximize, foreach, differentiable, fused: as in :class:`SGD`.

    Raises:
        ValueError: for a negative option.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.Adagrad([p], lr=0.5).step()
        >>> p.item()
        0.5
    """

    takes_sparse = True

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ) -> None:  # fmt: skip
        check_range(
            "Adagrad", lr=(lr, 0, None), lr_decay=(lr_decay, 0, None), weight_decay=(weight_decay, 0, None),
            initial_accumulator_value=(initial_accumulator_value, 0, None), eps=(eps, 0, None),
        )  # fmt: skip
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for param in group["params"]:
                self._begin(self.state[param], param, group, self.moments(group))

    def moments(self, group: Group) -> tuple[str, ...]:
        """The sum of squares."""
        return ("sum",)

    def start(self, name: str, param: Tensor, group: Group) -> Tensor:
        """The sum before the first step, also in an imaginary part."""
        first = group["initial_accumulator_value"]
        return ops.full_like(param, complex(first, first) if param.is_complex() else first)

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate and eps."""
        return number(group["lr"]) / (1 + (step - 1) * group["lr_decay"]), group["eps"]

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def adagrad(p: Array, g: Array, s: Array, lr: Array, eps: Array) -> None:
            s += g * g
            p -= g / (np.sqrt(s) + eps) * lr

        return adagrad


class RMSprop(Elementwise):
    """p ← p - lr · g / (√v + eps), v the running mean of g² (Hinton, 2012).

    With ``centered`` v is the running variance; with ``momentum`` the steps g / (√v + eps) go into a velocity.

    Args:
        params: see :class:`Optimizer`. lr, eps, momentum, centered: as above. alpha: how slowly v moves.
        weight_decay, maximize, foreach, differentiable: as in :class:`SGD`. capturable: not supported.

    Raises:
        ValueError: for a negative option.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.RMSprop([p], lr=0.25, alpha=0.75).step()
        >>> round(p.item(), 6)
        0.5
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_range(
            "RMSprop", lr=(lr, 0, None), eps=(eps, 0, None), momentum=(momentum, 0, None),
            weight_decay=(weight_decay, 0, None), alpha=(alpha, 0, None),
        )  # fmt: skip
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The mean square, and velocity and mean where they are used."""
        return ("square_avg", *["momentum_buffer"] * bool(group["momentum"] > 0), *["grad_avg"] * group["centered"])

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate, how the means move, the momentum and eps."""
        return number(group["lr"]), group["alpha"], 1 - group["alpha"], group["momentum"], group["eps"]

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""
        heavy, centered = group["momentum"] > 0, group["centered"]

        def rmsprop(p: Array, g: Array, v: Array, *rest: Array) -> None:
            *moments, lr, alpha, one_less_alpha, momentum, eps = rest
            v *= alpha
            v += g * g * one_less_alpha
            spread = v
            if centered:
                mean = moments[-1]
                mean += (g - mean) * one_less_alpha
                spread = v - mean * mean
            change = g / (np.sqrt(spread) + eps)
            if heavy:
                velocity = moments[0]
                velocity *= momentum
                velocity += change
                change = velocity
            p -= change * lr

        return rmsprop


class Adadelta(Elementwise):
    """p ← p - lr · d, d = √(a + eps) / √(v + eps) · g, v and a the running means of g² and d² (Zeiler, 2012).

    Args:
        params: see :class:`Optimizer`. lr, eps: as above. rho: how slowly the means move.
        weight_decay, maximize, foreach, differentiable: as in :class:`SGD`. capturable: not supported.

    Raises:
        ValueError: for a negative option or a rho outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.Adadelta([p]).step()
        >>> p.item() < 1
        True
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_range("Adadelta", lr=(lr, 0, None), eps=(eps, 0, None), weight_decay=(weight_decay, 0, None))
        check_range("Adadelta", rho=(rho, 0, None))
        if rho > 1:
            raise ValueError(f"Adadelta: rho must lie between 0 and 1, got {rho}")
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The mean squares of gradient and change."""
        return "square_avg", "acc_delta"

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The rate, how the means move, and eps."""
        return number(group["lr"]), group["rho"], 1 - group["rho"], group["eps"]

    def formula(self, group: Group) -> Callable[..., None]:
        """The update."""

        def adadelta(p: Array, g: Array, v: Array, a: Array, lr: Array, rho: Array, rate: Array, eps: Array) -> None:
            v *= rho
            v += g * g * rate
            change = np.sqrt(a + eps) / np.sqrt(v + eps) * g
            a *= rho
            a += change * change * rate
            p -= change * lr

        return adadelta


class Rprop(Elementwise):
    """Steps whose size grows while the sign of the gradient stays and shrinks when it changes (Riedmiller, 1993).

    Args:
        params: see :class:`Optimizer`. lr: the first step size. etas: the two factors. step_sizes: least and largest.
        maximize, foreach, differentiable: as in :class:`SGD`. capturable: not supported.

    Raises:
        ValueError: for a negative rate, or unless 0 < etas[0] < 1 < etas[1].

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> p.grad = wg.tensor([3.0])
        >>> wg.optim.Rprop([p], lr=0.5).step()
        >>> p.item()
        0.5
    """

    def __init__(
        self, params: Any, lr: float | Tensor = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        check_range("Rprop", lr=(lr, 0, None))
        check_pair("Rprop", "etas", etas)
        check_pair("Rprop", "step_sizes", step_sizes)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(f"Rprop: etas must be a number below 1 and one above 1, got {etas}")
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def moments(self, group: Group) -> tuple[str, ...]:
        """The last gradient and the step size."""
        return "prev", "step_size"

    def start(self, name: str, param: Tensor, group: Group) -> Tensor:
        """No last gradient; every step size is the rate."""
        first = number(group["lr"]) if name == "step_size" else 0.0
        return ops.full_like(param, complex(first, first) if param.is_complex() else first)

    def numbers(self, group: Group, state: dict[str, Any], step: float) -> tuple[float, ...]:
        """The two factors and the two bounds."""
        return (*group["etas"], *group["step_sizes"])

    def formula(self, group: Group) -> Callable[..., None]:
        """The update; where the sign changed the gradient counts as 0, in this step and for the next comparison."""

        def rprop(p: Array, g: Array, last: Array, size: Array, *rest: Array) -> None:
            less, more, least, most = rest
            agreement = g * last
            size *= np.where(agreement > 0, more, np.where(agreement < 0, less, np.ones_like(less)))
            np.clip(size, least, most, out=size)
            last[...] = np.where(agreement < 0, np.zeros_like(less), g)
            p -= np.sign(last) * size

        return rprop
