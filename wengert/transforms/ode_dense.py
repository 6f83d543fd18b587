"""The solution of an ODE as a function of time."""

from typing import Any

import numpy as np

from wengert.core.apply import as_tensor
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.transforms.local import constant
from wengert.transforms.ode_steps import Step, Tableau
from wengert.transforms.packing import Packing

__all__ = ["DenseSolution"]


class DenseSolution:
    """What ``odeint(..., dense=True)`` returns: call it with times to get the states at them.

    It can be differentiated by what the ODE was, and by the time.

    Attributes:
        t0, t1: where it begins and ends. num_steps: the number of steps taken.
    """

    def __init__(self, method: Tableau, steps: list[Step], packing: Packing) -> None:
        self._method, self._steps = method, steps
        self._packing = packing
        self._starts = np.array([step.t for step in steps])
        self._sizes = np.array([step.h for step in steps])
        self.t0, self.t1 = float(self._starts[0]), float(self._starts[-1] + self._sizes[-1])

    @property
    def num_steps(self) -> int:
        """The number of steps."""
        return len(self._steps)

    def __call__(self, t: Any) -> Any:
        """Return the state at one time, or at the times of a one-dimensional tensor, stacked in dimension 0.

        Raises:
            ValueError: outside of the solution, or for a tensor of more dimensions.
        """
        t = t if isinstance(t, Tensor) else from_array(np.asarray(t, np.float64))
        if t.ndim > 1:
            raise ValueError(f"the times must be a number or a one-dimensional tensor, got shape {tuple(t.shape)}")
        values = np.atleast_1d(constant(t).numpy(force=True).astype(np.float64))
        low, high = sorted((self.t0, self.t1))
        slack = 1e-6 * (high - low)
        if values.size and not (low - slack <= values.min() and values.max() <= high + slack):
            raise ValueError(f"the solution is known from t = {self.t0:g} to {self.t1:g}, not at {values.min():g} … "
                             f"{values.max():g}")  # fmt: skip
        found = self._at(ops.reshape(t, (-1,)), values)
        return self._packing.unpack_many(found) if t.ndim else self._packing.unpack(found[0])

    def _at(self, t: Any, values: np.ndarray[Any, Any]) -> Any:
        sign = np.sign(self._sizes[0])
        which = np.clip(np.searchsorted(sign * self._starts, sign * values, "right") - 1, 0, self.num_steps - 1)
        order = np.argsort(which, kind="stable")
        parts = []
        for index in np.unique(which).tolist() or [0]:
            inside = as_tensor(
                order[np.searchsorted(which[order], index) : np.searchsorted(which[order], index, "right")]
            )
            theta = (t[inside] - self._starts[index].item()) * (1 / self._sizes[index].item())
            parts.append(self._steps[index].inside(self._method, ops.cast(theta, self._packing.dtype)))
        return ops.cat(parts)[as_tensor(np.argsort(order))] if len(parts) > 1 else parts[0]
