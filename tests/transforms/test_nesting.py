"""Nested transforms up to third order against central differences of one order less, and against loops."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.func import grad, hessian, hvp, jacfwd, jacrev, jvp, linearize, vjp, vmap

RNG = np.random.default_rng(20)
POINTS = wg.from_numpy(RNG.uniform(0.4, 1.6, (3, 4)) * np.where(RNG.random((3, 4)) < 0.4, -1.0, 1.0))
V, W, U = (wg.from_numpy(RNG.uniform(-1.0, 1.0, 4)) for _ in range(3))
ZERO_POINT = wg.tensor([0.7, 0.0, -1.2, 0.4], dtype=wg.float64)
A, B = (wg.from_numpy(RNG.uniform(-1.0, 1.0, (4, 4))) for _ in range(2))
C = wg.from_numpy(RNG.uniform(-1.0, 1.0, 4))


def matrix(x: Any) -> Any:
    """Return a well-conditioned matrix that depends on x."""
    return wg.outer(x, x) * 0.3 + A * 0.2 + 2 * wg.eye(4, dtype=wg.float64) + wg.diag(x * x)


def symmetric(x: Any) -> Any:
    """Return a positive definite matrix that depends on x."""
    m = matrix(x)
    return m @ m.mT


def by_indexing(x: Any) -> Any:
    """Take elements in several ways, some twice."""
    return x[[0, 2, 2]] * x[1:] + x[..., -1] * x.flip(0)[::2].sum() + wg.take_along_dim(x, wg.tensor([3, 1, 0]), 0)


def by_writes(x: Any) -> Any:
    """Write through views, rows and masks."""
    y = x * 1.0
    y[1:3] *= y[:2].clone()
    y[0] = y[3].clone() * x[2]
    view = y.view(2, 2)
    view[1].mul_(x[:2])
    y.add_(x.sin())
    out = wg.zeros_like(x)
    out[::2] = y[1::2] ** 2
    out[1::2] += y[::2]
    return out.exp_().mul_(0.1) + y


def by_where(x: Any) -> Any:
    """Choose by sign; the other branch would be NaN."""
    safe = wg.where(x > 0, x, 1.0)
    return wg.where(x > 0, safe.sqrt() * x, x**3) + x.clamp(-0.9, 0.9) * x.abs() + wg.maximum(x, x * x)


def by_order(x: Any) -> Any:
    """Sort, take the largest, accumulate."""
    top = x.topk(2)[0]
    return (
        x.sort()[0].cumsum(0) * x.max() ** 2
        + top.prod() * x.cummax(0)[0]
        + x.median(0)[0] * x.amin() * x.logcumsumexp(0)
    )


def by_spectrum(x: Any) -> Any:
    """Go through the Fourier transform and back."""
    z = wg.fft.fft(x)
    return z.abs() ** 3 * 0.05 + wg.fft.irfft(wg.fft.rfft(x * x) * z[:3], 4) + wg.fft.ifft(z * z.conj()).real


def by_complex(x: Any) -> Any:
    """Compute with complex numbers."""
    z = wg.complex(x, x.sin())
    w = (z * z.conj() + wg.exp(1j * z) / (z + 3)).pow(2)
    return w.real + w.imag * 0.5 + w.angle() + (z @ w).abs()


def by_branches(x: Any) -> Any:
    """Let values decide what is run."""
    y = x
    for _ in range(3):
        y = y.sin() * 2 if y.sum() > 0.1 else y.cos() * x
    return y * float(y.detach().argmax() + 1)


def by_blocks(x: Any) -> Any:
    """Pad, unfold, roll, repeat, split and join."""
    parts = wg.nn.functional.pad(x, (1, 2)).unfold(0, 3, 2)
    first, second = x.chunk(2)
    joined = wg.cat([first * second, wg.stack([x.roll(1), x.repeat(2)[2:6]]).sum(0)])
    return (parts**2).sum(1).sum() * joined + wg.tile(x, (2,))[:6].tanh()


def by_network(x: Any) -> Any:
    """Normalise, convolve, attend."""
    f = wg.nn.functional
    y = f.layer_norm(x, (4,), C)
    y = f.conv1d(y.view(1, 1, 4), A[:2, None, :3], padding=1)
    y = f.gelu(y).flatten() @ wg.cat([A, B])
    return f.scaled_dot_product_attention(y.view(1, 2, 2), x.view(1, 2, 2), x.view(1, 2, 2)).flatten()


class Case(NamedTuple):
    """A function of a vector of four numbers; ``batched``: whether it runs under vmap; ``points``: where to look."""

    name: str
    function: Callable[[Any], Any]
    batched: bool = True
    points: Any = POINTS


CASES = [
    Case("elementwise", lambda x: (x.sin() * x).exp() + (x * x + 1).sqrt() / (x.tanh() + 2) + x.abs().log()),
    Case("two arguments", lambda x: wg.atan2(x, x.flip(0)) + wg.hypot(x, C) + (x * x).pow(x) + wg.logaddexp(x, C * x)),
    Case("network", lambda x: wg.tanh(B @ wg.tanh(A @ x + C)) * x.sigmoid()),
    Case("prod", lambda x: x.prod() * x + x.view(2, 2).prod(0).sum()),
    Case("prod at zero", lambda x: x.prod() * C + x.cumprod(0) + x.view(2, 2).prod(1).sum(), True,
         wg.stack([ZERO_POINT, ZERO_POINT.flip(0), ZERO_POINT * 2])),
    Case("order", by_order),
    Case("indexing", by_indexing),
    Case("writes", by_writes),
    Case("where", by_where),
    Case("softmax", lambda x: x.softmax(0) * x.logsumexp(0) + x.log_softmax(0) * C),
    Case("einsum", lambda x: wg.einsum("i,j,ij->j", x, x, A) + wg.einsum("ij,jk,k->i", A * x, B, x * x)),
    Case("solve", lambda x: wg.linalg.solve(matrix(x), x * C)),
    Case("inverse", lambda x: wg.linalg.inv(matrix(x)) @ C + wg.linalg.slogdet(matrix(x))[1] + matrix(x).det() * 0.1),
    Case("cholesky", lambda x: wg.linalg.cholesky(symmetric(x)).sum(0) + wg.linalg.eigvalsh(symmetric(x)).log()),
    Case("fft", by_spectrum),
    Case("complex", by_complex),
    Case("moments", lambda x: x.var() * x + x.std() ** 3 + wg.linalg.vector_norm(x, 3) * (x - x.mean()) + x.norm()),
    Case("scatter", lambda x: wg.zeros(4, dtype=wg.float64).scatter_add(0, wg.tensor([0, 1, 1, 3]), x * x) * x),
    Case("branches", by_branches, False),
    Case("blocks", by_blocks),
    Case("layers", by_network),
]  # fmt: skip
BATCHED = [c for c in CASES if c.batched]


def scalar(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a weighted sum of what f returns, bent so that no derivative is constant."""

    def summed(x: Any) -> Any:
        y = f(x)
        return ((y * (wg.arange(y.numel(), dtype=wg.float64) + 1).cos()).sum() * 0.3).sin() + (y * y).mean() * 0.1

    return summed


