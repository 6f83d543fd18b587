"""How pruning chooses: methods that make the mask by which a parameter is multiplied whenever it is read."""

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from wengert.array.shape import axis_of
from wengert.core.registry import ops
from wengert.nn.members import Derived
from wengert.tape.modes import no_grad

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "method_of",
]  # fmt: skip


class BasePruningMethod(ABC, Derived):
    """A way of choosing what is pruned; a subclass defines ``compute_mask`` and says its ``PRUNING_TYPE``.

    Attributes:
        PRUNING_TYPE: ``"unstructured"`` (any elements), ``"structured"`` (whole slices along the attribute ``dim``) or
            ``"global"`` (the mask is for the whole tensor).

    Example:
        >>> import wengert as wg
        >>> class SecondHalf(wg.nn.utils.prune.BasePruningMethod):
        ...     PRUNING_TYPE = "unstructured"
        ...     def compute_mask(self, t, default_mask):
        ...         mask = default_mask.clone()
        ...         mask.view(-1)[t.numel() // 2 :] = 0
        ...         return mask
        >>> layer = wg.nn.Linear(2, 2)
        >>> method = SecondHalf.apply(layer, "weight")
        >>> layer.weight_mask.tolist()
        [[1.0, 1.0], [0.0, 0.0]]
    """

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str | None = None

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask for a tensor (its values or their importance), 0 where ``default_mask`` is 0."""

    def read(self, module: Any) -> Any:
        """Return the pruned tensor."""
        return self.apply_mask(module)

    def apply_mask(self, module: Any) -> Any:
        """Return the original of a pruned tensor times its mask."""
        original = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(original.dtype) * original

    @classmethod
    def apply(cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Any:
        """Prune a parameter of a module, and return the method that does it.

        Args:
            name: the parameter. importance_scores: what is compared in place of its values.
            args, kwargs: for the constructor.

        Raises:
            AttributeError: if there is no such parameter. ValueError: for scores of another shape, or an amount that does
                not fit; the module is then unchanged.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = method_of(module, name)
        tensor = module.get_parameter(name) if before is None else getattr(module, name)
        scores = _fitting(importance_scores, tensor)
        if before is None:
            with no_grad():
                mask = method.compute_mask(scores, default_mask=ops.ones_like(tensor))
            delattr(module, name)
            module.register_parameter(f"{name}_orig", tensor)
        else:
            old = before if isinstance(before, PruningContainer) else PruningContainer(before)
            method = old.with_method(method)
            with no_grad():
                mask = method.compute_mask(scores, default_mask=getattr(module, f"{name}_mask").detach().clone())
            module.underive(name)
        module.register_buffer(f"{name}_mask", mask.detach())
        module.derive(name, method)
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """Return a tensor pruned, without a module.

        Raises:
            ValueError: for scores of another shape.
        """
        mask = ops.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(_fitting(importance_scores, t), default_mask=mask)

    def remove(self, module: Any) -> None:
        """Make the tensor an ordinary parameter again, with zeros where it was pruned."""
        name = self._tensor_name
        assert name is not None
        with no_grad():
            weight = self.apply_mask(module)
        original = getattr(module, f"{name}_orig")
        original.data = weight
        module.underive(name)
        delattr(module, f"{name}_orig")
        delattr(module, f"{name}_mask")
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune one tensor one after the other.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(4, 4)
        >>> _ = prune.l1_unstructured(layer, "weight", amount=4)
        >>> _ = prune.random_unstructured(layer, "weight", amount=2)  # of those that are left
        >>> int(layer.weight_mask.sum())
        10
    """

    PRUNING_TYPE = "global"

    def __init__(self, *methods: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method.

        Raises:
            TypeError: if it is none. ValueError: if it is for a tensor of another name.
        """
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"a pruning method must be a BasePruningMethod, got {type(method).__name__}")
        if not self._pruning_methods and self._tensor_name is None:
            self._tensor_name = method._tensor_name
        if method._tensor_name != self._tensor_name:
            raise ValueError(f"the methods are for '{self._tensor_name}', got one for '{method._tensor_name}'")
        self._pruning_methods = (*self._pruning_methods, method)

    def with_method(self, method: BasePruningMethod) -> Self:
        """Return a container with one method more."""
        return type(self)(*self._pruning_methods, method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask of the last method, for what the others have left."""
        method: Any = self._pruning_methods[-1]
        if method.PRUNING_TYPE == "unstructured":
            left: Any = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = axis_of(method.dim, t.ndim)
            others = [d for d in range(t.ndim) if d != dim]
            left = (slice(None),) * dim + (ops.sum(default_mask, others) != 0,)
        elif method.PRUNING_TYPE == "global":
            left = ...
        else:
            raise ValueError(f"PRUNING_TYPE must be unstructured, structured or global, got {method.PRUNING_TYPE!r}")
        mask = default_mask.to(t.dtype).clone()
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the mask.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(2, 2)
        >>> _ = prune.Identity.apply(layer, "weight")
        >>> int(layer.weight_mask.sum())
        4
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask as it is."""
        return default_mask


class _Amount(BasePruningMethod):
    """A method that prunes so many elements or slices: an int, or the share of all."""

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"amount must be an int or a float, got {amount!r}")
        self.amount: Any = amount
        self.whole = isinstance(amount, numbers.Integral)
        if not 0 <= float(amount) <= (math.inf if self.whole else 1):
            raise ValueError(f"amount must be a float between 0 and 1 or an int that is not negative, got {amount}")

    def _count(self, total: int) -> int:
        """Return how many of ``total`` are pruned."""
        count = int(self.amount) if self.whole else round(float(self.amount) * total)
        if count > total:
            raise ValueError(f"amount={self.amount} is more than the {total} that there are to prune")
        return count

    def _without_least(self, scores: Any, default_mask: Any) -> Any:
        """Return the mask with zeros at the elements of the lowest scores."""
        mask, count = default_mask.clone(), self._count(scores.numel())
        if count:
            order = ops.topk(ops.reshape(scores, (-1,)), count, largest=False).indices
            ops.reshape(mask, (-1,))[order] = 0
        return mask


