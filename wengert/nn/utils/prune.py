"""Pruning: a parameter is multiplied by a mask of zeros and ones whenever it is read.

``weight`` becomes ``weight_orig``, which is trained, times the buffer ``weight_mask``. Pruned again, a tensor loses a
part of what is left.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from wengert.core.registry import ops
from wengert.nn.module import Module
from wengert.nn.utils.convert_parameters import parameters_to_vector
from wengert.nn.utils.pruning_methods import (
    BasePruningMethod,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    PruningContainer,
    RandomStructured,
    RandomUnstructured,
    method_of,
)
from wengert.tape.modes import no_grad

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


def identity(module: Module, name: str) -> Module:
    """Give a parameter a mask of ones; return the module.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> list(prune.identity(wg.nn.Linear(2, 2), "weight").state_dict())
        ['bias', 'weight_orig', 'weight_mask']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune elements of a parameter at random; see :class:`RandomUnstructured`.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = prune.random_unstructured(wg.nn.Linear(4, 4), "weight", amount=3)
        >>> int((layer.weight_mask == 0).sum())
        3
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Any, importance_scores: Any = None) -> Module:
    """Prune the least elements of a parameter; see :class:`L1Unstructured`.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.Linear(2, 1, bias=False)
        >>> wg.nn.init.constant_(layer.weight, 2.0)[0, 1].item()
        2.0
        >>> with wg.no_grad():
        ...     layer.weight[0, 1] = 0.5
        >>> wg.nn.utils.prune.l1_unstructured(layer, "weight", 1).weight.tolist()
        [[2.0, 0.0]]
        >>> list(layer.state_dict())
        ['weight_orig', 'weight_mask']
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune slices of a parameter at random; see :class:`RandomStructured`.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = prune.random_structured(wg.nn.Linear(4, 3), "weight", amount=2, dim=0)
        >>> int((layer.weight_mask.sum(1) == 0).sum())
        2
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None) -> Module:
    """Prune the slices of a parameter of the least norm; see :class:`LnStructured`.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = prune.ln_structured(wg.nn.Conv2d(1, 4, 3), "weight", amount=0.5, n=2, dim=0)
        >>> layer.weight_mask.flatten(1).any(1).sum().item()
        2
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Prune a parameter where a mask is 0; return the module.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import prune
        >>> layer = prune.custom_from_mask(wg.nn.Linear(3, 1), "weight", mask=wg.tensor([[1.0, 0.0, 1.0]]))
        >>> bool(layer.weight[0, 1] == 0)
        True
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod], importance_scores: Any = None,
    **kwargs: Any,
) -> None:  # fmt: skip
    """Prune several parameters together, as if they were one vector.

    Args:
        parameters: pairs of module and name. pruning_method: a method that is unstructured.
        importance_scores: by such pairs, what is compared in place of the values. kwargs: for the method.

    Raises:
        TypeError: for a method of another type, or arguments of another kind.

    Example:
        >>> import wengert as wg
        >>> prune = wg.nn.utils.prune
        >>> a, b = wg.nn.Linear(2, 2), wg.nn.Linear(2, 2)
        >>> prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=3)
        >>> int(8 - (a.weight_mask.sum() + b.weight_mask.sum()).item())
        3
    """
    if not isinstance(parameters, Iterable):
        raise TypeError(f"parameters must be pairs of module and name, got {type(parameters).__name__}")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, Mapping):
        raise TypeError(f"importance_scores must be a dictionary, got {type(scores).__name__}")
    pairs = [(module, name, getattr(module, name)) for module, name in parameters]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"{pruning_method.__name__} is {method.PRUNING_TYPE}; global pruning takes unstructured methods"
        )
    with no_grad():
        values = parameters_to_vector([scores.get((m, n), t) for m, n, t in pairs])
        masks = parameters_to_vector([_mask_of(m, n, t) for m, n, t in pairs])
        found = PruningContainer(method).compute_mask(values, masks)
        parts = ops.split(found, [t.numel() for _, _, t in pairs])
        for (module, name, tensor), part in zip(pairs, parts, strict=True):
            custom_from_mask(module, name, ops.reshape(part, tensor.shape))


def _mask_of(module: Any, name: str, tensor: Any) -> Any:
    return ops.ones_like(tensor) if method_of(module, name) is None else getattr(module, f"{name}_mask")


def remove(module: Module, name: str) -> Module:
    """Make a pruned parameter an ordinary one again, with its zeros; return the module.

    Raises:
        ValueError: if it is not pruned.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.prune.identity(wg.nn.Linear(2, 1), "weight")
        >>> list(wg.nn.utils.prune.remove(layer, "weight").state_dict())
        ['bias', 'weight']
    """
    method = method_of(module, name)
    if method is None:
        raise ValueError(f"'{name}' of {type(module).__name__} is not pruned")
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Say whether any parameter of a module, or of one below it, is pruned.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.prune.is_pruned(wg.nn.Linear(2, 1))
        False
    """
    return any(
        isinstance(how, BasePruningMethod)
        for part in module.modules()
        for how in part.__dict__.get("_derived", {}).values()
    )
