"""Factorisations that NumPy does not have, and a few eigenvalues: beside SciPy, by their defining equations, by differences."""

import numpy as np
import pytest
import scipy.linalg

import wengert as wg
from wengert.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(7)
LA = wg.linalg


def drawn(*shape, kind="real"):
    array = RNG.standard_normal(shape)
    return array + 1j * RNG.standard_normal(shape) if kind == "complex" else array


def close(got, want, rtol=1e-9, atol=1e-10):
    np.testing.assert_allclose(got.detach().numpy() if isinstance(got, wg.Tensor) else got, want, rtol=rtol, atol=atol)


def symmetric(x, hermitian):
    return (x + (x.mH if hermitian else x.mT)) * 0.5


def indefinite(*shape, kind="real", hermitian=True):
    """Matrices with a small diagonal, which make pivots of two rows."""
    a = drawn(*shape, kind=kind)
    a = (a + np.swapaxes(a.conj() if hermitian else a, -1, -2)) / 2
    a[..., np.arange(shape[-1]), np.arange(shape[-1])] *= 0.05
    return a


# ---- Householder reflections


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(5, 3), (4, 4), (2, 6, 2), (0, 3, 3), (3, 0)])
def test_geqrf_is_made_of_reflections(shape, kind):
    a = drawn(*shape, kind=kind)
    packed, tau = wg.geqrf(wg.tensor(a))
    q = LA.householder_product(packed, tau)
    close(q @ wg.triu(packed)[..., : shape[-1], :], a)
    close(q.mH @ q, np.broadcast_to(np.eye(shape[-1]), (*shape[:-2], shape[-1], shape[-1])))


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_ormqr_multiplies_by_the_whole_q(left, transpose, kind):
    a, other = drawn(2, 5, 3, kind=kind), drawn(2, 5, 4, kind=kind)
    other = other if left else np.swapaxes(other, -1, -2)
    packed, tau = wg.geqrf(wg.tensor(a))
    q = LA.qr(wg.tensor(a), mode="complete").Q
    q = q.mH if transpose else q
    close(wg.ormqr(packed, tau, wg.tensor(other), left, transpose), q @ other if left else wg.tensor(other) @ q)


def test_many_reflections_are_one_product():
    """As H₁ … Hₖ one after the other, also with τ = 0, for which Hᵢ is the identity."""
    a, tau = drawn(6, 4, kind="complex") * 0.3, drawn(4, kind="complex")
    tau[1] = 0
    product = np.eye(6, dtype=complex)
    for i in range(4):
        v = np.concatenate([np.zeros(i), [1], a[i + 1 :, i]])
        product = product @ (np.eye(6) - tau[i] * np.outer(v, v.conj()))
    close(LA.householder_product(wg.tensor(a), wg.tensor(tau)), product[:, :4])
    close(wg.ormqr(wg.tensor(a), wg.tensor(tau), wg.eye(6, dtype=wg.complex128)), product)


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_reflections_have_two_derivatives(kind):
    a, tau, other = (wg.tensor(drawn(*s, kind=kind)).requires_grad_() for s in ((5, 3), (3,), (5, 2)))
    for function in (wg.orgqr, lambda a, t: wg.ormqr(a, t, other.detach(), transpose=True)):
        assert gradcheck(function, (a, tau), fast_mode=True)
        assert gradgradcheck(function, (a, tau), fast_mode=True)
    assert gradcheck(wg.ormqr, (a, tau, other), fast_mode=True)


def test_no_reflections_leave_a_gradient():
    a, tau = wg.ones(3, 2, requires_grad=True), wg.zeros(0, requires_grad=True)
    LA.householder_product(a, tau).sum().backward()
    assert a.grad.tolist() == np.zeros((3, 2)).tolist()
    assert tuple(tau.grad.shape) == (0,)


def test_geqrf_says_what_has_a_derivative():
    with pytest.raises(RuntimeError, match=r"geqrf\(\) has no derivative"):
        wg.geqrf(wg.ones(2, 2, requires_grad=True))[0].sum().backward()


