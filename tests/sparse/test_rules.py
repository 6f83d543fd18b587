"""What operators mean for sparse tensors: the same as for dense ones; and those without a meaning say so."""

import numpy as np
import pytest

import wengert as wg
from wengert.core.registry import operators
from wengert.errors import SparseError
from wengert.sparse.payload import RULES
from wengert.sparse.rules import ADDITIVE, ZERO_AT_ZERO

RNG = np.random.default_rng(1)


def sparse(shape=(3, 4), sparse_dim=None, *, repeated=True, dtype=np.float64):
    """Return a sparse tensor, some of whose positions occur twice, and its elements as an array."""
    count = len(shape) if sparse_dim is None else sparse_dim
    positions = np.stack([RNG.integers(0, n, 5) for n in shape[:count]])
    if repeated:
        positions = np.concatenate([positions, positions[:, :2]], 1)
    entries = RNG.uniform(0.2, 0.8, (positions.shape[1], *shape[count:])).astype(dtype)
    array = np.zeros(shape, dtype)
    np.add.at(array, tuple(positions), entries)
    tensor = wg.sparse_coo_tensor(positions, wg.tensor(entries), shape)
    return (tensor if repeated else tensor.coalesce()), array


def csr():
    tensor, array = sparse()
    return tensor.to_sparse_csr(), array


KINDS = {
    "coo": sparse, "coalesced": lambda: sparse(repeated=False), "hybrid": lambda: sparse((3, 4, 2), 2), "csr": csr,
}  # fmt: skip


def close(got, want):
    if isinstance(got, wg.Tensor):
        got = got.to_dense().detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*ADDITIVE, *ZERO_AT_ZERO])
def test_functions_of_each_element(name, kind):
    function = operators()[name].function if name in operators() else getattr(wg, name)
    tensor, array = KINDS[kind]()
    found = function(tensor)
    assert found.layout is tensor.layout
    close(found, function(wg.tensor(array)).numpy())


def test_functions_of_zero_are_zero():
    for name in ZERO_AT_ZERO:
        assert getattr(wg, name)(wg.tensor(0.0)) == 0, name


