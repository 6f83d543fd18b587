"""Parametrizations: a parameter or buffer that is computed from others whenever it is read.

The original stays trainable as ``module.parametrizations.weight.original``; ``module.weight`` is a function of it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wengert.core.tensor import Tensor
from wengert.nn.containers import ModuleDict, ModuleList
from wengert.nn.members import Derived
from wengert.nn.module import Module
from wengert.nn.parameter import Parameter
from wengert.tape.modes import no_grad

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip


class _Cache(threading.local):
    """Values computed inside :func:`cached` blocks, by module and name."""

    def __init__(self) -> None:
        self.depth = 0
        self.values: dict[tuple[int, str], Any] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor only once inside the block, for layers that read it often.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils.parametrize import cached
        >>> layer = wg.nn.utils.parametrizations.weight_norm(wg.nn.Linear(2, 2))
        >>> with cached():
        ...     layer.weight is layer.weight
        True
    """
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


class _Parametrized(Derived):
    """The attribute of a module that its parametrizations compute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read(self, module: Any) -> Any:
        compute = module.parametrizations[self.name]
        if not _cache.depth:
            return compute()
        key = id(module), self.name
        if key not in _cache.values:
            _cache.values[key] = compute()
        return _cache.values[key]

    def write(self, module: Any, value: Any) -> None:
        module.parametrizations[self.name].right_inverse(value)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied one after the other, and the original that they are applied to.

    Args:
        modules: the parametrizations; the first takes the original, or several if its ``right_inverse`` returns several.
        original: the parameter or buffer. unsafe: whether shape and dtype may change.

    Attributes:
        original, or original0, original1, …: what is trained. is_tensor: whether it is one. ntensors: how many they are.

    Raises:
        ValueError: for no parametrizations, or some that change shape or dtype without ``unsafe``.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import parametrize
        >>> class Doubled(wg.nn.Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> layer = parametrize.register_parametrization(wg.nn.Linear(1, 1), "weight", Doubled())
        >>> held = layer.parametrizations.weight
        >>> type(held).__name__, bool(layer.weight == 2 * held.original)
        ('ParametrizationList', True)
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("a ParametrizationList needs at least one module")
        super().__init__(modules)
        self.unsafe = unsafe
        new = self._inverted(original)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        form = original.dtype, tuple(original.shape)
        if self.is_tensor:
            if new.dtype is not original.dtype:
                raise ValueError(f"right_inverse() changed the dtype of the tensor, {original.dtype}, to {new.dtype}")
            _replace(original, new)
            _register(self, "original", original)
        else:
            for k, part in enumerate(new):
                _register(self, f"original{k}", _like(original, part))
        if not unsafe:
            _check("the parametrization's result", self(), form)

    def _inverted(self, original: Tensor) -> Any:
        """Return what the parametrizations make ``original`` of, as far as they say."""
        new: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:  # there is no inverse, and the original serves as it is
                        continue
        if not isinstance(new, Tensor) and not (
            isinstance(new, Sequence) and all(isinstance(part, Tensor) for part in new)
        ):
            raise ValueError(f"right_inverse() must return a tensor or a sequence of tensors, got {type(new).__name__}")
        return new

    def originals(self) -> list[Any]:
        """Return the tensors that are trained."""
        return [self.original] if self.is_tensor else [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrized tensor becomes ``value``.

        Raises:
            RuntimeError: if a parametrization has no ``right_inverse``. ValueError: if one returns something else.
        """
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"{type(module).__name__} has no right_inverse(), so its tensor cannot be assigned"
                    )
                value = module.right_inverse(value)
            parts, originals = [value] if self.is_tensor else value, self.originals()
            if not isinstance(parts, Sequence) or len(parts) != len(originals):
                raise ValueError(f"right_inverse() must return {len(originals)} tensors, got {type(value).__name__}")
            for original, part in zip(originals, parts, strict=True):
                if not isinstance(part, Tensor) or part.dtype is not original.dtype:
                    got = part.dtype if isinstance(part, Tensor) else type(part).__name__
                    raise ValueError(f"right_inverse() must return tensors of dtype {original.dtype}, got {got}")
                _replace(original, part)

    def forward(self) -> Any:
        """Return the parametrized tensor."""
        first, *others = self
        x = first(*self.originals())
        for module in others:
            x = module(x)
        return x


def _replace(original: Any, new: Any) -> None:
    """Give a tensor other memory; copied, so that it is shared with nobody."""
    if new is not original:
        original.data = new.detach().clone()


