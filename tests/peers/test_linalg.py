"""Linear algebra beside PyTorch: values, and first and second derivatives of functions that no sign or phase changes."""

import numpy as np
import pytest
import torch

import wengert as wg

RNG = np.random.default_rng(4)


def drawn(*shape, kind="real", dtype=np.float64):
    array = RNG.standard_normal(shape)
    if kind == "complex":
        return (array + 1j * RNG.standard_normal(shape)).astype(np.result_type(dtype, np.complex64))
    return array.astype(dtype)


def run(package, call, arrays):
    """Return the value, and first and second derivatives of a real function of it."""
    leaves = [package.tensor(a).requires_grad_() for a in arrays]
    out = call(package, *leaves)
    out = out if isinstance(out, tuple) else (out,)
    weights = np.random.default_rng(0)
    loss = sum((o.abs() * package.tensor(weights.uniform(1, 2, tuple(o.shape))).to(o.abs().dtype)).sum() for o in out)
    loss = loss + sum((o.real**3).sum() for o in out) + 0 * sum((t.abs() ** 2).sum() for t in leaves)
    grads = package.autograd.grad(loss, leaves, create_graph=True)
    second = package.autograd.grad(sum((g.abs() ** 2).sum() for g in grads), leaves)
    return [t.detach().resolve_conj().numpy() for t in (*out, *grads, *second)]


def agree(call, *arrays, rtol=1e-6, atol=1e-7):
    for ours, theirs in zip(run(wg, call, arrays), run(torch, call, arrays), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol * max(1, np.abs(theirs).max(initial=0)))


def positive(p, x):
    return x @ x.mH + p.eye(x.shape[-1], dtype=x.dtype)


def hermitian(p, x):
    return x + x.mH + p.diag(p.arange(1.0, 1.0 + x.shape[-1]).to(x.dtype))


