"""``wengert.func`` and ``forward_ad`` against ``torch.func`` and PyTorch's: values, structures, what is refused."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad
import torch.func

import wengert as wg
import wengert.autograd.forward_ad

RNG = np.random.default_rng(3)
ARRAYS = {"x": RNG.normal(size=3), "y": RNG.normal(size=3), "m": RNG.normal(size=(4, 3)), "w": RNG.normal(size=(3, 3)),
          "b": RNG.normal(size=(4, 2, 3)), "z": RNG.normal(size=3) + 1j * RNG.normal(size=3)}  # fmt: skip


class Side(NamedTuple):
    """One framework: its module, its ``func``, its ``forward_ad``, and the arguments as its tensors."""

    m: Any
    f: Any
    ad: Any
    x: Any
    y: Any
    mat: Any
    w: Any
    b: Any
    z: Any


def side(module: Any) -> Side:
    tensors = [module.tensor(v.tolist(), dtype=module.complex128 if v.dtype.kind == "c" else module.float64)
               for v in ARRAYS.values()]  # fmt: skip
    return Side(module, module.func, module.autograd.forward_ad, *tensors)


def plain(value: Any) -> Any:
    """A result as plain data: structure, and of each tensor its elements, dtype and requires_grad."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(plain, value)) if not hasattr(value, "_fields") else tuple(map(plain, value))
    if isinstance(value, wg.Tensor | torch.Tensor):
        return np.asarray(value.detach().resolve_conj().numpy()), str(value.dtype).split(".")[-1], value.requires_grad
    return value


