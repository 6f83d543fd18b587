"""Random tensors: drawn from a generator's stream, so that the same seed gives the same numbers.

Nothing here is differentiable except ``dropout`` and its kin, which multiply by a random mask.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import FLOAT, int64, to_dtype
from wengert.array.shape import as_int, size_of
from wengert.core.families import composite
from wengert.core.generator import Generator, default_generator, draw
from wengert.core.inplace import check_writable
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, wrote
from wengert.errors import DTypeError, ShapeError
from wengert.kernels import sampling as kernels
from wengert.operators.create import creation, finished
from wengert.settings import settings

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


# ---- the default generator


@creation
def manual_seed(seed: int) -> Generator:
    """Start the default generator's stream of ``seed`` from its beginning; return the generator."""
    return default_generator.manual_seed(seed)


@creation
def seed() -> int:
    """Start the default generator from a seed of the operating system; return the seed."""
    return default_generator.seed()


@creation
def initial_seed() -> int:
    """Return the seed of the default generator."""
    return default_generator.initial_seed()


@creation
def get_rng_state() -> Any:
    """Return the state of the default generator: see :meth:`wengert.Generator.get_state`."""
    return default_generator.get_state()


@creation
def set_rng_state(new_state: Any) -> None:
    """Continue the default generator from a state of :func:`get_rng_state`."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:
    """Leave the default generator as it was before the block, whatever the block draws."""
    state = default_generator.get_state()
    try:
        yield
    finally:
        if enabled:
            default_generator.set_state(state)


# ---- new tensors


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
    array = draw(
        generator,
        kernels.uniform,
        _shape(shape, size),
        _inexact(dtype or (out.dtype if out is not None else None), "rand"),
    )
    return finished(array, device, requires_grad, out)


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
    array = draw(
        generator,
        kernels.normal,
        _shape(shape, size),
        _inexact(dtype or (out.dtype if out is not None else None), "randn"),
    )
    return finished(array, device, requires_grad, out)


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
    array = draw(generator, kernels.integers, _shape((), size), kind, as_int(low, "low"), as_int(high, "high"))
    return finished(array, device, requires_grad, out)


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
    array = draw(generator, kernels.permutation, count)
    return finished(array.astype((int64 if dtype is None else to_dtype(dtype)).numpy), device, requires_grad, out)


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
        return maker(
            *args,
            size=tuple(input.shape),
            dtype=dtype or input.dtype,
            device=device,
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
    input: Tensor, low: Any, high: Any = None, *, dtype: Any = None, generator: Any = None, **options: Any
) -> Any:
    """Return integers of ``[low, high)`` (``[0, low)`` without ``high``) in the shape and dtype of ``input``."""
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, tuple(input.shape), dtype=dtype or input.dtype, generator=generator, **options)


# ---- distributions with tensors for parameters


def _floating(name: str, value: Any) -> Any:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}() takes a tensor, got {type(value).__name__}")
    if not value.dtype.is_floating_point:
        raise DTypeError(f"{name}() takes a floating-point tensor, got {value.dtype}")
    return value._payload


@creation
def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    out: Any = None,
    dtype: Any = None,
    **options: Any,
) -> Any:
    """Return normal numbers: of ``mean`` and ``std`` element by element, or of two numbers and a ``size``."""
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if tensors:
        arrays = [t._payload if isinstance(t, Tensor) else t for t in (mean, std)]
        shape = np.broadcast_shapes(*[np.shape(a) for a in arrays])
        kind = _inexact(dtype or tensors[0].dtype, "normal")
        return finished(draw(generator, kernels.normal, shape, kind, *arrays), out=out)
    if size is None:
        raise TypeError("normal() of two numbers misses argument size")
    return finished(
        draw(generator, kernels.normal, _shape((), size), _inexact(dtype, "normal"), mean, std), out=out, **options
    )


@creation
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Any:
    """Return 1 with the probability given by each element of ``input`` (or everywhere by ``p``), else 0."""
    array = _floating("bernoulli", input) if p is None else input._payload
    return finished(draw(generator, kernels.bernoulli, array.shape, array.dtype, array if p is None else p), out=out)


@creation
def poisson(input: Tensor, generator: Any = None) -> Any:
    """Return Poisson counts of the rates in ``input``."""
    array = _floating("poisson", input)
    return finished(draw(generator, kernels.poisson, array.shape, array.dtype, array))


@creation
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Any:
    """Return the number of successes among ``count`` trials of probability ``prob``, element by element."""
    n, p = _floating("binomial", count), _floating("binomial", prob)
    return finished(draw(generator, kernels.binomial, np.broadcast_shapes(n.shape, p.shape), n.dtype, n, p))


@creation
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Any = None
) -> Any:
    """Return ``num_samples`` class indices per row of ``input``, drawn in proportion to its weights: ``(…, n)`` int64."""
    array = _floating("multinomial", input)
    if array.ndim not in (1, 2):
        raise ShapeError(f"multinomial() takes weights of 1 or 2 dimensions, got shape {tuple(array.shape)}")
    return finished(
        draw(generator, kernels.multinomial, array, as_int(num_samples, "num_samples"), replacement), out=out
    )


# ---- in place


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
        array = draw(generator, kernel, self._payload.shape, self._payload.dtype, *[values[k] for k in order])
        np.copyto(self._payload, array, casting="unsafe")
        wrote(self, name)
        return self

    method.__name__, method.__doc__ = name, doc
    attach(name, method)


def _uniform_between(key: int, offset: int, shape: Any, dtype: Any, low: Any, high: Any) -> Any:
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
    np.copyto(self._payload, draw(generator, _uniform_between, self._payload.shape, self._payload.dtype, low, high))
    wrote(self, "uniform_")
    return self


def _random_(self: Any, *args: Any, generator: Any = None, **given: Any) -> Any:
    """Fill with integers of [from, to); without bounds, up to the largest the dtype holds exactly."""
    low = given.pop("from", args[0] if len(args) > 1 else 0)
    high = given.pop("to", args[-1] if args else None)
    if given or len(args) > 2:
        raise TypeError(f"random_() takes from, to and generator, got {', '.join(given) or args}")
    dtype = self._payload.dtype
    if high is None:
        high = (
            2 if dtype.kind == "b" else np.iinfo(dtype).max if dtype.kind in "iu" else 1 << (np.finfo(dtype).nmant + 1)
        )
    check_writable("random_", self)
    kind = dtype if dtype.kind != "b" else np.dtype(np.uint8)
    np.copyto(self._payload, draw(generator, kernels.integers, self._payload.shape, kind, low, high), casting="unsafe")
    wrote(self, "random_")
    return self


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
    rate = p._payload if isinstance(p, Tensor) else p
    drawn = draw(generator, kernels.bernoulli, self._payload.shape, np.dtype(np.uint8), rate)
    np.copyto(self._payload, drawn, casting="unsafe")
    wrote(self, "bernoulli_")
    return self


attach("bernoulli_", _bernoulli_)
attach("bernoulli", bernoulli)
attach("multinomial", multinomial)


# ---- dropout


def _mask(input: Any, shape: tuple[int, ...], p: float) -> Any:
    """Return a mask of ``shape``: 1/(1 − p) with probability 1 − p, else 0."""
    kept = draw(None, kernels.bernoulli, shape, input._payload.real.dtype, 1.0 - p)
    return finished(kept if p == 1.0 else kept * kept.dtype.type(1.0 / (1.0 - p)))


def _checked_rate(name: str, p: Any) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}(): p is a probability, between 0 and 1, got {p}")
    return float(p)


@composite(
    samples=lambda s: [s((2, 3), 0.5, False), s((2, 3), 0.0), s((0, 2)), s.error(ValueError, "probability", (2,), 1.5)],
    home=("", "nn.functional"),
)
def dropout(input: Any, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """While training, set elements to 0 with probability ``p`` and multiply the others by 1/(1 − p); else the input.

    N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).
    """
    return _dropped(input, _checked_rate("dropout", p), training, inplace, tuple(input.shape))


def _dropped(input: Any, p: float, training: bool, inplace: bool, shape: tuple[int, ...]) -> Any:
    if not training or p == 0.0:
        return input
    mask = _mask(input, shape, p)
    return ops.mul_(input, mask) if inplace else ops.mul(input, mask)


def _channel_dropout(name: str, dims: tuple[int, ...]) -> Callable[..., Any]:
    """Declare dropout of whole channels for inputs of the given numbers of dimensions (the larger is batched)."""

    def function(input: Any, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if input.ndim not in dims:
            raise ShapeError(
                f"{name}(): expected {' or '.join(map(str, dims))} dimensions, got shape {tuple(input.shape)}"
            )
        lead = 2 if input.ndim == dims[-1] else 1
        shape = (*input.shape[:lead], *(1,) * (input.ndim - lead))
        return _dropped(input, _checked_rate(name, p), training, inplace, shape)

    function.__name__ = name
    function.__doc__ = (
        "While training, set whole channels to 0 with probability ``p`` and scale the others by 1/(1 − p)."
    )
    function.__module__ = __name__
    shape = (2, *(3,) * (dims[-1] - 1))
    return composite(samples=lambda s: [s(shape, 0.5, False), s(shape, 0.0)], home="nn.functional")(function)


dropout1d = _channel_dropout("dropout1d", (2, 3))
dropout2d = _channel_dropout("dropout2d", (3, 4))
dropout3d = _channel_dropout("dropout3d", (4, 5))


@composite(samples=lambda s: [s((2, 3, 4), 0.5, False), s((2, 3), 0.0)], home=("", "nn.functional"))
def feature_dropout(input: Any, p: Any = 0.5, training: bool = True) -> Any:
    """While training, set whole channels (the first two dimensions) to 0 with probability ``p``."""
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _dropped(input, _checked_rate("feature_dropout", p), training, False, shape)


@composite(samples=lambda s: [s((2, 3), 0.5, False), s((2, 3), 0.0)], home=("", "nn.functional"))
def alpha_dropout(input: Any, p: Any = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Dropout that keeps mean and variance of SELU activations (G. Klambauer et al., 2017, §2)."""
    p = _checked_rate("alpha_dropout", p)
    if not training or p == 0.0:
        return input
    alpha = 1.7580993408473766
    a = 0.0 if p == 1.0 else 1.0 / math.sqrt((alpha * alpha * p + 1.0) * (1.0 - p))
    kept = finished(draw(None, kernels.bernoulli, tuple(input.shape), input._payload.dtype, 1.0 - p))
    noise = (1.0 - kept) * (-alpha * a) + alpha * a * p
    return ops.add_(ops.mul_(input, kept * a), noise) if inplace else input * (kept * a) + noise


@composite(samples=lambda s: [s((0, 3))], home="nn.functional")
def gumbel_softmax(logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """Differentiable samples of categories (E. Jang, S. Gu, B. Poole, 2017): softmax((logits + Gumbel noise) / tau).

    With ``hard`` the result is one-hot and the gradient that of the soft sample.
    """
    noise = finished(-np.log(draw(None, kernels.exponential, tuple(logits.shape), logits._payload.dtype, 1.0)))
    soft = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    index = ops.argmax(soft, dim, True)
    one = ops.scatter(ops.zeros_like(soft), dim, index, 1.0)
    return one - soft.detach() + soft
