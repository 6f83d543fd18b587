"""``wengert.func``: functions of functions, as in ``torch.func`` and JAX.

Every transform takes a function of tensors and trees of tensors and returns another one; they nest in any order.

Example:
    >>> import wengert as wg
    >>> from wengert.func import grad, vmap
    >>> vmap(grad(lambda x: x.sin()))(wg.tensor([0.0, 0.0]))
    tensor([1., 1.])
"""

from wengert.core.registry import missing_message
from wengert.transforms.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from wengert.transforms.pushforward import jvp, linear_transpose, linearize
from wengert.transforms.reverse import grad, grad_and_value, value_and_grad, vjp
from wengert.transforms.vmap import vmap

__all__ = [
    "grad", "grad_and_value", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp", "linear_transpose", "linearize",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise AttributeError(missing_message("module 'wengert.func'", name, __all__))
