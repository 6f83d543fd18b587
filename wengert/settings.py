"""Process-wide settings that change results: the default floating-point dtype, and whose promotion rules hold.

One small mutable record, read by the rooms below; everything that can change per thread (grad mode, …) lives in
:mod:`wengert.core.state` instead.
"""

from dataclasses import dataclass, field

from wengert.array.dtype import DType, float32, to_dtype
from wengert.environment import check_environment, variable

__all__ = ["get_default_dtype", "set_default_dtype", "settings"]


NATIVE_MODES = ("auto", "wait", "off")


@dataclass(slots=True)
class Settings:
    """The settings of this process.

    Attributes:
        default_dtype: of tensors made from Python floats. standard_promotion: tensors without dimensions promote like any
            other, as in Python's array API standard, and not weakly, as in PyTorch.
        native: how the native kernels of large arrays are made: "auto" (in the background, NumPy's result is used meanwhile,
            so that the last digits may depend on when), "wait" (when first needed) or "off". ``WENGERT_NATIVE`` sets it.
    """

    default_dtype: DType = float32
    standard_promotion: bool = False
    native: str = field(default_factory=lambda: str(variable("WENGERT_NATIVE")))


check_environment()
settings = Settings()


def get_default_dtype() -> DType:
    """Return the dtype given to tensors made from Python floats (``float32`` unless changed)."""
    return settings.default_dtype


def set_default_dtype(dtype: DType) -> None:
    """Set the dtype given to tensors made from Python floats.

    Raises:
        TypeError: if ``dtype`` is not a real floating-point dtype.

    Example:
        >>> import wengert as wg
        >>> wg.set_default_dtype(wg.float64); wg.tensor(1.5).dtype
        wengert.float64
        >>> wg.set_default_dtype(wg.float32)
    """
    new = to_dtype(dtype)
    if not new.is_floating_point:
        raise TypeError(f"set_default_dtype() takes a real floating-point dtype, got {new}")
    settings.default_dtype = new
