"""NumPy's functions mean on tensors what they mean on arrays, defaults and positional arguments included."""

import numpy as np
import pytest

import wengert as wg

A = np.array([[3.0, 1.0, 2.5, 0.5], [4.0, -2.0, 7.0, 1.5]])
V = np.array([2.0, 0.5, 1.0])

SAME = {
    "median of an even count": lambda a, v: np.median(a),
    "median along": lambda a, v: np.median(a, axis=1),
    "median by position": lambda a, v: np.median(a, 0),
    "nanmedian": lambda a, v: np.nanmedian(a, axis=1),
    "percentile": lambda a, v: np.percentile(a, 30, axis=1),
    "quantile": lambda a, v: np.quantile(a, [0.25, 0.5]),
    "average": lambda a, v: np.average(v, weights=v),
    "ptp": lambda a, v: np.ptp(a, axis=0),
    "sum by position": lambda a, v: np.sum(a, 0, None, None, True),
    "mean keepdims": lambda a, v: np.mean(a, axis=1, keepdims=True),
    "trace": lambda a, v: np.trace(a, 1),
    "meshgrid": lambda a, v: np.meshgrid(v, v[:2]),
    "meshgrid ij": lambda a, v: np.meshgrid(v, v[:2], indexing="ij"),
    "nonzero": lambda a, v: np.nonzero(a > 1),
    "gradient": lambda a, v: np.gradient(v),
    "gradient spaced": lambda a, v: np.gradient(v, 2.0),
    "gradient of a matrix": lambda a, v: np.gradient(a),
    "cumsum": lambda a, v: np.cumsum(a),
    "cumprod along": lambda a, v: np.cumprod(a, 1),
    "flip": lambda a, v: np.flip(a),
    "flip along": lambda a, v: np.flip(a, 1),
    "roll": lambda a, v: np.roll(a, 1, axis=0),
    "rot90": lambda a, v: np.rot90(a, 1, (1, 0)),
    "repeat": lambda a, v: np.repeat(v, [1, 0, 2]),
    "sort": lambda a, v: np.sort(a, axis=None),
    "argsort by position": lambda a, v: np.argsort(a, -1, "stable"),
    "take": lambda a, v: np.take(a, [[0, 1], [1, 1]], axis=1),
    "take along": lambda a, v: np.take_along_axis(a, np.array([[0], [1]]), axis=1),
    "concatenate flat": lambda a, v: np.concatenate([a, v], axis=None),
    "append": lambda a, v: np.append(v, [1.0]),
    "split": lambda a, v: np.split(a, 2, axis=1),
    "pad": lambda a, v: np.pad(a, ((0, 1), (2, 0)), constant_values=3.0),
    "dot of matrices": lambda a, v: np.dot(a, a.T),
    "dot with a number": lambda a, v: np.dot(a, 2.0),
    "tensordot": lambda a, v: np.tensordot(a, a.T, axes=1),
    "clip": lambda a, v: np.clip(a, 0, 2),
    "clip by name": lambda a, v: np.clip(a, max=2),
    "round": lambda a, v: np.round(a, 0),
    "nan_to_num by position": lambda a, v: np.nan_to_num(a / a[:, :1], True, 5.0),
    "triu": lambda a, v: np.triu(a, k=1),
    "diagonal": lambda a, v: np.diagonal(a, axis1=1, axis2=0),
    "transpose": lambda a, v: np.transpose(a),
    "imag": lambda a, v: np.imag(a),
    "degrees": lambda a, v: np.degrees(a),
    "array_equal": lambda a, v: np.array_equal(a, A),
    "isin": lambda a, v: np.isin(a, [1.0, 4.0]),
    "norm": lambda a, v: np.linalg.norm(a, axis=1),
    "rfft": lambda a, v: np.fft.rfft(a, axis=0),
}


def plain(value):
    if isinstance(value, wg.Tensor):
        return value.detach().numpy()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize("name", SAME)
def test_a_function_gives_on_tensors_what_it_gives_on_arrays(name):
    wanted = SAME[name](A.copy(), V.copy())
    found = SAME[name](wg.tensor(A, requires_grad=True), wg.tensor(V, requires_grad=True))
    wanted = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    found = plain(found) if isinstance(found, tuple | list) else [plain(found)]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_gradient_passes_the_mean_of_the_two_middle_elements():
    x = wg.tensor(A, requires_grad=True)
    np.median(x, axis=1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0.0, 0.5, 0.5, 0.0], [0.5, 0.0, 0.0, 0.5]])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.choose(x, [1, 2]), lambda x: np.histogram(x), lambda x: np.select([x > 1], [x]),
        lambda x: np.put(x, 0, 1.0),
        lambda x: np.pad(x, 1, mode="edge"), lambda x: np.sum(x, where=[True]), lambda x: np.max(x, initial=3.0),
        lambda x: np.interp(x, [1.0], [2.0]),
    ],
)  # fmt: skip
def test_what_has_no_operator_is_refused(call):
    with pytest.raises(TypeError, match=r"no operator|unexpected keyword"):
        call(wg.tensor(V))