def agree(found: Any, expected: Any) -> None:
    assert type(found) is type(expected), (found, expected)
    if isinstance(found, np.ndarray):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)
    elif isinstance(found, dict):
        assert list(found) == list(expected)
        agree(list(found.values()), list(expected.values()))
    elif isinstance(found, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            agree(a, b)
    else:
        assert found == expected


def net(s: Side, x: Any) -> Any:
    return (s.w @ x).tanh() * x


def loss(s: Side) -> Callable[..., Any]:
    return lambda x: (net(s, x) ** 2).sum()


def pair(s: Side) -> Callable[..., Any]:
    return lambda x, y: (x * y.exp()).sum()


class Cube:
    """An ``autograd.Function`` of either framework."""

    @staticmethod
    def make(s: Side) -> Any:
        class Cubed(s.m.autograd.Function):  # type: ignore[name-defined, misc]
            generate_vmap_rule = True

            @staticmethod
            def forward(x: Any) -> Any:
                return x**3

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(inputs[0])
                ctx.save_for_forward(inputs[0])

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return ctx.saved_tensors[0] ** 2 * 3 * g

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return ctx.saved_tensors[0] ** 2 * 3 * t

        return Cubed.apply


def dual(s: Side, f: Callable[[Any], Any]) -> Any:
    with s.ad.dual_level():
        return tuple(s.ad.unpack_dual(f(s.ad.make_dual(s.x.clone(), s.y))))


VALUES: dict[str, Callable[[Side], Any]] = {
    "grad": lambda s: s.f.grad(loss(s))(s.x),
    "grad argnums": lambda s: s.f.grad(pair(s), argnums=(1, 0))(s.x, s.y),
    "grad last": lambda s: s.f.grad(pair(s), argnums=-1)(s.x, s.y),
    "grad aux": lambda s: s.f.grad(lambda x: (loss(s)(x), {"a": x * 2, "b": [x]}), has_aux=True)(s.x),
    "grad tree": lambda s: s.f.grad(lambda t: (t["a"] * t["b"][0]).sum())({"a": s.x, "b": [s.y], "c": []}),
    "grad_and_value": lambda s: s.f.grad_and_value(loss(s))(s.x),
    "grad unused": lambda s: s.f.grad(lambda x, y: x.sum(), argnums=(0, 1))(s.x, s.y),
    "grad of a constant": lambda s: s.f.grad(lambda x: s.y.sum())(s.x),
    "grad complex": lambda s: s.f.grad(lambda z: (z * z.conj() * z.abs()).real.sum())(s.z),
    "grad complex inside": lambda s: s.f.grad(lambda x: (x * s.z).exp().abs().sum())(s.x),
    "grad closed over a leaf": lambda s: (lambda leaf: s.f.grad(lambda x: (x * leaf).sum())(s.x))(s.y.clone().requires_grad_()),
    "grad under no_grad": lambda s: no_grad(s, lambda: s.f.grad(loss(s))(s.x.clone().requires_grad_())),
    "no_grad inside": lambda s: s.f.grad(lambda x: (x * no_grad(s, lambda: x.sin())).sum())(s.x),
    "grad of a leaf": lambda s: s.f.grad(loss(s))(s.x.clone().requires_grad_()),
    "vjp": lambda s: s.f.vjp(lambda x: net(s, x), s.x)[1](s.y),
    "vjp several": lambda s: s.f.vjp(lambda x, y: (x * y, {"k": x.sum()}), s.x, s.y)[1]((s.y, {"k": s.x[0]})),
    "vjp aux": lambda s: s.f.vjp(lambda x: (x * 2, [x]), s.x, has_aux=True)[::2],
    "vjp complex": lambda s: s.f.vjp(lambda z: z * z.conj() + z**2, s.z)[1](s.z),
    "vjp real to complex": lambda s: s.f.vjp(lambda x: x * s.z, s.x)[1](s.z),
    "jvp": lambda s: s.f.jvp(lambda x: net(s, x), (s.x,), (s.y,)),
    "jvp tree": lambda s: s.f.jvp(lambda t, y: {"a": t["x"] * y}, ({"x": s.x}, s.y), ({"x": s.y}, s.x)),
    "jvp aux": lambda s: s.f.jvp(lambda x: (x * 2, x * 3), (s.x,), (s.y,), has_aux=True),
    "jvp of a constant": lambda s: s.f.jvp(lambda x: s.y * 2, (s.x,), (s.y,)),
    "jvp of integers": lambda s: s.f.jvp(lambda x: x.argmax(), (s.x,), (s.y,)),
    "jvp no_grad inside": lambda s: s.f.jvp(lambda x: x * no_grad(s, lambda: x.sin()), (s.x,), (s.y,)),
    "jvp detach": lambda s: s.f.jvp(lambda x: x * x.detach(), (s.x,), (s.y,)),
    "jvp item": lambda s: s.f.jvp(lambda x: x * x.sum().item(), (s.x,), (s.y,)),
    "jvp complex": lambda s: s.f.jvp(lambda z: z.abs() + (z * z).real, (s.z,), (s.z * 1j,)),
    "jvp in-place": lambda s: s.f.jvp(lambda x: x.clone().mul_(x).add_(1), (s.x,), (s.y,)),
    "linearize": lambda s: s.f.linearize(lambda x: net(s, x), s.x)[1](s.y),
    "jacrev": lambda s: s.f.jacrev(lambda x: net(s, x))(s.x),
    "jacrev aux": lambda s: s.f.jacrev(lambda x: (net(s, x), x), has_aux=True)(s.x),
    "jacrev argnums": lambda s: s.f.jacrev(lambda x, y: {"a": x * y, "b": (x.sum(),)}, argnums=(0, 1))(s.x, s.y),
    "jacrev tree": lambda s: s.f.jacrev(lambda t: [t["a"] * t["b"], t["a"]])({"a": s.x, "b": s.y}),
    "jacrev chunks": lambda s: s.f.jacrev(lambda x: net(s, x), chunk_size=2)(s.x),
    "jacfwd": lambda s: s.f.jacfwd(lambda x: net(s, x))(s.x),
    "jacfwd argnums": lambda s: s.f.jacfwd(lambda x, y: {"a": x * y, "b": (x.sum(),)}, argnums=(0, 1))(s.x, s.y),
    "jacfwd aux": lambda s: s.f.jacfwd(lambda x: (net(s, x), x), has_aux=True)(s.x),
    "jacfwd mixed dtypes": lambda s: s.f.jacrev(lambda x, y: x * y, argnums=(0, 1))(s.x.float(), s.y),
    "hessian": lambda s: s.f.hessian(loss(s))(s.x),
    "hessian argnums": lambda s: s.f.hessian(pair(s), argnums=(0, 1))(s.x, s.y),
    "vmap": lambda s: s.f.vmap(lambda x: net(s, x))(s.mat),
    "vmap dims": lambda s: s.f.vmap(lambda x, y: x @ y, in_dims=(1, None), out_dims=0)(s.w, s.y),
    "vmap tree": lambda s: s.f.vmap(lambda t: {"a": t["p"] * t["q"]}, in_dims=({"p": 0, "q": None},), out_dims=1)(
        {"p": s.mat, "q": s.x}),
    "vmap out dims": lambda s: s.f.vmap(lambda x: (x, x.outer(x)), out_dims=(1, -1))(s.mat),
    "vmap None out": lambda s: s.f.vmap(lambda x: (x, s.y), out_dims=(0, None))(s.mat),
    "vmap keywords": lambda s: s.f.vmap(lambda x, k, y: x * k * y)(s.mat, k=3.0, y=s.x),
    "vmap ignores": lambda s: s.f.vmap(lambda x: s.y)(s.mat),
    "vmap nothing": lambda s: s.f.vmap(lambda x: ())(s.mat),
    "vmap empty": lambda s: s.f.vmap(lambda x: x.sum())(s.mat[:0]),
    "vmap chunks": lambda s: s.f.vmap(lambda x: x * 2, in_dims=1, out_dims=-1, chunk_size=2)(s.mat),
    "vmap nested": lambda s: s.f.vmap(s.f.vmap(lambda x, y: (x * y).sum(), in_dims=(0, None)), in_dims=(1, 0))(s.b, s.mat[:2]),
    "vmap in-place": lambda s: s.f.vmap(lambda x: x.clone().add_(s.y))(s.mat),
    "vmap of grad": lambda s: s.f.vmap(s.f.grad(loss(s)))(s.mat),
    "vmap of grad argnums": lambda s: s.f.vmap(s.f.grad(pair(s), argnums=(0, 1)), in_dims=(0, None))(s.mat, s.y),
    "grad of vmap": lambda s: s.f.grad(lambda m: s.f.vmap(loss(s))(m).sum())(s.mat),
    "vmap of jvp": lambda s: s.f.vmap(lambda x: s.f.jvp(lambda x: net(s, x), (x,), (s.y,)))(s.mat),
    "jvp of vmap": lambda s: s.f.jvp(s.f.vmap(lambda x: net(s, x)), (s.mat,), (s.mat,)),
    "jvp of grad": lambda s: s.f.jvp(s.f.grad(loss(s)), (s.x,), (s.y,)),
    "grad of jvp": lambda s: s.f.grad(lambda x: s.f.jvp(loss(s), (x,), (s.y,))[1])(s.x),
    "grad of grad": lambda s: s.f.grad(lambda x: (s.f.grad(loss(s))(x) * s.y).sum())(s.x),
    "third": lambda s: s.f.grad(lambda x: (s.f.jvp(s.f.grad(loss(s)), (x,), (s.y,))[1] * s.y).sum())(s.x),
    "jacfwd of jacrev": lambda s: s.f.jacfwd(s.f.jacrev(lambda x: net(s, x)))(s.x),
    "jacrev of jacfwd": lambda s: s.f.jacrev(s.f.jacfwd(lambda x: net(s, x)))(s.x),
    "vmap of hessian": lambda s: s.f.vmap(s.f.hessian(loss(s)))(s.mat),
    "Function grad": lambda s: s.f.grad(lambda x: Cube.make(s)(x).sum())(s.x),
    "Function jvp of grad": lambda s: s.f.jvp(s.f.grad(lambda x: Cube.make(s)(x).sum()), (s.x,), (s.y,)),
    "Function vmap of grad": lambda s: s.f.vmap(s.f.grad(lambda x: Cube.make(s)(x).sum()))(s.mat),
    "Function hessian": lambda s: s.f.hessian(lambda x: Cube.make(s)(x).sum())(s.x),
    "dual": lambda s: dual(s, lambda d: net(s, d)),
    "dual constant": lambda s: dual(s, lambda d: s.y * 2),
    "dual detach": lambda s: dual(s, lambda d: d.detach() * 2),
    "dual in-place": lambda s: dual(s, lambda d: d.mul_(s.y).exp_()),
    "dual view": lambda s: dual(s, lambda d: (d[1:].mul_(3), d)[1]),
    "dual into plain": lambda s: dual(s, lambda d: s.m.zeros(2, 3, dtype=s.m.float64).index_copy_(0, s.m.tensor([1]), d[None])),
    "dual no_grad": lambda s: dual(s, lambda d: no_grad(s, lambda: d * 2)),
    "dual of grad": lambda s: dual(s, lambda d: s.f.grad(loss(s))(d)),
    "unpack outside": lambda s: tuple(s.ad.unpack_dual(s.x)),
    "dual over backward": lambda s: over_backward(s),
    "functional_call": lambda s: called(s),
}  # fmt: skip


def no_grad(s: Side, f: Callable[[], Any]) -> Any:
    with s.m.no_grad():
        return f()


def over_backward(s: Side) -> Any:
    leaf = s.x.clone().requires_grad_()
    with s.ad.dual_level():
        (found,) = s.m.autograd.grad(loss(s)(s.ad.make_dual(leaf, s.y)), leaf)
        return tuple(s.ad.unpack_dual(found))


def called(s: Side) -> Any:
    layer = s.m.nn.Linear(3, 3, dtype=s.m.float64)
    return s.f.vmap(lambda x: s.f.functional_call(layer, {"weight": s.w, "bias": s.y}, (x,)))(s.mat)


@pytest.mark.parametrize("name", VALUES)
def test_values_and_structures(name: str) -> None:
    call = VALUES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about operators without a batching rule
        expected = plain(call(side(torch)))
    agree(plain(call(side(wg))), expected)


# What both refuse. Where PyTorch raises a RuntimeError or ValueError for a wrong argument, wengert may be more exact: a
# TypeError for a wrong type, a ValueError for a wrong value.
REFUSED: dict[str, Callable[[Side], Any]] = {
    "argnums out of range": lambda s: s.f.grad(pair(s), argnums=2)(s.x, s.y),
    "argnums twice": lambda s: s.f.grad(pair(s), argnums=(0, -2))(s.x, s.y),
    "argnums empty": lambda s: s.f.grad(pair(s), argnums=())(s.x, s.y),
    "grad of a vector": lambda s: s.f.grad(lambda x: x)(s.x),
    "grad of a number": lambda s: s.f.grad(lambda x: 3.0)(s.x),
    "grad by a number": lambda s: s.f.grad(lambda x: x)(3.0),
    "grad by None": lambda s: s.f.grad(lambda t: t["a"].sum())({"a": s.x, "b": None}),
    "grad aux missing": lambda s: s.f.grad(lambda x: x.sum(), has_aux=True)(s.x),
    "grad in-place": lambda s: s.f.grad(lambda x: x.mul_(2).sum())(s.x.clone()),
    "grad complex": lambda s: s.f.grad(lambda x: (x * s.z).sum())(s.x),
    "vjp to None": lambda s: s.f.vjp(lambda x: (x, None), s.x),
    "vjp structure": lambda s: s.f.vjp(lambda x: (x, x), s.x)[1]([s.x, s.x]),
    "vjp shape": lambda s: s.f.vjp(lambda x: x * 2, s.x)[1](s.x[:2]),
    "jvp no tuple": lambda s: s.f.jvp(loss(s), s.x, s.y),
    "jvp lengths": lambda s: s.f.jvp(loss(s), (s.x,), (s.x, s.y)),
    "jvp shape": lambda s: s.f.jvp(loss(s), (s.x,), (s.y[:2],)),
    "jvp integers": lambda s: s.f.jvp(lambda x: x * 2, (s.m.arange(3),), (s.m.arange(3),)),
    "jvp None": lambda s: s.f.jvp(pair(s), (s.x, s.y), (s.x, None)),
    "jvp to a number": lambda s: s.f.jvp(lambda x: 3.0, (s.x,), (s.y,)),
    "jvp strict": lambda s: s.f.jvp(lambda x: s.y, (s.x,), (s.y,), strict=True),
    "jacrev complex": lambda s: s.f.jacrev(lambda z: z * 2)(s.z),
    "jacfwd complex": lambda s: s.f.jacfwd(lambda z: z * 2)(s.z),
    "jacrev to complex": lambda s: s.f.jacrev(lambda x: x * s.z)(s.x),
    "vmap nothing mapped": lambda s: s.f.vmap(lambda x: x, in_dims=None)(s.mat),
    "vmap sizes": lambda s: s.f.vmap(lambda x, y: x + y)(s.mat, s.x),
    "vmap dim": lambda s: s.f.vmap(lambda x: x, in_dims=2)(s.mat),
    "vmap dims": lambda s: s.f.vmap(lambda x: x, in_dims=(0, 0))(s.mat),
    "vmap of a scalar": lambda s: s.f.vmap(lambda x: x)(s.x[0]),
    "vmap number": lambda s: s.f.vmap(lambda x, k: x * k)(s.mat, 3.0),
    "vmap to a number": lambda s: s.f.vmap(lambda x: 3.0)(s.mat),
    "vmap to None": lambda s: s.f.vmap(lambda x: None)(s.mat),
    "vmap out None": lambda s: s.f.vmap(lambda x: x, out_dims=None)(s.mat),
    "vmap out dims": lambda s: s.f.vmap(lambda x: (x, x), out_dims=(0, 0, 0))(s.mat),
    "vmap item": lambda s: s.f.vmap(lambda x: x * x.sum().item())(s.mat),
    "vmap bool": lambda s: s.f.vmap(lambda x: x if x.sum() > 0 else -x)(s.mat),
    "vmap nonzero": lambda s: s.f.vmap(lambda x: x.nonzero())(s.mat),
    "vmap random": lambda s: s.f.vmap(lambda x: x + s.m.rand(3))(s.mat),
    "vmap randomness": lambda s: s.f.vmap(lambda x: x, randomness="any")(s.mat),
    "vmap chunk": lambda s: s.f.vmap(lambda x: x, chunk_size=0)(s.mat),
    "vmap into a shared tensor": lambda s: s.f.vmap(lambda x: s.y.clone().add_(x))(s.mat),
    "make_dual outside": lambda s: s.ad.make_dual(s.x, s.y),
    "levels nested": lambda s: dual(s, lambda d: dual(s, lambda e: e)),
    "dual twice": lambda s: dual(s, lambda d: s.ad.make_dual(d, s.y)),
    "dual shape": lambda s: dual(s, lambda d: s.ad.make_dual(s.x, s.y[:2])),
    "dual integers": lambda s: dual(s, lambda d: s.ad.make_dual(s.m.arange(3), s.m.arange(3))),
    "exit without a level": lambda s: s.ad.exit_dual_level(),
    "functional_call strict": lambda s: s.f.functional_call(s.m.nn.Linear(3, 3), {}, (s.x,), strict=True),
}  # fmt: skip
KINDS = (RuntimeError, TypeError, ValueError, KeyError, AssertionError)


def error_of(call: Callable[[], Any]) -> type[Exception] | None:
    try:
        call()
    except KINDS as error:
        return type(error)
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = error_of(lambda: REFUSED[name](side(torch)))
    ours = error_of(lambda: REFUSED[name](side(wg)))
    assert theirs is not None
    assert ours is not None
    if theirs is not AssertionError:
        assert issubclass(ours, theirs) or (
            issubclass(theirs, RuntimeError | ValueError) and issubclass(ours, TypeError | ValueError)
        )
