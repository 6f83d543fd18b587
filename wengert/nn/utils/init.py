"""Modules without starting values."""

import inspect
from typing import Any

from wengert.nn.init import skipped
from wengert.nn.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """Return a new module whose parameters hold whatever is in their memory: for values that are set afterwards.

    Args:
        module_cls: the class. args, kwargs: for its constructor, which must take ``device``.

    Raises:
        RuntimeError: if ``module_cls`` is no class of modules, or does not take ``device``.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.skip_init(wg.nn.Linear, 5, 1).weight.shape
        wengert.Size([1, 5])
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"skip_init() takes a class of modules, got {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(
            f"{module_cls.__name__} takes no argument 'device', so it says not where its memory would be"
        )
    with skipped():
        return module_cls(*args, **kwargs)