class RandomUnstructured(_Amount):
    """Prunes elements at random.

    Args:
        amount: how many, or (a float) which share of those that are left.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(4, 4)
        >>> _ = prune.RandomUnstructured.apply(layer, "weight", amount=0.25)
        >>> int((layer.weight == 0).sum())
        4
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask with some more zeros."""
        return self._without_least(ops.rand_like(t), default_mask)


class L1Unstructured(_Amount):
    """Prunes the elements of the least magnitude; arguments as :class:`RandomUnstructured`.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(3, 1)
        >>> _ = layer.weight.data.copy_(wg.tensor([[0.1, -3.0, 2.0]]))
        >>> _ = prune.L1Unstructured.apply(layer, "weight", amount=1)
        >>> layer.weight_mask
        tensor([[0., 1., 1.]])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask with some more zeros."""
        return self._without_least(ops.abs(t), default_mask)


class _Slices(_Amount):
    """A method that prunes whole slices."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Any, dim: int) -> Any:
        """Return a number for each slice; those of the least are pruned."""
        raise NotImplementedError

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the mask with zeros in some more slices."""
        if t.ndim < 2:
            raise ValueError(f"slices are pruned of tensors of 2 or more dimensions, got shape {tuple(t.shape)}")
        dim = axis_of(self.dim, t.ndim)
        kept = self._without_least(self._scores(t, dim), ops.ones(t.shape[dim], dtype=t.dtype, device=t.device))
        return ops.reshape(kept, [-1 if d == dim else 1 for d in range(t.ndim)]) * default_mask.to(t.dtype)


class RandomStructured(_Slices):
    """Prunes slices at random.

    Args:
        amount: how many, or (a float) which share. dim: the dimension that the slices are numbered by.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(3, 4)
        >>> _ = prune.RandomStructured.apply(layer, "weight", amount=1, dim=0)
        >>> int((layer.weight_mask.sum(1) == 0).sum())
        1
    """

    def _scores(self, t: Any, dim: int) -> Any:
        return ops.rand(t.shape[dim], device=t.device)


class LnStructured(_Slices):
    """Prunes the slices of the least norm.

    Args:
        amount, dim: as :class:`RandomStructured`. n: the order of the norm, a number, ``inf``, ``"fro"`` or ``"nuc"``.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(2, 2)
        >>> _ = layer.weight.data.copy_(wg.tensor([[1.0, 1.0], [3.0, 0.0]]))
        >>> _ = prune.LnStructured.apply(layer, "weight", amount=1, n=2, dim=0)
        >>> layer.weight_mask
        tensor([[0., 0.],
                [1., 1.]])
    """

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Any, dim: int) -> Any:
        return ops.norm(t, p=self.n, dim=[d for d in range(t.ndim) if d != dim])


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is 0.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = wg.nn.Linear(2, 1)
        >>> _ = prune.CustomFromMask.apply(layer, "weight", mask=wg.tensor([[1.0, 0.0]]))
        >>> layer.weight_mask
        tensor([[1., 0.]])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Return the product of both masks. ValueError: if their shapes differ."""
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise ValueError(f"the mask has shape {tuple(self.mask.shape)}, the tensor {tuple(default_mask.shape)}")
        return default_mask * self.mask.to(default_mask.dtype)


def method_of(module: Any, name: str) -> Any:
    """Return what prunes a tensor of a module, or None."""
    how = module.__dict__.get("_derived", {}).get(name)
    return how if isinstance(how, BasePruningMethod) else None


def _fitting(scores: Any, tensor: Any) -> Any:
    if scores is None:
        return tensor.detach()
    if tuple(scores.shape) != tuple(tensor.shape):
        raise ValueError(f"importance_scores have shape {tuple(scores.shape)}, the tensor {tuple(tensor.shape)}")
    return scores
