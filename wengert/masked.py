"""``wengert.masked``: reductions and normalisations of the elements that a mask lets through, under PyTorch's names.

Example:
    >>> import wengert as wg
    >>> import wengert.masked
    >>> wengert.masked.mean(wg.tensor([1.0, 2.0, 9.0]), mask=wg.tensor([True, True, False]))
    tensor(1.5000)
"""

from wengert.core.namespace import Namespace as _Namespace

_operators = _Namespace(globals(), "masked")
__getattr__, __dir__ = _operators.find, _operators.names
