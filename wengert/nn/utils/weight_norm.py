"""Weights as length times direction, w = g v / ‖v‖ (Salimans & Kingma, NeurIPS 2016), under their older names.

``weight`` is made of the parameters ``weight_g`` and ``weight_v``; :func:`wengert.nn.utils.parametrizations.weight_norm`
does the same as a parametrization.
"""

from typing import Any

from wengert.core.registry import ops
from wengert.nn.members import Derived
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tape.modes import no_grad

__all__ = ["length", "remove_weight_norm", "scaled", "weight_norm"]


def length(v: Any, dim: int | None) -> Any:
    """Return ‖v‖ for each index of a dimension, with sizes that broadcast; None and -1: of the whole, without dimensions."""
    if dim is None or dim == -1:
        return ops.linalg_vector_norm(v, 2.0)
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return ops.linalg_vector_norm(v, 2.0, others, keepdim=True) if others else ops.abs(v)


def scaled(g: Any, v: Any, dim: int | None) -> Any:
    """Return g v / ‖v‖."""
    return v * (g / length(v, dim))


class _WeightNorm(Derived):
    """A weight that is computed from its ``_g`` and ``_v``."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def read(self, module: Any) -> Any:
        return scaled(getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v"), self.dim)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace a parameter by its lengths ``name_g`` and directions ``name_v``; return the module.

    Args:
        dim: each index of this dimension has its own length; None: there is one for all.

    Raises:
        RuntimeError: if it was done before. AttributeError: if there is no such parameter.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.weight_norm(wg.nn.Linear(3, 2))
        >>> {name: tuple(p.shape) for name, p in layer.named_parameters()}
        {'bias': (2,), 'weight_g': (2, 1), 'weight_v': (2, 3)}
    """
    if isinstance(module.__dict__.get("_derived", {}).get(name), _WeightNorm):
        raise RuntimeError(f"'{name}' has a weight norm already; take it away with remove_weight_norm()")
    weight = module.get_parameter(name)
    delattr(module, name)
    with no_grad():
        module.register_parameter(f"{name}_g", Parameter(length(weight, dim)))
        module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    module.derive(name, _WeightNorm(name, dim))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again, with its present value; return the module.

    Raises:
        ValueError: if there is no weight norm.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.remove_weight_norm(wg.nn.utils.weight_norm(wg.nn.Linear(3, 2)))
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'weight']
    """
    if not isinstance(module.__dict__.get("_derived", {}).get(name), _WeightNorm):
        raise ValueError(f"'{name}' of {type(module).__name__} has no weight norm")
    with no_grad():
        weight = getattr(module, name)
    module.underive(name)
    for part in ("g", "v"):
        delattr(module, f"{name}_{part}")
    module.register_parameter(name, Parameter(weight))
    return module
