"""The Python array API standard, version 2025.12, on tensors.

This is the namespace that ``x.__array_namespace__()`` returns: code written for the standard, in SciPy, scikit-learn
or elsewhere, runs on tensors with it, and gradients flow through every function whose operator has one. The functions
have the standard's names, signatures and meanings, while the tensors' own operators and methods have PyTorch's.
``special`` is beyond the standard: ``scipy.special`` looks there for functions.

Example:
    >>> import wengert as wg
    >>> x = wg.tensor([3.0, 4.0], requires_grad=True)
    >>> xp = x.__array_namespace__()
    >>> xp.linalg.vector_norm(x).backward()
    >>> x.grad
    tensor([0.6000, 0.8000])
"""

from math import e, inf, nan, pi

from wengert.array.dtype import (
    bool_ as bool,
)  # fmt: skip
from wengert.array.dtype import (
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from wengert.array_api import (
    creation,
    elementwise,
    fft,
    linalg,
    manipulation,
    reductions,
    searching,
    special,
)
from wengert.array_api.creation import *  # noqa: F403
from wengert.array_api.data_types import astype, can_cast, finfo, iinfo, isdtype, result_type
from wengert.array_api.elementwise import *  # noqa: F403
from wengert.array_api.inspection import __array_namespace_info__
from wengert.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from wengert.array_api.manipulation import *  # noqa: F403
from wengert.array_api.reductions import *  # noqa: F403
from wengert.array_api.searching import *  # noqa: F403
from wengert.array_api.standard_operators import use_standard_operators

__array_api_version__ = "2025.12"
newaxis = None

__all__ = [
    *creation.__all__, *elementwise.__all__, *manipulation.__all__, *reductions.__all__, *searching.__all__,
    "__array_api_version__", "__array_namespace_info__", "astype", "bool", "can_cast", "complex128", "complex64", "e",
    "fft", "finfo", "float32", "float64", "iinfo", "inf", "int16", "int32", "int64", "int8", "isdtype", "linalg",
    "matmul", "matrix_transpose", "nan", "newaxis", "pi", "result_type", "special", "tensordot", "uint16", "uint32", "uint64",
    "uint8", "use_standard_operators", "vecdot",
]  # fmt: skip
