"""``wengert.amp``: training in mixed precision, under PyTorch's names.

:class:`autocast` runs products in bfloat16 or float16 while parameters, and their gradients, stay in float32;
:class:`GradScaler` keeps gradients of float16 from underflow.
"""

from wengert.amp import autocast_mode, grad_scaler
from wengert.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from wengert.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "autocast_mode",
    "custom_bwd",
    "custom_fwd",
    "grad_scaler",
    "is_autocast_available",
]
