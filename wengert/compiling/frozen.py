"""Weights that are known: a program takes tensors that the function holds, and only reads, for constants.

What is made of them alone is then made once: folded normalisations, transposed copies, the panels that products and
convolutions read. A write to such a tensor is seen by its version counter, and another program is made; one through NumPy's
view of its memory is not.
"""

from typing import Any, NamedTuple

from wengert.array.device import devices, unplaced
from wengert.compiling.sources import Held
from wengert.core.tensor import version_of

__all__ = ["Frozen", "freeze"]


class Frozen(NamedTuple):
    """A tensor as it was when its values became constants: its memory, and how often that had been written."""

    tensor: Any
    array: Any
    writes: int

    @property
    def holds(self) -> bool:
        """Whether it is as it was."""
        return self.tensor._payload is self.array and version_of(self.tensor).count == self.writes


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
            tensor, array = source.held, source.held._payload
            graph.constants[value] = unplaced(array) if devices.several else array
            program.guards.frozen.append(Frozen(tensor, array, version_of(tensor).count))
        else:
            left.append((value, source))
    graph.inputs, program.sources = [value for value, _ in left], [source for _, source in left]
    program.places = [graph.inputs.index(host.values[0]) if host.values else 0 for host in program.hosts]
