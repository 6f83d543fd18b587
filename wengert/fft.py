"""``wengert.fft``: discrete Fourier transforms, under PyTorch's names.

Example:
    >>> import wengert as wg
    >>> wg.fft.fft(wg.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
"""

from wengert.core.namespace import Namespace as _Namespace

_operators = _Namespace(globals(), "fft")
__getattr__, __dir__ = _operators.find, _operators.names
