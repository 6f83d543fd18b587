"""wengert.library beside torch.library: one and the same declaration, written for either, gives the same."""

import typing
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import wengert as wg
from wengert.core import registry

WENGERT = SimpleNamespace(
    name="wengert", lib=wg, Tensor=wg.Tensor, custom_op=wg.library.custom_op, infer=wg.library.infer_schema, func=wg.func,
    library=wg.library, of=lambda a, like: wg.as_tensor(np.array(a)),
)  # fmt: skip
TORCH = SimpleNamespace(
    name="torch", lib=torch, Tensor=torch.Tensor, custom_op=torch.library.custom_op, infer=torch.library.infer_schema,
    func=torch.func, library=torch.library, of=lambda a, like: torch.tensor(np.array(a)),
)  # fmt: skip
BOTH = (WENGERT, TORCH)
X = np.array([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]])


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Take the operators that a test declares out of wengert's registry again."""
    before = set(registry.operators())
    yield
    for name in set(registry.operators()) - before:
        registry.withdraw(name)
    vars(registry.ops).pop("peers", None)


def leaf(f, array=X):
    return f.lib.tensor(array.tolist(), dtype=f.lib.float64, requires_grad=True)


def numpy(t):
    return np.asarray(t.detach())


def power(f):
    """x ** n with a keyword-only factor; the derivative of any order."""

    def fn(x: f.Tensor, n: int = 3, *, by: float = 1.0) -> f.Tensor:
        return f.of(by * numpy(x) ** n, x)

    op = f.custom_op("peers::power", mutates_args=())(fn)

    def setup(ctx, inputs, keyword_only_inputs, output):
        ctx.n, ctx.by = inputs[1], keyword_only_inputs["by"]
        ctx.save_for_backward(inputs[0])

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * op(x, ctx.n - 1, by=ctx.n * ctx.by), None

    op.register_autograd(backward, setup_context=setup)
    op.register_fake(lambda x, n=3, *, by=1.0: f.lib.empty_like(x))
    return op


def weighted(f):
    """A list of tensors and an optional weight; two results."""

    def fn(xs: list[f.Tensor], w: f.Tensor | None, scale: float = 2.0) -> tuple[f.Tensor, f.Tensor]:
        total = scale * sum(numpy(x) for x in xs)
        return f.of(total if w is None else total * numpy(w), xs[0]), f.of(total, xs[0])

    op = f.custom_op("peers::weighted", mutates_args=())(fn)

    def setup(ctx, inputs, output):
        xs, ctx.w, ctx.scale = inputs
        ctx.total = ctx.scale * sum(x.detach() for x in xs)

    def backward(ctx, g, h):
        seen.append(ctx.needs_input_grad)
        each = ctx.scale * (g if ctx.w is None else g * ctx.w) + ctx.scale * h
        return (
            [each if n else None for n in ctx.needs_input_grad[0]],
            (g * ctx.total) if ctx.needs_input_grad[1] else None,
            None,
        )

    seen: list = []
    op.register_autograd(backward, setup_context=setup)
    return op, seen


def halves(f):
    """A list of results of any length."""

    def fn(x: f.Tensor, n: int) -> list[f.Tensor]:
        return [f.of(numpy(x) / (k + 1), x) for k in range(n)]

    op = f.custom_op("peers::halves", mutates_args=())(fn)

    def setup(ctx, inputs, output):
        ctx.n, ctx.kind = inputs[1], type(output)

    def backward(ctx, grads):
        assert ctx.kind is list
        assert isinstance(grads, list)
        return sum(g / (k + 1) for k, g in enumerate(grads)), None

    op.register_autograd(backward, setup_context=setup)
    return op


def with_power(run):
    return lambda f: run(f, power(f))


def second_derivative(f, op):
    x = leaf(f)
    (g,) = f.lib.autograd.grad(op(x, 4).sum(), x, create_graph=True)
    (h,) = f.lib.autograd.grad((g * g).sum(), x)
    return [g, h]


def of_list(f, wanted, with_weight):
    op, seen = weighted(f)
    xs = [leaf(f), leaf(f, 2 * X)]
    given = [x if n else x.detach() for x, n in zip(xs, wanted, strict=True)]
    w = leaf(f, X + 1) if with_weight else None
    a, b = op(given, w, 3.0)  # PyTorch drops arguments that equal their defaults
    (a.sum() + 3 * b.sum()).backward()
    found = [x.grad for x, n in zip(xs, wanted, strict=True) if n] + ([w.grad] if with_weight else [])
    return [a, b, *found], [list(seen[0][0]), *seen[0][1:]]


CASES = {
    "values and defaults": with_power(lambda f, op: [op(leaf(f)), op(leaf(f), 2), op(x=leaf(f), n=2, by=0.5)]),
    "second derivative": with_power(second_derivative),
    "a list": lambda f: of_list(f, (True, True), False)[0],
    "a list, some wanted": lambda f: of_list(f, (False, True), True)[0],
    "a list of results": lambda f: _of_halves(f),
    "no_grad": with_power(lambda f, op: [_without_grad(f, op)]),
}


