"""Derivatives measured from outside: difference quotients of a function, beside what its tape says.

Everything is brought to real numbers, where one rule serves all dtypes. A complex output is two real outputs (real and
imaginary part), and the gradient of a real number ``L`` with respect to ``z = x + iy`` is ``dL/dx + i dL/dy``, which
is PyTorch's convention (twice the conjugate Wirtinger derivative). A Jacobian is therefore an array of shape
``(real components of the output, elements of the input)``, complex exactly where the input is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array
from wengert.tape.api import grad

__all__ = ["Array", "Blocks", "Probe", "analytical_jacobian", "as_tuple", "numerical_jacobian"]

Array = NDArray[Any]
Blocks = list[list[Array]]  # Jacobians by output, then by input


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple, and anything else as a tuple of one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def is_inexact(value: Any) -> bool:
    """Whether ``value`` is a tensor whose elements can have derivatives."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def array_of(tensor: Tensor) -> Array:
    """Return the array in which the elements of ``tensor`` lie, without history."""
    array: Array = tensor.detach().numpy()
    return array


def widened(array: Array) -> Array:
    """Return a copy in float64, or in complex128 if ``array`` is complex."""
    return np.array(array, dtype=np.complex128 if np.iscomplexobj(array) else np.float64)


def real_components(array: Array) -> Array:
    """Return a copy as one row of float64; a complex element gives its real and then its imaginary part."""
    return widened(array).ravel().view(np.float64)


def like(tensor: Tensor, components: Array) -> Tensor:
    """Return a tensor of the shape and dtype of ``tensor`` with the given real components."""
    memory = array_of(tensor)
    wide = components.view(np.complex128) if np.iscomplexobj(memory) else components
    made: Tensor = from_array(np.array(wide.reshape(memory.shape), dtype=memory.dtype))
    return made


def overlaps_itself(array: Array) -> bool:
    """Whether two elements of ``array`` lie at the same address, as in an expanded tensor."""
    if array.flags.forc or array.size == 0:
        return False
    offsets = sum(np.ix_(*(np.arange(n) * step for n, step in zip(array.shape, array.strides, strict=True))))
    return np.unique(np.asarray(offsets)).size < array.size


