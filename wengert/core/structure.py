"""What compiled programs know of modules: whether anything about them has changed, and what a compiled one is."""

from collections.abc import Callable
from typing import Any

__all__ = ["Structure", "structure"]


class Structure:
    """Of this process.

    Attributes:
        changes: how often an attribute of a module was set; programs look at it before they look closer.
        compiled: makes a module of a module and what is to run when it is called.
    """

    __slots__ = ("changes", "compiled")

    compiled: Callable[[Any, Any], Any]

    def __init__(self) -> None:
        self.changes = 0


structure = Structure()
