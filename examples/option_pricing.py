"""Option prices and all their sensitivities, the Greeks, from nothing but the formula of the price.

The price of a European call under Black and Scholes (1973) is a few lines. ``grad`` gives its first derivatives,
``hessian`` the second ones, and ``vmap`` takes both for a whole book of options at once. Then the same price is
estimated by Monte Carlo: the derivative of each path's payoff, averaged, estimates the derivative of the price (the
pathwise method; Glasserman, Monte Carlo Methods in Financial Engineering, 2003, section 7.2), and ``vmap(grad(...))``
gives it path by path, so that the standard error is known too.

Run: python examples/option_pricing.py [--picture FILE]
"""

import argparse
import math
from typing import Any

import wengert as wg
from wengert.func import grad, hessian, vmap

DTYPE = wg.float64
GREEKS = ("price", "delta", "vega", "theta", "rho", "gamma", "vanna", "volga", "charm")


def normal_cdf(x: wg.Tensor) -> wg.Tensor:
    """Return the probability that a standard normal variable is below ``x``."""
    return wg.erfc(-x / math.sqrt(2)) / 2


def black_scholes(market: dict[str, wg.Tensor], strike: wg.Tensor) -> wg.Tensor:
    """Return the price of a call: ``market`` has spot, time to expiry in years, rate and volatility."""
    spot, time, rate, volatility = (market[name] for name in ("spot", "time", "rate", "volatility"))
    deviation = volatility * time.sqrt()
    d1 = ((spot / strike).log() + (rate + volatility**2 / 2) * time) / deviation
    return spot * normal_cdf(d1) - strike * (-rate * time).exp() * normal_cdf(d1 - deviation)


def greeks(market: dict[str, wg.Tensor], strike: wg.Tensor) -> dict[str, wg.Tensor]:
    """Return price and Greeks of one option; theta and charm are by the time that passes, which leaves less of it."""
    first = grad(black_scholes)(market, strike)
    second = hessian(black_scholes)(market, strike)
    return {
        "price": black_scholes(market, strike),
        "delta": first["spot"],
        "vega": first["volatility"],
        "theta": -first["time"],
        "rho": first["rate"],
        "gamma": second["spot"]["spot"],
        "vanna": second["spot"]["volatility"],
        "volga": second["volatility"]["volatility"],
        "charm": -second["spot"]["time"],
    }


def path_payoff(market: dict[str, wg.Tensor], strike: wg.Tensor, normal: wg.Tensor) -> wg.Tensor:
    """Return the discounted payoff of one path, which ``normal`` drives."""
    time, rate, volatility = market["time"], market["rate"], market["volatility"]
    end = market["spot"] * ((rate - volatility**2 / 2) * time + volatility * time.sqrt() * normal).exp()
    return (-rate * time).exp() * wg.relu(end - strike)


def monte_carlo(market: dict[str, wg.Tensor], strike: wg.Tensor, paths: int) -> dict[str, tuple[float, float]]:
    """Return estimate and standard error of each first derivative, by name of what is varied."""
    normals = wg.randn(paths, dtype=DTYPE)
    slopes = vmap(grad(path_payoff), in_dims=(None, None, 0), chunk_size=8_000)(market, strike, normals)
    return {name: (s.mean().item(), s.std().item() / math.sqrt(paths)) for name, s in slopes.items()}


def main(picture: str | None = None) -> dict[str, Any]:
    """Price a book of options over spots, print one of them, and estimate its Greeks by Monte Carlo."""
    wg.manual_seed(0)
    spots = wg.linspace(60, 140, 81, dtype=DTYPE)
    strike = wg.tensor(100.0, dtype=DTYPE)
    constants = {"time": 0.75, "rate": 0.03, "volatility": 0.25}
    market = {"spot": spots, **{name: wg.full_like(spots, value) for name, value in constants.items()}}
    book = vmap(greeks, in_dims=(0, None))(market, strike)

    at = 45  # spot 105
    one = {name: values[at] for name, values in market.items()}
    estimates = monte_carlo(one, strike, paths=40_000)
    print(f"A call with strike {strike.item():g}, spot {one['spot'].item():g}, {constants}")
    print("  " + "  ".join(f"{name} {book[name][at].item():.4f}" for name in GREEKS))
    for name, (mean, error) in estimates.items():
        print(f"  Monte Carlo: derivative by {name:<10} {mean:9.4f} ± {error:.4f}")
    if picture:
        draw(spots, book, picture)
    return {"market": market, "strike": strike, "book": book, "one": one, "estimates": estimates}


def draw(spots: wg.Tensor, book: dict[str, wg.Tensor], picture: str) -> None:
    """Draw every Greek over the spot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    for axis, name in zip(figure.subplots(3, 3, sharex=True).flat, GREEKS, strict=True):
        axis.plot(spots.numpy(), book[name].numpy())
        axis.set_title(name)
    figure.savefig(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Black-Scholes and Monte-Carlo Greeks.")
    parser.add_argument("--picture", metavar="FILE", help="draw the Greeks into this file")
    main(parser.parse_args().picture)
