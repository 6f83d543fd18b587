"""When to stop, and the best state so far."""

import copy
import math
from typing import Any, Literal

from wengert.core.tensor import Tensor

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """Says when a number, such as the loss on the validation set, no longer gets better; keeps the state that was best.

    A number is better if it is lower than the best (higher for ``mode="max"``) by more than ``min_delta``. NaN is never
    better.

    Args:
        patience: how many numbers that are not better, one after the other, are borne before it says to stop.
        min_delta: by how much a number must be better. mode: "min" or "max".
        keep: a module, or anything with ``state_dict`` and ``load_state_dict``, whose state is copied when a number is
            best, for :meth:`restore`.

    Attributes:
        best: the best number, None before the first. best_step: which one it was, from 0 on.
        improved: whether the last number was the best. stopped: whether it says to stop.

    Raises:
        ValueError: for a patience below 1, a negative ``min_delta``, another mode.

    Example:
        >>> import wengert as wg
        >>> stopping = wg.utils.EarlyStopping(patience=2)
        >>> [stopping.step(loss) for loss in (0.9, 0.7, 0.8, 0.75)]
        [False, False, False, True]
        >>> stopping.best, stopping.best_step
        (0.7, 1)
    """

    def __init__(
        self, patience: int = 5, min_delta: float = 0.0, mode: Literal["min", "max"] = "min", keep: Any = None
    ) -> None:
        if not isinstance(patience, int) or patience < 1:
            raise ValueError(f"patience must be an int of 1 or more, got {patience!r}")
        if not min_delta >= 0:
            raise ValueError(f"min_delta must be 0 or more, got {min_delta}")
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        self.patience, self.min_delta, self.mode, self.keep = patience, min_delta, mode, keep
        self.best: float | None = None
        self.best_step = -1
        self.improved = False
        self._steps = 0
        self._state: Any = None

    @property
    def stopped(self) -> bool:
        """Whether ``patience`` numbers in a row were not better."""
        return self._steps - 1 - self.best_step >= self.patience

    def step(self, value: Any) -> bool:
        """Take the next number (a float or a tensor of one element); return whether to stop."""
        number = float(value.item() if isinstance(value, Tensor) else value)
        self.improved = not math.isnan(number) and (self.best is None or self._gain(number) > self.min_delta)
        if self.improved:
            self.best, self.best_step = number, self._steps
            if self.keep is not None:
                self._state = copy.deepcopy(self.keep.state_dict())
        self._steps += 1
        return self.stopped

    def restore(self) -> None:
        """Give ``keep`` the state that it had at the best number. RuntimeError if there is none."""
        if self._state is None:
            raise RuntimeError("there is no best state: give EarlyStopping keep=model, and a number that is no NaN")
        self.keep.load_state_dict(copy.deepcopy(self._state))

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands, the best state included, for :func:`wengert.save`."""
        return {
            "best": self.best,
            "best_step": self.best_step,
            "steps": self._steps,
            "state": copy.deepcopy(self._state),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a :meth:`state_dict` was taken."""
        self.best, self.best_step, self._steps = (state_dict[name] for name in ("best", "best_step", "steps"))
        self._state = copy.deepcopy(state_dict["state"])
        self.improved = self._steps > 0 and self.best_step == self._steps - 1

    def _gain(self, number: float) -> float:
        """How much better than the best a number is."""
        assert self.best is not None
        return self.best - number if self.mode == "min" else number - self.best