class Probe:
    """A function at a point: its outputs there, and how they move when one element of an input moves.

    Inputs are moved in their own memory and put back bit for bit, so a function that reads a tensor through a closure
    (``lambda *parameters: model(x)``) sees the move. Where that cannot be done (elements that share an address, memory
    that is read-only) a private copy of the input is moved and handed to the function instead.

    Args:
        func: called with ``inputs``; returns a tensor or a sequence that holds tensors.
        inputs: tensors and other things; those that require grad are differentiated, the rest is passed through.
        input_name, output_name: what to call the input or output at a place in a report. mode: what to call the check.

    Attributes:
        outputs: the outputs that require grad, recorded at the point; ``kept``: their places among all outputs. If no
            output requires grad, ``detached`` is True and these are all outputs that could.
        wrt: the places of the differentiated inputs.

    Raises:
        TypeError: if no output is a tensor.
        ValueError: if two different inputs share memory, or no input requires grad.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        inputs: Sequence[Any],
        input_name: Callable[[int], str] = "input {}".format,
        output_name: Callable[[int], str] = "output {}".format,
        mode: str = "reverse mode",
    ) -> None:
        if thread.state.captures is not None:
            thread.state.captures.refuse("gradcheck, which moves its inputs where they lie,")
        self.func, self.input_name, self.output_name, self.mode = func, input_name, output_name, mode
        self.inputs = tuple(inputs)
        self.wrt = tuple(i for i, x in enumerate(self.inputs) if is_inexact(x) and x.requires_grad)
        if not self.wrt:
            raise ValueError(
                f"gradcheck needs at least one input that requires grad, but none of the {len(self.inputs)} inputs is "
                "a floating-point or complex tensor with requires_grad=True; call .requires_grad_() on what to check"
            )
        refuse_shared_memory(self.inputs)
        copies = {id(self.inputs[i]): movable(self.inputs[i]) for i in self.wrt}
        self.args = tuple(copies.get(id(x), x) for x in self.inputs)
        self.memory = {i: array_of(self.args[i]) for i in self.wrt}

        everything = as_tuple(func(*self.inputs))
        if not any(isinstance(out, Tensor) for out in everything):
            kinds = ", ".join(type(out).__name__ for out in everything) or "nothing"
            raise TypeError(f"gradcheck needs a function that returns tensors, but this one returned: {kinds}")
        inexact = tuple(k for k, out in enumerate(everything) if is_inexact(out))
        recorded = tuple(k for k in inexact if everything[k].requires_grad)
        self.count, self.detached, self.kept = len(everything), not recorded, recorded or inexact
        self.outputs: tuple[Tensor, ...] = tuple(everything[k] for k in self.kept)

    def values(self) -> list[Array]:
        """Run the function where the inputs stand now; return the real components of ``outputs`` there."""
        everything = as_tuple(self.func(*self.args))
        if len(everything) != self.count:
            raise ValueError(
                f"the function returned {self.count} outputs, but {len(everything)} when an input had moved"
            )
        moved = [everything[k] for k in self.kept]
        for k, before, after in zip(self.kept, self.outputs, moved, strict=True):
            if before.shape != after.shape or before.dtype != after.dtype:
                raise ValueError(
                    f"output {k} must keep its shape and dtype when an input moves, but {tuple(before.shape)} "
                    f"{before.dtype} became {tuple(after.shape)} {after.dtype}"
                )
        return [real_components(array_of(out)) for out in moved]

    @contextmanager
    def displaced(self, place: int, index: Any, step: Any) -> Iterator[Any]:
        """Hold ``input[place][index]`` moved by ``step``; gives the displacement that rounding left of it."""
        memory = self.memory[place]
        saved = memory[index].copy()
        memory[index] = widened(saved) + step
        try:
            yield widened(memory[index]) - widened(saved)
        finally:
            memory[index] = saved

    def units(self, place: int) -> tuple[complex, ...]:
        """Return the directions in which an element of input ``place`` can move: 1, and 1j if it is complex."""
        return (1.0, 1.0j) if np.iscomplexobj(self.memory[place]) else (1.0,)

    def slopes(self, place: int, index: Any, unit: complex, eps: float) -> list[Array]:
        """Return the central difference quotients of every output, in the direction ``unit`` at one element."""
        with self.displaced(place, index, eps * unit) as ahead:
            plus = self.values()
        with self.displaced(place, index, -eps * unit) as behind:
            minus = self.values()
        width = float(((ahead - behind) / unit).real)  # what rounding left of 2 eps; 0 if the step was lost
        with np.errstate(invalid="ignore", over="ignore"):
            return [(p - m) / (width or 2 * eps) for p, m in zip(plus, minus, strict=True)]

    def pullback(self, cotangents: Mapping[int, Array]) -> list[Array | None]:
        """Run the tape backward from some of the outputs; return the gradient of each differentiated input.

        Args:
            cotangents: real components of the incoming gradient by position in ``outputs``; the others stay undefined.
        """
        chosen = [self.outputs[k] for k in cotangents]
        seeds = [like(self.outputs[k], row) for k, row in cotangents.items()]
        wanted = [self.inputs[i] for i in self.wrt]
        found = grad(chosen, wanted, seeds, retain_graph=True, allow_unused=True)
        return [None if g is None else array_of(g).copy() for g in found]

    def zeros(self) -> Blocks:
        """Return Jacobians full of zeros, to be filled."""
        sizes = [real_components(array_of(out)).size for out in self.outputs]
        elements = [(self.memory[i].size, widened(self.memory[i]).dtype) for i in self.wrt]
        return [[np.zeros((rows, n), dtype) for n, dtype in elements] for rows in sizes]


def movable(tensor: Tensor) -> Tensor:
    """Return ``tensor`` if its elements can be moved one by one in place, and a copy that can be otherwise."""
    memory = array_of(tensor)
    if memory.flags.writeable and not overlaps_itself(memory):
        return tensor
    copy: Tensor = from_array(np.array(memory, order="C"))
    return copy.requires_grad_()


def refuse_shared_memory(inputs: Sequence[Any]) -> None:
    """Raise if moving a differentiated input would also move another tensor among the inputs."""
    tensors = {id(x): (i, x) for i, x in enumerate(inputs) if isinstance(x, Tensor)}
    for (i, a), (j, b) in combinations(tensors.values(), 2):
        if (a.requires_grad or b.requires_grad) and np.shares_memory(array_of(a), array_of(b)):
            raise ValueError(
                f"inputs {i} and {j} share memory: moving an element of one would move the other, and the difference "
                "quotient would mix both derivatives; pass a .clone() of one of them"
            )


def numerical_jacobian(probe: Probe, eps: float = 1e-6) -> Blocks:
    """Measure every Jacobian by central differences: ``(f(x + eps) - f(x - eps)) / (2 eps)``, element by element.

    Returns:
        ``blocks[output][input]``, each of shape ``(real components of the output, elements of the input)``.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor([1.0, 2.0], dtype=wg.float64, requires_grad=True)
        >>> numerical_jacobian(Probe(lambda x: x * x, (x,)))[0][0].round(6)
        array([[2., 0.],
               [0., 4.]])
    """
    return by_columns(probe, lambda place, index, unit: probe.slopes(place, index, unit, eps))


def by_columns(probe: Probe, column: Callable[[int, Any, complex], list[Array]]) -> Blocks:
    """Build every Jacobian from its columns.

    Args:
        column: called with a differentiated input, an index into it and a direction (1, or 1j for the imaginary part);
            returns how the real components of each output change.
    """
    sizes = [real_components(array_of(out)).size for out in probe.outputs]
    by_input = []
    for place in probe.wrt:
        moves = list(product(np.ndindex(probe.memory[place].shape), probe.units(place)))
        blocks = [np.empty((size, len(moves))) for size in sizes]
        for number, (index, unit) in enumerate(moves):
            for block, change in zip(blocks, column(place, index, unit), strict=True):
                block[:, number] = change
        by_input.append([b.view(np.complex128) if len(probe.units(place)) == 2 else b for b in blocks])
    return [list(blocks) for blocks in zip(*by_input, strict=True)]


def analytical_jacobian(probe: Probe) -> Blocks:
    """Read every Jacobian off the tape, one backward run for each real component of each output.

    Returns:
        ``blocks[output][input]``, as :func:`numerical_jacobian` gives them.
    """
    blocks = probe.zeros()
    for k, of_output in enumerate(blocks):
        for row, seed in enumerate(np.eye(of_output[0].shape[0])):
            for block, gradient in zip(of_output, probe.pullback({k: seed}), strict=True):
                if gradient is not None:
                    block[row] = widened(gradient).ravel()
    return blocks
