"""The interface of ``wengert.func``: arguments, structures, values, modules, Jacobians, errors."""

import copy
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.core.state import thread
from wengert.errors import DTypeError, InplaceError, ShapeError, TransformError
from wengert.func import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)

X = wg.tensor([1.0, 2.0, 3.0], dtype=wg.float64)
ONES = wg.ones(3, dtype=wg.float64)
BATCH = wg.arange(6, dtype=wg.float64).reshape(2, 3)
Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def nothing_left_running() -> Any:
    """Whatever a test does, no transform and no mode may outlive it."""
    yield
    state = thread.state
    assert (state.levels, state.grad, state.slow, state.walk) == ([], True, False, None)


def leaf(values: Any = (1.0, 2.0, 3.0)) -> Any:
    return wg.tensor(list(values), dtype=wg.float64, requires_grad=True)


def same(found: Any, expected: Any) -> None:
    """Compare trees of tensors with trees of numbers."""
    assert type(found) is type(expected) or isinstance(found, wg.Tensor), (found, expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(found, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(found, wg.Tensor):
        expected = expected.numpy() if isinstance(expected, wg.Tensor) else np.asarray(expected)
        assert tuple(found.shape) == expected.shape
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)
    else:
        assert found == expected


def bilinear(a: Any, b: Any, scale: float = 1.0) -> Any:
    return (a * a * b).sum() * scale


def cube(x: Any) -> Any:
    return (x**3).sum()


# ---- which arguments, what structures

ARGUMENTS = [
    (0, [4.0, 12.0, 24.0]),
    (1, [1.0, 4.0, 9.0]),
    (-1, [1.0, 4.0, 9.0]),
    ((1,), ([1.0, 4.0, 9.0],)),
    ((1, 0), ([1.0, 4.0, 9.0], [4.0, 12.0, 24.0])),
    ([0, -1], ([4.0, 12.0, 24.0], [1.0, 4.0, 9.0])),
]


@pytest.mark.parametrize(("argnums", "expected"), ARGUMENTS)
def test_argnums(argnums: Any, expected: Any) -> None:
    y = X + 1
    same(grad(bilinear, argnums)(X, y), expected)
    value, found = value_and_grad(bilinear, argnums)(X, y)
    same((value, found), ((X * X * y).sum().item(), expected))
    for whole in (jacrev(bilinear, argnums), jacfwd(bilinear, argnums), jacobian(bilinear, argnums)):
        same(whole(X, y), expected)
    same(grad(bilinear, argnums)(X, y, scale=1.0), expected)
    same(func.grad_and_value(bilinear, argnums)(X, y), (expected, value))


@pytest.mark.parametrize("transform", [grad, value_and_grad, jacrev, jacfwd, jacobian, hessian])
@pytest.mark.parametrize(
    ("argnums", "error"),
    [(2, ValueError), (-3, ValueError), ((0, 0), ValueError), ((0, -2), ValueError), ((), TypeError), (True, TypeError),
     ("0", TypeError), (0.0, TypeError), (None, TypeError), ((0, 1.0), TypeError)],
)  # fmt: skip
def test_argnums_that_name_nothing(transform: Any, argnums: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="argnums"):
        transform(bilinear, argnums)(X, X)


def test_trees_go_in_and_come_out() -> None:
    tree = {"a": X, "b": [X * 2, (X[0], Pair(X, OrderedDict(z=X)))], "empty": [], "none": ()}

    def f(t: Any) -> Any:
        return (t["a"] * t["b"][0]).sum() * t["b"][1][0] + cube(t["b"][1][1].first) + t["b"][1][1].second["z"].sum()

    expected = {"a": [2.0, 4.0, 6.0], "b": [[1.0, 2.0, 3.0], (28.0, Pair([3.0, 12.0, 27.0], OrderedDict(z=[1.0, 1.0, 1.0])))],
                "empty": [], "none": ()}  # fmt: skip
    same(grad(f)(tree), expected)
    assert type(grad(f)(tree)["b"][1][1]) is Pair
    y, pull = vjp(lambda t: {"y": t["a"] * 2, "c": (wg.ones(2, dtype=wg.float64), [])}, {"a": X})
    same(y, {"y": [2.0, 4.0, 6.0], "c": ([1.0, 1.0], [])})
    same(pull({"y": X, "c": (wg.ones(2), [])}), ({"a": [2.0, 4.0, 6.0]},))
    found = jvp(lambda t, u: Pair(t["a"] * u[0], [u[0]]), ({"a": X}, (X,)), ({"a": ONES}, (ONES * 0,)))
    same(found, (Pair([1.0, 4.0, 9.0], [[1.0, 2.0, 3.0]]), Pair([1.0, 2.0, 3.0], [[0.0, 0.0, 0.0]])))
    small = X[:2]
    for jac in (jacrev, jacfwd):
        same(jac(lambda t: Pair(t["a"] * t["b"], t["a"][0]))({"a": small, "b": small}),
             Pair({"a": [[1.0, 0.0], [0.0, 2.0]], "b": [[1.0, 0.0], [0.0, 2.0]]},
                  {"a": [1.0, 0.0], "b": [0.0, 0.0]}))  # fmt: skip
    same(hvp(lambda t, u: cube(t["a"]) * u, ({"a": X}, X[0]), ({"a": X}, X[0])),
         (36.0, ({"a": [9.0, 36.0, 81.0]}, 108.0)))  # fmt: skip


def test_a_leaf_that_is_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match=r"argument 0\['b'\].*NoneType"):
        grad(lambda t: t["a"].sum())({"a": X, "b": None})
    with pytest.raises(TypeError, match=r"argument 0 must be a tensor.*float"):
        grad(lambda x: x)(3.0)
    with pytest.raises(DTypeError, match=r"floating-point.*int64"):
        grad(lambda x: x.sum())(wg.arange(3))
    with pytest.raises(ValueError, match="holds no tensors"):
        grad(lambda x: X.sum())([])


