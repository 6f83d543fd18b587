"""Where wengert differs on purpose from PyTorch's operator database: an entry, a pattern of the difference, and why."""

import re

SAMPLES = "a random sample carries no gradient to its parameters; PyTorch gives zeros"

DIFFERENT: dict[str, tuple[str, str]] = {
    "as_strided/partial_views": (
        "leaf of its own within another's memory",
        "refused: it would read what is not the leaf's",
    ),
    "as_strided_scatter": ("^gradient", "PyTorch's gradient is that of what was overwritten"),
    "bernoulli": ("does not require one", SAMPLES),
    "histogramdd": ("must not fall|be monotonically increasing", "bin edges that fall are refused"),
    "normal": ("does not require one", SAMPLES),
    "normal/number_mean": ("does not require one", SAMPLES),
    "special.bessel_j0": (
        "^value",
        "between 5 and 6 PyTorch's J0 has five digits (J0(5.576059) = 0.0189426417, not 0.0189425)",
    ),
    "special.bessel_y1": ("^value", "between 5 and 12 PyTorch's Y1 has down to three digits near its zeros"),
}


def explanation(name: str, difference: str) -> str | None:
    """Return why a difference is meant, or None for one that is not."""
    pattern, why = DIFFERENT.get(name, ("(?!)", ""))
    return why if re.search(pattern, difference) else None
