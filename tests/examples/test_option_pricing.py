"""Prices and Greeks against the formulas of the books."""

import numpy as np
import pytest
from scipy.stats import norm

from examples.option_pricing import GREEKS, main


def closed_forms(spot: np.ndarray, strike: float, time: float, rate: float, sigma: float) -> dict[str, np.ndarray]:
    """Price and Greeks of a call without dividends (Haug, The Complete Guide to Option Pricing Formulas, chapter 2)."""
    root = sigma * np.sqrt(time)
    d1 = (np.log(spot / strike) + (rate + sigma**2 / 2) * time) / root
    d2 = d1 - root
    discount = np.exp(-rate * time)
    vega = spot * norm.pdf(d1) * np.sqrt(time)
    return {
        "price": spot * norm.cdf(d1) - strike * discount * norm.cdf(d2),
        "delta": norm.cdf(d1),
        "vega": vega,
        "theta": -spot * norm.pdf(d1) * sigma / (2 * np.sqrt(time)) - rate * strike * discount * norm.cdf(d2),
        "rho": strike * time * discount * norm.cdf(d2),
        "gamma": norm.pdf(d1) / (spot * root),
        "vanna": -norm.pdf(d1) * d2 / sigma,
        "volga": vega * d1 * d2 / sigma,
        "charm": -norm.pdf(d1) * (2 * rate * time - d2 * root) / (2 * time * root),
    }


def test_greeks_are_those_of_the_closed_forms_and_of_paths() -> None:
    found = main()
    spot, *constants = (found["market"][name].numpy() for name in ("spot", "time", "rate", "volatility"))
    expected = closed_forms(spot, found["strike"].item(), *constants)
    for name in GREEKS:
        np.testing.assert_allclose(found["book"][name].numpy(), expected[name], rtol=1e-10, atol=1e-12, err_msg=name)
    one = closed_forms(*(found["one"]["spot"].item(), found["strike"].item(), *(c[0] for c in constants)))
    slopes = {"spot": one["delta"], "time": -one["theta"], "rate": one["rho"], "volatility": one["vega"]}
    for name, (mean, error) in found["estimates"].items():
        assert mean == pytest.approx(slopes[name], abs=3 * error), name
        assert error < 0.02 * abs(slopes[name]), name