# ---- LDL


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("hermitian", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 7, 7), (49, 49), (2, 97, 97), (0, 0), (0, 3, 3)])
def test_ldl_factors_solve(shape, hermitian, kind):
    a = indefinite(*shape, kind=kind, hermitian=hermitian)
    b = drawn(*shape[:-1], 2, kind=kind)
    factors = LA.ldl_factor(wg.tensor(a), hermitian=hermitian)
    assert not np.triu(factors.LD.numpy(), 1).any()
    x = LA.ldl_solve(*factors, wg.tensor(b), hermitian=hermitian)
    close(a @ x.numpy(), b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("hermitian", [True, False])
def test_ldl_factors_are_scipys(hermitian):
    a = indefinite(9, 9, kind="complex", hermitian=hermitian)
    packed, pivots = LA.ldl_factor(wg.tensor(a), hermitian=hermitian)
    name = "hetrf" if hermitian else "sytrf"
    want, want_pivots, info = scipy.linalg.lapack.get_lapack_funcs(name, dtype=complex)(a, lower=1)
    assert info == 0
    assert (pivots < 0).any()
    assert pivots.tolist() == want_pivots.tolist()
    close(packed, np.tril(want))


def test_ldl_reads_the_lower_triangle():
    a = indefinite(4, 4)
    poisoned = np.where(np.triu(np.ones((4, 4)), 1) == 1, np.nan, a)
    close(LA.ldl_factor(wg.tensor(poisoned)).LD, LA.ldl_factor(wg.tensor(a)).LD.numpy())


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("hermitian", [True, False])
def test_ldl_has_two_derivatives(hermitian, kind):
    x = wg.tensor(indefinite(5, 5, kind=kind, hermitian=hermitian)).requires_grad_()
    b = wg.tensor(drawn(5, 2, kind=kind)).requires_grad_()

    def factor(x):
        return LA.ldl_factor(symmetric(x, hermitian), hermitian=hermitian)

    assert (factor(x).pivots < 0).any()
    assert gradcheck(lambda x: factor(x).LD, x, fast_mode=True)
    assert gradgradcheck(lambda x: factor(x).LD, x, fast_mode=True)
    assert gradcheck(lambda x, b: LA.ldl_solve(*factor(x), b, hermitian=hermitian), (x, b), fast_mode=True)


def test_ldl_solve_differentiates_as_solve():
    a, b = wg.tensor(indefinite(2, 4, 4)).requires_grad_(), wg.tensor(drawn(2, 4, 3)).requires_grad_()
    found = wg.autograd.grad((LA.ldl_solve(*LA.ldl_factor(a), b) ** 2).sum(), (a, b))
    want = wg.autograd.grad((LA.solve(symmetric(a, True), b) ** 2).sum(), (a, b))
    for f, w in zip(found, want, strict=True):
        close(f, w.numpy(), rtol=1e-7)


def test_singular_matrices_in_ldl():
    batch = wg.stack([wg.eye(2), wg.zeros(2, 2)])
    with pytest.raises(LA.LinAlgError, match="matrix 1 of the batch: it is singular: element 1 of D's diagonal"):
        LA.ldl_factor(batch)
    found = LA.ldl_factor_ex(batch)
    assert found.info.tolist() == [0, 1]
    with pytest.raises(LA.LinAlgError, match="linalg_ldl_factor_ex"):
        LA.ldl_factor_ex(batch, check_errors=True)
    assert np.isfinite(LA.ldl_solve(found.LD, found.pivots, wg.ones(2, 2, 1))[0].numpy()).all()


def test_positive_definite_matrices_have_a_positive_d():
    a = drawn(6, 6)
    packed, pivots = LA.ldl_factor(wg.tensor(a @ a.T + np.eye(6)))
    assert (pivots > 0).all()
    assert (packed.diagonal() > 0).all()


# ---- a few eigenvalues


def pencil(m, kind, generalised):
    a, b = drawn(m, m, kind=kind), drawn(m, m, kind=kind)
    a = a + a.conj().T + np.diag(2.0 * np.arange(m))
    return a, b @ b.conj().T / m + np.eye(m) if generalised else None


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("generalised", [True, False])
@pytest.mark.parametrize("largest", [True, False])
def test_lobpcg_finds_the_extreme_pairs(largest, generalised, kind):
    a, b = pencil(40, kind, generalised)
    values, vectors = wg.lobpcg(wg.tensor(a), 3, None if b is None else wg.tensor(b), largest=largest, tol=1e-12)
    want = scipy.linalg.eigh(a, b, eigvals_only=True)
    close(values, want[:-4:-1] if largest else want[:3])
    v, mass = vectors.numpy(), np.eye(40) if b is None else b
    close(a @ v, mass @ v * values.numpy(), atol=1e-8)
    close(v.conj().T @ mass @ v, np.eye(3), atol=1e-8)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("largest", [True, False])
def test_lobpcg_has_two_derivatives_in_both_matrices(largest, kind):
    a, b = pencil(9, kind, True)
    start = wg.tensor(drawn(9, 2, kind=kind))
    A, B = (wg.tensor(x).requires_grad_() for x in (a, b))

    def pairs(A, B=None):
        B = None if B is None else symmetric(B, True)
        E, V = wg.lobpcg(symmetric(A, True), B=B, X=start, tol=1e-14, niter=300, largest=largest)
        return E, V.abs(), (V * E) @ V.mH

    for inputs in ((A,), (A, B)):
        assert gradcheck(pairs, inputs, fast_mode=True)
        assert gradgradcheck(pairs, inputs, fast_mode=True)


def test_lobpcg_differentiates_as_eigh():
    a = pencil(12, "real", False)[0]
    x = wg.tensor(a).requires_grad_()
    weights = wg.tensor(drawn(12, 2))
    E, V = wg.lobpcg(x, 2, tol=1e-14)
    (found,) = wg.autograd.grad((V * V * weights).sum() + (E**2).sum(), x)
    E, V = LA.eigh(x)
    E, V = E.flip(0)[:2], V.flip(1)[:, :2]
    (want,) = wg.autograd.grad((V * V * weights).sum() + (E**2).sum(), x)
    close(found, want.numpy(), rtol=1e-7, atol=1e-9)


def test_a_preconditioner_saves_steps():
    m = 60
    a = np.diag(np.arange(1.0, m + 1) ** 2) + 0.1 * pencil(m, "real", False)[0]
    counts = []
    for iK in (None, wg.tensor(np.linalg.inv(a))):
        steps = []
        wg.lobpcg(
            wg.tensor(a), 2, X=wg.tensor(drawn(m, 2)), iK=iK, largest=False, tracker=lambda w, s=steps: s.append(w)
        )
        counts.append(len(steps))
        assert steps[-1].ivars["converged_count"] == 2
        assert float(steps[-1].tvars["rerr"].max()) < 1.5e-8
    assert counts[1] < counts[0] / 3


def test_a_tracker_can_end_the_iteration():
    seen = []

    def tracker(worker):
        seen.append(worker.ivars["istep"])
        worker.bvars["force_stop"] = len(seen) == 3

    wg.lobpcg(wg.tensor(pencil(30, "real", False)[0]), 1, tracker=tracker)
    assert seen == [0, 1, 2]


def test_lobpcg_of_a_batch_and_of_degenerate_matrices():
    a = np.stack([pencil(9, "real", False)[0] for _ in range(3)])
    close(wg.lobpcg(wg.tensor(a), 2, tol=1e-12)[0], np.linalg.eigvalsh(a)[:, :-3:-1])
    assert wg.lobpcg(wg.eye(9), 3)[0].tolist() == pytest.approx([1, 1, 1])
    assert wg.lobpcg(wg.zeros(6, 6), 2)[0].tolist() == [0, 0]


# ---- low rank


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (2, 12, 9)])
def test_matrices_of_low_rank_are_found_again(shape, kind):
    a = drawn(*shape[:-1], 3, kind=kind) @ drawn(*shape[:-2], 3, shape[-1], kind=kind)
    U, S, V = wg.svd_lowrank(wg.tensor(a), q=5)
    close((U * S[..., None, :]) @ V.mH, a, atol=1e-9)
    close(S[..., :3], np.linalg.svd(a, compute_uv=False)[..., :3])
    assert tuple(U.shape) == (*shape[:-1], 5)
    assert tuple(V.shape) == (*shape[:-2], shape[-1], 5)
    m = drawn(1, shape[-1], kind=kind)
    U, S, V = wg.svd_lowrank(wg.tensor(a + m), q=3, M=wg.tensor(m))
    close((U * S[..., None, :]) @ V.mH, a, atol=1e-9)


