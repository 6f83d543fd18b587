"""Random tensors: drawn from a generator's stream, so that the same seed gives the same numbers.

Nothing here is differentiable except ``gumbel_softmax``, in its logits.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, int64, to_dtype
from wengert.array.shape import as_int, broadcast_shapes, size_of
from wengert.core.devices import device_of, made_on
from wengert.core.families import composite
from wengert.core.generator import Generator, default_generator, draw
from wengert.core.inplace import adopt, check_writable
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.state import thread
from wengert.core.tensor import Tensor, raw
from wengert.errors import DTypeError, ShapeError
from wengert.kernels import sampling as kernels
from wengert.operators.create import creation, finished, in_layout
from wengert.settings import settings

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


# ---- the default generator


def _current() -> Generator:
    """The generator that this thread draws from: the default one, but for what a DataLoader makes."""
    generator: Generator = thread.state.generator or default_generator
    return generator


@creation
def manual_seed(seed: int) -> Generator:
    """Start the default generator's stream of ``seed`` from its beginning; return the generator.

    In a dataset that a DataLoader asks for samples, this and the functions below mean the generator of the batch.

    Example:
        >>> import wengert as wg
        >>> _ = wg.manual_seed(0)
        >>> first = wg.rand(2)
        >>> _ = wg.manual_seed(0)
        >>> bool((wg.rand(2) == first).all())
        True
    """
    return _current().manual_seed(seed)


@creation
def seed() -> int:
    """Start the default generator from a seed of the operating system; return the seed."""
    return _current().seed()


@creation
def initial_seed() -> int:
    """Return the seed of the default generator."""
    return _current().initial_seed()


@creation
def get_rng_state() -> Any:
    """Return the state of the default generator: see :meth:`wengert.Generator.get_state`."""
    return _current().get_state()


@creation
def set_rng_state(new_state: Any) -> None:
    """Continue the default generator from a state of :func:`get_rng_state`.

    Example:
        >>> import wengert as wg
        >>> state = wg.get_rng_state()
        >>> first = wg.rand(2)
        >>> wg.set_rng_state(state)
        >>> bool((wg.rand(2) == first).all())
        True
    """
    _current().set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """Leave the default generator as it was before the block, whatever the block draws.

    Example:
        >>> import wengert as wg
        >>> state = wg.get_rng_state()
        >>> with wg.random.fork_rng():
        ...     _ = wg.rand(100)
        >>> wg.equal(wg.get_rng_state(), state)
        True
    """
    generator = _current()
    state = generator.get_state()
    try:
        yield
    finally:
        if enabled:
            generator.set_state(state)


# ---- new tensors


def _given(drawn: Any, device: Any = None, requires_grad: bool = False, out: Any = None) -> Any:
    """Return a new tensor of random numbers, or write it into ``out``."""
    if out is not None:
        return finished(raw(drawn, "out="), device, requires_grad, out)
    drawn._payload = made_on(drawn._payload, device)
    return drawn.requires_grad_() if requires_grad else drawn


def _shape(size: tuple[Any, ...], named: Any) -> tuple[int, ...]:
    shape = size_of(size if named is None else named)
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative, got {shape}")
    return shape


def _inexact(dtype: Any, name: str) -> Any:
    found = settings.default_dtype if dtype is None else to_dtype(dtype)
    if found.category < FLOAT:
        raise DTypeError(
            f"{name}() makes floating-point or complex numbers, got dtype={found}; use randint for integers"
        )
    return found.numpy


@creation
def rand(
    *shape: Any,
    size: Any = None,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """Return numbers uniform in [0, 1): ``rand(2, 3)`` or ``rand((2, 3))``."""
    kind = _inexact(dtype or (out.dtype if out is not None else None), "rand")
    return _given(draw("rand", generator, kernels.uniform, _shape(shape, size), kind), device, requires_grad, out)


@creation
def randn(
    *shape: Any,
    size: Any = None,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """Return numbers of the standard normal distribution (complex: variance 1, split over both parts)."""
    kind = _inexact(dtype or (out.dtype if out is not None else None), "randn")
    return _given(draw("randn", generator, kernels.normal, _shape(shape, size), kind), device, requires_grad, out)


@creation
def randint(
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Return integers of ``[low, high)``, every one equally likely: ``randint(high, size)`` or ``randint(low, high, size)``."""
    if isinstance(high, Sequence) and size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise TypeError("randint() misses argument size: randint(high, size) or randint(low, high, size)")
    kind = (int64 if dtype is None else to_dtype(dtype)).numpy
    bounds = as_int(low, "low"), as_int(high, "high")
    drawn = draw("randint", generator, kernels.integers, _shape((), size), kind, *bounds)
    return _given(drawn, device, requires_grad, out)


