"""``wengert.autograd.graph``: the recorded graph, saved-tensor hooks, hooks on several gradients."""

from wengert.core.node import Node
from wengert.tape.api import GradientEdge, get_gradient_edge
from wengert.tape.disk import save_on_disk
from wengert.tape.multi import register_multi_grad_hook
from wengert.tape.saved import disable_saved_tensors_hooks, increment_version, save_on_cpu, saved_tensors_hooks

__all__ = [
    "GradientEdge", "Node", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "register_multi_grad_hook", "save_on_cpu", "save_on_disk", "saved_tensors_hooks",
]  # fmt: skip
