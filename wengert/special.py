"""``wengert.special``: special functions, under PyTorch's names.

Example:
    >>> import wengert as wg
    >>> wg.special.expm1(wg.tensor(0.0))
    tensor(0.)
"""

from wengert.core.namespace import Namespace as _Namespace

_operators = _Namespace(globals(), "special")
__getattr__, __dir__ = _operators.find, _operators.names
