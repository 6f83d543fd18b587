"""How much larger a batch still pays: the gradient noise scale.

McCandlish, Kaplan, Amodei et al., *An Empirical Model of Large-Batch Training* (2018), appendix A.1. The gradient of a batch
of B examples has the expected squared norm |G|² + tr(Σ) / B, with the true gradient G and the covariance Σ of the
gradients of single examples. From two batch sizes follow unbiased estimates of |G|² and tr(Σ); their ratio
tr(Σ) / |G|² is about the batch size from which on larger batches stop to save steps.
"""

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["GradientNoiseScale"]


class GradientNoiseScale:
    """A running estimate of tr(Σ) / |G|², the simple noise scale, in examples.

    Both numbers are averaged over steps before they are divided, because a ratio of noisy numbers is biased
    (appendix A.1). :class:`wengert.optim.accumulate` feeds it when it is given as ``noise_scale``.

    Args:
        decay: of the exponential moving averages; 0.99 looks back about a hundred steps.

    Attributes:
        steps: how many were seen.

    Raises:
        ValueError: for a decay outside [0, 1).

    Example:
        >>> import wengert as wg
        >>> noise = wg.optim.GradientNoiseScale()
        >>> noise.update([(5.0, 2), (7.0, 2)], 4.0)  # |G|² + tr(Σ) / 2 is about 6, |G|² + tr(Σ) / 4 about 4
        >>> noise.signal, noise.noise, noise.value
        (2.0, 8.0, 4.0)
    """

    def __init__(self, decay: float = 0.99) -> None:
        if not isinstance(decay, int | float) or not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1), got {decay!r}")
        self.decay = float(decay)
        self.steps = 0
        self._signal = self._noise = 0.0

    def update(self, parts: Sequence[tuple[float, float]], whole: float) -> None:
        """Take the gradients of one step into account.

        Args:
            parts: for each micro-batch the squared norm of the gradient of its mean loss, and its number of examples.
            whole: the squared norm of the gradient of the mean loss over all of them.

        Raises:
            ValueError: for fewer than two parts, which say nothing about the noise, sizes that are not above 0, or a norm that
                is not finite.
        """
        if len(parts) < 2:
            raise ValueError(
                f"the noise shows between micro-batches: at least two are needed in a step, got {len(parts)}"
            )
        sizes = [float(size) for _, size in parts]
        if min(sizes) <= 0 or not math.isfinite(whole + sum(square for square, _ in parts)):
            raise ValueError(f"expected finite squared norms and sizes above 0, got {list(parts)} and {whole}")
        small = sum(square for square, _ in parts) / len(parts)  # expected: |G|² + tr(Σ) · mean(1 / size)
        inverse_small, inverse_big = sum(1 / size for size in sizes) / len(parts), 1 / sum(sizes)
        noise = (small - whole) / (inverse_small - inverse_big)
        signal = (inverse_small * whole - inverse_big * small) / (inverse_small - inverse_big)
        self.steps += 1
        self._signal += (1 - self.decay) * (signal - self._signal)
        self._noise += (1 - self.decay) * (noise - self._noise)

    @property
    def signal(self) -> float:
        """The estimate of |G|², the squared norm of the true gradient; NaN before the first step."""
        return self._signal / (1 - self.decay**self.steps) if self.steps else math.nan

    @property
    def noise(self) -> float:
        """The estimate of tr(Σ), the variance of single examples' gradients; NaN before the first step."""
        return self._noise / (1 - self.decay**self.steps) if self.steps else math.nan

    @property
    def value(self) -> float:
        """The noise scale; infinite where the gradient is lost in the noise, NaN before the first step."""
        if not self.steps:
            return math.nan
        return self.noise / self.signal if self.signal > 0 else math.inf

    def state_dict(self) -> dict[str, Any]:
        """Return what :meth:`load_state_dict` takes."""
        return {"steps": self.steps, "signal": self._signal, "noise": self._noise}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""
        self.steps, self._signal, self._noise = state_dict["steps"], state_dict["signal"], state_dict["noise"]

    def __repr__(self) -> str:
        return f"GradientNoiseScale({self.value:.4g} examples after {self.steps} steps)"
