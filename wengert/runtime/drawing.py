"""Draws of a plan: the numbers that the samplers give, made by native code from where the generator stands at each call."""

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from wengert.array.dtype import dtype_of
from wengert.codegen.target import host
from wengert.graph.operations import Draw
from wengert.kernels import philox, sampling
from wengert.loops.drawing import STEPS, WORDS, Word, drawing, first_of_element
from wengert.loops.scalar import Scalar, cast, const, make, param, select
from wengert.loops.tracing import Untraceable, name_of
from wengert.operators.dropout import scaled_mask
from wengert.operators.sampling import uniform_between
from wengert.runtime.ahead import Ahead
from wengert.runtime.launch import Launcher, number_bits, pointer
from wengert.runtime.pool import empty
from wengert.runtime.recent import Recent
from wengert.runtime.recording import Recording, assign

__all__ = ["Stream", "draw"]

_kernels: Recent[Any, Ahead[Launcher]] = Recent(64)


class Formula(NamedTuple):
    """How a number comes from random bits.

    Attributes:
        key: names the formula. per: how many words it takes. element: from bits to the value. numbers: what it is told: names,
            dtypes and values.
    """

    key: str
    per: int
    element: Callable[[Word], Scalar]
    numbers: tuple[tuple[str, str, Any], ...] = ()


def _unit(dtype: Any) -> tuple[int, Callable[[Word], Scalar]]:
    """Return the words and the formula of numbers k / 2**d in [0, 1)."""
    kind = dtype_of(dtype)
    digits = 53 if dtype == np.float64 else 24 if dtype == np.float32 else 11 if kind.name == "float16" else 8
    wide, integer, width = ("f64", "i64", 64) if digits == 53 else ("f32", "i32", 32)

    def unit(word: Word) -> Scalar:
        bits = make("shr", (word.bits, const(width - digits, "u64")))
        return cast(cast(bits, integer), wide) * 2.0**-digits

    return width // 32, unit


def _uniform(dtype: Any, low: float = 0.0, high: float = 1.0) -> Formula:
    if dtype.kind not in "fV":
        raise Untraceable("complex numbers at random")
    per, unit = _unit(dtype)
    if (low, high) == (0.0, 1.0):
        return Formula("unit", per, unit)
    if dtype not in (np.float32, np.float64):
        raise Untraceable("halves at random from an interval")
    first, last = np.array([low, high]).astype(dtype)
    name = name_of(dtype)
    numbers = ("start", first), ("width", last - first), ("below", np.nextafter(last, first))

    def between(word: Word) -> Scalar:
        found = unit(word) * param("width", name) + param("start", name)
        return make("minimum", (found, param("below", name)))

    return Formula("between", per, between, tuple((n, name, v) for n, v in numbers))


def _truth(scale: float, dtype: Any, p: Any) -> Formula:
    """Return what is ``scale`` with probability ``p``, else 0."""
    if isinstance(p, np.ndarray):
        raise Untraceable("truths at random, each with a probability of its own")
    whole, rest = math.floor(p * 2.0**32), p * 2.0**32 % 1.0
    name = name_of(dtype)

    def truth(word: Word) -> Scalar:
        bound = param("whole", "u64")
        more = make("shr", (first_of_element(word), const(11, "u64")))
        tie = (cast(more, "f64") * 2.0**-53).lt(param("rest", "f64"))
        tied = make("rarely", (word.bits.eq(bound), tie, const(False, "bool")))
        return select(make("or", (word.bits.lt(bound), tied)), param("scale", name), const(0, name))

    return Formula("truth", 1, truth, (("whole", "u64", whole), ("rest", "f64", rest), ("scale", name, scale)))


# The samplers whose numbers are a formula of a fixed number of words that is the same in NumPy and in native code.
FORMULAS: Final[dict[Any, Callable[..., Formula]]] = {
    sampling.uniform: _uniform,
    uniform_between: _uniform,
    sampling.bernoulli: lambda dtype, p: _truth(1, dtype, p),
    scaled_mask: lambda dtype, p: _truth(1.0 if p == 1.0 else dtype.type(1.0 / (1.0 - p)), dtype, 1.0 - p),
}  # fmt: skip


def draw(op: Draw, parameters: list[Any], out: Any, recording: Recording) -> None:
    """Record a draw into an array.

    Raises:
        Untraceable: if native code does not make these numbers.
    """
    if op.sampler not in FORMULAS or any(isinstance(p, np.ndarray) for p in parameters):
        raise Untraceable(f"{op.name}: it is drawn in Python")
    formula = FORMULAS[op.sampler](np.dtype(parameters[0]), *parameters[1:])
    state, used = np.zeros(2, np.uint64), out.size * formula.per
    blocks, before = -(-used // WORDS), len(recording.tasks)
    numbers = empty(blocks * WORDS // formula.per, out.dtype) if used % WORDS else out.reshape(-1)
    _launch(formula, numbers, state, blocks)
    if used % WORDS:
        assign(out, numbers[: out.size].reshape(out.shape))
    stream = recording.streams.get(op.generator)
    if stream is None:
        stream = recording.streams[op.generator] = Stream(op.generator)
        recording.tasks.insert(before, stream)
    stream.draws.append((state, used))


class Stream:
    """A step of a plan: it takes from a generator what native draws after it need, each in its turn.

    Attributes:
        generator: it. draws: for each draw where it reads its key and offset, and how many words it takes.
    """

    why = "where the generator stands is Python's to know"

    def __init__(self, generator: Any) -> None:
        self.generator, self.draws = generator, []  # type: Any, list[tuple[Any, int]]

    def __call__(self) -> None:
        """Move the generator on."""
        for state, used in self.draws:
            self.generator.take(_stand, (used,), (state,))


def _stand(key: int, offset: int, shape: tuple[int], state: Any) -> tuple[Any, int]:
    """Be a sampler that notes where the stream stands, and draws nothing."""
    (used,) = shape
    if offset + used > philox.KEY_LIMIT:
        philox.words(key, offset, used)  # which says that the stream ends
    state[:] = key, offset
    return state, used


def _launch(formula: Formula, out: Any, state: Any, blocks: int) -> None:
    dtype, lanes = name_of(out.dtype), max(2, host().vector_bytes // 8)
    key = f"draw {formula.key} {dtype} {lanes}"
    params = [(name, kind) for name, kind, _ in formula.numbers]
    found = _kernels.get(key)
    if found is None:
        found = _kernels[key] = Ahead(
            lambda: Launcher(key, lambda: drawing("draw", dtype, formula.per, formula.element, params, lanes))
        )
    launch = found.get()
    if launch is None:
        raise Untraceable("random numbers yet")
    values = [number_bits(value, kind) for _, kind, value in formula.numbers]
    launch([pointer(out), pointer(state), out.size, blocks, *values], -(-blocks // STEPS), 1)
