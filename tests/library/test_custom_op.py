"""custom_op and what is registered beside it: every registration, kinds of arguments, transforms, copies, errors."""

import copy
import pickle
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import wengert as wg
from wengert import Tensor, library
from wengert.cli import main
from wengert.cli.operators import describe
from wengert.core import registry
from wengert.errors import DeclarationError, MissingRuleError, ShapeError
from wengert.func import grad, hvp, jacrev, jvp, vmap
from wengert.library import custom_op, infer_schema


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Take the operators that a test declares out of the registry again."""
    before = set(registry.operators())
    yield
    for name in set(registry.operators()) - before:
        registry.withdraw(name)
    vars(registry.ops).pop("demo", None)


def of_numpy(array) -> Tensor:
    return wg.as_tensor(np.array(array))


def cube_forward(x: Tensor) -> Tensor:
    """Return the third power."""
    return of_numpy(np.asarray(x.detach()) ** 3)


def cube_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def cube_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return 3 * x**2 * g


def cube_jvp(ctx, t):
    (x,) = ctx.saved_tensors
    return 3 * x**2 * t


def cube_vmap(info, in_dims, x):
    return demo_cube()(x), in_dims[0]


def demo_cube():
    return wg.ops.demo.cube


def cube():
    """Declare the third power with everything that can be registered."""
    op = custom_op("demo::cube", cube_forward, mutates_args=())
    op.register_fake(lambda x: wg.empty_like(x))
    op.register_autograd(cube_backward, setup_context=cube_setup, jvp=cube_jvp)
    op.register_vmap(cube_vmap)
    return op


X = wg.tensor([1.0, -2.0, 3.0], dtype=wg.float64)


def test_it_is_called_like_the_function_and_stands_in_the_registry():
    op = cube()
    assert op(X).tolist() == [1.0, -8.0, 27.0]
    assert op(x=X).tolist() == [1.0, -8.0, 27.0]
    assert wg.ops.demo.cube is op
    assert registry.operators()["demo::cube"] is op.op
    assert repr(op) == "<operator demo::cube(Tensor x) -> Tensor>"
    assert op.__doc__ == "Return the third power."
    with pytest.raises(AttributeError, match=r"library 'demo' has no operator 'cub'; it has \[.*'cube'"):
        _ = wg.ops.demo.cub


def test_every_registration_is_a_method_a_function_and_a_decorator():
    op = custom_op("demo::cube", mutates_args=())(cube_forward)
    for register in (library.register_fake, library.register_vmap):
        for name in (op, "demo::cube"):
            assert register(name, cube_vmap) is cube_vmap
            assert register(name)(cube_vmap) is cube_vmap
    assert library.register_kernel("demo::cube", "cpu", cube_forward) is cube_forward
    assert library.register_kernel(op, ("cpu",))(cube_forward) is cube_forward
    assert op.register_kernel("cpu")(cube_forward) is cube_forward
    assert op.register_fake(cube_vmap) is cube_vmap
    assert op.register_vmap()(cube_vmap) is cube_vmap
    library.register_autograd("demo::cube", cube_backward, setup_context=cube_setup)
    leaf = X.clone().requires_grad_()
    op(leaf).sum().backward()
    assert leaf.grad.tolist() == [3.0, 12.0, 27.0]


def test_a_kernel_that_is_registered_later_replaces_the_function():
    op = cube()
    op.register_kernel("cpu", lambda x: of_numpy(np.asarray(x.detach()) ** 3 + 1))
    assert op(X).tolist() == [2.0, -7.0, 28.0]
    with pytest.raises(ValueError, match="there is no device 'cuda'; there is 'cpu'"):
        op.register_kernel("cuda", cube_forward)


def test_a_custom_operator_declared_again_replaces_the_first():
    cube()
    again = custom_op("demo::cube", cube_forward, mutates_args=())
    assert wg.ops.demo.cube is again
    assert registry.operators()["demo::cube"] is again.op


TRANSFORMS = [
    ("grad", lambda f: grad(lambda x: f(x).sum())(X), 3 * X**2),
    ("grad of grad", lambda f: grad(lambda x: grad(lambda y: f(y).sum())(x).sum())(X), 6 * X),
    ("jvp", lambda f: jvp(f, (X,), (wg.ones_like(X),))[1], 3 * X**2),
    ("jvp of grad", lambda f: jvp(grad(lambda x: f(x).sum()), (X,), (wg.ones_like(X),))[1], 6 * X),
    ("hvp", lambda f: hvp(lambda x: f(x).sum(), (X,), (wg.ones_like(X),))[1], 6 * X),
    ("vmap", lambda f: vmap(f)(X), X**3),
    ("vmap of grad", lambda f: vmap(grad(f))(X), 3 * X**2),
    ("grad of vmap", lambda f: grad(lambda x: vmap(f)(x).sum())(X), 3 * X**2),
    ("jacrev", lambda f: jacrev(f)(X), wg.diag(3 * X**2)),
    ("checkpoint", lambda f: _checkpointed(f), 3 * X**2),
]


def _checkpointed(f):
    leaf = X.clone().requires_grad_()
    wg.utils.checkpoint.checkpoint(lambda x: f(x) * 1.0, leaf, use_reentrant=False).sum().backward()
    return leaf.grad


@pytest.mark.parametrize(("run", "want"), [t[1:] for t in TRANSFORMS], ids=[t[0] for t in TRANSFORMS])
def test_it_runs_inside_transforms(run, want):
    found = run(cube())
    found = found[0] if isinstance(found, tuple) else found
    np.testing.assert_allclose(np.asarray(found.detach()), np.asarray(want), rtol=1e-12)


def test_opcheck_of_a_call_holds_it_to_all_it_says():
    assert library.opcheck(cube(), (X.clone().requires_grad_(),), reference=lambda x: x**3) == {}


def test_vmap_without_a_rule_loops_and_says_so_once():
    op = custom_op("demo::cube", cube_forward, mutates_args=())
    with pytest.warns(UserWarning, match=r"demo::cube has no batching rule: vmap runs it 3 times, .* register_vmap"):
        assert vmap(op)(X).tolist() == [1.0, -8.0, 27.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vmap(op)(X).tolist() == [1.0, -8.0, 27.0]
    with pytest.raises(ShapeError, match="the batch is empty"):
        vmap(op)(X[:0])


# ---- arguments and results


def weighted(
    xs: Sequence[Tensor], w: Tensor | None = None, n: int = 1, *, scale: float = 2.0, mode: str = "sum"
) -> Tensor:
    """Return the sum of several tensors, weighted."""
    assert mode == "sum"
    total = sum(np.asarray(x.detach()) for x in xs) * scale * n
    return of_numpy(total if w is None else total * np.asarray(w.detach()))


def weighted_setup(ctx, inputs, keyword_only_inputs, output):
    xs, w, n = inputs
    ctx.factor, ctx.count = keyword_only_inputs["scale"] * n, len(xs)
    ctx.has_weight = w is not None
    ctx.seen = ctx.needs_input_grad
    ctx.save_for_backward(*xs, *([w] if ctx.has_weight else []))


def weighted_backward(ctx, g):
    assert ctx.needs_input_grad == ctx.seen
    saved = ctx.saved_tensors
    w = saved[ctx.count] if ctx.has_weight else 1.0
    each = g * w * ctx.factor
    found = None
    if ctx.needs_input_grad[1]:
        found = (g * sum(saved[: ctx.count])).sum() * ctx.factor
    return [each if need else None for need in ctx.needs_input_grad[0]], found, None


@pytest.fixture
def weighted_op():
    op = custom_op("demo::weighted", weighted, mutates_args=())
    op.register_autograd(weighted_backward, setup_context=weighted_setup)
    op.register_fake(lambda xs, w=None, n=1, *, scale=2.0, mode="sum": wg.empty_like(xs[0]))
    return op


def test_sequences_optional_and_keyword_only_arguments(weighted_op):
    assert weighted_op([X, X]).tolist() == (4 * X).tolist()
    assert weighted_op((X, X), None, 3, scale=0.5).tolist() == (3 * X).tolist()
    a, b = X.clone().requires_grad_(), X.clone()
    w = wg.tensor(3.0, dtype=wg.float64, requires_grad=True)
    weighted_op([a, b], w, scale=1.0).sum().backward()
    assert a.grad.tolist() == [3.0] * 3
    assert b.grad is None
    assert w.grad.item() == 2 * X.sum().item()


def test_needs_input_grad_has_the_structure_of_the_arguments(weighted_op):
    seen = []

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return [g, None], None, None

    weighted_op.register_autograd(backward)
    leaf = X.clone().requires_grad_()
    weighted_op([leaf, X]).sum().backward()
    assert seen == [([True, False], False, False)]


BAD_CALLS = [
    (((1.0,),), {}, TypeError, r"'xs' must be a sequence of tensors, got tuple"),
    ((X,), {}, TypeError, r"'xs' must be a sequence of tensors, got Tensor"),
    (([X], 2.0), {}, TypeError, r"'w' must be a tensor, got float"),
    (([X], None, 1.5), {}, TypeError, r"'n' must be int, got float"),
    (([X],), {"scale": "a"}, TypeError, r"'scale' must be float, got str"),
    (([X],), {"other": 1}, TypeError, r"unexpected keyword argument 'other'"),
    ((), {}, TypeError, r"misses argument xs"),
    (([X], None, 1, 2.0), {}, TypeError, r"takes at most 3 positional arguments, got 4"),
]


@pytest.mark.parametrize(("args", "kwargs", "error", "match"), BAD_CALLS)
def test_a_call_that_does_not_fit_the_hints_is_refused_by_name(args, kwargs, error, match, weighted_op):
    with pytest.raises(error, match=match) as caught:
        weighted_op(*args, **kwargs)
    assert "demo" in str(caught.value)


def test_a_keyword_only_tensor_has_no_gradient_and_says_so():
    @custom_op("demo::scaled", mutates_args=())
    def scaled(x: Tensor, *, by: Tensor) -> Tensor:
        return of_numpy(np.asarray(x.detach()) * np.asarray(by.detach()))

    scaled.register_autograd(lambda ctx, g: g * ctx.by, setup_context=_keep_by)
    leaf = X.clone().requires_grad_()
    scaled(leaf, by=X).sum().backward()
    assert leaf.grad.tolist() == X.tolist()
    with pytest.raises(MissingRuleError, match=r"demo::scaled\(\): 'by' requires a gradient, but keyword-only"):
        scaled(X, by=leaf)


def _keep_by(ctx, inputs, keyword_only_inputs, output):
    ctx.by = keyword_only_inputs["by"]


def test_several_results():
    @custom_op("demo::both", mutates_args=())
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        value = np.asarray(x.detach())
        return of_numpy(value * 2), of_numpy(value * 3)

    both.register_autograd(lambda ctx, g, h: 2 * g + 3 * h)
    leaf = X.clone().requires_grad_()
    two, three = both(leaf)
    (two.sum() + 10 * three.sum()).backward()
    assert leaf.grad.tolist() == [32.0] * 3
    (only,) = wg.autograd.grad(both(leaf)[0].sum(), leaf)
    assert only.tolist() == [2.0] * 3
    both.register_vmap(lambda info, in_dims, x: (both(x), (in_dims[0], in_dims[0])))
    assert library.opcheck(both, (leaf,)) == {}


def test_a_list_of_results_has_a_list_of_gradients():
    @custom_op("demo::halves", mutates_args=())
    def halves(x: Tensor, n: int) -> list[Tensor]:
        return [of_numpy(np.asarray(x.detach()) / n) for _ in range(n)]

    def setup(ctx, inputs, output):
        assert isinstance(output, list)
        ctx.n = inputs[1]

    def backward(ctx, grads):
        assert isinstance(grads, list)
        return sum(grads) / ctx.n, None

    halves.register_autograd(backward, setup_context=setup)
    leaf = X.clone().requires_grad_()
    found = halves(leaf, 3)
    assert isinstance(found, list)
    sum(t.sum() for t in found).backward()
    assert leaf.grad.tolist() == [1.0] * 3


def test_an_operator_that_changes_its_argument():
    @custom_op("demo::double_", mutates_args=("x",))
    def double_(x: Tensor, by: float = 2.0) -> None:
        x.mul_(by)

    target = X.clone()
    before = target._version
    assert double_(target) is None
    assert target.tolist() == (2 * X).tolist()
    assert target._version > before
    assert double_.schema == "(Tensor(a0!) x, float by=2.0) -> ()"
    with pytest.raises(RuntimeError, match="leaf"):
        double_(X.clone().requires_grad_())
    with pytest.raises(DeclarationError, match="'demo::double_' changes its arguments in place"):
        double_.register_autograd(lambda ctx: None)


# ---- without a rule


def test_what_is_missing_is_named_where_it_is_needed():
    op = custom_op("demo::cube", cube_forward, mutates_args=())
    with pytest.raises(MissingRuleError, match=r"demo::cube has no derivative, .*register_autograd"):
        op(X.clone().requires_grad_())
    with wg.no_grad():
        assert not op(X.clone().requires_grad_()).requires_grad
    op.register_autograd(cube_backward, setup_context=cube_setup)
    with pytest.raises(MissingRuleError, match=r"demo::cube has no forward-mode derivative"):
        jvp(op, (X,), (X,))


BAD_RULES = [
    ("too many gradients", lambda ctx, g: (g, g), RuntimeError, "returned 2 gradients for 1 positional"),
    ("a wrong shape", lambda ctx, g: g[:1], RuntimeError, "shape"),
    ("no tensor", lambda ctx, g: 1.0, TypeError, "float"),
]


@pytest.mark.parametrize(("backward", "error", "match"), [r[1:] for r in BAD_RULES], ids=[r[0] for r in BAD_RULES])
def test_a_backward_that_returns_something_else_is_refused(backward, error, match):
    op = custom_op("demo::cube", cube_forward, mutates_args=())
    op.register_autograd(backward)
    with pytest.raises(error, match=match) as caught:
        op(X.clone().requires_grad_()).sum().backward()
    assert "cube" in str(caught.value)


BAD_BATCHES = [
    (lambda info, dims, x: x, TypeError, "must return a pair"),
    (lambda info, dims, x: (demo_cube()(x), 1), ShapeError, "says that dimension 1 of a result counts the 3 examples"),
    (lambda info, dims, x: (demo_cube()(x)[:2], 0), ShapeError, r"dimension 0 of a result .* shape \(2,\)"),
    (lambda info, dims, x: (1.0, 0), TypeError, "must return tensors, got float"),
    (lambda info, dims, x: (demo_cube()(x), (0, 0)), ValueError, "1 results and 2 out_dims"),
]


@pytest.mark.parametrize(("rule", "error", "match"), BAD_BATCHES)
def test_a_batching_rule_that_returns_something_else_is_refused(rule, error, match):
    op = cube()
    op.register_vmap(rule)
    with pytest.raises(error, match=f"the register_vmap rule of demo::cube.*{match}"):
        vmap(op)(X)


# ---- declarations


def untyped(x) -> Tensor: ...
def no_return(x: Tensor): ...
def variadic(*xs: Tensor) -> Tensor: ...
def odd(x: dict) -> Tensor: ...
def returns_int(x: Tensor) -> int: ...
def fine(x: Tensor) -> Tensor: ...


BAD_DECLARATIONS = [
    ("demo::a", untyped, {}, "argument 'x' has no type hint"),
    ("demo::a", no_return, {}, "does not say what it returns"),
    ("demo::a", variadic, {}, r"\*args and \*\*kwargs are not possible"),
    ("demo::a", odd, {}, "argument 'x' has the type <class 'dict'>"),
    ("demo::a", returns_int, {}, "returns <class 'int'>"),
    ("a", fine, {}, "the name must be 'library::operator', got 'a'"),
    ("tanh::a", fine, {}, "'tanh' is an operator, so it cannot name a library"),
    ("demo::a", fine, {"mutates_args": ("y",)}, "mutates_args names 'y', which is no tensor argument"),
    ("demo::a", fine, {"mutates_args": "x"}, "must be a sequence of names or 'unknown'"),
    ("demo::a", fine, {"schema": "(Tensor y) -> Tensor"}, "differs from that of the hints"),
]


@pytest.mark.parametrize(("name", "fn", "options", "match"), BAD_DECLARATIONS)
def test_a_declaration_that_does_not_hold_together_is_refused(name, fn, options, match):
    with pytest.raises(DeclarationError, match=match):
        custom_op(name, fn, **{"mutates_args": (), **options})


def test_schemas():
    def everything(
        x: Tensor, xs: list[Tensor], o: Tensor | None, n: int = 1, f: float = 0.5, b: bool = True, s: str = "a",
        d: wg.dtype | None = None, ns: Sequence[int] = (1, 2), *, c: int | float | bool = 1,
    ) -> tuple[Tensor, Tensor]: ...  # fmt: skip

    assert infer_schema(everything) == (
        '(Tensor x, Tensor[] xs, Tensor? o, int n=1, float f=0.5, bool b=True, str s="a", ScalarType? d=None, '
        "int[] ns=(1, 2), *, Scalar c=1) -> (Tensor, Tensor)"
    )
    assert infer_schema(fine, mutates_args="unknown") == "(Tensor(a0!) x) -> Tensor"


# ---- copies


class Cubed(wg.nn.Module):
    def __init__(self):
        super().__init__()
        self.op = demo_cube()
        self.weight = wg.nn.Parameter(wg.ones(3, dtype=wg.float64))

    def forward(self, x):
        return self.op(x * self.weight)


def test_a_module_that_holds_one_is_copied_and_pickled():
    op = cube()
    module = Cubed()
    copied = copy.deepcopy(module)
    assert copied.op is op
    assert copy.copy(op) is op
    assert pickle.loads(pickle.dumps(op)) is op
    copied(X).sum().backward()
    np.testing.assert_allclose(np.asarray(copied.weight.grad), 3 * np.asarray(X) ** 3)
    assert module.weight.grad is None


def test_the_command_line_shows_it():
    op = custom_op("demo::cube", cube_forward, mutates_args=())
    op.register_autograd(cube_backward, setup_context=cube_setup)
    text = describe(registry.operators()["demo::cube"])
    for line in (
        "demo::cube(x: any tensor)", "Return the third power.", "family         opaque",
        "shape          none; register_fake gives one", "derivative     by register_autograd",
        "forward mode   none; register_autograd(jvp=...) gives one", "batching       none; register_vmap gives one",
    ):  # fmt: skip
        assert line in text


def test_the_command_line_imports_what_declares_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "declares_negated.py").write_text(
        "import wengert as wg\n"
        "@wg.library.custom_op('demo::negated', mutates_args=())\n"
        "def negated(x: wg.Tensor) -> wg.Tensor:\n"
        "    'Return the negative.'\n"
        "    return -x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["ops", "demo::negated", "--import", "declares_negated"]) == 0
    assert "Return the negative." in capsys.readouterr().out
    assert main(["ops", "--import", "no_such_module"]) == 1
    assert "--import no_such_module: No module named" in capsys.readouterr().err
