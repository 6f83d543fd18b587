"""wengert: differentiable programming in plain Python.

PyTorch's names and meanings on the surface: a script should run with ``import wengert as torch``. Operators come from
one registry (``python -m wengert ops`` lists them); the subpackages are imported when first used.
"""

import importlib
import math
import sys
from typing import Any

from wengert import autograd, operators, sparse
from wengert.array.device import device
from wengert.array.dtype import (
    DType as dtype,
)  # fmt: skip
from wengert.array.dtype import (
    bfloat16,
    bool_,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    uint8,
    uint16,
    uint32,
    uint64,
)
from wengert.array.layout import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    sparse_csr,
    strided,
)  # fmt: skip
from wengert.array.shape import Size
from wengert.core.generator import Generator, default_generator
from wengert.core.printing import set_printoptions
from wengert.core.registry import MissingNameError, ops
from wengert.core.registry import operators as declared_operators
from wengert.core.tensor import Tensor
from wengert.introspection import (
    are_deterministic_algorithms_enabled,
    broadcast_shapes,
    can_cast,
    get_default_device,
    is_inference,
    is_same_size,
    is_signed,
    is_tensor,
    numel,
    result_type,
    set_default_device,
    typename,
    use_deterministic_algorithms,
)
from wengert.operators.absent import claim as claim_absent_methods
from wengert.settings import get_default_dtype, set_default_dtype
from wengert.tape.modes import (
    enable_grad,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)  # fmt: skip

__version__ = "0.1.0"

claim_absent_methods()

bool = bool_
half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
cfloat, cdouble = complex64, complex128
inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None

_SUBPACKAGES = (
    "amp", "array_api", "backends", "cli", "cpu", "cuda", "data", "fft", "func", "library", "linalg", "masked", "metrics", "nn",
    "optim", "random", "serialization", "signal", "special", "testing", "tree", "utils",
)  # fmt: skip
_ELSEWHERE = {
    **dict.fromkeys(("cond", "while_loop", "vmap"), "func"),
    **dict.fromkeys((
        "autocast", "clear_autocast_cache", "get_autocast_dtype", "is_autocast_cache_enabled", "is_autocast_enabled",
        "set_autocast_cache_enabled", "set_autocast_dtype", "set_autocast_enabled",
    ), "amp.autocast_mode"),
    **dict.fromkeys(("compile",), "compiling.api"),
    **dict.fromkeys(("explain",), "compiling.explain"),
    **dict.fromkeys(("trace",), "compiling.trace"),
    **dict.fromkeys(("OutOfMemoryError",), "errors"),
    **dict.fromkeys(("load", "load_file", "load_sharded", "save", "save_file", "save_sharded"), "serialization"),
    **dict.fromkeys(("get_num_threads", "set_num_threads"), "runtime.threads"),
    **dict.fromkeys((
        "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor",
        "LongTensor", "ShortTensor",
    ), "legacy"),
}  # fmt: skip

__all__ = [
    "Generator", "Size", "Tensor", "are_deterministic_algorithms_enabled", "autograd", "bfloat16", "bool",
    "broadcast_shapes", "can_cast", "cdouble", "cfloat", "channels_last", "channels_last_3d", "complex64", "complex128",
    "contiguous_format", "default_generator", "device", "double", "dtype", "e", "enable_grad", "finfo", "float", "float16",
    "float32", "float64", "get_default_device", "get_default_dtype", "half", "iinfo", "inf", "inference_mode", "int",
    "int8", "int16", "int32", "int64", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled",
    "is_inference", "is_inference_mode_enabled", "is_same_size", "is_signed", "is_tensor", "layout", "long",
    "memory_format", "nan", "newaxis", "no_grad", "numel", "operators", "ops", "pi", "preserve_format", "promote_types",
    "result_type", "set_default_device", "set_default_dtype", "set_grad_enabled", "set_printoptions", "short", "sparse",
    "sparse_coo", "sparse_csr", "strided", "typename", "uint8", "uint16", "uint32", "uint64", "use_deterministic_algorithms",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"wengert.{name}")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"wengert.{_ELSEWHERE[name]}"), name)
    found = public_operator(name)
    if found is None:
        raise MissingNameError("module 'wengert'", name, __dir__, sys.modules[__name__])
    globals()[name] = found  # the next access is an ordinary one
    return found


def public_operator(name: str) -> Any:
    """Return the operator that is public as ``wengert.<name>``, or None."""
    if name.startswith("_"):
        return None
    found = ops.__dict__.get(name)
    op = getattr(found, "op", None) or declared_operators().get(name)
    return found if op is None or "" in op.home else None


def __dir__() -> list[str]:
    found = (name for name in ops.__dict__ if public_operator(name) is not None)
    return sorted({"__version__", "errors", *__all__, *_SUBPACKAGES, *_ELSEWHERE, *found})
