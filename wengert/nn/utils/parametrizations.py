"""Ready-made parametrizations: weight norm, spectral norm and orthogonal matrices."""

from typing import Any

from wengert.array.dtype import finfo
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.nn.module import Module
from wengert.nn.utils.parametrize import register_parametrization
from wengert.nn.utils.spectral_norm import default_dim, iterate, matrix, started
from wengert.nn.utils.weight_norm import length, scaled
from wengert.tape.modes import no_grad

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor_of(module: Module, name: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer '{name}'")
    return found


# ---- weight norm


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return scaled(weight_g, weight_v, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        return length(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Let a weight be g v / ‖v‖ (Salimans & Kingma, NeurIPS 2016); return the module.

    Args:
        dim: each index of this dimension has its own length g; None: there is one for all.

    A state of :func:`wengert.nn.utils.weight_norm` (``weight_g``, ``weight_v``) can be loaded too.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.parametrizations.weight_norm(wg.nn.Linear(3, 2))
        >>> layer.parametrizations.weight.original0.shape
        wengert.Size([2, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def renamed(_: Any, state: dict[str, Any], prefix: str, *__: Any) -> None:
        old = [f"{prefix}{name}_{part}" for part in ("g", "v")]
        if all(key in state for key in old):
            for k, key in enumerate(old):
                state[f"{prefix}parametrizations.{name}.original{k}"] = state.pop(key)

    module.register_load_state_dict_pre_hook(renamed)
    return module


# ---- spectral norm


class _SpectralNorm(Module):
    """Attributes: _u, _v: the first singular vectors, as far as they are known."""

    _u: Any
    _v: Any

    def __init__(self, weight: Any, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"dim {dim} is out of range for a tensor of {weight.ndim} dimensions")
        if n_power_iterations <= 0:
            raise ValueError(f"n_power_iterations must be positive, got {n_power_iterations}")
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:  # a vector's norm needs no estimate
            self.n_power_iterations = n_power_iterations
            w = matrix(weight.detach(), self.dim)
            u, v = started(w, eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)
            self._iterate(w, 15)

    def _iterate(self, w: Any, count: int) -> None:
        iterate(ops.t(w), self._v, self._u, count, self.eps)  # u is improved first

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return ops.normalize(weight, dim=0, eps=self.eps)
        w = matrix(weight, self.dim)
        if self.training:
            self._iterate(w, self.n_power_iterations)
        return weight / ops.vdot(self._u.clone(), ops.mv(w, self._v.clone()))

    def right_inverse(self, value: Any) -> Any:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Let a weight be divided by its largest singular value (Miyato et al., ICLR 2018); return the module.

    Args:
        n_power_iterations: how often the estimate is improved whenever the weight is read in training.
        eps: the smallest length that a vector is divided by. dim: the dimension of the outputs; it is found by default.

    Raises:
        ValueError: if there is no such tensor or ``n_power_iterations`` is not positive. IndexError: for another dim.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.parametrizations.spectral_norm(wg.nn.Linear(3, 2), n_power_iterations=30)
        >>> abs(wg.linalg.matrix_norm(layer.weight, 2).item() - 1) < 1e-4
        True
    """
    weight = _tensor_of(module, name)
    dim = default_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


# ---- orthogonal matrices


def _completed(q: Any) -> Any:
    """Return an orthogonal matrix whose first columns are those of a tall one, if they are orthonormal."""
    n, k = q.shape[-2:]
    if n == k and _is_orthogonal(q):
        return q.clone()
    if n > k:
        q = ops.cat((q, ops.randn((*q.shape[:-2], n, n - k), dtype=q.dtype, device=q.device)), -1)
    reflectors, tau = ops.geqrf(q)
    signs = ops.sgn(ops.diagonal(reflectors, 0, -2, -1))
    return ops.linalg_householder_product(reflectors, tau) * ops.unsqueeze(signs, -2)


def _is_orthogonal(q: Any) -> bool:
    n, k = q.shape[-2:]
    tolerance = 10.0 * n * finfo(q.dtype).eps
    return bool(ops.allclose(q.mH @ q, ops.eye(k, dtype=q.dtype, device=q.device), atol=tolerance))


class _Orthogonal(Module):
    """Attributes: base: with trivialization, the orthogonal matrix that the map's result is multiplied by."""

    base: Any

    def __init__(self, weight: Any, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("orthogonal_map 'householder' takes real matrices; use 'matrix_exp' or 'cayley'")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        self.trivialized = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Any) -> Any:
        wide = x.shape[-2] < x.shape[-1]
        q = self._map(x.mT if wide else x)
        if self.trivialized:
            q = self.base @ q
        return q.mT if wide else q

    def _map(self, x: Any) -> Any:
        """Return a matrix with orthonormal columns for a tall matrix."""
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            a = ops.tril(x, -1)
            q = ops.linalg_householder_product(a, 2 / (1 + ops.sum(a * a, -2)))
            signs = ops.diagonal(x, 0, -2, -1).detach().trunc()  # ±1, which are not trained
            return q * ops.unsqueeze(signs, -2)
        a = ops.tril(x)
        if n > k:
            a = ops.cat((a, ops.zeros((*a.shape[:-1], n - k), dtype=a.dtype, device=a.device)), -1)
        skew = a - a.mH
        if self.orthogonal_map == "matrix_exp":
            q = ops.matrix_exp(skew)
        else:
            one = ops.eye(n, dtype=a.dtype, device=a.device)
            q = ops.linalg_solve(one - skew / 2, one + skew / 2)
        return q[..., :k] if n > k else q

    def right_inverse(self, q: Any) -> Any:
        if tuple(q.shape) != self.shape:
            raise ValueError(f"expected a tensor of shape {self.shape}, got {tuple(q.shape)}")
        wide = q.shape[-2] < q.shape[-1]
        tall = q.mT if wide else q
        with no_grad():
            if self.trivialized:
                self.base = _completed(tall)
                start = ops.zeros_like(q)
                ops.diagonal(start, 0, -2, -1).fill_(-1.0)  # the signs for which Householder's map gives the identity
                return start
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"a tensor with orthogonal_map '{self.orthogonal_map}' cannot be assigned without use_trivialization"
                )
            reflectors, tau = ops.geqrf(tall)
            diagonal = ops.diagonal(reflectors, 0, -2, -1)
            signs = ops.sign(diagonal)
            diagonal.copy_(ops.where(tau == 0, -signs, signs))  # 0: LAPACK used no reflection
            return reflectors.mT if wide else reflectors


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Let a matrix, or a batch of them, have orthonormal columns (rows, if it is wide); return the module.

    Args:
        orthogonal_map: ``"matrix_exp"``, exp(A) of a skew-symmetric A; ``"cayley"``, (I + A/2)(I - A/2)⁻¹;
            ``"householder"``, a product of reflections. By default the first for square and complex matrices, else the last.
        use_trivialization: multiply by a fixed orthogonal matrix, so that training starts at the given one
            (Lezcano-Casado, NeurIPS 2019), and the tensor can be assigned.

    Raises:
        ValueError: if there is no such tensor, it has less than 2 dimensions, or the map is unknown.

    Example:
        >>> import wengert as wg
        >>> q = wg.nn.utils.parametrizations.orthogonal(wg.nn.Linear(4, 2)).weight
        >>> bool(wg.allclose(q @ q.T, wg.eye(2), atol=1e-5))
        True
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"orthogonal() takes a matrix or a batch of them, got shape {tuple(weight.shape)}")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f"orthogonal_map must be 'matrix_exp', 'cayley' or 'householder', got {orthogonal_map!r}")
    chosen = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return register_parametrization(module, name, chosen, unsafe=True)
