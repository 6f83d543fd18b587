"""``wengert.nn.functional``: what layers are made of, as functions of tensors.

Convolution, pooling, activations, normalisation, losses: every operator whose home is here, under PyTorch's name.

Example:
    >>> import wengert as wg
    >>> import wengert.nn.functional as F
    >>> F.pad(wg.ones(2), (1, 1))
    tensor([0., 1., 1., 0.])
"""

from wengert.core.namespace import Namespace as _Namespace

_operators = _Namespace(globals(), "nn.functional")
__getattr__, __dir__ = _operators.find, _operators.names
