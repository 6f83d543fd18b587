"""``wengert.autograd``: gradients on the tape, under PyTorch's names."""

from wengert.autograd import forward_ad, function, functional, grad_mode, graph
from wengert.autograd.gradcheck import gradcheck, gradgradcheck
from wengert.core.registry import MissingNameError
from wengert.legacy import Variable
from wengert.tape.api import backward
from wengert.tape.function import Function
from wengert.tape.modes import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
)  # fmt: skip
from wengert.transforms.batched_grad import grad

__all__ = [
    "Function", "Variable", "backward", "detect_anomaly", "enable_grad", "forward_ad", "function", "functional", "grad",
    "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "no_grad", "set_detect_anomaly",
    "set_grad_enabled",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise MissingNameError("module 'wengert.autograd'", name, __all__)
