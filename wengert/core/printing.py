"""How a tensor prints: PyTorch's look."""

from typing import Any

import numpy as np

from wengert.array.device import devices, index_of
from wengert.array.dtype import bool_, complex_of, int64
from wengert.core.state import thread
from wengert.settings import settings

__all__ = ["elements", "format_tensor", "line_width", "set_printoptions"]

_options: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None, threshold: int | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Set how tensors print: digits, elements before summarising, items at each edge, line width, scientific mode.

    Args:
        profile: "default", "short" or "full", what the others start from.

    Raises:
        ValueError: for an unknown profile, or a negative number or no number.

    Example:
        >>> import wengert as wg
        >>> wg.set_printoptions(precision=2); wg.tensor([0.123456])
        tensor([0.12])
        >>> wg.set_printoptions(profile="default")
    """
    if profile is not None:
        if not isinstance(profile, str) or profile.lower() not in _PROFILES:
            raise ValueError(f"profile must be 'default', 'short' or 'full', got {profile!r}")
        _options.update(_PROFILES[profile.lower()])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        whole = isinstance(value, int) or (name == "threshold" and isinstance(value, float))
        if value is not None and not (whole and value >= 0):
            raise ValueError(f"set_printoptions(): {name} must be an int of at least 0, got {value!r}")
    _options.update({k: v for k, v in given.items() if v is not None})
    _options["sci_mode"] = sci_mode


def _float_format(array: Any) -> Any:
    """Choose one format for all elements: whole numbers as ``1.``, a wide range in scientific notation."""
    finite = np.abs(array[np.isfinite(array) & (array != 0)])
    digits = _options["precision"]
    if finite.size == 0 or (np.all(finite == np.floor(finite)) and finite.max() < 1e8 and not _options["sci_mode"]):
        return lambda x: f"{x:.0f}." if np.isfinite(x) else str(x)
    scientific = _options["sci_mode"]
    if scientific is None:
        scientific = finite.max() / finite.min() > 1000 or finite.max() > 1e8 or finite.min() < 1e-4
    return lambda x: (f"{x:.{digits}e}" if scientific else f"{x:.{digits}f}") if np.isfinite(x) else str(x)


def _shown(array: Any) -> Any:
    """Return the elements that are printed: all of them, or the edges of each axis in a summary."""
    edge = _options["edgeitems"]
    if array.size > _options["threshold"]:
        for axis, size in enumerate(array.shape):
            if size > 2 * edge:
                array = array.take([*range(edge), *range(size - edge, size)], axis)
    return array


def _formatter(array: Any) -> Any:
    """Return a function that prints one element, as wide as the widest finite one among those of ``array``."""
    kind = array.dtype.kind
    if kind == "f":
        chosen = _float_format(array)
    elif kind == "c":
        real, imag = _float_format(array.real), _float_format(array.imag)

        def chosen(z: Any) -> str:
            return f"{real(z.real)}{'-' if z.imag < 0 else '+'}{imag(abs(z.imag))}j"
    else:
        chosen = str
    finite = array[np.isfinite(array)] if kind in "fc" else array.ravel()
    width = max((len(chosen(x)) for x in finite), default=0)
    return {"all": lambda x: chosen(x).rjust(width)}


def format_tensor(tensor: Any) -> str:
    """Return ``tensor([...], dtype=..., requires_grad=...)`` with what differs from the defaults."""
    array: Any = tensor._payload
    captures = thread.state.captures
    if captures is not None and (isinstance(array, np.ndarray) or array.level is captures):
        array = captures.values(tensor, "the text of a tensor")
    prefix = f"{'Parameter containing:' + chr(10) if type(tensor).__name__ == 'Parameter' else ''}tensor("
    if not isinstance(array, np.ndarray):
        own = array.shown(_dtype_part(tensor, array))
        return repr(array) if own is None else f"{prefix}{own}{_history(tensor)})"
    return f"{prefix}{elements(array)}{_dtype_part(tensor, array)}{_history(tensor)})"


def line_width() -> int:
    """Return how long a line may become when a tensor is printed."""
    return int(_options["linewidth"])


def elements(array: Any) -> str:
    """Return the elements of an array as a tensor of them prints."""
    if array.dtype.kind == "V":
        array = array.astype(np.float32)
    with np.errstate(all="ignore"):
        body = np.array2string(
            array, separator=", ", prefix="tensor(", max_line_width=_options["linewidth"],
            threshold=_options["threshold"], edgeitems=_options["edgeitems"], formatter=_formatter(_shown(array)),
        ) if array.size or array.ndim == 1 else "[]"  # fmt: skip
    body = body.replace(", ..., ", ",  ..., ")  # as PyTorch sets it
    return body + ("" if array.size else f", size={tuple(array.shape)}" if array.ndim != 1 else "")


def _dtype_part(tensor: Any, array: Any) -> str:
    """Return the dtype and the device of a tensor, as far as they differ from the defaults."""
    suffix = ""
    default = settings.default_dtype
    implied = (default, complex_of(default), int64, bool_) if array.size else (default,)
    if tensor.dtype not in implied:
        suffix += f", dtype={tensor.dtype}"
    if devices.several and index_of(array.dtype):
        suffix += f", device='{tensor.device}'"
    return suffix


def _history(tensor: Any) -> str:
    """Return what the tape knows of a tensor."""
    if tensor.grad_fn is not None:
        return f", grad_fn=<{tensor.grad_fn.name()}>"
    return ", requires_grad=True" if tensor.requires_grad else ""