def _like(original: Any, part: Any) -> Any:
    """Return a part of an original as a tensor of its kind."""
    part = part.detach().clone()
    return Parameter(part, original.requires_grad) if isinstance(original, Parameter) else part


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _check(what: str, found: Any, form: tuple[Any, tuple[int, ...]]) -> None:
    """Require a tensor of a dtype and shape."""
    if not isinstance(found, Tensor):
        raise ValueError(f"{what} must be a tensor, got {type(found).__name__}")
    if (found.dtype, tuple(found.shape)) != form:
        raise ValueError(
            f"{what} has dtype {found.dtype} and shape {tuple(found.shape)}, the tensor has {form[0]} and {form[1]}; "
            "pass unsafe=True to allow it"
        )


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a parameter or buffer be ``parametrization`` of itself from now on; return the module.

    Args:
        parametrization: its ``forward`` takes the original. Where it has ``right_inverse``, that gives the original for a
            value, or several originals, which ``forward`` then takes. Registered again, parametrizations are chained.
        unsafe: do not check that shape and dtype are kept.

    Raises:
        ValueError: if there is no such tensor, or the parametrization changes shape or dtype.

    Example:
        >>> import wengert as wg
        >>> class Symmetric(wg.nn.Module):
        ...     def forward(self, x):
        ...         return x.triu() + x.triu(1).T
        >>> layer = wg.nn.utils.parametrize.register_parametrization(wg.nn.Linear(3, 3), "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all())
        True
        >>> [name for name, _ in layer.named_parameters()]
        ['bias', 'parametrizations.weight.original']
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        if not unsafe:
            _check_next(parametrization, getattr(module, tensor_name))
        chain.append(parametrization)
        chain.unsafe |= unsafe
        return module
    if tensor_name not in module._parameter_names and tensor_name not in module._buffer_names:
        raise ValueError(f"{type(module).__name__} has no parameter, buffer or parametrized tensor '{tensor_name}'")
    chain = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = chain
    module.derive(tensor_name, _Parametrized(tensor_name))
    return module


def _check_next(parametrization: Any, value: Any) -> None:
    """Require that a further parametrization keeps shape and dtype, both ways."""
    form = value.dtype, tuple(value.shape)
    found = parametrization(value)
    _check("the parametrization's result", found, form)
    if hasattr(parametrization, "right_inverse"):
        try:
            back = parametrization.right_inverse(found)
        except NotImplementedError:
            return
        _check("what right_inverse() returns", back, form)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Say whether a tensor of a module is parametrized, or (None) any of them.

    Example:
        >>> import wengert as wg
        >>> wg.nn.utils.parametrize.is_parametrized(wg.nn.Linear(1, 1))
        False
    """
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor an ordinary one again, and return the module.

    Args:
        leave_parametrized: keep its present value; otherwise that of the original.

    Raises:
        ValueError: if it is not parametrized, or the original is asked for where there are several.

    Example:
        >>> import wengert as wg
        >>> layer = wg.nn.utils.parametrizations.weight_norm(wg.nn.Linear(2, 2))
        >>> list(wg.nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
        ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"'{tensor_name}' of {type(module).__name__} is not parametrized")
    chain = module.parametrizations[tensor_name]
    if not chain.is_tensor and not leave_parametrized:
        raise ValueError(
            f"'{tensor_name}' is made of {chain.ntensors} tensors, so leave_parametrized=False would lose it"
        )
    kept = chain.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if chain.is_tensor:
            _replace(kept, value)
        else:
            kept = _like(kept, value)
    module.underive(tensor_name)
    _register(module, tensor_name, kept)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the class of a module, which parametrizations do not change.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import parametrizations, parametrize
        >>> parametrize.type_before_parametrizations(parametrizations.weight_norm(wg.nn.Linear(2, 2))).__name__
        'Linear'
    """
    return type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give ``to_module`` the parametrizations of ``from_module`` and the values they are applied to; return it.

    Args:
        tensor_name: the tensor; None for every parametrized one. One that ``to_module`` lacks is made.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.utils import parametrizations, parametrize
        >>> one, two = parametrizations.orthogonal(wg.nn.Linear(2, 2)), wg.nn.Linear(2, 2)
        >>> _ = parametrize.transfer_parametrizations_and_params(one, two)
        >>> bool((one.weight == two.weight).all()), parametrize.is_parametrized(two, "weight")
        (True, True)
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        chain = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            _register(to_module, name, _like(chain.originals()[0], getattr(from_module, name)))
        for parametrization in chain:
            register_parametrization(to_module, name, parametrization, unsafe=chain.unsafe)
        given = to_module.parametrizations[name]
        for own, other in zip(given.originals(), chain.originals(), strict=True):
            _replace(own, other)
    return to_module
