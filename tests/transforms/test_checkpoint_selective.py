"""Selective checkpointing: what a policy keeps is handed out, the rest is computed again."""

import threading
import weakref
from functools import partial

import numpy as np
import pytest

import wengert as wg
from wengert.core.generator import draw
from wengert.core.interpret import watching
from wengert.kernels import sampling as samplers
from wengert.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def leaf(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return wg.tensor(values, dtype=wg.float64, requires_grad=True)


W = leaf(3, 3, seed=5)


class Tally:
    """A watcher that counts the operators that run."""

    def __init__(self):
        self.counts = {}

    def around(self, op, values, run):
        result = run(values)
        self.counts[op.name] = self.counts.get(op.name, 0) + 1
        return result


def keeping(*operators, **options):
    return partial(create_selective_checkpoint_contexts, list(operators), **options)


def by(policy):
    return partial(create_selective_checkpoint_contexts, policy)


def layer(x):
    y = (x @ W).exp()
    values = (y @ W).sort().values
    return (values * y).tanh().t().sum(0)


def inplace(x):
    y = x.exp()
    z = y.sin()
    z.mul_(2)
    return z * y


def halves(x):
    a, b = x.exp().chunk(2)
    return wg.nn.functional.softmax(wg.cat([b.sin(), a * b]), -1) @ W


FUNCTIONS = {"layer": layer, "in place": inplace, "halves": halves, "twice": lambda x: layer(x.exp()) * layer(x.sin())}
KEPT = {
    "nothing": [], "matmul": [wg.matmul], "sort": ["sort"], "exp": [wg.exp.op, wg.tanh],
    "views": [wg.transpose, "unbind", "mul"], "everything": None,
}  # fmt: skip


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients_are_the_same_whatever_is_kept(function, kept):
    x = leaf(4, 3)
    contexts = by(lambda ctx, op, *args, **kwargs: True) if kept is None else keeping(*kept)
    if kept is None and function is inplace:
        contexts = partial(contexts, allow_cache_entry_mutation=False)
        with pytest.raises(
            RuntimeError, match=r"(?s)keeps was changed in place.*kept: of sin\(\).*changed: by mul_\(\)"
        ):
            checkpoint(function, x, context_fn=contexts).sum().backward()
        return
    expected = wg.autograd.grad(function(x).sum(), (x, W), allow_unused=True)
    y = checkpoint(function, x, context_fn=contexts).sum()
    for _ in range(2):  # and any number of times
        found = wg.autograd.grad(y, (x, W), allow_unused=True, retain_graph=True)
        for a, b in zip(expected, found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(b.numpy(), a.numpy())


def test_second_derivatives():
    assert wg.autograd.gradgradcheck(
        lambda x: checkpoint(lambda x: (x @ W).tanh() @ W, x, context_fn=keeping(wg.matmul)), (leaf(2, 3),)
    )


def test_what_is_kept_does_not_run_again():
    def counted(contexts):
        y = checkpoint(lambda x: ((x @ W).tanh() @ W).exp(), leaf(2, 3), context_fn=contexts)
        tally = Tally()
        with watching(tally):
            y.sum().backward()
        return tally.counts.get("matmul", 0), tally.counts.get("tanh", 0)

    # Backward of x @ W and of tanh(…) @ W: four products without those of the recomputation.
    products, tangents = counted(keeping())
    assert counted(keeping(wg.matmul)) == (products - 2, tangents)
    assert counted(keeping(wg.tanh)) == (products, tangents - 1)


def test_what_is_kept_is_held_and_the_rest_is_not():
    refs = {}

    def function(x):
        for name in ("exp", "sin"):
            x = getattr(x, name)()
            refs[name] = weakref.ref(x._payload)
        return x * 2

    y = checkpoint(function, leaf(3), context_fn=keeping(wg.exp))
    assert refs["exp"]() is not None
    assert refs["sin"]() is None
    del y
    assert refs["exp"]() is None


def test_a_policy_is_told_the_operator_its_arguments_and_its_result():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append((op, [type(a).__name__ for a in args], kwargs, ctx.op_output.shape, ctx.is_recompute))
        assert isinstance(ctx, SelectiveCheckpointContext)
        return CheckpointPolicy.PREFER_RECOMPUTE

    checkpoint(lambda x: (x @ W).sum(0), leaf(2, 3), context_fn=by(policy)).sum().backward()
    assert [(op, shape, again) for op, _, _, shape, again in asked] == [
        (wg.matmul, (2, 3), False),
        (wg.sum, (3,), False),
    ]
    assert asked[0][1] == ["Tensor", "Tensor"]


@pytest.mark.parametrize(
    ("choice", "kept"),
    [(CheckpointPolicy.MUST_SAVE, True), (CheckpointPolicy.PREFER_SAVE, True), (CheckpointPolicy.MUST_CPU_OFFLOAD, True),
     (CheckpointPolicy.PREFER_CPU_OFFLOAD, True), (CheckpointPolicy.MUST_RECOMPUTE, False),
     (CheckpointPolicy.PREFER_RECOMPUTE, False), (True, True), (False, False)],
)  # fmt: skip
def test_every_choice_of_a_policy(choice, kept):
    refs = []

    def function(x):
        y = x.exp()
        refs.append(weakref.ref(y._payload))
        return y.sin()

    y = checkpoint(function, leaf(3), context_fn=by(lambda ctx, op, *args, **kwargs: choice))
    assert (refs[0]() is not None) == kept
    y.sum().backward()


def test_random_numbers_after_a_kept_random_result_are_the_same(monkeypatch):
    """An operator that draws moves the stream on for the next one, even where it does not run again."""
    monkeypatch.setattr(
        wg.sinh.op, "kernel", lambda x: x + draw("sinh", None, samplers.uniform, x.shape, x.dtype).numpy()
    )

    def function(x):
        y = (x * 1).sinh().detach() * x
        return y * wg.rand(100, dtype=x.dtype) * y

    for kept in (["sinh"], ["mul"], []):
        x = wg.ones(100, dtype=wg.float64, requires_grad=True)
        wg.manual_seed(2)
        y = checkpoint(function, x, context_fn=keeping(*kept))
        wg.rand(1)
        state = wg.get_rng_state().tolist()
        y.sum().backward()
        assert wg.get_rng_state().tolist() == state
        np.testing.assert_allclose(x.grad.numpy(), 2 * y.detach().numpy())


def test_a_result_changed_in_place_may_be_handed_out_if_that_is_wanted():
    x = leaf(3)
    contexts = keeping(wg.sin, allow_cache_entry_mutation=True)
    y = checkpoint(lambda x: x.sin().mul_(2).exp(), x, context_fn=contexts)
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    "derivative",
    [lambda f: wg.func.vmap(wg.func.grad(lambda x: f(x).sum())), lambda f: wg.func.grad(lambda x: wg.func.vmap(f)(x).sum()),
     lambda f: wg.func.jacrev(f), lambda f: wg.func.hessian(lambda x: f(x).sum())],
    ids=["vmap of grad", "grad of vmap", "jacrev", "hessian"],
)  # fmt: skip
@pytest.mark.parametrize("kept", [["matmul"], ["exp", "sum"], ["tanh", "sin", "matmul"]])
def test_inside_transforms(derivative, kept):
    x = leaf(2, 3).detach()

    def function(x):
        return ((x @ W).exp() @ W).sin().tanh()

    def checkpointed(x):
        return checkpoint(function, x, context_fn=keeping(*kept))

    expected, found = derivative(function)(x), derivative(checkpointed)(x)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-13)