SQUARE = {
    "inv": lambda p, x: p.linalg.inv(x),
    "det": lambda p, x: p.linalg.det(x),
    "slogdet": lambda p, x: p.linalg.slogdet(x)[1],
    "cholesky": lambda p, x: p.linalg.cholesky(positive(p, x)),
    "cholesky upper": lambda p, x: p.linalg.cholesky(positive(p, x), upper=True),
    "cholesky_inverse": lambda p, x: p.cholesky_inverse(p.linalg.cholesky(positive(p, x))),
    "eigh": lambda p, x: (lambda w, v: (w, (v * p.cos(w)[..., None, :]) @ v.mH))(*p.linalg.eigh(hermitian(p, x))),
    "eigvalsh": lambda p, x: p.linalg.eigvalsh(hermitian(p, x), UPLO="U"),
    "eig": lambda p, x: (lambda w, v: (v * w[..., None, :] ** 3) @ p.linalg.inv(v))(*p.linalg.eig(x)),
    "matrix_exp": lambda p, x: p.linalg.matrix_exp(x * 0.3),
    "matrix_power": lambda p, x: p.linalg.matrix_power(x, -3),
    "lu": lambda p, x: tuple(p.linalg.lu(x))[1:],
    "lu_solve": lambda p, x: p.linalg.lu_solve(*p.linalg.lu_factor(x), x.mH @ x, left=False, adjoint=True),
    "inv_ex": lambda p, x: p.linalg.inv_ex(x)[0],
    "pinv hermitian": lambda p, x: p.linalg.pinv(hermitian(p, x), hermitian=True),
}
ANY = {
    "qr": lambda p, x: tuple(p.linalg.qr(x)),
    "svd": lambda p, x: (lambda u, s, vh: (s, (u * (s * s)[..., None, :]) @ vh, u @ vh))(
        *p.linalg.svd(x, full_matrices=False)
    ),
    "svdvals": lambda p, x: p.linalg.svdvals(x),
    "pinv": lambda p, x: p.linalg.pinv(x),
    "lu": lambda p, x: tuple(p.linalg.lu(x))[1:],
    "norm nuc": lambda p, x: p.linalg.norm(x, "nuc", dim=(-2, -1)),
    "norm 2": lambda p, x: p.linalg.matrix_norm(x, 2),
    "norm fro": lambda p, x: p.linalg.matrix_norm(x, "fro", dim=(-1, -2), keepdim=True),
    "norm inf": lambda p, x: p.linalg.matrix_norm(x, float("inf")),
    "cond": lambda p, x: p.linalg.cond(x),
}


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3)])
@pytest.mark.parametrize("name", SQUARE)
def test_functions_of_square_matrices(name, shape, kind):
    agree(SQUARE[name], drawn(*shape, kind=kind) + np.eye(shape[-1]))


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
@pytest.mark.parametrize("name", ANY)
def test_functions_of_any_matrices(name, shape, kind):
    agree(ANY[name], drawn(*shape, kind=kind))


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gels"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (2, 5, 3)])
def test_least_squares(shape, driver, kind):
    agree(
        lambda p, a, b: p.linalg.lstsq(a, b, driver=driver).solution,
        drawn(*shape, kind=kind), drawn(*shape[:-1], 2, kind=kind),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(
    "call",
    [
        lambda p, a, b: p.linalg.solve(a, b),
        lambda p, a, b: p.linalg.solve(a, b.mT, left=False),
        lambda p, a, b: p.linalg.solve_triangular(a, b, upper=True),
        lambda p, a, b: p.linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
        lambda p, a, b: p.linalg.lu_solve(*p.linalg.lu_factor(a), b),
        lambda p, a, b: p.linalg.multi_dot([a, a, b]),
        lambda p, a, b: p.linalg.householder_product(a, b[:, 0] * 0.1),
        lambda p, a, b: p.linalg.vecdot(a, b[:, :1].mT),
        lambda p, a, b: p.linalg.cross(a[:3, :3], b[:3].mT),
        lambda p, a, b: p.linalg.vander(b[:, 0], N=4),
        lambda p, a, b: p.linalg.tensorsolve(a.reshape(2, 2, 4), b[:, 0].reshape(2, 2)),
    ],
)
def test_systems_and_products(call, kind):
    agree(call, drawn(4, 4, kind=kind) + 2 * np.eye(4), drawn(4, 3, kind=kind))


def test_bilinear_forms():
    agree(
        lambda p, x, y, w, b: p.nn.functional.bilinear(x, y, w, b), drawn(2, 4), drawn(2, 3), drawn(5, 4, 3), drawn(5)
    )


def test_single_precision_stays_single():
    for call in (SQUARE["inv"], SQUARE["det"], SQUARE["cholesky"], ANY["svdvals"]):
        ours, theirs = (
            run(p, call, [drawn(3, 3, dtype=np.float32) * 0 + np.float32(np.eye(3) * 2)])[0] for p in (wg, torch)
        )
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"atol": 1.0}, {"rtol": 0.5}, {"hermitian": True}, {"atol": 0.1, "rtol": 0.3}])
def test_ranks(options):
    a = drawn(3, 5, 2) @ drawn(3, 2, 5)
    a = a + np.swapaxes(a, -1, -2) if "hermitian" in options else a
    assert (
        wg.linalg.matrix_rank(wg.tensor(a), **options).tolist()
        == torch.linalg.matrix_rank(torch.tensor(a), **options).tolist()
    )


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 3, 3)])
def test_pivots_are_lapacks(shape):
    a = drawn(*shape)
    ours, theirs = wg.linalg.lu_factor(wg.tensor(a)), torch.linalg.lu_factor(torch.tensor(a))
    np.testing.assert_array_equal(ours.pivots.numpy(), theirs.pivots.numpy())
    assert ours.pivots.dtype is wg.int32
    np.testing.assert_allclose(ours.LU.numpy(), theirs.LU.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.linalg.inv(p.ones(2, 2)),
        lambda p: p.linalg.inv(p.ones(2, 3)),
        lambda p: p.linalg.inv(p.ones(2, 2).int()),
        lambda p: p.linalg.det(p.ones(2)),
        lambda p: p.linalg.solve(p.ones(2, 2), p.ones(2)),
        lambda p: p.linalg.solve(p.eye(2).double(), p.ones(2)),
        lambda p: p.linalg.cholesky(-p.eye(2)),
        lambda p: p.linalg.lu_factor(p.ones(2, 2)),
        lambda p: p.linalg.matrix_norm(p.ones(2, 2), 3),
        lambda p: p.linalg.matrix_norm(p.ones(2, 2), dim=(0, 0)),
        lambda p: p.linalg.norm(p.ones(2, 2, 2), 2),
        lambda p: p.linalg.cross(p.ones(2), p.ones(2)),
        lambda p: p.linalg.multi_dot([p.ones(2, 2)]),
        lambda p: p.linalg.matrix_power(p.ones(2, 2), -1),
        lambda p: p.linalg.lstsq(p.ones(2, 2), p.ones(3, 1)),
        lambda p: p.trace(p.ones(2, 2, 2)),
        lambda p: p.linalg.qr(p.ones(3, 2).requires_grad_(), mode="complete")[0].sum().backward(),
        lambda p: p.linalg.qr(p.ones(3, 2).requires_grad_(), mode="r")[1].sum().backward(),
        lambda p: p.geqrf(p.ones(3, 2).requires_grad_())[0].sum().backward(),
        lambda p: p.linalg.ldl_factor(p.zeros(2, 2)),
        lambda p: p.linalg.ldl_factor(p.ones(2, 3)),
        lambda p: p.linalg.ldl_solve(p.eye(2), p.tensor([1, 2]).int(), p.ones(3, 1)),
        lambda p: p.linalg.ldl_solve(p.eye(2), p.tensor([1, 2]).int(), p.ones(2)),
        lambda p: p.linalg.householder_product(p.ones(2, 3), p.ones(2)),
        lambda p: p.ormqr(p.ones(3, 2), p.ones(2), p.ones(2, 3)),
        lambda p: p.ormqr(p.ones(3, 2), p.ones(2), p.ones(3, 3).double()),
        lambda p: p.pca_lowrank(p.ones(3, 2), 3),
        lambda p: p.lobpcg(p.eye(5), 2),
        lambda p: p.fft.fftn(p.ones(()), dim=0),
    ],
)
def test_both_refuse(call):
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        call(torch)
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        call(wg)