def test_principal_components():
    a = drawn(50, 2) @ drawn(2, 6) + 10
    U, S, V = wg.pca_lowrank(wg.tensor(a), q=2)
    centred = a - a.mean(0)
    close((U * S) @ V.mT, centred, atol=1e-9)
    assert wg.pca_lowrank(wg.tensor(a))[1].shape == (6,)
    close(wg.pca_lowrank(wg.tensor(a), 3, center=False)[1], np.linalg.svd(a, compute_uv=False)[:3])


def test_the_gradient_of_a_low_rank_decomposition():
    x = wg.tensor(drawn(8, 2)).requires_grad_()
    y = wg.tensor(drawn(2, 6)).requires_grad_()

    def reconstructed(x, y):
        U, S, V = wg.svd_lowrank(x @ y, q=2)
        return S, (U * S) @ V.mT

    wg.manual_seed(0)
    assert gradcheck(reconstructed, (x, y), fast_mode=True, atol=1e-4)


# ---- equal eigenvalues


@pytest.mark.parametrize("values", [lambda x: LA.eigvalsh(x), lambda x: LA.eigh(x)[0], lambda x: LA.svdvals(x)])
@pytest.mark.parametrize(
    "function", [lambda v: v.sum(), lambda v: (v**3).sum(), lambda v: v.log().sum(), lambda v: v.amax()]
)
def test_symmetric_functions_of_equal_eigenvalues_have_their_gradient(function, values):
    a = np.diag([2.0, 2.0, 5.0, 5.0])
    turn = np.linalg.qr(drawn(4, 4))[0]
    a = turn @ a @ turn.T
    x = wg.tensor(a).requires_grad_()
    function(values(x)).backward()
    step = 1e-6 * np.diag([1.0, 2.0, 3.0, 4.0])
    if function(wg.tensor([2.0, 5.0])) == 5:  # a kink: any convex combination of the two vectors' projections
        assert x.grad.trace().item() == pytest.approx(1)
        assert np.linalg.eigvalsh(x.grad.numpy()).min() > -1e-9
    else:
        ends = [function(values(wg.tensor(a + s * step))).item() for s in (1, -1)]
        assert (x.grad.numpy() * step).sum() == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-5)


