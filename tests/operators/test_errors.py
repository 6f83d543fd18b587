"""Nonsense given to operators: each call is refused by an error that names the operator and what is wrong."""

import math
import warnings

import numpy as np
import pytest

import wengert as wg
from wengert.core.registry import operators
from wengert.testing.samples import ErrorSample, samples_of

F = wg.nn.functional
X = wg.ones(2, 3)
IMAGE = wg.ones(1, 1, 4, 4)
INFINITE = wg.full((2, 3, 3), math.inf)

REFUSED = [
    # arguments that are not tensors
    (lambda: wg.kron(None, X), TypeError, r"kron\(\): argument 'input' must be a tensor, got None"),
    (lambda: wg.max("abc"), TypeError, r"max\(\): argument 'input' must be a tensor, got 'abc'"),
    (lambda: wg.block_diag([], X), TypeError, r"block_diag\(\): argument 0 must be a tensor"),
    (lambda: F.conv2d(IMAGE, None), TypeError, r"conv2d\(\): argument 'weight' must be a tensor"),
    (lambda: wg.dropout(None, 0.5), TypeError, r"dropout\(\): argument 'input' must be a tensor"),
    # dimensions, sizes and dtypes
    (lambda: X.sum(9), IndexError, r"sum\(\): dim=9 is out of range"),
    (lambda: X.sum(""), TypeError, r"sum\(\): dim must be an int or ints, got ''"),
    (lambda: X.sum(b"a"), TypeError, r"sum\(\): dim must be"),
    (lambda: X.sum((0, 0)), RuntimeError, r"sum\(\): dim=\(0, 0\) names the same dimension twice"),
    (lambda: X.softmax(np.arange(3)), TypeError, r"softmax\(\): dim must be an int"),
    (lambda: X.sum(dtype=3), TypeError, r"sum\(\): expected a dtype"),
    (lambda: X.sum(dtype=np.float32(1)), TypeError, r"sum\(\): expected a dtype"),
    (lambda: X.expand("ab"), TypeError, r"expand\(\): size must be"),
    (lambda: F.conv2d(IMAGE, IMAGE, padding=b"x"), TypeError, r"conv2d\(\): padding must be an int"),
    # flags and numbers
    (lambda: X.sum(keepdim=1), TypeError, r"sum\(\): argument 'keepdim' must be True or False, got 1"),
    (lambda: X.softmax(1).max(1, keepdim=None), TypeError, r"keepdim' must be True or False, got None"),
    (lambda: wg.dropout(X, training="no"), TypeError, r"dropout\(\): argument 'training' must be True or False"),
    (lambda: wg.dropout(X, None), TypeError, r"dropout\(\): argument 'p' must be a number, got None"),
    (lambda: wg.add(X, X, alpha=[1]), TypeError, r"add\(\): argument 'alpha' must be a number, got \[1\]"),
    (lambda: wg.add(X, X, alpha="2"), TypeError, r"add\(\): argument 'alpha' must be a number"),
    (lambda: F.leaky_relu(X, None), TypeError, r"leaky_relu\(\): argument 'negative_slope' must be a real number"),
    (lambda: F.softplus(X, 1j), TypeError, r"softplus\(\): argument 'beta' must be a real number, got 1j"),
    (lambda: F.conv2d(IMAGE, IMAGE, groups=X), TypeError, r"argument 'groups' must be a number"),
    (lambda: wg.meshgrid(X[0], indexing=3), RuntimeError, r"meshgrid\(\): indexing must be"),
    # sizes and numbers beyond all bounds
    (lambda: wg.arange(3) & 10**30, RuntimeError, r"bitwise_and\(\): the number 10+ does not fit elements of"),
    (lambda: wg.arange(3) + 10**30, RuntimeError, r"add\(\): the number 10+ does not fit elements of"),
    (lambda: F.pad(X, (0, 2**50)), RuntimeError, r"\(\): (a size or number is too large|cannot take 8)"),
    (lambda: wg.tensor_split(X, 10**9), ValueError, r"tensor_split\(\): 1000000000 parts"),
    (lambda: wg.mvlgamma(X + 10, 10**12), ValueError, r"mvlgamma\(\): p must lie between"),
    # shapes that kernels refuse
    (lambda: F.max_pool1d(wg.ones(1, 2, 0), 2), RuntimeError, r"^max_pool\(\): no window"),
    (lambda: wg.select_scatter(X, wg.ones(5), 0, 0), ValueError, r"select_scatter\(\): src has shape"),
    (lambda: wg.lu_unpack(wg.eye(3), wg.tensor([0, 2, 3], dtype=wg.int32)), IndexError, "between 1 and 3"),
    # decompositions of infinities, some of which LAPACK never returns from
    (lambda: wg.linalg.svd(INFINITE), RuntimeError, r"linalg_svd\(\): matrix 0 of the batch: it holds infinities"),
    (lambda: wg.linalg.svdvals(INFINITE[0]), RuntimeError, "infinities or NaN"),
    (lambda: wg.linalg.pinv(INFINITE[0]), RuntimeError, "infinities or NaN"),
    (lambda: wg.linalg.matrix_rank(INFINITE[0]), RuntimeError, "infinities or NaN"),
    (lambda: wg.linalg.norm(INFINITE[0], "nuc"), RuntimeError, "infinities or NaN"),
    (lambda: wg.linalg.eigh(INFINITE[0]), RuntimeError, "infinities or NaN"),
    # indices
    (lambda: X["a":], TypeError, r"getitem\(\): the ends and the step of a slice"),
    (lambda: X[::1.5], TypeError, r"getitem\(\): the ends and the step of a slice"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_nonsense_is_refused_by_name(case):
    call, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        call()


CREATIONS = [
    (lambda: wg.zeros(10**15), RuntimeError, r"zeros\(\): a size or number is too large"),
    (lambda: wg.zeros("ab"), TypeError, r"zeros\(\): size must be"),
    (lambda: wg.zeros(2, dtype=3), TypeError, r"zeros\(\): expected a dtype"),
    (lambda: wg.ones(2, -1), ValueError, r"ones\(\): sizes must not be negative"),
    (lambda: wg.arange(10**30), RuntimeError, r"arange\(\)"),
    (lambda: wg.arange(None), TypeError, r"arange\(\)"),
    (lambda: wg.full((2,), "x"), TypeError, r"full\(\): fill_value must be a number"),
    (lambda: wg.logspace(0, 1, 3, "x"), TypeError, r"logspace\(\): base must be a number"),
    (lambda: wg.tril_indices(2, 2, None), TypeError, r"tril_indices\(\): offset must be an int"),
    (lambda: wg.ones(2).resize_(2**40), RuntimeError, r"resize_\(\): a size or number is too large"),
    (lambda: wg.set_grad_enabled(np.arange(3)), TypeError, r"set_grad_enabled\(\) takes True or False"),
    (lambda: wg.promote_types(None, wg.float32), TypeError, "expected a dtype"),
    (lambda: wg.set_printoptions(precision="x"), ValueError, "precision must be an int"),
]


@pytest.mark.parametrize("case", range(len(CREATIONS)))
def test_factories_and_settings_refuse_nonsense_by_name(case):
    call, error, message = CREATIONS[case]
    with pytest.raises(error, match=message):
        call()


NONSENSE = [None, "abc", b"x", [], {}, object(), 1j, 10**30, [[1], [2]], wg.ones(2, 2, 2, 2, 2, 2, 2)]


def refusal(op, args, kwargs):
    """Return what an operator says of a call it refuses; any error but those of PyTorch's kinds goes through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if not op.home:  # NumPy's opinion on what only this package passes to an operator
            warnings.simplefilter("ignore", DeprecationWarning)
        try:
            op.function(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
            return str(error)
        except np.exceptions.ComplexWarning:
            pass  # an imaginary part given where a real number belongs
    return None


@pytest.mark.parametrize("name", operators())
def test_whatever_replaces_an_argument_gives_a_result_or_a_clear_error(name):
    op = operators()[name]
    sample = next(s for s in samples_of(op) if not isinstance(s, ErrorSample))
    for at in [*range(len(sample.args)), *sample.kwargs]:
        for value in NONSENSE:
            args, kwargs = sample.arguments(wg.from_numpy)
            (args if isinstance(at, int) else kwargs)[at] = value
            said = refusal(op, args, kwargs)
            assert said is None or "()" in said or name in said, f"{name}, argument {at} = {value!r}: {said}"


def test_numbers_may_be_tensors_of_one_element_without_a_gradient():
    assert wg.add(X, X, alpha=wg.tensor(2.0)).tolist() == [[3.0] * 3] * 2
    with pytest.raises(TypeError, match="alpha"):
        wg.add(X, X, alpha=wg.tensor(2.0, requires_grad=True))


def test_a_tolerance_given_as_tol_is_absolute():
    assert wg.linalg.matrix_rank(wg.tensor([[1.0, 0.0], [0.0, 1e-9]]), tol=0).item() == 2


def test_nothing_leaks_a_warning_for_empty_groups():
    assert wg.nn.GroupNorm(2, 4)(wg.ones(2, 4, 0)).shape == (2, 4, 0)
    assert F.instance_norm(wg.ones(2, 2, 0)).shape == (2, 2, 0)