# ---- LDL, reflections, a few eigenvalues


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("hermitian", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (3, 5, 5), (70, 70), (0, 0)])
def test_ldl_factors_pivots_and_solutions(shape, hermitian, kind):
    a, b = drawn(*shape, kind=kind), drawn(*shape[:-1], 2, kind=kind)
    a[..., np.arange(shape[-1]), np.arange(shape[-1])] *= 0.1
    found = []
    for p in (wg, torch):
        LD, pivots, info = p.linalg.ldl_factor_ex(p.tensor(a), hermitian=hermitian)
        assert not info.any()
        solved = p.linalg.ldl_solve(LD, pivots, p.tensor(b), hermitian=hermitian)
        found.append([LD.numpy(), pivots.numpy(), info.numpy(), solved.numpy()])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (0, 3)])
def test_geqrf(shape, kind):
    a = drawn(*shape, kind=kind)
    for ours, theirs in zip(wg.geqrf(wg.tensor(a)), torch.geqrf(torch.tensor(a)), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize(
    "call",
    [
        lambda p, a, t, c: p.orgqr(a, t),
        lambda p, a, t, c: p.ormqr(a, t, c),
        lambda p, a, t, c: p.ormqr(a, t, c, transpose=True),
        lambda p, a, t, c: a.ormqr(t, c.mT, False),
        lambda p, a, t, c: p.ormqr(a, t, c.mT, left=False, transpose=True),
    ],
)
def test_products_of_reflections(call, kind):
    agree(call, *(drawn(*s, kind=kind) * 0.5 for s in ((2, 5, 3), (2, 3), (2, 5, 4))))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(12, 12), (2, 9, 9)])
def test_lobpcg(shape, largest):
    a, start = drawn(*shape), drawn(*shape[:-1], 3)
    a = a + np.swapaxes(a, -1, -2)
    weights, found = drawn(*shape[:-1], 3), []
    for p in (wg, torch):
        A = p.tensor(a, requires_grad=True)
        E, V = p.lobpcg(A, X=p.tensor(start), largest=largest, tol=1e-13, niter=500)
        ((V * V * p.tensor(weights)).sum() + (E**2).sum()).backward()
        found.append((E.detach().numpy(), (V * V).detach().numpy(), A.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_norms_conditions_and_powers_of_empty_matrices():
    for shape in ((0, 0), (0, 3), (2, 0, 3), (2, 3, 0)):
        for order in ("fro", "nuc", 2, 1, float("inf")):
            ours, theirs = (p.linalg.matrix_norm(p.zeros(*shape), order).numpy() for p in (wg, torch))
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(*(p.linalg.cond(p.zeros(*shape)).numpy() for p in (wg, torch)))
    assert wg.linalg.vander(wg.tensor([2, 3], dtype=wg.int32)).dtype is wg.int64
    assert wg.linalg.vander(wg.tensor(3.0), N=3).tolist() == torch.linalg.vander(torch.tensor(3.0), N=3).tolist()


@pytest.mark.parametrize("name", ["cholesky_ex", "inv_ex", "lu_factor_ex", "ldl_factor_ex"])
def test_infos_of_matrices_that_fail(name):
    a = np.stack([np.eye(3), np.diag([1.0, 0.0, 2.0]), np.diag([0.0, 1.0, 1.0]), 2 * np.eye(3)])
    ours, theirs = (getattr(p.linalg, name)(p.tensor(a)) for p in (wg, torch))
    np.testing.assert_array_equal(ours.info.numpy(), theirs.info.numpy())
    assert ours.info.dtype is wg.int32
    np.testing.assert_allclose(ours[0][::3].numpy(), theirs[0][::3].numpy())


@pytest.mark.parametrize(
    "call",
    [
        lambda p, x, a, b: x.addmv_(a[0], b[0, :, 0], beta=2.0),
        lambda p, x, a, b: x.unsqueeze(0).repeat(4, 1).addr_(b[0, :, 0], x, alpha=0.5),
        lambda p, x, a, b: (a[0] * 1).addbmm_(a, b),
        lambda p, x, a, b: (a * 1).baddbmm_(a, b, beta=0.5, alpha=-1.0),
        lambda p, x, a, b: p.addmv_(x, a[0], b[0, :, 0]) if hasattr(p, "addmv_") else x,
    ],
)
def test_products_added_in_place(call):
    agree(lambda p, x, a, b: call(p, x * 1, a, b), drawn(4), drawn(2, 4, 4), drawn(2, 4, 4))