def test_vectors_of_equal_eigenvalues_have_no_derivative_and_say_so():
    """Not finite where something is asked of them, untouched where nothing is: the other matrix of the batch is right."""
    x = wg.tensor(np.stack([np.eye(2), np.diag([1.0, 2.0])])).requires_grad_()
    V = LA.eigh(x)[1]
    (V[:, 0, 1] * wg.tensor([1.0, 3.0])).sum().backward()
    assert not np.isfinite(x.grad[0].numpy()).all()
    close(x.grad[1], [[0, 1.5], [1.5, 0]])


# ---- inside transforms


def test_checks_of_factors_work_inside_transforms():
    a = np.stack([indefinite(3, 3) + 4 * np.eye(3) for _ in range(2)])
    one_by_one = [LA.cholesky_ex(wg.tensor(m)).L.numpy() for m in a]
    close(wg.func.vmap(lambda m: LA.cholesky_ex(m, check_errors=True)[0])(wg.tensor(a)), np.stack(one_by_one))
    close(wg.func.vmap(lambda m: LA.ldl_factor(m)[0])(wg.tensor(a)), LA.ldl_factor(wg.tensor(a)).LD.numpy())
    assert wg.func.vmap(LA.matrix_rank)(wg.tensor(a)).tolist() == [3, 3]
    with pytest.raises(LA.LinAlgError, match="matrix 1 of the batch"):
        wg.func.vmap(lambda m: LA.lu_factor(m)[0])(wg.tensor(np.stack([np.eye(2), np.zeros((2, 2))])))
    tangent = wg.func.jvp(lambda m: LA.lu_factor(m)[0], (wg.tensor(a[0]),), (wg.tensor(a[1]),))[1]
    ends = [LA.lu_factor(wg.tensor(a[0] + s * 1e-6 * a[1]))[0].numpy() for s in (1, -1)]
    close(tangent, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-7)