def test_nested_checkpoints_keep_their_own():
    def inner(x):
        return (x @ W).tanh() @ W

    def outer(x):
        return checkpoint(inner, x.exp(), context_fn=keeping(wg.tanh)).sin() @ W

    x = leaf(2, 3)
    plain = wg.autograd.grad((((x.exp() @ W).tanh() @ W).sin() @ W).sum(), (x, W))
    for contexts in (keeping(wg.matmul), keeping(wg.exp, wg.sin), by(lambda *args, **kwargs: True)):
        found = wg.autograd.grad(checkpoint(outer, x, context_fn=contexts).sum(), (x, W))
        for a, b in zip(plain, found, strict=True):
            np.testing.assert_array_equal(b.numpy(), a.numpy())


def test_a_backward_inside_the_function_is_handed_out_what_is_kept():
    def function(x):
        y = (x @ W).exp()
        (g,) = wg.autograd.grad(y.sum(), x, create_graph=True)
        return (y.sin() * g) @ W

    x = leaf(2, 3)
    plain = wg.autograd.grad(function(x).sum(), (x, W))
    for contexts in (keeping(wg.matmul), keeping(wg.exp, "mul"), keeping()):
        found = wg.autograd.grad(checkpoint(function, x, context_fn=contexts).sum(), (x, W))
        for a, b in zip(plain, found, strict=True):
            np.testing.assert_array_equal(b.numpy(), a.numpy())


