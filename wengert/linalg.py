"""``wengert.linalg``: linear algebra on matrices and batches of matrices, under PyTorch's names.

Example:
    >>> import wengert as wg
    >>> wg.linalg.det(wg.tensor([[2.0, 1.0], [1.0, 3.0]]))
    tensor(5.)
"""

from wengert.core.namespace import Namespace as _Namespace
from wengert.operators.matrices import LinAlgError as LinAlgError

_operators = _Namespace(globals(), "linalg")
__getattr__, __dir__ = _operators.find, _operators.names
