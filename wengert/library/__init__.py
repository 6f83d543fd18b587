"""``wengert.library``: operators of the user's own, declared and checked like the built-in ones.

The families of :mod:`wengert.core.families` are the one-declaration form; :func:`custom_op` makes an operator of a function
that is not looked into, with its rules registered beside it. :func:`opcheck` holds either to what it says.

Example:
    >>> import numpy as np
    >>> import wengert as wg
    >>> from wengert.library import elementwise
    >>> from wengert.core.arguments import Number
    >>> @elementwise(derivative={"input": lambda g, input: 3 * g * input * input}, samples=lambda s: [s((2, 3)), s(())])
    ... def cube(input: Number):
    ...     "Return the third power of each element."
    ...     return input * input * input
    >>> x = wg.tensor(2.0, requires_grad=True)
    >>> wg.cube(x).backward(); x.grad
    tensor(12.)
    >>> wg.library.opcheck("cube")
    {}
"""

from wengert.core.batch import Body, folded, front
from wengert.core.families import bilinear, composite, elementwise, linear, nondifferentiable, operator
from wengert.core.operator import Op, Spec
from wengert.core.registry import operators, ops
from wengert.library.custom import (
    CustomOpDef,
    custom_op,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_vmap,
)  # fmt: skip
from wengert.library.schema import infer_schema
from wengert.testing.opcheck import opcheck

__all__ = [
    "Body", "CustomOpDef", "Op", "Spec", "bilinear", "composite", "custom_op", "elementwise", "folded", "front",
    "infer_schema", "linear", "nondifferentiable", "opcheck", "operator", "operators", "ops", "register_autocast",
    "register_autograd", "register_fake", "register_kernel", "register_vmap",
]  # fmt: skip
