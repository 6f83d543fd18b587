"""P9: prices of options with their sensitivities, compiled: a long element-wise formula, differentiated twice."""

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

SIZE = 1_000_000
INPUTS, RESULTS = ("S", "K", "T", "r", "v"), ("price", "delta", "vega", "rho", "theta", "gamma")

CASES = [
    Case("float32", must=0.9, aim=0.6, parameters={"dtype": np.float32}),
    Case("float64", must=0.7, aim=0.3, parameters={"dtype": np.float64}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """Spot, strike, time, interest and volatility."""
    ranges = ((80, 120), (80, 120), (0.2, 2.0), (0.0, 0.05), (0.15, 0.5))
    return {
        k: rng.uniform(*ends, SIZE).astype(case.parameters["dtype"]) for k, ends in zip(INPUTS, ranges, strict=True)
    }


def reference(case: Case, data: Arrays) -> Arrays:
    """The closed forms in float64 (Hull, Options, Futures, and Other Derivatives, ch. 19); theta is -dprice/dT."""
    s, k, t, r, v = (data[name].astype(np.float64) for name in INPUTS)
    erf = np.frompyfunc(math.erf, 1, 1)

    def phi(d: Any) -> Any:
        return np.asarray(0.5 * (1 + erf(d / math.sqrt(2))), np.float64)

    root = v * np.sqrt(t)
    d1 = (np.log(s / k) + (r + v * v / 2) * t) / root
    d2, density = d1 - root, np.exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi)
    paid = k * np.exp(-r * t) * phi(d2)
    return {
        "price": s * phi(d1) - paid, "delta": phi(d1), "vega": s * density * np.sqrt(t), "rho": t * paid,
        "theta": -s * density * v / (2 * np.sqrt(t)) - r * paid, "gamma": density / (s * root),
    }  # fmt: skip


WORKLOAD = Workload(
    "P9", "options", "Black-Scholes with all Greeks, 1,000,000 options, compiled", CASES, data,
    reference=reference, tolerance=2e-5,
)  # fmt: skip


def greeks(grad: Callable[..., Any], log: Any, sqrt: Any, exp: Any, erf: Any) -> Callable[..., Any]:
    """Return the function, for a framework with PyTorch's and JAX's form of ``grad``."""

    def total(s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
        root = v * sqrt(t)
        d1 = (log(s / k) + (r + 0.5 * v * v) * t) / root
        price = s * phi(d1) - k * exp(-r * t) * phi(d1 - root)
        return price.sum(), price

    def phi(d: Any) -> Any:
        return 0.5 * (1 + erf(d * 0.5**0.5))

    def everything(s: Any, k: Any, t: Any, r: Any, v: Any) -> Any:
        def first(s: Any) -> Any:
            (ds, dv, dr, dt), price = grad(total, (0, 4, 3, 2), has_aux=True)(s, k, t, r, v)
            return ds.sum(), (price, ds, dv, dr, -dt)

        gamma, others = grad(first, has_aux=True)(s)
        return (*others, gamma)

    return everything


@WORKLOAD.framework("wengert", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    func = importlib.import_module(f"{framework.__name__}.func")
    work = greeks(func.grad, framework.log, framework.sqrt, framework.exp, framework.erf)
    work = work if name == "torch" else framework.compile(work, fullgraph=True)
    given = [framework.tensor(data[k]) for k in INPUTS]
    last: list[Any] = [None]

    def step() -> None:
        last[0] = work(*given)

    return Job(step, lambda: {k: t.detach().numpy() for k, t in zip(RESULTS, last[0], strict=True)})


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", case.parameters["dtype"] is np.float64)
    jnp = jax.numpy
    work = jax.jit(greeks(jax.grad, jnp.log, jnp.sqrt, jnp.exp, jax.lax.erf))
    given = [jnp.asarray(data[k]) for k in INPUTS]
    last: list[Any] = [None]

    def step() -> None:
        last[0] = jax.block_until_ready(work(*given))

    return Job(step, lambda: {k: np.asarray(v) for k, v in zip(RESULTS, last[0], strict=True)})