@creation
def randperm(
    n: int,
    *,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """Return the integers 0 … n − 1 in random order."""
    count = as_int(n, "n")
    if count < 0:
        raise ValueError(f"randperm() takes a non-negative n, got {n}")
    kind = (int64 if dtype is None else to_dtype(dtype)).numpy
    drawn = draw("randperm", generator, _permutations, (), count, kind)
    return _given(drawn, device, requires_grad, out)


def _permutations(key: int, offset: int, shape: Any, count: int, dtype: Any) -> Any:
    array, used = kernels.permutation(key, offset, count, shape)
    return array.astype(dtype, copy=False), used


def _like(maker: Callable[..., Any], name: str) -> Callable[..., Any]:
    def function(
        input: Tensor,
        *args: Any,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        generator: Any = None,
    ) -> Any:
        stored = in_layout(name, input, layout, memory_format)
        if stored is not None:
            options = {"dtype": dtype, "device": device, "generator": generator}
            made = stored.like(name, input, lambda part: function(part, *args, **options))
            return made.requires_grad_() if requires_grad else made
        return maker(
            *args,
            size=tuple(input.shape),
            dtype=dtype or input.dtype,
            device=device_of(input) if device is None else device,
            requires_grad=requires_grad,
            generator=generator,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Return what :func:`wengert.{name.removesuffix('_like')}` makes, in the shape and dtype of ``input``."
    )
    return function


rand_like = creation(_like(rand, "rand_like"))
randn_like = creation(_like(randn, "randn_like"))


@creation
def randint_like(
    input: Tensor,
    low: Any,
    high: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    generator: Any = None,
    **options: Any,
) -> Any:
    """Return integers of ``[low, high)`` (``[0, low)`` without ``high``) in the shape and dtype of ``input``."""
    stored = in_layout("randint_like", input, layout, options.pop("memory_format", None))
    if stored is not None:
        return stored.like(
            "randint_like", input, lambda part: randint_like(part, low, high, dtype=dtype, generator=generator)
        )
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, tuple(input.shape), dtype=dtype or input.dtype, generator=generator, **options)


# ---- distributions with tensors for parameters


def _like_this(tensor: Any) -> tuple[Any, Any]:
    return tuple(tensor.shape), tensor.dtype.numpy


def _floating(name: str, value: Any) -> Any:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}() takes a tensor, got {type(value).__name__}")
    if not value.dtype.is_floating_point:
        raise DTypeError(f"{name}() takes a floating-point tensor, got {value.dtype}")
    return value


@creation
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """Return normal numbers: of ``mean`` and ``std`` element by element, or of two numbers and a ``size``."""
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if tensors:
        shape = broadcast_shapes("normal", *(t.shape for t in tensors))
        kind = _inexact(dtype or tensors[0].dtype, "normal")
        return _given(draw("normal", generator, kernels.normal, shape, kind, mean, std), out=out)
    if size is None:
        raise TypeError("normal() of two numbers misses argument size")
    drawn = draw("normal", generator, kernels.normal, _shape((), size), _inexact(dtype, "normal"), mean, std)
    return _given(drawn, device, requires_grad, out)


@creation
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Any:
    """Return 1 with the probability given by each element of ``input`` (or everywhere by ``p``), else 0."""
    rate = _floating("bernoulli", input) if p is None else p
    return _given(draw("bernoulli", generator, kernels.bernoulli, *_like_this(input), rate), out=out)


@creation
def poisson(input: Tensor, generator: Any = None) -> Any:
    """Return Poisson counts of the rates in ``input``."""
    return draw("poisson", generator, kernels.poisson, *_like_this(_floating("poisson", input)), input)


@creation
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Any:
    """Return the number of successes among ``count`` trials of probability ``prob``, element by element."""
    shape = broadcast_shapes("binomial", _floating("binomial", count).shape, _floating("binomial", prob).shape)
    return draw("binomial", generator, kernels.binomial, shape, count.dtype.numpy, count, prob)


@creation
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None
) -> Any:
    """Return ``num_samples`` class indices per row of ``input``, drawn in proportion to its weights: ``(…, n)`` int64."""
    if _floating("multinomial", input).ndim not in (1, 2):
        raise ShapeError(f"multinomial() takes weights of 1 or 2 dimensions, got shape {tuple(input.shape)}")
    rows, count = tuple(input.shape[:-1]), as_int(num_samples, "num_samples")
    return _given(draw("multinomial", generator, _choices, rows, input, count, replacement), out=out)


def _choices(key: int, offset: int, shape: Any, weights: Any, count: int, replacement: bool) -> Any:
    """Draw class indices for rows of weights, of which there are ``shape``."""
    return kernels.multinomial(key, offset, np.broadcast_to(weights, (*shape, weights.shape[-1])), count, replacement)


# ---- in place


