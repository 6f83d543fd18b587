"""``wengert.func``: functions of functions, as in ``torch.func`` and JAX.

Every transform takes a function of tensors and trees of tensors and returns another one; they nest in any order.

Example:
    >>> import wengert as wg
    >>> from wengert.func import grad, vmap
    >>> vmap(grad(lambda x: x.sin()))(wg.tensor([0.0, 0.0]))
    tensor([1., 1.])
"""

from wengert.core.registry import MissingNameError
from wengert.transforms.control import cond, while_loop
from wengert.transforms.control_associative import associative_scan
from wengert.transforms.control_scan import map, scan  # noqa: A004 - the name it has in JAX
from wengert.transforms.custom_rules import custom_jvp, custom_vjp, gradient_reversal, stop_gradient, straight_through
from wengert.transforms.implicit import fixed_point, root
from wengert.transforms.jacobians import hessian, hvp, jacfwd, jacobian, jacrev
from wengert.transforms.modules import functional_call, stack_module_state
from wengert.transforms.ode import EventSolution, odeint
from wengert.transforms.ode_dense import DenseSolution
from wengert.transforms.pushforward import jvp, linear_transpose, linearize
from wengert.transforms.reverse import grad, grad_and_value, value_and_grad, vjp
from wengert.transforms.vmap import vmap

__all__ = [
    "DenseSolution", "EventSolution", "associative_scan", "cond", "custom_jvp", "custom_vjp", "fixed_point",
    "functional_call", "grad", "grad_and_value", "gradient_reversal", "hessian", "hvp", "jacfwd", "jacobian", "jacrev",
    "jvp", "linear_transpose", "linearize", "map", "odeint", "root", "scan", "stack_module_state", "stop_gradient",
    "straight_through", "value_and_grad", "vjp", "vmap", "while_loop",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise MissingNameError("module 'wengert.func'", name, __all__)
