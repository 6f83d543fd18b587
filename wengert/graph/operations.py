"""Operations of a graph that are no declared operators: random draws, functions of Python, formulas of optimisers, and what
passes fuse."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wengert.core.operator import Spec
from wengert.core.state import thread
from wengert.core.tensor import from_array
from wengert.graph.evaluate import evaluate
from wengert.graph.ir import Graph
from wengert.tape.modes import no_grad

__all__ = ["Callback", "Draw", "Formula", "Fused"]


class Draw:
    """Random numbers, from wherever the generator has come to. Draws stay in their order, and none is left out.

    Args:
        name: of the random operator. generator: what it draws from. sampler: see :meth:`wengert.Generator.take`. shape: of
            the result.
    """

    __slots__ = ("generator", "name", "sampler", "shape")
    single = True
    effect = True

    def __init__(self, name: str, generator: Any, sampler: Callable[..., Any], shape: tuple[int, ...]) -> None:
        self.name, self.generator, self.sampler, self.shape = f"draw.{name}", generator, sampler, shape

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Draw; the arguments are the sampler's parameters."""
        return [self.generator.take(self.sampler, self.shape, list(arguments))]


class Callback:
    """A function of Python, which nobody looks into. It is called once in each run, in the order of the program.

    Args:
        name: for people. function: from arguments, tensors where the node has values, to tensors. It gets copies, which it may
            change and keep: the memory of a program is used again.
        specs: of its results.
    """

    __slots__ = ("function", "name", "specs")
    single = False
    effect = True

    def __init__(self, name: str, function: Callable[..., Any], specs: Sequence[Spec]) -> None:
        self.name, self.function, self.specs = name, function, tuple(specs)

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Call the function.

        Raises:
            RuntimeError: if it returns what it did not promise; and whatever it raises.
        """
        copies: dict[int, Any] = {}  # an array that is given twice is one tensor, as it was for the program

        def tensor(array: Any) -> Any:
            if id(array) not in copies:
                copies[id(array)] = from_array(np.array(array, order="K"))
            return copies[id(array)]

        with no_grad():
            found = self.function(*[tensor(a) if isinstance(a, np.ndarray) else a for a in arguments])
        for k, (result, spec) in enumerate(zip(found, self.specs, strict=True)):
            if tuple(result.shape) != spec.shape or result.dtype is not spec.dtype:
                raise RuntimeError(
                    f"{self.name}() gave {result.dtype.name}{list(result.shape)} for its result {k}; its shape rule says "
                    f"{spec.dtype.name}{list(spec.shape)}, and a compiled function relies on that"
                )
        return [result._payload for result in found]


class Formula:
    """What an optimiser does to a parameter: a function of (parameter, gradient, moments…, numbers…) that writes into all
    but the gradient and the numbers.

    Args:
        name: of the optimiser. key: equal for equal formulas. function: the formula on NumPy arrays.
        apply: ``apply(function, arrays, numbers)`` runs it on whole arrays of any dtype. moments: how many there are.
    """

    __slots__ = ("apply", "function", "key", "moments", "name")
    single = False
    effect = False

    def __init__(
        self, name: str, key: Any, function: Callable[..., None], apply: Callable[..., None], moments: int
    ) -> None:
        self.name, self.key, self.function, self.apply, self.moments = name, key, function, apply, moments

    @property
    def written(self) -> tuple[int, ...]:
        """Which arguments become results: the parameter and the moments."""
        return (0, *range(2, 2 + self.moments))

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the new parameter and moments."""
        arrays = list(arguments[: 2 + self.moments])
        for i in self.written:
            arrays[i] = np.array(arrays[i], order="C")
        thread.state.run(self.apply, self.function, tuple(arrays), tuple(arguments[2 + self.moments :]))
        return [arrays[i] for i in self.written]


class Fused:
    """Several nodes that become one kernel.

    Attributes:
        kind: which: "pointwise" (element-wise expressions of one shape), "reduction" (expressions, then a reduction of
            them), "product" (a matrix product or convolution and what follows on its elements), "formulas" (the updates of
            many parameters).
        body: the nodes, as a graph whose inputs are the node's arguments and whose outputs are its results.
    """

    __slots__ = ("body", "kind", "name")
    single = False
    effect = False

    def __init__(self, kind: str, body: Graph) -> None:
        self.kind, self.body = kind, body
        self.name = f"{kind}({', '.join(n.op.name for n in body.nodes)})"

    def compute(self, arguments: Sequence[Any]) -> list[Any]:
        """Run the nodes one by one."""
        found = evaluate(self.body, arguments)
        return [found[value] for value in self.body.outputs]
