"""Distributions from the bits of Philox: functions of (key, offset) that remember nothing.

Every function takes a key and the offset of its first 32-bit word in the stream of that key, and returns the numbers
with how many words they spent; the next draw of the stream begins that many words later. Element ``i`` (in C order)
is made from words at a place that depends on ``i`` alone, or from a sub-stream of its own, so a larger draw begins with
the smaller one. Bits, integers and uniform numbers are the same on every machine; where logarithms and sines come in,
the last bit is that of the machine's NumPy.

The rooms: `continuous` and `discrete` (a formula of a fixed number of words), `rejection` (as many blocks as an element
needs) and `parameters` (what is refused, and how).

Example:
    >>> import numpy as np
    >>> first, used = uniform(7, 0, (2, 3), np.float32)
    >>> second, _ = uniform(7, used, (3,), np.float32)
    >>> both, _ = uniform(7, 0, (9,), np.float32)
    >>> bool((both == np.concatenate([first.ravel(), second])).all())
    True
"""

from wengert.kernels.sampling.continuous import cauchy, exponential, log_normal, normal, uniform
from wengert.kernels.sampling.discrete import bernoulli, geometric, integers, multinomial, permutation
from wengert.kernels.sampling.parameters import ParameterError
from wengert.kernels.sampling.rejection import binomial, gamma, poisson, truncated_normal

__all__ = [
    "ParameterError",
    "bernoulli",
    "binomial",
    "cauchy",
    "exponential",
    "gamma",
    "geometric",
    "integers",
    "log_normal",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "truncated_normal",
    "uniform",
]
