"""Third parties that only some parts need: imported when such a part runs, named clearly when missing."""

import importlib
from types import ModuleType

__all__ = ["MissingExtraError", "require"]


class MissingExtraError(ImportError):
    """A package that belongs to an optional extra is not installed; the message says how to install it."""


def require(module: str, extra: str) -> ModuleType:
    """Import and return ``module``, which comes with the optional extra ``extra``.

    Raises:
        MissingExtraError: if the package of ``module`` is not installed.

    Example:
        >>> require("json", "demo").dumps([1, 2])
        '[1, 2]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtraError(
            f"this needs the package '{error.name}', which is not installed; "
            f"install it with: pip install 'wengert[{extra}]'",
            name=error.name,
        ) from None