def test_another_operator_in_the_recomputation_is_named():
    flags = [True]

    def function(x):
        return x.exp().sin() if flags and flags.pop() else x.cos().exp().sin()

    y = checkpoint(function, leaf(3), context_fn=keeping(wg.exp))
    with pytest.raises(
        CheckpointError, match=r"(?s)operator 0 of the forward: exp\(\) at .*computed again: cos\(\) at "
    ):
        y.sum().backward()


def test_contexts_serve_one_call():
    contexts = create_selective_checkpoint_contexts([wg.exp])
    checkpoint(lambda x: x.exp(), leaf(3), context_fn=lambda: contexts)
    with pytest.raises(RuntimeError, match="serve one call"):
        checkpoint(lambda x: x.exp(), leaf(3), context_fn=lambda: contexts)


def test_threads_may_walk_one_graph():
    x = leaf(2, 3)
    y = checkpoint(lambda x: (x @ W).exp() @ W, x, context_fn=keeping(wg.matmul)).sum()
    (expected,) = wg.autograd.grad(y, x, retain_graph=True)
    found = []

    def walk():
        for _ in range(20):
            found.append(wg.autograd.grad(y, x, retain_graph=True)[0])

    threads = [threading.Thread(target=walk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for g in found:
        np.testing.assert_array_equal(g.numpy(), expected.numpy())


def test_threads_do_not_see_each_others_watchers():
    seen = []

    def function(x):
        thread = threading.Thread(target=lambda: seen.append(wg.core.state.thread.state.watchers))
        thread.start()
        thread.join()
        return x.exp()

    checkpoint(function, leaf(3), context_fn=keeping(wg.exp))
    assert seen == [()]


BAD = [
    (["no_such_thing"], ValueError, "'no_such_thing' is no operator"),
    (["matmull"], ValueError, "nearest are: matmul"),
    ([len], ValueError, "is no operator; give a function such as"),
    (wg.matmul, TypeError, r"pass \[matmul\]"),
    (3, TypeError, "a policy function or a list of operators, got int"),
    ("matmul", TypeError, "got str"),
]


@pytest.mark.parametrize(("given", "error", "text"), BAD)
def test_what_is_no_policy_is_refused(given, error, text):
    with pytest.raises(error, match=text):
        create_selective_checkpoint_contexts(given)


def test_an_operator_made_of_others_is_refused():
    composite = next(op for op in wg.core.registry.operators().values() if op.composite)
    with pytest.raises(ValueError, match="made of other operators"):
        create_selective_checkpoint_contexts([composite])


def test_a_policy_must_choose():
    with pytest.raises(TypeError, match=r"must return a CheckpointPolicy or a bool, got NoneType for exp\(\)"):
        checkpoint(lambda x: x.exp(), leaf(3), context_fn=by(lambda *args, **kwargs: None))
