"""``wengert.autograd.grad_mode``: switching recording on and off."""

from wengert.tape.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