@pytest.mark.parametrize("returned", [3.0, None, (X.sum(), X.sum()), [X.sum()], "x"])
def test_what_a_scalar_function_must_return(returned: Any) -> None:
    with pytest.raises(TypeError, match="must return a tensor"):
        grad(lambda x: returned)(X)
    for transform in (lambda: vjp(lambda x: (x, 3.0), X), lambda: jvp(lambda x: (x, None), (X,), (X,))):
        with pytest.raises(TypeError, match=r"must return tensors.*output\[1\]"):
            transform()


def test_shapes_and_dtypes_of_scalars() -> None:
    with pytest.raises(ShapeError, match=r"shape \(1,\)"):
        grad(lambda x: x.sum().reshape(1))(X)
    with pytest.raises(DTypeError, match="real"):
        grad(lambda x: x.sum() * 1j)(X)
    same(grad(lambda x: wg.tensor(2.0))(X), [0.0, 0.0, 0.0])
    same(grad(lambda x: x)(X[0]), 1.0)
    z = wg.tensor([1 + 2j, 3 - 1j])
    same(grad(lambda z: (z * z.conj()).real.sum())(z), 2 * z)


AUX: list[tuple[str, Callable[[Any], Any]]] = [
    ("grad", lambda f: grad(lambda x: (cube(x), f(x)), has_aux=True)(X)[1]),
    ("value_and_grad", lambda f: value_and_grad(lambda x: (cube(x), f(x)), has_aux=True)(X)[0][1]),
    ("vjp", lambda f: vjp(lambda x: (x**2, f(x)), X, has_aux=True)[2]),
    ("jvp", lambda f: jvp(lambda x: (x**2, f(x)), (X,), (X,), has_aux=True)[2]),
    ("jacrev", lambda f: jacrev(lambda x: (x**2, f(x)), has_aux=True)(X)[1]),
    ("jacfwd", lambda f: jacfwd(lambda x: (x**2, f(x)), has_aux=True)(X)[1]),
    ("jacfwd in chunks", lambda f: jacfwd(lambda x: (x**2, f(x)), has_aux=True, chunk_size=2)(X)[1]),
    ("jacobian", lambda f: jacobian(lambda x: (x**2, f(x)), has_aux=True)(X)[1]),
]


