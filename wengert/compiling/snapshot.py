"""What a run of a program may change, as it was before, to be put back."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from wengert.compiling.decisions import generators_of, rewound
from wengert.core.tensor import Tensor, version_of

__all__ = ["Snapshot", "equal"]


class Snapshot:
    """The tensors that a program and its function know, with their contents, gradients, histories and counts of writes; the
    random generators that it draws from; the dictionaries and lists of its optimisers and schedulers.

    Args:
        program: it. leaves: the leaves of a call's arguments.
    """

    def __init__(self, program: Any, leaves: Sequence[Any]) -> None:
        self._containers: dict[int, tuple[Any, Any]] = {}
        sources = [*program.sources, *(s for s, _ in (*program.writes, *program.gradients, *program.guards.grads))]
        sources += [gradient.source for gradient in program.sparse]
        self._of = {id(source): source.tensor(leaves) for source in sources if source is not None}
        known = [*self._of.values(), *(leaf for leaf in leaves if isinstance(leaf, Tensor))]
        known += self._found_in([*(host.do for host in program.hosts), *program.effects])
        known += [t._grad for t in known if t._grad is not None]
        self._before = {id(t): _State(t) for t in known}
        self._generators = [(g, g.get_state()) for g in generators_of(program.graph)]

    def of(self, source: Any) -> Any:
        """Return the tensor that a source of the program was."""
        return self._of[id(source)]

    def state(self, tensor: Any) -> "_State":
        """Return what one of the tensors was."""
        return self._before[id(tensor)]

    @contextmanager
    def drawing_again(self) -> Iterator[None]:
        """Let the generators begin, in a block, where they were."""
        with rewound([generator for generator, _ in self._generators]):
            for generator, before in self._generators:
                generator.set_state(before)
            yield

    def restore(self) -> None:
        """Put everything back."""
        for state in self._before.values():
            state.restore()
        for generator, before in self._generators:
            generator.set_state(before)
        for container, held in self._containers.values():
            container.clear()
            container.extend(held) if isinstance(container, list) else container.update(held)

    def _found_in(self, objects: list[Any]) -> list[Any]:
        """Return the tensors that objects lead to, and take note of the containers on the way."""
        found, left, seen = list[Any](), list(objects), set[int]()
        while left:
            item = left.pop()
            if id(item) in seen or isinstance(item, type | ModuleType):
                continue
            seen.add(id(item))
            if isinstance(item, Tensor):
                found.append(item)
            elif isinstance(item, dict | list):
                self._containers[id(item)] = item, item.copy()
                left += item.values() if isinstance(item, dict) else item
            else:
                left += _held_by(item)
        return found


class _State:
    """What a tensor was.

    Attributes:
        content: a copy of its array; None for a sparse one, which a write gives other entries. grad: its ``.grad``.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor, self._payload = tensor, tensor._payload
        self.content = np.array(self._payload) if type(self._payload) is np.ndarray else None
        self._node, self._view, self.grad = tensor._node, tensor._view, tensor._grad
        self._cell = None if tensor.is_inference() else version_of(tensor)
        self._version: tuple[Any, ...] = () if self._cell is None else (self._cell.count, self._cell.writes)

    def restore(self) -> None:
        """Put it back."""
        tensor, payload = self._tensor, self._payload
        tensor._payload, tensor._node, tensor._view, tensor._grad = payload, self._node, self._view, self.grad
        if self.content is not None and not equal(payload, self.content):
            payload[...] = self.content
        if self._cell is not None:
            self._cell.count, self._cell.writes = self._version


def equal(one: Any, other: Any) -> bool:
    """Whether two arrays of one shape and dtype hold the same bits."""
    return bool(one.tobytes() == other.tobytes())


def _held_by(item: Any) -> list[Any]:
    """Return what an object refers to, as far as it may be changed by what a program does in Python."""
    if isinstance(item, tuple):
        return list(item)
    if isinstance(item, MethodType):
        return [item.__self__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    if isinstance(item, FunctionType):
        return [cell.cell_contents for cell in item.__closure__ or () if cell != CellType()]
    kind = type(item)
    own = kind.__module__.partition(".")[0] == "wengert" or hasattr(kind, "state_dict")  # an optimiser, a scheduler
    return [vars(item)] if own and hasattr(item, "__dict__") else []