def _write(name: str, tensor: Any, drawn: Any) -> Any:
    """Write numbers into a tensor; one that is being recorded passes a gradient of zeros on to what it was made of."""
    if thread.state.grad and tensor.requires_grad:
        drawn = drawn + ops.fill(tensor, 0)
    return adopt(name, tensor, drawn)


def _drawn_into(
    name: str, kernel: Callable[..., Any], order: tuple[str, ...], defaults: dict[str, Any], doc: str
) -> None:
    """Attach an in-place method that fills a tensor with random numbers."""

    def method(self: Any, *args: Any, generator: Any = None, **given: Any) -> Any:
        check_writable(name, self)
        values = {**defaults, **dict(zip(order, args, strict=False)), **given}
        unknown = set(values) - set(order)
        if unknown or len(args) > len(order):
            raise TypeError(
                f"{name}() takes {', '.join(order)} and generator, got {', '.join(sorted(unknown)) or args}"
            )
        return _write(name, self, draw(name, generator, kernel, *_like_this(self), *[values[k] for k in order]))

    method.__name__, method.__doc__ = name, doc
    attach(name, method)


def uniform_between(key: int, offset: int, shape: Any, dtype: Any, low: Any, high: Any) -> Any:
    """Draw as :func:`wengert.kernels.sampling.uniform` does, for ``uniform_``."""
    if not low <= high:
        raise ValueError(f"uniform_() takes from <= to, got {low} and {high}")
    return kernels.uniform(key, offset, shape, dtype, low, high)


def _uniform_(self: Any, *args: Any, generator: Any = None, **given: Any) -> Any:
    """Fill with numbers uniform in [from, to)."""
    low = given.pop("from", args[0] if args else 0.0)
    high = given.pop("to", args[1] if len(args) > 1 else 1.0)
    if given or len(args) > 2:
        raise TypeError(f"uniform_() takes from, to and generator, got {', '.join(given) or args}")
    check_writable("uniform_", self)
    return _write("uniform_", self, draw("uniform_", generator, uniform_between, *_like_this(self), low, high))


def _random_(self: Any, *args: Any, generator: Any = None, **given: Any) -> Any:
    """Fill with integers of [from, to); without bounds, up to the largest the dtype holds exactly."""
    low = given.pop("from", args[0] if len(args) > 1 else 0)
    high = given.pop("to", args[-1] if args else None)
    if given or len(args) > 2:
        raise TypeError(f"random_() takes from, to and generator, got {', '.join(given) or args}")
    shape, dtype = _like_this(self)
    if high is None:
        high = (
            2 if dtype.kind == "b" else np.iinfo(dtype).max if dtype.kind in "iu" else 1 << (np.finfo(dtype).nmant + 1)
        )
    check_writable("random_", self)
    return _write("random_", self, draw("random_", generator, kernels.integers, shape, dtype, low, high))


attach("uniform_", _uniform_)
attach("random_", _random_)
_drawn_into("normal_", kernels.normal, ("mean", "std"), {"mean": 0.0, "std": 1.0}, "Fill with normal numbers.")
_drawn_into(
    "exponential_", kernels.exponential, ("lambd",), {"lambd": 1.0}, "Fill with exponential numbers of rate lambd."
)
_drawn_into("cauchy_", kernels.cauchy, ("median", "sigma"), {"median": 0.0, "sigma": 1.0}, "Fill with Cauchy numbers.")
_drawn_into(
    "log_normal_", kernels.log_normal, ("mean", "std"), {"mean": 1.0, "std": 2.0}, "Fill with log-normal numbers."
)
_drawn_into("geometric_", kernels.geometric, ("p",), {}, "Fill with geometric numbers: trials up to the first success.")


def _bernoulli_(self: Any, p: Any = 0.5, *, generator: Any = None) -> Any:
    """Fill with 1 at probability ``p`` (a number or a tensor of them), else 0."""
    check_writable("bernoulli_", self)
    return _write("bernoulli_", self, draw("bernoulli_", generator, kernels.bernoulli, *_like_this(self), p))


attach("bernoulli_", _bernoulli_)
attach("bernoulli", bernoulli)
attach("multinomial", multinomial)


# ---- categories


def _gumbel(key: int, offset: int, shape: Any, dtype: Any) -> Any:
    array, used = kernels.exponential(key, offset, shape, dtype, 1.0)
    return -np.log(array), used


@composite(samples=lambda s: [s((0, 3))], home="nn.functional")
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """Differentiable samples of categories (E. Jang, S. Gu, B. Poole, 2017): softmax((logits + Gumbel noise) / tau).

    With ``hard`` the result is one-hot and the gradient that of the soft sample.
    """
    noise = draw("gumbel_softmax", None, _gumbel, *_like_this(logits))
    soft = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = ops.argmax(soft, dim, True)
    one = ops.scatter(ops.zeros_like(soft), dim, index, 1.0)
    return one - soft.detach() + soft