def arrays(value: Any) -> Any:
    """Return tensors as arrays."""
    if isinstance(value, tuple | list):
        return [arrays(v) for v in value]
    return value.detach().numpy()


def difference(f: Callable[[Any], Any], x: Any, v: Any, step: float = 1e-4) -> Any:
    """Return the derivative of f at x along v by central differences of order four."""
    near = (arrays(f(x + step * v)) - arrays(f(x - step * v))) / (2 * step)
    far = (arrays(f(x + 2 * step * v)) - arrays(f(x - 2 * step * v))) / (4 * step)
    return (4 * near - far) / 3


def columns(f: Callable[[Any], Any], x: Any) -> Any:
    """Return the Jacobian by differences: (*output shape, *input shape)."""
    return np.stack([difference(f, x, e) for e in wg.eye(4, dtype=wg.float64)], -1)


def close(found: Any, expected: Any, tolerance: float = 2e-7) -> None:
    """Compare, relative to the largest number."""
    found, expected = arrays(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


def along(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    """Return the derivative along v, in forward mode."""
    return lambda x: jvp(f, (x,), (v,))[1]


def against(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    """Return the inner product of what f returns with v."""
    return lambda x: (f(x) * v).sum()


def pulled(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    """Return the derivative along v in reverse mode twice: the pullback is linear in its cotangent."""

    def pushed(x: Any) -> Any:
        y, pull = vjp(f, x)
        return vjp(lambda g: pull(g)[0], wg.zeros_like(y))[1](v)[0]

    return pushed


def linear(f: Callable[[Any], Any], v: Any) -> Callable[[Any], Any]:
    """Return the derivative along v by linearize."""
    return lambda x: linearize(f, x)[1](v)


ORDERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    # name: function of a scalar function s to (what is nested, its value by differences of a lower order), both of a point
    "grad": lambda s: (grad(s), lambda x: columns(s, x)),
    "jvp": lambda s: (along(s, V), lambda x: difference(s, x, V)),
    "grad∘grad": lambda s: (grad(against(grad(s), V)), lambda x: difference(grad(s), x, V)),
    "jvp∘grad": lambda s: (along(grad(s), V), lambda x: difference(grad(s), x, V)),
    "grad∘jvp": lambda s: (grad(along(s, V)), lambda x: difference(grad(s), x, V)),
    "jvp∘jvp": lambda s: (along(along(s, V), W), lambda x: difference(along(s, V), x, W)),
    "vjp∘vjp∘grad": lambda s: (pulled(grad(s), V), lambda x: difference(grad(s), x, V)),
    "linearize∘grad": lambda s: (linear(grad(s), V), lambda x: difference(grad(s), x, V)),
    "grad∘linearize": lambda s: (grad(linear(s, V)), lambda x: difference(grad(s), x, V)),
    "jvp∘linearize": lambda s: (along(linear(s, V), W), lambda x: difference(along(s, V), x, W)),
    "hessian": lambda s: (hessian(s), lambda x: columns(grad(s), x)),
    "hvp": lambda s: (lambda x: hvp(s, (x,), (V,))[1], lambda x: difference(grad(s), x, V)),
    "jacfwd∘jacrev": lambda s: (jacfwd(jacrev(s)), lambda x: columns(grad(s), x)),
    "jacrev∘jacfwd": lambda s: (jacrev(jacfwd(s)), lambda x: columns(grad(s), x)),
    "jacfwd∘jacfwd": lambda s: (jacfwd(jacfwd(s)), lambda x: columns(grad(s), x)),
    "jacrev∘jacrev": lambda s: (jacrev(jacrev(s)), lambda x: columns(grad(s), x)),
    "grad∘grad∘grad": lambda s: (
        grad(against(grad(against(grad(s), V)), W)), lambda x: difference(grad(against(grad(s), V)), x, W)
    ),
    "jvp∘jvp∘jvp": lambda s: (along(along(along(s, V), W), U), lambda x: difference(along(along(s, V), W), x, U)),
    "jvp∘grad∘jvp": lambda s: (along(grad(along(s, V)), W), lambda x: difference(grad(along(s, V)), x, W)),
    "grad∘jvp∘grad": lambda s: (
        grad(against(along(grad(s), V), W)), lambda x: difference(along(grad(s), V), x, W)
    ),
    "grad∘hvp": lambda s: (
        grad(against(lambda x: hvp(s, (x,), (V,))[1], W)), lambda x: difference(along(grad(s), V), x, W)
    ),
}  # fmt: skip
BATCHES = {"hessian", "jacfwd∘jacrev", "jacrev∘jacfwd", "jacfwd∘jacfwd", "jacrev∘jacrev"}  # these run vmap


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_derivatives_of_a_scalar(case: Case, order: str) -> None:
    if order in BATCHES and not case.batched:
        pytest.skip("values decide what is run, which vmap refuses")
    nested, expected = ORDERS[order](scalar(case.function))
    for x in case.points[:1] if order.count("∘") > 1 else case.points[:2]:
        close(nested(x), expected(x))


OVER_VMAP: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    # name: function of a scalar function s to (what is nested over a batch, the function of one point to loop over)
    "vmap": lambda s: (vmap(s), s),
    "vmap∘grad": lambda s: (vmap(grad(s)), grad(s)),
    "grad∘vmap": lambda s: (grad(lambda xs: vmap(s)(xs).sum()), grad(s)),
    "jvp∘vmap": lambda s: (along(vmap(s), V.expand(3, 4)), along(s, V)),
    "vmap∘jvp": lambda s: (vmap(along(s, V)), along(s, V)),
    "vmap∘jvp∘grad": lambda s: (vmap(along(grad(s), V)), along(grad(s), V)),
    "vmap∘grad∘jvp": lambda s: (vmap(grad(along(s, V))), along(grad(s), V)),
    "jvp∘vmap∘grad": lambda s: (along(vmap(grad(s)), V.expand(3, 4)), along(grad(s), V)),
    "grad∘vmap∘jvp": lambda s: (grad(lambda xs: vmap(along(s, V))(xs).sum()), along(grad(s), V)),
    "jvp∘grad∘vmap": lambda s: (along(grad(lambda xs: vmap(s)(xs).sum()), V.expand(3, 4)), along(grad(s), V)),
    "grad∘vmap∘grad": lambda s: (grad(lambda xs: (vmap(grad(s))(xs) * V).sum()), along(grad(s), V)),
    "vmap∘grad∘grad": lambda s: (vmap(grad(against(grad(s), V))), along(grad(s), V)),
    "vmap∘hessian": lambda s: (vmap(hessian(s)), hessian(s)),
    "vmap∘jvp∘jvp": lambda s: (vmap(along(along(s, V), W)), along(along(s, V), W)),
    "vmap∘linearize∘grad": lambda s: (vmap(linear(grad(s), V)), along(grad(s), V)),
    "grad∘vmap∘jvp∘grad": lambda s: (
        grad(lambda xs: (vmap(along(grad(s), V))(xs) * W).sum()), grad(against(along(grad(s), V), W))
    ),
}  # fmt: skip


@pytest.mark.parametrize("nesting", OVER_VMAP)
@pytest.mark.parametrize("case", BATCHED, ids=lambda c: c.name)
def test_batches_against_a_loop(case: Case, nesting: str) -> None:
    nested, single = OVER_VMAP[nesting](scalar(case.function))
    close(nested(case.points), np.stack([arrays(single(x)) for x in case.points]), 1e-9)


@pytest.mark.parametrize("case", BATCHED, ids=lambda c: c.name)
def test_vmap_of_vmap(case: Case) -> None:
    grid = case.points[:, None, :] * wg.tensor([1.0, 0.9], dtype=wg.float64)[:, None]  # (3, 2, 4)
    f = case.function
    expected = np.stack([[arrays(f(x)) for x in row] for row in grid])
    close(vmap(vmap(f))(grid), expected, 1e-10)
    turned = vmap(vmap(f, in_dims=1, out_dims=-1), in_dims=2)(grid.permute(2, 1, 0))
    close(turned, np.moveaxis(expected, 1, -1), 1e-10)
    s = scalar(f)
    inner = grad(lambda xs: vmap(s)(xs).sum())
    slopes = np.stack([[arrays(grad(s)(x)) for x in row] for row in grid])
    close(vmap(inner)(grid), slopes, 1e-9)  # vmap of grad of vmap
    close(vmap(vmap(grad(s)))(grid), slopes, 1e-9)


@pytest.mark.parametrize("case", BATCHED, ids=lambda c: c.name)
def test_jacobians_of_a_vector(case: Case) -> None:
    f, x = case.function, case.points[0]
    expected = columns(f, x)
    for jacobian in (jacfwd(f), jacrev(f), func.jacobian(f), jacfwd(f, chunk_size=3), jacrev(f, chunk_size=1)):
        close(jacobian(x), expected)
    close(vmap(jacrev(f))(case.points), np.stack([arrays(jacfwd(f)(p)) for p in case.points]), 1e-9)
    second = columns(jacrev(f), x)
    for outer, inner in itertools.product((jacfwd, jacrev), repeat=2):
        close(outer(inner(f))(x), second)


# ---- perturbations must not be confused

MODES: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "reverse": grad,
    "forward": lambda f: lambda x: jvp(f, (x,), (wg.ones_like(x),))[1],
    "linearized": lambda f: lambda x: linearize(f, x)[1](wg.ones_like(x)),
    "pulled": lambda f: lambda x: vjp(f, x)[1](wg.ones_like(x))[0],
    "jacfwd": jacfwd,
    "jacrev": jacrev,
    "batched": lambda f: lambda x: vmap(grad(f))(x.reshape(1))[0],
    "summed": lambda f: grad(lambda x: vmap(f)(x.reshape(1)).sum()),
}
PAIRS = list(itertools.product(MODES, repeat=2))


def number(value: float) -> Any:
    return wg.tensor(value, dtype=wg.float64)


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_inner_constants_stay_constant(outer: str, inner: str) -> None:
    """Siskind and Pearlmutter (2005): d/dx (x · d/dy (x + y)) is 1, not 2; and kin."""
    d, e = MODES[outer], MODES[inner]
    one, x = number(1.0), number(3.0)
    assert d(lambda x: x * e(lambda y: x + y)(one))(x).item() == 1.0
    assert d(lambda x: x * e(lambda y: x * y)(number(2.0)))(x).item() == 6.0
    assert d(lambda x: e(lambda y: x * x * y * y)(x))(x).item() == 54.0  # of 2x³
    assert d(lambda x: x + e(lambda y: x * x)(one))(x).item() == 1.0
    assert d(lambda x: e(lambda y: (x * y).sin())(x))(x).item() == pytest.approx(
        2 * 3 * np.cos(9) * 0 + nested_sine(3.0)
    )


def nested_sine(x: float) -> float:
    """Return d/dx (x cos x²)."""
    return float(np.cos(x * x) - 2 * x * x * np.sin(x * x))


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_three_levels_keep_apart(outer: str, inner: str) -> None:
    """d/dx d/dy d/dz x y² z³ + x z at one point: 6yz² + 1, whichever modes alternate."""
    d, e = MODES[outer], MODES[inner]
    f = lambda x: e(lambda y: d(lambda z: x * y**2 * z**3 + x * y * z)(number(0.5)))(number(2.0))  # noqa: E731
    assert d(f)(number(1.5)).item() == pytest.approx(2 * 2 * 3 * 0.25 + 1)


@pytest.mark.parametrize("mode", [m for m in MODES if m not in ("batched", "summed")])
def test_the_amazing_bug(mode: str) -> None:
    """Manzyuk et al., "Perturbation confusion in forward automatic differentiation" (2019), section 4.

    The derivative of a curried function is a function: D s 0 is D itself for s(u)(f)(x) = f(x + u).
    """
    d = MODES[mode]

    def shifted(u: Any) -> Any:
        return lambda f: lambda x: f(x + u)

    def derivative(f: Any) -> Any:
        return lambda x: d(lambda u: shifted(u)(f)(x))(number(0.0))

    assert derivative(derivative(lambda x: x.exp()))(number(1.0)).item() == pytest.approx(np.e)
    assert derivative(derivative(derivative(lambda x: x**4)))(number(1.0)).item() == pytest.approx(24.0)


def test_a_function_made_by_a_transform_may_be_used_later() -> None:
    """A pullback made inside one derivative belongs to it, however often it is called."""

    def f(x: Any) -> Any:
        y, pull = vjp(lambda t: t**3 * x, x)
        return pull(y)[0] + pull(wg.ones_like(y))[0] * x

    x = 1.3  # y = x⁴, y' = 3x³: f = 3x⁷ + 3x⁴
    expected = 21 * x**6 + 12 * x**3
    for d in (MODES["reverse"], MODES["forward"], MODES["linearized"], MODES["batched"]):
        assert d(f)(number(x)).item() == pytest.approx(expected)


@pytest.mark.parametrize("order", [4, 6])
@pytest.mark.parametrize("start", ["reverse", "forward"])
def test_high_orders_of_alternating_modes(order: int, start: str) -> None:
    f = lambda x: x.sin() * x  # noqa: E731
    modes = itertools.cycle(["reverse", "forward"] if start == "reverse" else ["forward", "reverse"])
    for mode, _ in zip(modes, range(order), strict=False):
        f = MODES[mode](f)
    x = 0.8  # (x sin x)⁽ⁿ⁾ = x sin(x + nπ/2) + n sin(x + (n−1)π/2)
    expected = x * np.sin(x + order * np.pi / 2) + order * np.sin(x + (order - 1) * np.pi / 2)
    assert f(number(x)).item() == pytest.approx(expected)


def test_linear_transpose_is_the_transpose_in_every_nesting() -> None:
    linear_map = lambda x: A @ x.flip(0) + x.roll(1) * C  # noqa: E731
    dense = arrays(jacfwd(linear_map)(V))
    transposed = func.linear_transpose(linear_map, V)
    close(transposed(W)[0], dense.T @ arrays(W), 1e-12)
    close(vmap(transposed)(POINTS)[0], arrays(POINTS) @ dense, 1e-12)
    close(grad(lambda g: (transposed(g)[0] * U).sum())(W), dense @ arrays(U), 1e-12)
    close(jvp(lambda g: transposed(g)[0], (W,), (U,))[1], dense.T @ arrays(U), 1e-12)
    close(grad(lambda c: (func.linear_transpose(lambda x: x * c, V)(W)[0] * U).sum())(C), arrays(W * U), 1e-12)


def test_linearize_is_linear_and_reusable() -> None:
    f = CASES[2].function
    x = POINTS[0]
    y, push = linearize(f, x)
    dense = arrays(jacfwd(f)(x))
    close(y, arrays(f(x)), 1e-12)
    for direction in (V, W, V + W):
        close(push(direction), dense @ arrays(direction), 1e-12)
    close(vmap(push)(POINTS), arrays(POINTS) @ dense.T, 1e-12)
    close(jvp(push, (V,), (W,))[1], dense @ arrays(W), 1e-12)
    close(grad(lambda t: (push(t) * U).sum())(V), dense.T @ arrays(U), 1e-12)
    close(vmap(lambda p, t: linearize(f, p)[1](t))(POINTS, POINTS),
          np.stack([arrays(jvp(f, (p,), (p,))[1]) for p in POINTS]), 1e-12)  # fmt: skip


def test_a_gradient_by_two_arguments_inside_another_leaves_no_history() -> None:
    """The inner points with nothing behind them are over when the outer transform ends."""

    def sensitivities(x: Any, y: Any) -> Any:
        def first(s: Any) -> Any:
            by_s, _ = wg.func.grad(lambda s, v: (s**3 * v).sum(), (0, 1))(s, y)
            return by_s.sum()

        return wg.func.grad(first)(x)

    x, y = wg.tensor([1.0, 2.0]), wg.tensor([3.0, 4.0])
    found = sensitivities(x, y)
    assert found.tolist() == [18.0, 48.0]
    assert not found.requires_grad
    assert wg.compile(sensitivities, fullgraph=True)(x, y).tolist() == [18.0, 48.0]
    leaf = x.clone().requires_grad_()
    (outside,) = wg.autograd.grad(sensitivities(leaf, y).sum(), leaf)
    assert outside.tolist() == [18.0, 24.0]
