"""A public namespace: the operators whose home it is, found by name when they are first asked for.

``wengert.nn.functional``, ``wengert.linalg``, ``wengert.fft`` and ``wengert.special`` are each one of these::

    _operators = Namespace(globals(), "linalg")
    __getattr__, __dir__ = _operators.find, _operators.names
"""

import sys
from collections.abc import Mapping
from typing import Any

from wengert.core.operator import PREFIXES
from wengert.core.registry import MissingNameError, operators, ops

__all__ = ["Namespace"]


class Namespace:
    """The operators of one home.

    Args:
        scope: the globals of the module that shows them; an operator that was found is kept there.
        home: the home operators declare. Their names may carry it as a prefix: ``linalg_det`` is ``linalg.det``.
    """

    def __init__(self, scope: dict[str, Any], home: str) -> None:
        self.scope, self.home = scope, home

    def find(self, name: str) -> Any:
        """Return the operator that is public under ``name``.

        Raises:
            AttributeError: naming those that resemble it.
        """
        found = None if name.startswith("_") else self._public(name)
        if found is None:
            module = self.scope["__name__"]
            raise MissingNameError(f"module '{module}'", name, self.names, sys.modules[module])
        self.scope[name] = found  # the next access is an ordinary one
        return found

    def names(self) -> list[str]:
        """Return every public name: what the module defines, and the operators."""
        here = {name for name in self.scope if not name.startswith("_")}
        declared, prefix = operators(), self.home + "_"
        return sorted(here | {name.removeprefix(prefix) for name in ops.__dict__ if self._belongs(name, declared)})

    def _public(self, name: str) -> Any:
        declared = operators()
        for full in (f"{self.home}_{name}", name):
            if full in ops.__dict__ and self._belongs(full, declared):
                return ops.__dict__[full]
        return None

    def _belongs(self, name: str, declared: Mapping[str, Any]) -> bool:
        """True for an operator of this home, its in-place twin, and an alias given to any operator for this home."""
        prefix = name.partition("_")[0]
        if name not in declared and prefix in PREFIXES:
            return prefix == self.home
        base = ops.__dict__.get(name if name in declared else name.removesuffix("_"))
        op = declared.get(getattr(base, "__name__", name))
        return op is not None and self.home in op.home
