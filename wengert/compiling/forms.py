"""What of a call's arguments, and of the modes around it, a program is made for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from wengert.array.device import devices
from wengert.compiling.sources import form_of
from wengert.compiling.straight import Names, conjunction
from wengert.compiling.surroundings import PLAIN, told
from wengert.core.state import thread
from wengert.core.tensor import Tensor
from wengert.settings import settings

__all__ = ["key_of", "recogniser"]

FEW = 16  # arguments up to which they are compared two by two


def key_of(leaves: Sequence[Any], structure: Any) -> tuple[Any, ...]:
    """Return what tells the calls apart that have programs of their own."""
    state = thread.state
    casting = None if state.casting is None else state.casting.form
    return structure, _forms(leaves), state.grad, state.inference, casting, settings.default_dtype


def _forms(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return what of the arguments a program is made for: forms of tensors, which are the same, and other values."""
    seen: dict[int, int] = {}
    found: list[Any] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            found.append((seen.setdefault(id(leaf), i), form_of(leaf)))
        else:
            found.append(told(leaf) if isinstance(leaf, PLAIN) else id(leaf))
    return tuple(found)


def recogniser(tensors: Sequence[Any]) -> Callable[[Sequence[Any]], bool]:
    """Return what says at a glance of other arguments that they have the key which these tensors have now.

    It never says so of others; of arguments of a rarer kind not even where it is so.
    """
    names = Names()
    plain = not devices.several and len(tensors) <= FEW and thread.state.casting is None
    return conjunction(_conditions(tensors, names) if plain else ["False"], names)


def _conditions(tensors: Sequence[Any], name: Names) -> Iterator[str]:
    state = thread.state
    yield f"(state := {name(thread)}.state).grad is {state.grad} and state.inference is {state.inference}"
    yield f"state.casting is None and {name(settings)}.default_dtype is {name(settings.default_dtype)}"
    yield f"len(leaves) == {len(tensors)}"
    for k, tensor in enumerate(tensors):
        array, tensor_type, array_type = tensor._payload, name(Tensor), name(np.ndarray)
        yield f"type(tensor := leaves[{k}]) is {tensor_type} and type(array := tensor._payload) is {array_type}"
        yield f"array.shape == {array.shape} and array.strides == {array.strides} and array.dtype is {name(array.dtype)}"
        yield f"array.flags.writeable is {array.flags.writeable}"
        yield "tensor._node is None" if tensor._node is None else "False"
        yield f"tensor._view is {'None' if tensor._view is None else 'not None'}"
    for i, j in combinations(range(len(tensors)), 2):
        yield f"leaves[{i}] is {'' if tensors[i] is tensors[j] else 'not '}leaves[{j}]"