UNARY = {
    "double": (lambda t: t * 2, lambda a: a * 2), "half": (lambda t: t / 2, lambda a: a / 2),
    "by a 0-d tensor": (lambda t: wg.tensor(3.0) * t, lambda a: a * 3), "power": (lambda t: t**2.5, lambda a: a**2.5),
    "minus": (lambda t: -t, lambda a: -a), "twice": (lambda t: t + t, lambda a: a + a),
    "difference": (lambda t: t - t * 3, lambda a: -2 * a), "square": (lambda t: t * t, lambda a: a * a),
    "sum": (lambda t: t.sum(), lambda a: a.sum()), "norm": (lambda t: t.norm(), lambda a: np.sqrt((a * a).sum())),
    "largest": (lambda t: wg.linalg.vector_norm(t, np.inf), lambda a: abs(a).max()),
    "float32": (lambda t: t.to(wg.float32).to(wg.float64), lambda a: a.astype(np.float32).astype(np.float64)),
    "clamp": (lambda t: (t - t * 2).clamp(-0.5, 0.1), lambda a: np.clip(-a, -0.5, 0.1)),
    "clamp_": (lambda t: t.clone().clamp_(max=0.5), lambda a: np.minimum(a, 0.5)),
    "int64": (lambda t: (t * 3).to(wg.int64), lambda a: (a * 3).astype(np.int64)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNARY)
def test_arithmetic(name, kind):
    tensor, array = KINDS[kind]()
    function, want = UNARY[name]
    if name != "float32":
        close(function(tensor), want(array))
    else:
        np.testing.assert_allclose(function(tensor).to_dense().numpy(), want(array), rtol=1e-6)


BINARY = {
    "sum": np.add, "difference": np.subtract, "product": np.multiply,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BINARY)
def test_two_sparse_tensors(name, kind):
    (one, a), (two, b) = KINDS[kind](), KINDS[kind]()
    found = BINARY[name](a, b)
    close({"sum": one + two, "difference": one - two, "product": one * two}[name], found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_and_a_dense_tensor(kind):
    tensor, a = KINDS[kind]()
    b = RNG.uniform(1, 2, a.shape)
    dense = wg.tensor(b)
    close(dense + tensor, a + b)
    close(dense.add(tensor, alpha=3), 3 * a + b)
    close(tensor + dense, a + b)
    close(tensor.sub(dense, alpha=2), a - 2 * b)
    close(dense.clone().add_(tensor, alpha=-1), b - a)
    close(tensor * dense, a * b)
    close(dense * tensor, a * b)
    close(tensor / dense, a / b)
    close(tensor * wg.tensor(b[0]), a * b[0])


def test_different_dtypes_are_promoted():
    tensor, a = sparse(dtype=np.float32)
    assert (tensor + wg.sparse_coo_tensor(tensor._indices(), wg.ones(7, dtype=wg.float64), (3, 4))).dtype is wg.float64
    assert (wg.ones(3, 4, dtype=wg.float64) + tensor).dtype is wg.float64
    np.testing.assert_allclose((wg.ones(3, 4, dtype=wg.float64) + tensor).numpy(), 1 + a, rtol=1e-6)


def test_dimensions_change_places():
    tensor, a = sparse((2, 3, 4, 2), 3)
    close(tensor.transpose(0, 2), a.transpose(2, 1, 0, 3))
    close(tensor.permute(1, 2, 0, 3), a.transpose(1, 2, 0, 3))
    matrix, m = sparse()
    close(matrix.t(), m.T)
    close(matrix.T, m.T)
    with pytest.raises(SparseError, match="transpose"):
        tensor.transpose(0, 3)


@pytest.mark.parametrize("dims", [0, 1, (0, 2), (2,), (3,), (1, 3), (0, 1, 2), (0, 1, 2, 3), None], ids=str)
def test_sums_over_dimensions(dims):
    tensor, a = sparse((2, 3, 4, 2), 3)
    close(wg.sparse.sum(tensor, dims), a.sum(dims))
    close(tensor.sum(dims), a.sum(dims))
    assert wg.sparse.sum(tensor, dims, dtype=wg.float32).dtype is wg.float32


@pytest.mark.parametrize("kind", ["coo", "coalesced", "csr"])
def test_products(kind):
    (tensor, a), (other, c) = KINDS[kind](), KINDS[kind]()
    right, left, vector = RNG.normal(size=(4, 5)), RNG.normal(size=(2, 3)), RNG.normal(size=4)
    close(tensor @ wg.tensor(right), a @ right)
    close(wg.sparse.mm(tensor, wg.tensor(right)), a @ right)
    close(wg.tensor(left) @ tensor, left @ a)
    close(wg.sparse.mm(wg.tensor(left), tensor), left @ a)
    close(tensor.mv(wg.tensor(vector)), a @ vector)
    close(wg.tensor(vector[:3]) @ tensor, vector[:3] @ a)
    added = RNG.normal(size=(3, 5))
    close(wg.addmm(wg.tensor(added), tensor, wg.tensor(right), beta=2, alpha=0.5), 2 * added + 0.5 * (a @ right))
    close(wg.sparse.addmm(wg.tensor(added), tensor, wg.tensor(right), beta=0), a @ right)
    crossed = other.to_sparse_coo().t().to_sparse(layout=tensor.layout)
    both = tensor @ crossed
    assert both.layout is tensor.layout
    close(both, a @ c.T)


def batch():
    """Three sparse matrices, (2, 4), the second without entries, and the same as an array."""
    places = np.array([[0, 0, 0, 2, 2], [0, 1, 1, 0, 1], [3, 0, 0, 2, 3]])
    entries = RNG.normal(size=places.shape[1])
    array = np.zeros((3, 2, 4))
    np.add.at(array, tuple(places), entries)
    return wg.sparse_coo_tensor(places, entries, (3, 2, 4)), array


@pytest.mark.parametrize("dtype", [wg.float64, wg.float32, wg.int64, wg.complex128], ids=str)
def test_products_of_batches(dtype):
    tensor, a = batch()
    right, left = RNG.integers(-4, 4, (3, 4, 5)), RNG.integers(-4, 4, (3, 5, 2))
    tensor, a = ((tensor * 8).coalesce().to(dtype), np.trunc(a * 8)) if dtype is wg.int64 else (tensor.to(dtype), a)
    tolerance = {"rtol": 1e-5 if dtype is wg.float32 else 1e-12, "atol": 1e-5 if dtype is wg.float32 else 1e-12}
    for found, want in (
        (wg.bmm(tensor, wg.tensor(right, dtype=dtype)), a @ right),
        (tensor @ wg.tensor(right, dtype=dtype), a @ right),
        (wg.bmm(wg.tensor(left, dtype=dtype), tensor), left @ a),
        (wg.zeros_like(tensor).bmm(wg.tensor(right, dtype=dtype)), 0 * (a @ right)),
    ):
        assert (found.layout, found.dtype) == (wg.strided, dtype)
        np.testing.assert_allclose(found.numpy(), want, **tolerance)


def test_products_of_samples():
    tensor, a = sparse(repeated=False)
    left, right = RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4))
    for given in (tensor, tensor.to_sparse_csr()):
        found = wg.sparse.sampled_addmm(given, wg.tensor(left), wg.tensor(right), beta=2.0, alpha=0.5)
        close(found, np.where(a != 0, 2 * a + 0.5 * (left @ right), 0))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_softmax_of_what_is_stored(dim):
    tensor, a = sparse((3, 4, 2), 2)
    masked = np.where(a == 0, -np.inf, a)
    with np.errstate(invalid="ignore"):
        exp = np.exp(masked - masked.max(dim, keepdims=True))
        want = np.nan_to_num(exp / exp.sum(dim, keepdims=True))
    close(wg.sparse.softmax(tensor, dim), want)
    logs = wg.sparse.log_softmax(tensor, dim).coalesce()
    np.testing.assert_allclose(np.exp(logs.values().numpy()), want[tuple(logs.indices().numpy())], rtol=1e-12)