@pytest.mark.parametrize(("name", "call"), AUX, ids=[n for n, _ in AUX])
def test_aux_is_handed_on_without_history_or_level(name: str, call: Any) -> None:
    aux = call(lambda x: {"t": x * 2, "n": 3, "none": None, "inner": (x.argmax(), "text", [])})
    assert (aux["n"], aux["none"], aux["inner"][1:]) == (3, None, ("text", []))
    for tensor, expected in ((aux["t"], [2.0, 4.0, 6.0]), (aux["inner"][0], 2)):
        assert type(tensor._payload) is np.ndarray
        assert not tensor.requires_grad
        assert tensor.is_leaf
        same(tensor, expected)
    r = leaf()
    connected = call(lambda x: x * r)  # stays connected to what is outside
    same(wg.autograd.grad(connected.sum(), r)[0], X)


@pytest.mark.parametrize("transform", [grad, value_and_grad, jacrev, jacfwd])
def test_aux_must_be_there(transform: Any) -> None:
    with pytest.raises(TypeError, match="pair"):
        transform(lambda x: x.sum(), has_aux=True)(X)
    with pytest.raises(TypeError, match="pair"):
        transform(lambda x: (x.sum(), x, x), has_aux=True)(X)


REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("no primals", lambda: vjp(lambda: X), ValueError, "at least one primal"),
    ("cotangent structure", lambda: vjp(lambda x: (x, x), X)[1](X), ValueError, "structure"),
    ("cotangent list", lambda: vjp(lambda x: (x, x), X)[1]([X, X]), ValueError, "structure"),
    ("cotangent shape", lambda: vjp(lambda x: x, X)[1](X[:2]), ShapeError, r"\(2,\).*\(3,\)"),
    ("cotangent number", lambda: vjp(lambda x: x.sum(), X)[1](1.0), TypeError, "float"),
    ("complex cotangent", lambda: vjp(lambda x: x, X)[1](X * 1j), DTypeError, "complex"),
    ("primals no tuple", lambda: jvp(cube, X, X), TypeError, r"write \(primals,\)"),
    ("tangents no tuple", lambda: jvp(cube, (X,), X), TypeError, r"write \(tangents,\)"),
    ("tangent shape", lambda: jvp(cube, (X,), (X[:2],)), ShapeError, "tangent has shape"),
    ("tangent dtype", lambda: jvp(cube, (X,), (X.float(),)), DTypeError, "float32"),
    ("tangent number", lambda: jvp(bilinear, (X, X), (X, 1.0)), TypeError, "float"),
    ("too many tangents", lambda: jvp(cube, (X,), (X, X)), ValueError, "structure"),
    ("integer primal", lambda: jvp(bilinear, (X, wg.arange(3)), (X, wg.arange(3))), DTypeError, "int64"),
    ("strict", lambda: jvp(lambda x: ONES, (X,), (X,), strict=True), RuntimeError, "does not depend"),
    ("affine", lambda: linear_transpose(lambda x: x + 1, X), ValueError, "not linear"),
    ("square", lambda: linear_transpose(lambda x: x * x, X), ValueError, "not linear"),
    ("transposed shape", lambda: linear_transpose(lambda x: x * 2, X)(X[:2]), ShapeError, r"linear_transpose.*\(2,\)"),
    ("linearized shape", lambda: linearize(cube, X)[1](X[:2]), ShapeError, "tangent has shape"),
    ("jacrev of integers", lambda: jacrev(lambda x: x * 2)(wg.arange(3)), DTypeError, r"jacrev\(\).*int64"),
    ("jacfwd of integers", lambda: jacfwd(lambda x: x * 2)(wg.arange(3)), DTypeError, r"jacfwd\(\).*int64"),
    ("jacrev by complex", lambda: jacrev(lambda z: z.abs())(X * 1j), DTypeError, "view_as_real"),
    ("jacfwd by complex", lambda: jacfwd(lambda z: z.abs())(X * 1j), DTypeError, "view_as_real"),
    ("jacrev to complex", lambda: jacrev(lambda x: x * 2j)(X), DTypeError, "jacfwd"),
    ("jacobian mode", lambda: jacobian(cube, mode="both"), ValueError, "mode"),
    ("in-place on an argument of grad", lambda: grad(lambda x: x.mul_(2).sum())(X.clone()), InplaceError, "leaf"),
    ("out= under vmap", lambda: vmap(lambda x: wg.add(x, x, out=wg.empty(3)))(BATCH), TransformError, "out="),
    ("out= in jvp", lambda: jvp(lambda x: wg.add(x, x, out=wg.empty(3)), (X,), (X,)), TransformError, "out="),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "error", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_wrong_calls_say_what_is_wrong(name: str, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ---- vmap

MAPPED: list[tuple[str, Callable[[], Any], Any]] = [
    ("ignores its input", lambda: vmap(lambda x: wg.ones(2))(BATCH), np.ones((2, 2))),
    ("nothing out", lambda: vmap(lambda x: ((), []))(BATCH), ((), [])),
    ("identity", lambda: vmap(lambda x: x)(BATCH), BATCH),
    ("the same twice", lambda: vmap(lambda x: (x, x), out_dims=(0, 1))(BATCH), (BATCH, BATCH.T)),
    ("views of it", lambda: vmap(lambda x: (x[1:], x.sum()))(BATCH), (BATCH[:, 1:], [3.0, 12.0])),
    ("last dimension", lambda: vmap(lambda x: x.sum(), in_dims=-1)(BATCH), [3.0, 5.0, 7.0]),
    ("to the end", lambda: vmap(lambda x: x * 2, out_dims=-1)(BATCH), BATCH.T * 2),
    ("shared argument", lambda: vmap(wg.add, in_dims=(0, None))(BATCH, X), BATCH + X),
    ("list of dims", lambda: vmap(wg.add, in_dims=[0, None])(BATCH, X), BATCH + X),
    ("shared number", lambda: vmap(lambda x, k: x * k, in_dims=(0, None))(BATCH, 2), BATCH * 2),
    ("shared text", lambda: vmap(lambda x, k: x * len(k), in_dims=(0, None))(BATCH, "ab"), BATCH * 2),
    ("per leaf", lambda: vmap(lambda t: t["a"] + t["b"][0], in_dims=({"a": 0, "b": [None]},))({"a": BATCH, "b": [X]}),
     BATCH + X),
    ("prefix", lambda: vmap(lambda t, x: t["a"] + t["b"] + x, in_dims=(None, 0))({"a": X, "b": X}, BATCH), BATCH + 2 * X),
    ("tree by one dim", lambda: vmap(lambda t: t[0] + t[1]["k"], in_dims=1)((BATCH, {"k": BATCH})), 2 * BATCH.T),
    ("different dims", lambda: vmap(lambda x, y: x * y, in_dims=(0, 1), out_dims=1)(BATCH, BATCH.T), (BATCH * BATCH).T),
    ("out of None", lambda: vmap(lambda x: (x, X * 2), out_dims=(0, None))(BATCH), (BATCH, X * 2)),
    ("dictionary out", lambda: vmap(lambda x: {"a": x, "b": (x, x)}, out_dims={"a": 0, "b": 1})(BATCH),
     {"a": BATCH, "b": (BATCH.T, BATCH.T)}),
    ("keywords are shared", lambda: vmap(lambda x, y=None, k=1: x * y * k)(BATCH, y=X, k=2), BATCH * X * 2),
    ("keyword number", lambda: vmap(lambda x, k: x * k)(BATCH, k=3.0), BATCH * 3),
    ("empty batch", lambda: vmap(lambda x: x.sin().sum())(wg.zeros(0, 3)), np.zeros(0)),
    ("empty batch of matrices", lambda: vmap(lambda x: x @ x)(wg.zeros(0, 3, 3)), np.zeros((0, 3, 3))),
    ("empty examples", lambda: vmap(lambda x: x.sum())(wg.zeros(4, 0)), np.zeros(4)),
    ("one by one", lambda: vmap(lambda x: x.sum(), chunk_size=1)(BATCH), [3.0, 12.0]),
    ("uneven chunks", lambda: vmap(lambda x: x * 2, in_dims=1, out_dims=-1, chunk_size=2)(BATCH), BATCH * 2),
    ("chunks of None", lambda: vmap(lambda x: (x, X), out_dims=(0, None), chunk_size=1)(BATCH), (BATCH, X)),
    ("chunks of nothing", lambda: vmap(lambda x: x.sum(), chunk_size=1)(wg.zeros(0, 3)), np.zeros(0)),
    ("no chunk", lambda: vmap(lambda x: x.sum(), chunk_size=99)(BATCH), [3.0, 12.0]),
    ("integers", lambda: vmap(lambda i: X[i])(wg.tensor([2, 0])), [3.0, 1.0]),
    ("index by value", lambda: vmap(lambda x: X[x.argmax()])(BATCH), [3.0, 3.0]),
    ("generator inside", lambda: vmap(lambda x: sum(x * i for i in range(3)))(BATCH), BATCH * 3),
    ("iteration", lambda: vmap(lambda x: sum(v for v in x) * len(x))(BATCH), [9.0, 36.0]),
    ("in-place on an argument", lambda: vmap(lambda x: x.mul_(2))(BATCH.clone()), BATCH * 2),
    ("leaf inside", lambda: vmap(lambda x: wg.autograd.grad(cube(y := x.clone().requires_grad_()), y)[0])(BATCH), 3 * BATCH**2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "expected"), MAPPED, ids=[m[0] for m in MAPPED])
def test_vmap(name: str, call: Any, expected: Any) -> None:
    same(call(), expected)


UNMAPPED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("number out", lambda: vmap(lambda x: 3.0)(BATCH), ValueError, "must return tensors, got float"),
    ("None out", lambda: vmap(lambda x: (x, None))(BATCH), ValueError, r"NoneType at output\[1\]"),
    ("generator out", lambda: vmap(lambda x: (v for v in x))(BATCH), ValueError, "generator"),
    ("nothing mapped", lambda: vmap(lambda x: x, in_dims=None)(BATCH), ValueError, "no argument is mapped"),
    ("no arguments", lambda: vmap(lambda: X)(), ValueError, "no argument is mapped"),
    ("different sizes", lambda: vmap(wg.add)(BATCH, X), ValueError, r"2 in argument\[0\], 3 in argument\[1\]"),
    ("scalar", lambda: vmap(lambda x: x)(X[0]), ValueError, r"shape \(\)"),
    ("no such dim", lambda: vmap(lambda x: x, in_dims=2)(BATCH), ValueError, r"says 2.*\(2, 3\)"),
    ("no such out dim", lambda: vmap(lambda x: x, out_dims=2)(BATCH), ShapeError, "out_dims says 2"),
    ("too many dims", lambda: vmap(lambda x: x, in_dims=(0, 0))(BATCH), ValueError, "2 entries"),
    ("dims of another tree", lambda: vmap(lambda t: t[0], in_dims=({"a": 0},))([BATCH]), ValueError, "in_dims"),
    ("dims that are text", lambda: vmap(lambda x: x, in_dims="0")(BATCH), ValueError, "in_dims"),
    ("bool dim", lambda: vmap(lambda x: x, in_dims=(True,))(BATCH), ValueError, "ints and None"),
    ("out tree", lambda: vmap(lambda x: (x, x), out_dims=(0, 0, 0))(BATCH), ValueError, "out_dims"),
    ("out None", lambda: vmap(lambda x: x, out_dims=None)(BATCH), ValueError, "differs between"),
    ("mapped number", lambda: vmap(lambda x, k: x)(BATCH, 2.0), ValueError, r"argument\[1\].*no tensor: float"),
    ("chunk of 0", lambda: vmap(lambda x: x, chunk_size=0)(BATCH), ValueError, "chunk_size"),
    ("chunk of True", lambda: vmap(lambda x: x, chunk_size=True)(BATCH), ValueError, "chunk_size"),
    ("randomness", lambda: vmap(lambda x: x, randomness="none")(BATCH), RuntimeError, "randomness"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "error", "message"), UNMAPPED, ids=[u[0] for u in UNMAPPED])
