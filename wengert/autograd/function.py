"""``wengert.autograd.function``: operations of the user's own."""

from wengert.tape.function import Function, once_differentiable

__all__ = ["Function", "once_differentiable"]
