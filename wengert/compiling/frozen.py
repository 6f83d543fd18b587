"""Weights that are known: a program takes tensors that the function holds, and only reads, for constants.

What is made of them alone is then made once: folded normalisations, transposed copies, the panels that products and
convolutions read. A write to such a tensor, or to its ``.data``, is seen by its version counter, and another program is made;
one through NumPy's view of its memory is not.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from wengert.array.device import devices, unplaced
from wengert.compiling.sources import Held
from wengert.compiling.straight import Names
from wengert.core.tensor import version_of

__all__ = ["Frozen", "freeze"]


class Frozen(NamedTuple):
    """A tensor as it was when its values became constants: its memory, and how often that had been written."""

    tensor: Any
    array: Any
    version: Any
    writes: int

    @classmethod
    def now(cls, tensor: Any) -> "Frozen":
        """Return a tensor as it is."""
        version = version_of(tensor)
        version.beside = getattr(version, "beside", 0)
        return cls(tensor, tensor._payload, version, version.count + version.beside)

    @property
    def holds(self) -> bool:
        """Whether it is as it was."""
        tensor, version = self.tensor, self.version
        same = tensor._payload is self.array and tensor._cell is version
        return same and version.count + version.beside == self.writes

    def conditions(self, name: Names) -> Iterator[str]:
        """Yield, as Python, what :attr:`holds` asks."""
        tensor, version = name(self.tensor), name(self.version)
        yield f"{tensor}._payload is {name(self.array)} and {tensor}._cell is {version}"
        yield f"{version}.count + {version}.beside == {self.writes}"


def freeze(program: Any) -> None:
    """Take the tensors that a function holds for constants, but for those that its program writes or returns.

    A program whose results have a history stays as it is: gradients flow through its inputs.
    """
    if program.outward is not None:
        return
    graph = program.graph
    kept = {value for value, _ in graph.writes} | set(graph.results)
    left = []
    for value, source in zip(graph.inputs, program.sources, strict=True):
        if isinstance(source, Held) and value not in kept and not source.held.is_inference():
            array = source.held._payload
            graph.constants[value] = unplaced(array) if devices.several else array
            program.guards.frozen.append(Frozen.now(source.held))
        else:
            left.append((value, source))
    graph.inputs, program.sources = [value for value, _ in left], [source for _, source in left]
    program.places = [graph.inputs.index(host.values[0]) if host.values else 0 for host in program.hosts]
