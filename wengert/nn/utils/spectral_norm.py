"""Weights divided by their largest singular value (Miyato et al., ICLR 2018), under their older names.

``weight`` is made of ``weight_orig``, and the buffers ``weight_u`` and ``weight_v`` approach its first singular vectors by
power iteration; :func:`wengert.nn.utils.parametrizations.spectral_norm` does the same as a parametrization.
"""

from typing import Any

from wengert.core.registry import ops
from wengert.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from wengert.nn.members import Derived
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tape.modes import no_grad

__all__ = ["default_dim", "iterate", "matrix", "remove_spectral_norm", "spectral_norm", "started"]


def default_dim(module: Module) -> int:
    """Return the dimension of a module's weight that belongs to its outputs."""
    return 1 if isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d) else 0


def matrix(weight: Any, dim: int) -> Any:
    """Return a weight with ``dim`` first and all other dimensions as one."""
    return ops.flatten(ops.movedim(weight, dim, 0), 1)


def started(w: Any, eps: float) -> tuple[Any, Any]:
    """Return random vectors of length 1, one for the rows and one for the columns."""
    with no_grad():
        u, v = (ops.normalize(ops.randn(n, dtype=w.dtype, device=w.device), dim=0, eps=eps) for n in w.shape)
    return u, v


def iterate(w: Any, u: Any, v: Any, count: int, eps: float) -> None:
    """Bring u and v closer to the first singular vectors of a matrix, in place."""
    with no_grad():
        for _ in range(count):
            v.copy_(ops.normalize(ops.mv(ops.t(w), u), dim=0, eps=eps))
            u.copy_(ops.normalize(ops.mv(w, v), dim=0, eps=eps))


class _SpectralNorm(Derived):
    """A weight that is computed from its ``_orig``, ``_u`` and ``_v``."""

    def __init__(self, name: str, iterations: int, eps: float, dim: int) -> None:
        self.name, self.iterations, self.eps, self.dim = name, iterations, eps, dim

    def read(self, module: Any) -> Any:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        w = matrix(weight, self.dim)
        if module.training:
            iterate(w, u, v, self.iterations, self.eps)
        return weight / ops.dot(u.clone(), ops.mv(w, v.clone()))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a parameter by (an estimate of) its largest singular value; return the module.

    Args:
        n_power_iterations: how often the estimate is improved whenever the weight is read in training.
        eps: the smallest length that a vector is divided by. dim: the dimension of the outputs; it is found by default.

    Raises:
        ValueError: if ``n_power_iterations`` is not positive. RuntimeError: if it was done before.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.spectral_norm(wg.nn.Linear(3, 2))
        >>> list(layer.state_dict())
        ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if n_power_iterations <= 0:
        raise ValueError(f"n_power_iterations must be positive, got {n_power_iterations}")
    if isinstance(module.__dict__.get("_derived", {}).get(name), _SpectralNorm):
        raise RuntimeError(f"'{name}' has a spectral norm already; take it away with remove_spectral_norm()")
    weight = module.get_parameter(name)
    dim = default_dim(module) if dim is None else dim
    w = matrix(weight.detach(), dim)
    u, v = started(w, eps)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    module.derive(name, _SpectralNorm(name, n_power_iterations, eps, dim))
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make the weight an ordinary parameter again, with its present value; return the module.

    Raises:
        ValueError: if there is no spectral norm.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.remove_spectral_norm(wg.nn.utils.spectral_norm(wg.nn.Linear(3, 2)))
        >>> list(layer.state_dict())
        ['bias', 'weight']
    """
    how = module.__dict__.get("_derived", {}).get(name)
    if not isinstance(how, _SpectralNorm):
        raise ValueError(f"'{name}' of {type(module).__name__} has no spectral norm")
    training, module.training = module.training, False
    try:
        with no_grad():
            weight = getattr(module, name)
    finally:
        module.training = training
    module.underive(name)
    for part in ("orig", "u", "v"):
        delattr(module, f"{name}_{part}")
    module.register_parameter(name, Parameter(weight))
    return module
