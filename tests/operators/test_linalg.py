"""Linear algebra against NumPy, SciPy, mathematics and central differences."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.linalg

import wengert as wg
from wengert.autograd import gradcheck, gradgradcheck
from wengert.core.apply import bind
from wengert.core.registry import operators
from wengert.core.tensor import from_array
from wengert.operators.products import _cheapest
from wengert.transforms.forward import push

RNG = np.random.default_rng(1)
LA = wg.linalg


def drawn(*shape, kind="real"):
    array = RNG.standard_normal(shape)
    return array + 1j * RNG.standard_normal(shape) if kind == "complex" else array


def close(got, want, rtol=1e-9, atol=1e-10):
    np.testing.assert_allclose(got.detach().numpy() if isinstance(got, wg.Tensor) else got, want, rtol=rtol, atol=atol)


def hermitian(x):
    return (x + x.mH) * 0.5


def positive(x):
    return x @ x.mH + 0.5 * wg.eye(x.shape[-1], dtype=x.dtype)


# ---- derivatives of functions that only have them on Hermitian matrices, or only up to phases

FUNCTIONS = {
    "cholesky": lambda x: LA.cholesky(positive(x)),
    "cholesky upper": lambda x: LA.cholesky(positive(x), upper=True),
    "eigvalsh": lambda x: LA.eigvalsh(hermitian(x)),
    "eigh values": lambda x: LA.eigh(hermitian(x))[0],
    "eigh moduli": lambda x: LA.eigh(hermitian(x))[1].abs(),
    "eigh function": lambda x: (lambda w, v: (v * wg.sin(w)) @ v.mH)(*LA.eigh(hermitian(x), "U")),
    "eigvals": lambda x: LA.eigvals(x),
    "eig moduli": lambda x: LA.eig(x)[1].abs(),
    "eig function": lambda x: (lambda w, v: (v * w * w) @ LA.inv(v))(*LA.eig(x)),
    "svd values": lambda x: LA.svd(x)[1],
    "svd moduli": lambda x: LA.svd(x, full_matrices=False)[0].abs(),
    "svd product": lambda x: (lambda u, s, vh: (u * wg.sin(s)) @ vh)(*LA.svd(x, full_matrices=False)),
    "qr": lambda x: LA.qr(x),
    "lu": lambda x: LA.lu(x)[1:],
    "det": lambda x: LA.det(x),
    "slogdet": lambda x: LA.slogdet(x),
    "inv": lambda x: LA.inv(x),
    "pinv": lambda x: LA.pinv(x),
    "pinv hermitian": lambda x: LA.pinv(hermitian(x), hermitian=True),
    "matrix_exp": lambda x: LA.matrix_exp(x),
    "norm nuc": lambda x: LA.matrix_norm(x, "nuc"),
    "norm 2": lambda x: LA.matrix_norm(x, 2),
}


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_agree_with_differences_to_second_order(name, kind):
    x = wg.tensor(drawn(3, 3, kind=kind) + 0.5 * np.diag([1, 3, 6])).requires_grad_()
    assert gradcheck(FUNCTIONS[name], x, fast_mode=True)
    assert gradgradcheck(FUNCTIONS[name], x, fast_mode=True)


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.parametrize("shape", [(4, 2), (2, 4)])
def test_decompositions_of_other_shapes_have_derivatives_too(shape, kind):
    x = wg.tensor(drawn(*shape, kind=kind)).requires_grad_()
    outside = {
        "the space outside of U": lambda x: (lambda u: u[:, 2:] @ u[:, 2:].mH)(LA.svd(x)[0]),
        "the space outside of V": lambda x: (lambda vh: vh[2:].mH @ vh[2:])(LA.svd(x)[2]),
    }
    whole = {
        "svd": lambda x: (lambda u, s, vh: (u.abs(), s, vh.abs(), (u * s * s) @ vh))(*LA.svd(x, full_matrices=False)),
        "qr": LA.qr,
        "lu": lambda x: LA.lu(x)[1:],
        "pinv": LA.pinv,
    }
    for function in (
        *whole.values(),
        outside["the space outside of U" if shape[0] > shape[1] else "the space outside of V"],
    ):
        assert gradcheck(function, x, fast_mode=True)
        assert gradgradcheck(function, x, fast_mode=True)


@pytest.mark.parametrize("name", ["linalg_cholesky", "linalg_eigh", "linalg_eigvalsh", "linalg_eig", "linalg_svd"])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_forward_rules_agree_with_differences(name, kind):
    """The tangent of what does not depend on phases: values as they are, vectors by their moduli."""
    op = operators()[name]
    a, t = (drawn(3, 3, kind=kind) for _ in range(2))
    if name != "linalg_eig" and name != "linalg_svd":
        a, t = (x @ x.conj().T + np.eye(3) * np.diag([1, 2, 4]) for x in (a, t))

    def results(array):
        found = op.function(wg.tensor(array))
        return found if isinstance(found, tuple) else (found,)

    pushed = push(op, bind(op, (wg.tensor(a),), {}), results(a), {0: from_array(t)})
    h = 1e-6
    for value, tangent, plus, minus in zip(results(a), pushed, results(a + h * t), results(a - h * t), strict=True):
        y, dy = value.numpy(), tangent.numpy()
        moved = (plus.numpy(), minus.numpy())
        if y.ndim == 2 and name != "linalg_cholesky":
            dy, moved = (y.conj() * dy).real / np.abs(y), [np.abs(m) for m in moved]
        close(dy, (moved[0] - moved[1]) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: LA.eigh(hermitian(x))[1].real.sum(),
        lambda x: LA.eig(x)[1].real.sum(),
        lambda x: LA.svd(x)[0].real.sum(),
    ],
)
def test_a_loss_that_depends_on_phases_is_refused(loss):
    x = wg.tensor(drawn(3, 3, kind="complex")).requires_grad_()
    with pytest.raises(RuntimeError, match="depends on the phase"):
        loss(x).backward()


def test_values_of_a_degenerate_matrix_have_a_gradient():
    x = wg.eye(3).double().requires_grad_()
    (LA.eigh(x)[0] * wg.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert bool(wg.isfinite(x.grad).all())
    assert x.grad.trace().item() == pytest.approx(6)
    (gradient,) = wg.autograd.grad(LA.svd(x)[1].sum(), x)
    close(gradient, np.eye(3))


# ---- determinants


@pytest.mark.parametrize("rank", [3, 2, 1, 0])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_the_gradient_of_a_determinant_is_the_cofactors_at_any_rank(rank, kind):
    a = drawn(4, rank, kind=kind) @ drawn(rank, 4, kind=kind)
    cofactors = np.array(
        [[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(4)] for i in range(4)]
    )
    x = wg.tensor(a).requires_grad_()
    LA.det(x).real.sum().backward()
    close(x.grad, cofactors.conj(), atol=1e-12)


def test_the_second_derivative_of_a_determinant_at_a_singular_matrix():
    x = wg.tensor(drawn(4, 2) @ drawn(2, 4)).requires_grad_()
    assert gradgradcheck(LA.det, x)
    zero = wg.zeros(2, 2).double().requires_grad_()
    (first,) = wg.autograd.grad(LA.det(zero), zero, create_graph=True)
    (second,) = wg.autograd.grad(first[0, 0], zero)
    assert second.tolist() == [[0, 0], [0, 1]]


def test_logarithms_of_determinants_neither_overflow_nor_underflow():
    for scale in (1e200, 1e-200):
        sign, log = LA.slogdet(wg.eye(8).double() * -scale)
        assert sign.item() == 1
        assert log.item() == pytest.approx(8 * np.log(scale))
    assert wg.logdet(wg.zeros(2, 2)).item() == -np.inf
    assert np.isnan(wg.logdet(wg.tensor([[0.0, 1.0], [1.0, 0.0]])).item())


# ---- factors and solutions


@pytest.mark.parametrize(
    "shape", [(3, 3), (5, 3), (3, 5), (2, 4, 4), (0, 3, 3), (0, 0), (130, 130), (60, 110), (2, 110, 60)]
)
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_factors_multiply_back_and_are_triangular(shape, kind):
    a = drawn(*shape, kind=kind)
    x = wg.tensor(a)
    p, low, up = LA.lu(x)
    close(p @ low @ up, a, atol=1e-9)
    assert np.abs(low.numpy()).max(initial=0) <= (1.0 if kind == "real" else np.sqrt(2)) + 1e-12
    q, r = LA.qr(x)
    close(q @ r, a, atol=1e-9)
    k = min(shape[-2:])
    close(q.mH @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), atol=1e-9)
    for upper in (up, r):
        assert not np.tril(upper.numpy(), -1).any()
    assert not np.triu(low.numpy(), 1).any()


@pytest.mark.parametrize("n", [1, 4, 47, 48, 49, 130])
@pytest.mark.parametrize(("upper", "left", "unit"), list(itertools.product([True, False], repeat=3)))
def test_triangular_systems_read_one_triangle(n, upper, left, unit):
    a, b = drawn(2, n, n) / n + 2 * np.eye(n), drawn(n, 3) if left else drawn(3, n)
    other = np.tri(n, k=-1 + (not upper), dtype=bool) if upper else ~np.tri(n, dtype=bool)
    poisoned = np.where(other, np.nan, a)
    if unit:
        poisoned[:, np.arange(n), np.arange(n)] = np.nan
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        triangle[:, np.arange(n), np.arange(n)] = 1
    x = LA.solve_triangular(wg.tensor(poisoned), wg.tensor(b), upper=upper, left=left, unitriangular=unit).numpy()
    close(triangle @ x if left else x @ triangle, np.broadcast_to(b, x.shape), rtol=1e-7)


def test_a_zero_on_the_diagonal_gives_infinities_there_only():
    a, b = np.array([[[2.0, 1.0], [0.0, 0.0]], [[2.0, 1.0], [0.0, 1.0]]]), np.ones((2, 1))
    x = LA.solve_triangular(wg.tensor(a), wg.tensor(b), upper=True).numpy()
    assert np.isinf(x[0, 1, 0])
    close(x[1], [[0.0], [1.0]])


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_systems_solved_from_factors(left, adjoint):
    a, b = drawn(2, 3, 3, kind="complex"), drawn(2, 3, 3, kind="complex")
    x = LA.lu_solve(*LA.lu_factor(wg.tensor(a)), wg.tensor(b), left=left, adjoint=adjoint).numpy()
    used = np.conj(np.swapaxes(a, -1, -2)) if adjoint else a
    close(used @ x if left else x @ used, b)


def test_solve_takes_vectors_batches_and_the_right_side():
    a, b = drawn(2, 3, 3), drawn(2, 3)
    close(LA.solve(wg.tensor(a), wg.tensor(b)), np.stack([np.linalg.solve(m, v) for m, v in zip(a, b, strict=True)]))
    close(LA.solve(wg.tensor(a), wg.tensor(b[0])), np.stack([np.linalg.solve(m, b[0]) for m in a]))
    rows = drawn(4, 3)
    close(LA.solve(wg.tensor(a), wg.tensor(rows), left=False).numpy() @ a, np.broadcast_to(rows, (2, 4, 3)))
    result, info = LA.solve_ex(wg.tensor(np.stack([np.ones((2, 2)), np.eye(2)])), wg.ones(2, 2, 1).double())
    assert info.tolist() == [2, 0]
    assert result[1].tolist() == [[1], [1]]


def test_cholesky_factors_solve_and_invert():
    a = drawn(3, 3, kind="complex")
    a = a @ a.conj().T + np.eye(3)
    b = drawn(3, 2, kind="complex")
    for upper in (True, False):
        factor = LA.cholesky(wg.tensor(a), upper=upper)
        close(wg.cholesky_solve(wg.tensor(b), factor, upper), np.linalg.solve(a, b))
        close(wg.cholesky_inverse(factor, upper), np.linalg.inv(a))


def test_householder_product_makes_lapacks_q():
    a = drawn(5, 3)
    (raw, tau), _ = scipy.linalg.qr(a, mode="raw")
    q = LA.householder_product(wg.tensor(np.ascontiguousarray(raw)), wg.tensor(tau))
    close(q, scipy.linalg.qr(a, mode="economic")[0])
    close(LA.householder_product(wg.tensor(a), wg.zeros(0).double()), np.eye(5, 3))


def test_the_pseudo_inverse_meets_penroses_four_conditions():
    for a in (drawn(4, 3), drawn(3, 4, kind="complex"), drawn(4, 2) @ drawn(2, 3)):
        x = LA.pinv(wg.tensor(a), rtol=1e-10).numpy()
        close(a @ x @ a, a)
        close(x @ a @ x, x)
        for product in (a @ x, x @ a):
            close(product, product.conj().T)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)])
def test_least_squares_leave_a_residual_orthogonal_to_the_columns(shape):
    a, b = drawn(*shape), drawn(shape[0], 2)
    found = LA.lstsq(wg.tensor(a), wg.tensor(b), driver="gelsd")
    want, residuals, rank, values = np.linalg.lstsq(a, b)
    close(found.solution, want)
    close(a.T @ (a @ found.solution.numpy() - b), np.zeros((shape[1], 2)), atol=1e-9)
    close(found.residuals, residuals)
    assert found.rank.item() == rank
    close(found.singular_values, values)


@pytest.mark.parametrize("order", ["fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf])
def test_norms_and_condition_numbers_are_numpys(order):
    a = drawn(3, 3, kind="complex")
    close(LA.matrix_norm(wg.tensor(a), order), np.linalg.norm(a, order))
    close(LA.norm(wg.tensor(a), order), np.linalg.norm(a, order))
    close(LA.cond(wg.tensor(a), order), np.linalg.cond(a, order))
    moved = LA.matrix_norm(wg.tensor(np.moveaxis(np.stack([a, a]), 0, 1)), order, dim=(0, 2), keepdim=True)
    assert tuple(moved.shape) == (1, 2, 1)


def test_rank_counts_singular_values_above_the_tolerance():
    a = np.diag([1.0, 1e-3, 1e-9, 0.0])
    for options, rank in [({}, 3), ({"rtol": 1e-6}, 2), ({"atol": 0.1}, 1), ({"atol": 1e-12, "rtol": 1e-2}, 1)]:
        assert LA.matrix_rank(wg.tensor(a), **options).item() == rank
        assert LA.matrix_rank(wg.tensor(a), hermitian=True, **options).item() == rank
    assert LA.matrix_rank(wg.tensor(np.stack([a, a])), atol=wg.tensor([0.0, 0.1])).tolist() == [4 - 1, 1]


# ---- functions and products


@pytest.mark.parametrize("scale", [1e-8, 0.1, 3.0, 40.0])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_matrix_exponentials_are_scipys(scale, kind):
    a = drawn(2, 4, 4, kind=kind) * scale
    a[1] *= 0.01
    want = np.stack([scipy.linalg.expm(m) for m in a])
    close(LA.matrix_exp(wg.tensor(a)), want, rtol=1e-9, atol=1e-11 * np.abs(want).max())


def test_matrix_exponential_of_a_matrix_far_from_normal():
    a = [[1.0, 1000.0], [0.0, -1.0]]
    close(LA.matrix_exp(wg.tensor(a).double()), np.array(mpmath.expm(mpmath.matrix(a)).tolist(), float), rtol=1e-12)
    broken = LA.matrix_exp(wg.tensor([[[np.nan, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]))
    assert bool(wg.isnan(broken[0]).all())
    assert broken[1].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 10, -1, -3])
def test_matrix_powers(n):
    a = drawn(2, 3, 3)
    close(LA.matrix_power(wg.tensor(a), n), np.linalg.matrix_power(a, n), rtol=1e-7)


def test_several_matrices_are_multiplied_in_the_cheapest_order():
    """The example of Cormen et al., Introduction to algorithms, section 15.2: 15125 products in ((A (B C)) ((D E) F))."""
    split = _cheapest([30, 35, 15, 5, 10, 20, 25])
    assert (split[0, 5], split[0, 2], split[3, 5]) == (2, 0, 4)
    sizes = [3, 5, 2, 7, 4]
    matrices = [drawn(m, n) for m, n in itertools.pairwise(sizes)]
    close(LA.multi_dot([wg.tensor(m) for m in matrices]), np.linalg.multi_dot(matrices))


def test_tensors_inverted_and_solved_as_matrices():
    a, b = drawn(2, 3, 6), drawn(2, 3)
    close(LA.tensorinv(wg.tensor(a), 2), np.linalg.tensorinv(a, 2))
    close(LA.tensorsolve(wg.tensor(a), wg.tensor(b)), np.linalg.tensorsolve(a, b))
    close(LA.vander(wg.tensor([2.0, -1.0]), N=4), [[1, 2, 4, 8], [1, -1, 1, -1]])
    u, v = drawn(4, 3), drawn(3)
    close(LA.cross(wg.tensor(u), wg.tensor(v[None])), np.cross(u, v))
    close(LA.vecdot(wg.tensor(u * 1j), wg.tensor(v * (1 + 1j))), (u * v).sum(-1) * (1 - 1j))
    assert wg.trace(wg.arange(6).reshape(2, 3)).item() == 4


# ---- errors, dtypes, empty matrices


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: LA.inv(a), r"linalg_inv\(\): matrix \(1, 0\) of the batch: it is singular"),
        (lambda a: LA.solve(a, wg.ones(2, 1)), r"linalg_solve\(\): matrix \(1, 0\) of the batch: it is singular"),
        (lambda a: LA.lu_factor(a), r"matrix \(1, 0\) of the batch: it is singular: element 2 of U's diagonal"),
        (
            lambda a: LA.cholesky(a),
            r"matrix \(1, 0\) of the batch: it is not positive definite \(its leading minor of order 2",
        ),
        (lambda a: LA.svd(a / 0), r"matrix \(0, 0\) of the batch: it holds infinities or NaN"),
        (lambda a: LA.eigh(a / 0), r"matrix \(0, 0\) of the batch: it holds infinities or NaN"),
        (lambda a: LA.eig(a / 0), r"matrix \(0, 0\) of the batch: it holds infinities or NaN"),
    ],
)
def test_errors_name_the_matrix(call, message):
    batch = wg.eye(2).expand(2, 1, 2, 2).clone()
    batch[1, 0] = wg.tensor([[1.0, 2.0], [2.0, 4.0]])
    with pytest.raises(LA.LinAlgError, match=message) as error:
        call(batch)
    assert isinstance(error.value, RuntimeError)
    assert isinstance(error.value, np.linalg.LinAlgError)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_dtypes_are_kept(dtype):
    kind = getattr(wg, dtype)
    a = wg.eye(3, dtype=kind) * 2
    real = a.abs().dtype
    for function in (
        LA.inv,
        LA.cholesky,
        LA.matrix_exp,
        LA.det,
        LA.pinv,
        lambda a: LA.solve(a, a),
        lambda a: LA.eigh(a)[1],
    ):
        assert function(a).dtype is kind
    for function in (LA.svdvals, LA.eigvalsh, lambda a: LA.slogdet(a)[1], lambda a: LA.norm(a, 2), LA.cond):
        assert function(a).dtype is real
    assert LA.eigvals(a).dtype.is_complex
    assert LA.eigvals(a).real.dtype is real


def test_empty_matrices():
    empty, none = wg.zeros(0, 0), wg.zeros(0, 3, 3)
    assert LA.det(empty).item() == 1
    assert LA.slogdet(empty)[1].item() == 0
    for function in (LA.inv, LA.cholesky, LA.matrix_exp, LA.pinv):
        assert tuple(function(empty).shape) == (0, 0)
        assert tuple(function(none).shape) == (0, 3, 3)
    assert tuple(LA.svd(wg.zeros(0, 3))[2].shape) == (3, 3)
    assert LA.matrix_rank(wg.zeros(0, 3)).item() == 0


def test_numpys_functions_record_gradients():
    a, b = wg.tensor(drawn(3, 3)).requires_grad_(), wg.tensor(drawn(3)).requires_grad_()
    np.linalg.solve(a, b).sum().backward()
    close(b.grad, np.linalg.solve(a.detach().numpy().T, np.ones(3)))
    assert np.linalg.det(a).requires_grad