# ---- what has no meaning

REFUSED = [
    (lambda t: t.exp(), r"exp\(\) has no meaning.*to_dense"), (lambda t: t + 1, r"add\(\) has no meaning"),
    (lambda t: t**0, r"pow\(\) has no meaning"), (lambda t: 1 / t, "to_dense"), (lambda t: t / t, "to_dense"),
    (lambda t: t.clamp(min=0.1), r"clamp\(\)"), (lambda t: t == t, r"eq\(\)"), (lambda t: t.reshape(12), r"reshape\(\)"),
    (lambda t: t.fill_(1), r"fill\(\)"), (lambda t: t.mean(), r"mean\(\)"),
    (lambda t: wg.ones_like(t), "would be dense"),
    (lambda t: batch()[0] @ wg.ones(4, 2, dtype=wg.float64), "a batch of them and a dense one"),
    (lambda t: batch()[0].bmm(batch()[0].transpose(1, 2)), "two sparse batches"),
    (lambda t: wg.ones(3, 2, 4).to_sparse(1).bmm(wg.ones(3, 4, 2)), "all of whose dimensions are sparse"),
    (lambda t: wg.sparse.mm(wg.ones(2, 3), wg.ones(3, 2)), "for sparse tensors, got a dense one"),
    (lambda t: wg.sparse.sum(wg.ones(2)), "for sparse tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_an_operator_without_a_meaning_says_so(call, text):
    with pytest.raises(NotImplementedError, match=text):
        call(sparse()[0])


@pytest.mark.parametrize(("call", "text"), [
    (lambda t: t @ wg.ones(3, 2, dtype=wg.float64), "cannot be multiplied so"),
    (lambda t: batch()[0].bmm(wg.ones(2, 4, 2, dtype=wg.float64)), r"bmm\(\): the tensors need the same batch size"),
    (lambda t: batch()[0].bmm(wg.ones(3, 2, 2, dtype=wg.float64)), "cannot be multiplied so"),
    (lambda t: t @ wg.ones(3, 4, 2, dtype=wg.float64), "cannot be multiplied so"),
    (lambda t: t @ wg.ones(4, 2), "same dtype"), (lambda t: wg.sparse.mm(t, wg.ones(4)), "two matrices"),
    (lambda t: t + sparse((4, 3))[0], "do not broadcast"), (lambda t: t * sparse((4, 3))[0], "do not broadcast"),
    (lambda t: wg.sparse.sampled_addmm(t, wg.ones(3, 2), wg.ones(3, 4)), "that fit"),
])  # fmt: skip
def test_tensors_that_do_not_fit(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(sparse()[0])


def test_no_operator_is_silent():
    """Each operator of one tensor gives what it gives for the dense one, or says by its name that it cannot."""
    tensor, array = sparse()
    wrong = []
    for name, op in operators().items():
        if op.composite or len(op.signature.inputs) != 1 or op.signature.many or len(op.signature.slots) != 1:
            continue
        try:
            found = op.function(tensor)
        except SparseError as error:
            if not str(error).startswith(f"{name}()"):
                wrong.append(f"{name}: {error}")
            continue
        except (TypeError, RuntimeError, ValueError):  # it takes no such dense tensor either
            with pytest.raises((TypeError, RuntimeError, ValueError)):
                op.function(wg.tensor(array))
            continue
        if name not in RULES:
            wrong.append(f"{name} gave {found!r}")
    assert not wrong, "\n".join(wrong)