def _of_halves(f):
    x = leaf(f)
    found = halves(f)(x, 3)
    sum(t.sum() for t in found).backward()
    return [*found, x.grad]


def _without_grad(f, op):
    with f.lib.no_grad():
        found = op(leaf(f))
    assert not found.requires_grad
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_same_declaration_gives_the_same(name):
    for got, want in zip(*(CASES[name](f) for f in BOTH), strict=True):
        np.testing.assert_allclose(numpy(got), numpy(want), rtol=1e-12)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("with_weight", [False, True])
def test_needs_input_grad_is_the_same(wanted, with_weight):
    ours, theirs = (of_list(f, wanted, with_weight)[1] for f in BOTH)
    assert ours == theirs


def mapped(f, rule):
    def fn(x: f.Tensor, y: f.Tensor) -> f.Tensor:
        return f.of(numpy(x) * numpy(y), x)

    op = f.custom_op("peers::mul", mutates_args=())(fn)
    if rule:

        def batch(info, in_dims, x, y):
            a, b = in_dims
            x = x.movedim(a, -1) if a is not None else x.unsqueeze(-1)
            y = y.movedim(b, -1) if b is not None else y.unsqueeze(-1)
            return (x * y).movedim(-1, 0), 0

        f.library.register_vmap("peers::mul", batch) if f is TORCH else f.library.register_vmap(op)(batch)
    return op


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("dims", [(0, 0), (1, None), (None, 1)])
@pytest.mark.filterwarnings("ignore:.*has no batching rule")
def test_vmap_is_the_same(rule, dims):
    y = 2 * X if None not in dims else X[0] if dims[0] == 0 else X[:, 0]
    args = [X if d is not None else y for d in dims] if None in dims else [X, 2 * X]
    got, want = (
        f.func.vmap(mapped(f, rule), in_dims=dims)(*[f.lib.tensor(a.tolist(), dtype=f.lib.float64) for a in args])
        for f in BOTH
    )
    np.testing.assert_allclose(numpy(got), numpy(want))


def test_mutation_is_the_same():
    for f in BOTH:

        def fn(x: f.Tensor, by: float) -> None:
            x.mul_(by)

        op = f.custom_op("peers::scale_", mutates_args=("x",))(fn)
        x = leaf(f).detach()
        before = x._version
        assert op(x, 2.0) is None
        assert x._version > before
        np.testing.assert_array_equal(numpy(x), 2 * X)
        with pytest.raises((RuntimeError, TypeError), match=r"(?i)functional|changes its arguments"):
            op.register_autograd(lambda ctx: None)


def one(f):
    def fn(x: f.Tensor, by: float = 2.0) -> f.Tensor: ...

    return fn, ()


def two(f):
    def fn(
        xs: list[f.Tensor], n: int, *, mode: str = "a", flag: bool = True, d: typing.Optional[f.lib.dtype] = None  # noqa: UP045
    ) -> list[f.Tensor]: ...  # fmt: skip

    return fn, ()


def three(f):
    def fn(
        x: f.Tensor, y: f.Tensor | None, c: int | float | bool, z: typing.Sequence[int]
    ) -> tuple[f.Tensor, f.Tensor]: ...

    return fn, ()


def four(f):
    def fn(x: f.Tensor, y: f.Tensor, d: f.lib.device) -> None: ...

    return fn, ("y",)


def five(f):
    return four(f)[0], "unknown"


@pytest.mark.parametrize("made", [one, two, three, four, five])
def test_schemas_are_the_same(made):
    ours, theirs = (f.infer(made(f)[0], mutates_args=made(f)[1]) for f in BOTH)
    assert ours.replace("int ", "SymInt ").replace("int[]", "SymInt[]") == theirs


BAD = {
    "no library": lambda f: f.custom_op("power", mutates_args=())(power(f)._init_fn if f is TORCH else one(f)[0]),
    "no hint": lambda f: f.infer(lambda x: x, mutates_args=()),
    "varargs": lambda f: f.infer(lambda *x: x, mutates_args=()),
    "unknown mutated": lambda f: f.custom_op("peers::x", mutates_args=("zz",))(one(f)[0]),
    "wrong int": lambda f: power(f)(leaf(f), 1.5),
    "wrong tensor": lambda f: power(f)(1.0),
    "too many": lambda f: power(f)(leaf(f), 1, 2),
    "result shares memory": lambda f: _identity(f)(leaf(f).detach()),
    "no backward": lambda f: _identity(f, True)(leaf(f)).sum().backward(),
}  # fmt: skip


def _identity(f, clone=False):
    def fn(x: f.Tensor) -> f.Tensor:
        return x.clone() if clone else x

    return f.custom_op("peers::identity", mutates_args=())(fn)


@pytest.mark.parametrize("name", BAD)
def test_what_one_refuses_the_other_refuses(name):
    for f in BOTH:
        with pytest.raises((RuntimeError, ValueError, TypeError, NotImplementedError)):
            BAD[name](f)