def test_vmap_refuses(name: str, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_nested_vmap_with_different_dimensions() -> None:
    a, b = wg.arange(24.0).reshape(2, 3, 4), wg.arange(8.0).reshape(4, 2)
    outer = vmap(vmap(wg.dot, in_dims=(0, None)), in_dims=(0, 1))
    same(outer(a, b), np.einsum("ijk,ki->ij", a.numpy(), b.numpy()))
    crossed = vmap(vmap(lambda x, y: x * y, in_dims=(None, 0), out_dims=1), in_dims=(0, None), out_dims=2)
    same(crossed(BATCH, X), np.einsum("ik,j->kji", BATCH.numpy(), X.numpy()))
    three = vmap(vmap(vmap(lambda x: x * 2, out_dims=0), in_dims=1, out_dims=1), in_dims=2, out_dims=-1)
    same(three(a), 2 * a)


# ---- values

READ: list[tuple[str, Callable[[Any], Any]]] = [
    ("item", lambda x: x.sum().item()),
    ("bool", lambda x: bool(x.sum() > 0)),
    ("float", lambda x: float(x[0].detach())),
    ("int", lambda x: int(x[0].detach())),
    ("format", lambda x: f"{x.sum().detach():.2f}"),
    ("index", lambda x: [1, 2, 3][x.argmax()]),
    ("tolist", lambda x: x.tolist()),
    ("contains", lambda x: 2.0 in x),
    ("allclose", lambda x: wg.allclose(x, x)),
    ("range", lambda x: wg.arange(x.argmax())),
]
EXPORTED: list[tuple[str, Callable[[Any], Any]]] = [
    ("numpy", lambda x: x.numpy()),
    ("asarray", lambda x: np.asarray(x)),
    ("data_ptr", lambda x: x.data_ptr()),
    ("pickle", lambda x: pickle.dumps(x)),
    ("deepcopy", lambda x: copy.deepcopy(x)),
    ("dlpack", lambda x: np.from_dlpack(x)),
]
SELECTED: list[tuple[str, Callable[[Any], Any]]] = [
    ("nonzero", lambda x: x.nonzero()),
    ("mask", lambda x: x[x > 1]),
    ("unique", lambda x: x.unique()),
]


@pytest.mark.parametrize(("name", "read"), READ + EXPORTED + SELECTED, ids=[n for n, _ in READ + EXPORTED + SELECTED])
def test_no_example_of_a_batch_has_values(name: str, read: Any) -> None:
    with pytest.raises(TransformError, match="under vmap"):
        vmap(lambda x: read(x) and x)(BATCH)
    with pytest.raises(RuntimeError, match=r"under vmap|requires grad"):
        vmap(grad(lambda x: (read(x), x.sum())[1]))(BATCH)
    assert np.isfinite(vmap(lambda x: x * (read(X) is not None))(BATCH).numpy()).all()  # what is not batched has
    with pytest.raises(TransformError, match=r"under vmap|lose its tangent"):
        vmap(lambda x: jvp(lambda x: (read(x), x)[1], (x,), (x,))[0])(BATCH)


@pytest.mark.parametrize(("name", "read"), READ + SELECTED, ids=[n for n, _ in READ + SELECTED])
def test_values_may_steer_derivatives(name: str, read: Any) -> None:
    for f in (lambda x: (read(x), cube(x))[1], lambda x: (read(x.detach()), cube(x))[1]):
        same(grad(f)(X), [3.0, 12.0, 27.0])
        same(jvp(f, (X,), (ONES,))[1], 42.0)
        same(jvp(grad(f), (X,), (ONES,))[1], [6.0, 12.0, 18.0])


@pytest.mark.parametrize(("name", "read"), EXPORTED[:2], ids=[n for n, _ in EXPORTED[:2]])
def test_arrays_may_be_had_of_constants_alone(name: str, read: Any) -> None:
    with pytest.raises(RuntimeError, match="lose its gradient"):
        grad(lambda x: (read(x), x.sum())[1])(X)
    with pytest.raises(TransformError, match="lose its tangent"):
        jvp(lambda x: (read(x), x)[1], (X,), (X,))
    weighted = lambda x: (x * wg.from_numpy(read(x.detach()))).sum()  # noqa: E731
    same(grad(weighted)(X), X)
    same(jvp(weighted, (X,), (ONES,))[1], 6.0)
    same(hessian(lambda x: cube(x) * float(read(X.sum())))(X), np.diag(6 * 6 * X.numpy()))
    with pytest.raises(RuntimeError, match="lose its gradient"):  # of a level below
        grad(lambda a: jvp(lambda x: (read(wg.zeros_like(x) + a), x)[1], (X,), (X,))[1].sum())(X)


def test_printing_shows_all_that_there_is() -> None:
    seen: list[str] = []
    vmap(lambda x: (seen.append(repr(x)), seen.append(str(x.sum())), x)[2])(BATCH)
    jvp(lambda x: (seen.append(f"{x}"), x)[1], (X,), (ONES,))
    grad(lambda x: (seen.append(repr(x)), x.sum())[1])(X)
    vmap(grad(lambda x: (seen.append(repr(x)), x.sum())[1]))(BATCH)
    assert all(
        a in text
        for a, text in zip(["2 examples", "2 examples", "tangent", "requires_grad", "2 examples"], seen, strict=True)
    )


# ---- modules


def test_an_ensemble_is_its_members() -> None:
    def model() -> Any:
        return (
            wg.nn.Sequential(
                wg.nn.Linear(3, 5), wg.nn.BatchNorm1d(5), wg.nn.Tanh(), wg.nn.Dropout(0.5), wg.nn.Linear(5, 2)
            )
            .double()
            .eval()
        )

    models = [model() for _ in range(4)]
    for k, m in enumerate(models):
        m[1].running_mean.fill_(0.1 * k)
        m[1].running_var.fill_(1.0 + k)
    params, buffers = func.stack_module_state(models)
    assert all(p.requires_grad and p.is_leaf for p in params.values())
    data, target = wg.randn(7, 3, dtype=wg.float64), wg.randn(7, 2, dtype=wg.float64)

    def loss(p: Any, b: Any, x: Any, y: Any) -> Any:
        return wg.nn.functional.mse_loss(func.functional_call(models[0], (p, b), (x,)), y)

    outputs = vmap(lambda p, b: func.functional_call(models[0], (p, b), (data,)))(params, buffers)
    same(outputs, np.stack([m(data).detach().numpy() for m in models]))
    gradients = vmap(grad(loss), in_dims=(0, 0, None, None))(params, buffers, data, target)
    per_sample = vmap(vmap(grad(loss), in_dims=(None, None, 0, 0)), in_dims=(0, 0, None, None))(
        params, buffers, data[:, None], target[:, None]
    )
    for k, m in enumerate(models):
        wg.nn.functional.mse_loss(m(data), target).backward()
        for name, p in m.named_parameters():
            np.testing.assert_allclose(gradients[name][k].detach().numpy(), p.grad.numpy(), atol=1e-12)
            np.testing.assert_allclose(per_sample[name][k].mean(0).detach().numpy(), p.grad.numpy(), atol=1e-12)
    vmap(loss, in_dims=(0, 0, None, None))(params, buffers, data, target).sum().backward()
    for name, p in params.items():
        np.testing.assert_allclose(p.grad.numpy(), gradients[name].detach().numpy(), atol=1e-12)


def test_gradients_of_each_sample_are_those_of_a_loop() -> None:
    net = wg.nn.Sequential(wg.nn.Conv2d(1, 2, 3), wg.nn.ReLU(), wg.nn.Flatten(), wg.nn.Linear(18, 3)).double()
    params = {k: v.detach() for k, v in net.named_parameters()}
    images, labels = wg.randn(4, 1, 5, 5, dtype=wg.float64), wg.tensor([0, 2, 1, 1])

    def loss(p: Any, x: Any, y: Any) -> Any:
        return wg.nn.functional.cross_entropy(func.functional_call(net, p, x.unsqueeze(0)), y.unsqueeze(0))

    found = vmap(grad(loss), in_dims=(None, 0, 0))(params, images, labels)
    chunked = vmap(grad(loss), in_dims=(None, 0, 0), chunk_size=3)(params, images, labels)
    for i in range(4):
        net.zero_grad()
        wg.nn.functional.cross_entropy(net(images[i : i + 1]), labels[i : i + 1]).backward()
        for name, p in net.named_parameters():
            np.testing.assert_allclose(found[name][i].numpy(), p.grad.numpy(), atol=1e-12)
            np.testing.assert_allclose(chunked[name][i].numpy(), p.grad.numpy(), atol=1e-12)
    assert not any(v.requires_grad for v in found.values())


def test_functional_call_gives_everything_back() -> None:
    layer = wg.nn.Linear(3, 2)
    before = dict(layer.named_parameters())
    with pytest.raises((RuntimeError, ValueError)):
        func.functional_call(layer, {"weight": wg.ones(2, 7)}, X.float())
    assert all(p is before[n] for n, p in layer.named_parameters())
    with pytest.raises(KeyError, match="weigth"):
        func.functional_call(layer, {"weigth": wg.ones(2, 3)}, X.float())
    with pytest.raises(RuntimeError, match=r"missing.*bias"):
        func.functional_call(layer, {"weight": wg.ones(2, 3)}, X.float(), strict=True)
    with pytest.raises(TypeError, match="must be a tensor"):
        func.functional_call(layer, {"weight": 3.0}, X.float())
    same(func.functional_call(layer, {"weight": wg.ones(2, 3), "bias": wg.zeros(2)}, X.float()), [6.0, 6.0])


# ---- Jacobians


@pytest.mark.parametrize(
    ("f", "mode"),
    [(lambda x: x.sum(), "reverse"), (lambda x: x * 2, "forward"), (lambda x: wg.outer(x, x), "forward"),
     (lambda x: x[:1], "reverse"), (lambda x: (x[:1], x[1:]), "forward"), (lambda x: x[:2], "forward"),
     (lambda x: x.sum() * 1j, "forward")],
)  # fmt: skip
def test_jacobian_chooses_the_cheaper_mode(f: Any, mode: str) -> None:
    both = jacobian(f)
    found = both(X)
    assert both.mode == mode
    same(found, jacfwd(f)(X))
    if mode != "forward":
        same(jacobian(f, mode="forward")(X), jacrev(f)(X))


def test_jacobians_of_nothing() -> None:
    for jac in (jacrev, jacfwd):
        assert tuple(jac(lambda x: x * 2)(wg.zeros(0)).shape) == (0, 0)
        assert tuple(jac(lambda x: x[:0])(X).shape) == (0, 3)
        same(jac(lambda x: ONES)(X), np.zeros((3, 3)))


def test_linearize_of_what_does_not_move() -> None:
    y, push = linearize(lambda x: (x * x, x.argmax(), ONES), X)
    same(y, (X * X, 2, ONES))
    same(push(X), (2 * X * X, 0, 0 * X))


def test_functions_without_a_name() -> None:
    class Cubed:
        def __call__(self, x: Any) -> Any:
            return cube(x)

    same(grad(Cubed())(X), [3.0, 12.0, 27.0])
    same(vmap(grad(Cubed()))(BATCH), 3 * BATCH**2)
    assert grad(cube).__name__ == "cube"


@pytest.mark.parametrize("cast", [lambda x: x.long(), lambda x: x > 0, lambda x: x.argsort(), lambda x: x.int() * 2])
def test_whole_numbers_do_not_move(cast):
    x = wg.tensor([1.5, -0.5])
    value, tangent = func.jvp(cast, (x,), (wg.ones(2),))
    assert not tangent.any()
    assert tuple(tangent.shape) == tuple(value.shape)
    assert not func.jacfwd(cast)(x).any()


@pytest.mark.parametrize(
    ("primals", "tangents", "error", "match"),
    [
        (X, (ONES,), TypeError, r"hvp\(\): primals must be a tuple"),
        ((), (), ValueError, r"hvp\(\): give at least one primal"),
        ((X,), (wg.ones(2, dtype=wg.float64),), ShapeError, r"hvp\(\): a tangent has shape \(2,\)"),
        ((X,), (ONES.float(),), DTypeError, r"hvp\(\): a tangent has dtype"),
    ],
)
def test_errors_of_hvp_name_it(primals, tangents, error, match):
    with pytest.raises(error, match=match):
        hvp(lambda x: x.sum(), primals, tangents)
