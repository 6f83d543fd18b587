"""``GradScaler``: losses scaled up so that gradients of float16 do not underflow, with PyTorch's rules of step and skip.

The scale is a tensor, and everything that depends on it is computed with operators, so that a compiled step holds it all.
"""

import enum
import warnings
from collections.abc import Iterable
from typing import Any

from wengert.amp.autocast_mode import is_autocast_available
from wengert.array.dtype import float16, float32, float64, int32
from wengert.core.place import stacklevel
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.optim.optimizer import Optimizer
from wengert.optim.provided import provided
from wengert.tape.modes import no_grad

__all__ = ["GradScaler", "OptState"]


class OptState(enum.Enum):
    """What was done to the gradients of an optimiser since the last ``update()``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Pending:
    """What is known of an optimiser until ``update()``: its stage, and whether its gradients have an inf or a NaN."""

    __slots__ = ("found_inf", "stage")

    def __init__(self) -> None:
        self.stage = OptState.READY
        self.found_inf: Any = None


class GradScaler:
    """Scales a loss, unscales the gradients, and steps only where they are finite.

    After a step whose gradients have an inf or a NaN, which is skipped, the scale becomes ``backoff_factor`` times what it
    was; after ``growth_interval`` steps in a row without, ``growth_factor`` times. bfloat16 does not need it.

    Args:
        device: "cpu". For "cuda" it warns and does nothing, as PyTorch does where there is no such device.
        init_scale: the first scale. growth_factor: more than 1. backoff_factor: less than 1. growth_interval: see above.
        enabled: False makes all methods pass on what they are given.

    Raises:
        ValueError: for a factor that is out of its range.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.Parameter(wg.tensor([1.0]))
        >>> optimizer, scaler = wg.optim.SGD([p], lr=0.5), wg.amp.GradScaler(init_scale=8.0)
        >>> scaler.scale(p * p).sum().backward(); p.grad
        tensor([16.])
        >>> scaler.step(optimizer); scaler.update(); p.item()
        0.0
        >>> p.grad.fill_(float("inf")); scaler.step(optimizer); scaler.update(); p.item(), scaler.get_scale()
        tensor([inf])
        (0.0, 4.0)
    """

    def __init__(
        self, device: str = "cpu", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device, self._enabled = str(device), bool(enabled)
        if self._enabled and not is_autocast_available(self._device.partition(":")[0]):
            warnings.warn(
                f"GradScaler does nothing: the device {device} is asked for, which is not available",
                UserWarning,
                stacklevel=stacklevel(),
            )
            self._enabled = False
        self._init_scale, self._init_growth_tracker = float(init_scale), 0
        self._scale: Any = None
        self._growth_tracker: Any = None
        self._pending: dict[int, _Pending] = {}
        if self._enabled:
            self.set_growth_factor(growth_factor)
            self.set_backoff_factor(backoff_factor)
            self.set_growth_interval(growth_interval)

    # ---- a step ----------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """Return a tensor, or an iterable of tensors, times the scale.

        Raises:
            ValueError: for anything else.
        """
        if not self._enabled:
            return outputs
        self._begin()
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if not isinstance(outputs, Iterable) or isinstance(outputs, str | bytes):
            raise ValueError(f"outputs must be a Tensor or an iterable of Tensors, got {type(outputs).__name__}")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimiser by the scale, in place, to clip them before the step.

        To be called at most once for each optimiser between two ``update()``, when all of its gradients are there.

        Raises:
            RuntimeError: if it is called a second time, or after ``step()``. ValueError: for gradients of float16.
        """
        if self._enabled:
            self._unscale(optimizer, self._of(optimizer, "unscale_"))

    def _unscale(self, optimizer: Any, pending: _Pending) -> None:
        if pending.stage is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if pending.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        with no_grad():
            inverse = self._scale.to(float64).reciprocal().to(float32)
            pending.found_inf = _unscaled(optimizer, inverse)
        pending.stage = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Step an optimiser if its gradients are finite, and unscale them first if that was not done.

        Returns:
            What ``optimizer.step(*args, **kwargs)`` returns; None if it was skipped.

        Raises:
            RuntimeError: for a closure, a second step before ``update()``, or an optimiser without gradients.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or any(callable(a) and not isinstance(a, Tensor) for a in args):
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        pending = self._of(optimizer, "step")
        if pending.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._step_inside(optimizer, pending, args, kwargs)
        if pending.stage is OptState.READY:
            self._unscale(optimizer, pending)
        if pending.found_inf is None:
            raise RuntimeError("No inf checks were recorded for this optimizer: none of its parameters has a gradient.")
        result = provided(pending.found_inf == 0, lambda: optimizer.step(*args, **kwargs))
        pending.stage = OptState.STEPPED
        return result

    def _step_inside(self, optimizer: Any, pending: _Pending, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Step an optimiser that looks at ``grad_scale`` and ``found_inf``, its attributes during the step, itself."""
        unscaled = pending.stage is OptState.UNSCALED
        if not unscaled:
            with no_grad():
                pending.found_inf = _found_inf(list(_gradients(optimizer)))
        optimizer.grad_scale, optimizer.found_inf = None if unscaled else self._scale, pending.found_inf
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            pending.stage = OptState.STEPPED
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """End a step: make the scale smaller if an optimiser's gradients had an inf, perhaps larger if none had.

        Args:
            new_scale: the scale from now on, whatever was found.

        Raises:
            RuntimeError: if no optimiser stepped or was unscaled. TypeError, ValueError: for a ``new_scale`` that is no number.
        """
        if not self._enabled:
            return
        self._check_begun("update")
        self._enter()
        with no_grad():
            if new_scale is not None:
                self._scale.copy_(_scale_of(new_scale))
            else:
                found = [p.found_inf for p in self._pending.values() if p.found_inf is not None]
                if not found:
                    raise RuntimeError(
                        "No inf checks were recorded prior to update: call step() or unscale_() before it."
                    )
                self._move(ops.stack(found).sum() > 0)
        self._pending.clear()

    def _move(self, skipped: Any) -> None:
        """Move the scale and the count of steps in a row on; the factors are float64."""
        scale, count = self._scale, self._growth_tracker + 1
        grown, less = ((scale.to(float64) * f).to(float32) for f in (self._growth_factor, self._backoff_factor))
        due = count == self._growth_interval
        scale.copy_(ops.where(skipped, less, ops.where(due & ops.isfinite(grown), grown, scale)))
        self._growth_tracker.copy_(ops.where(skipped | due, ops.zeros_like(count), count))

    # ---- what it holds ---------------------------------------------------------------

    def _begin(self) -> None:
        """Make the scale, if this is the first time, and enter a program that is captured."""
        if self._scale is None:
            captures = thread.state.captures
            if captures is None:
                self._make()
            else:
                with captures.outside():
                    self._make()
        self._enter()

    def _make(self) -> None:
        self._scale = ops.full((), self._init_scale, dtype=float32)
        self._growth_tracker = ops.full((), self._init_growth_tracker, dtype=int32)

    def _enter(self) -> None:
        """Tell a program that is captured what it depends on."""
        captures = thread.state.captures
        if captures is not None:
            captures.passing("what a GradScaler knows of a step", self._pending)
            captures.guard(
                lambda: (
                    self._growth_factor,
                    self._backoff_factor,
                    self._growth_interval,
                    id(self._scale),
                    self._enabled,
                )
            )

    def _check_begun(self, name: str) -> None:
        if self._scale is None:
            raise RuntimeError(
                f"Attempted {name} but the scale does not exist yet: call scaler.scale(loss or outputs) earlier in the "
                "iteration."
            )

    def _of(self, optimizer: Any, name: str) -> _Pending:
        """Return what is known of an optimiser since the last ``update()``."""
        self._check_begun(name)
        self._enter()
        if not isinstance(optimizer, Optimizer) and not hasattr(optimizer, "param_groups"):
            raise TypeError(f"{name}() takes an optimizer, got {type(optimizer).__name__}")
        return self._pending.setdefault(id(optimizer), _Pending())

    def is_enabled(self) -> bool:
        """Return whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """Return the scale, 1.0 if it does nothing. Reading it waits for whatever computes it."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """Return what the scale is multiplied by after enough steps in a row."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after enough steps in a row."""
        if not new_factor > 1:
            raise ValueError(f"The growth factor must be > 1.0, got {new_factor!r}")
        self._growth_factor = float(new_factor)

    def get_backoff_factor(self) -> float:
        """Return what the scale is multiplied by after a step that was skipped."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after a step that was skipped."""
        if not new_factor < 1:
            raise ValueError(f"The backoff factor must be < 1.0, got {new_factor!r}")
        self._backoff_factor = float(new_factor)

    def get_growth_interval(self) -> int:
        """Return after how many steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps in a row the scale grows."""
        self._growth_interval = int(new_interval)

    def _get_growth_tracker(self) -> int:
        """Return how many steps in a row were not skipped."""
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    # ---- saving and loading ----------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the scale, the factors and the count as numbers; nothing if it does nothing."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned; nothing if this one does nothing.

        Raises:
            RuntimeError: for the empty state of one that did nothing.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = float(state_dict["scale"])
        self._init_growth_tracker = int(state_dict["_growth_tracker"])
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]

    def __getstate__(self) -> dict[str, Any]:
        if self._pending:
            raise RuntimeError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                "scaler.update()."
            )
        return {
            **self.__dict__, "_scale": None, "_growth_tracker": None, "_pending": {}, "_init_scale": self.get_scale(),
            "_init_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip


def _gradients(optimizer: Any) -> Iterable[Tensor]:
    return (p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None)


def _found_inf(gradients: list[Tensor]) -> Any:
    """Return 1 as a float32 tensor if an element is infinite or NaN, else 0; None without gradients."""
    if not gradients:
        return None
    stored = [g._values() if g.is_sparse else g for g in gradients]
    return ops.logical_not(ops.stack([ops.isfinite(g).all() for g in stored]).all()).to(float32)


def _unscaled(optimizer: Any, inverse: Tensor) -> Any:
    """Multiply the gradients of an optimiser, and return what :func:`_found_inf` says of them as they were."""
    gradients = list(_gradients(optimizer))
    if any(g.dtype is float16 for g in gradients):
        raise ValueError(
            "Attempting to unscale FP16 gradients: a step needs parameters of float32, which autocast casts at each use."
        )
    found = _found_inf(gradients)
    for g in gradients:
        g.mul_(inverse)
    return found


def _scale_of(new_scale: Any) -> Any:
    """Return a scale as a tensor of no dimensions."""
    if isinstance(new_scale, Tensor):
        if new_scale.numel() != 1 or new_scale.requires_grad:
            raise ValueError(
                f"new_scale must have one element and no gradient, got shape {tuple(new_scale.shape)}, requires_grad="
                f"{new_scale.requires_grad}"
            )
        return new_scale.reshape(())
    if isinstance(new_scale, bool) or not isinstance(new_scale, int | float):
        raise TypeError(f"new_scale must be a number or a tensor, got {type(new_scale).__name__}")
    return ops.full((), float(new_scale), dtype=float32)
