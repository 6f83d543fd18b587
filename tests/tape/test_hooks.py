"""Hooks: on tensors, leaves, nodes, several gradients and saved tensors; their order is the one PyTorch documents."""

import numpy as np
import pytest

import wengert as wg
from wengert.autograd import graph


def test_a_tensor_hook_sees_the_whole_gradient_and_may_replace_it():
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    (y * 2 + y * 3).sum().backward()
    assert seen == [[5.0, 5.0]]
    assert x.grad.tolist() == [50.0, 50.0]


def test_hooks_run_in_pytorchs_order():
    x = wg.ones(1, requires_grad=True)
    y = x * 2
    order = []
    y.retain_grad()
    y.grad_fn.register_hook(lambda given, received: order.append("node post"))
    y.grad_fn.register_prehook(lambda received: order.append("node pre"))
    y.register_hook(lambda g: order.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: order.append(f"accumulated {t.grad.item():g}"))
    x.register_hook(lambda g: order.append("leaf"))
    y.sum().backward()
    assert order == ["tensor", "node pre", "node post", "leaf", "accumulated 2"]
    assert y.grad.tolist() == [1.0]


def test_a_handle_removes_its_hook_and_does_no_harm_twice():
    x = wg.ones(1, requires_grad=True)
    kept, handle = x.register_hook(lambda g: g * 3), x.register_hook(lambda g: g * 100)
    handle.remove()
    handle.remove()
    (x * 1).sum().backward()
    assert x.grad.tolist() == [3.0]
    with kept:
        pass
    x.grad = None
    (x * 1).sum().backward()
    assert x.grad.tolist() == [1.0]


def test_node_hooks_replace_what_comes_and_what_goes():
    x = wg.ones(1, requires_grad=True)
    y = x * 2
    y.grad_fn.register_prehook(lambda received: (received[0] + 1,))
    y.grad_fn.register_hook(lambda given, received: (given[0] * received[0], None))
    y.sum().backward()
    assert x.grad.tolist() == [8.0]  # (1 + 1) · 2 goes on, times the 2 received


WRONG = [
    (lambda g: g[:1], RuntimeError, r"shape \(1,\), expected \(2,\)"),
    (lambda g: g.double(), RuntimeError, "float64, expected float32"),
    (lambda g: 3.0, TypeError, "must return a tensor or None, got float"),
]


@pytest.mark.parametrize(("hook", "error", "text"), WRONG)
def test_a_replacement_that_does_not_fit_is_refused_and_named(hook, error, text):
    x = wg.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(hook)
    with pytest.raises(error, match=text.replace("expected float32", "expected")):
        y.sum().backward()


@pytest.mark.parametrize(
    ("register", "text"),
    [(lambda t: t.register_hook(print), "does not require grad"), (lambda t: t.retain_grad(), "does not require grad"),
     (lambda t: graph.register_multi_grad_hook([t], print), "does not require grad")],
)  # fmt: skip
def test_a_tensor_without_a_gradient_takes_no_hook(register, text):
    with pytest.raises(RuntimeError, match=text):
        register(wg.ones(1))


def test_a_post_accumulate_hook_is_for_leaves():
    y = wg.ones(1, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="leaf"):
        y.register_post_accumulate_grad_hook(print)


def test_a_post_accumulate_hook_may_step_and_drop_the_gradient():
    w = wg.tensor([1.0], requires_grad=True)

    def step(t: wg.Tensor) -> None:
        with wg.no_grad():
            t.sub_(0.5 * t.grad)
        t.grad = None

    w.register_post_accumulate_grad_hook(step)
    (w * 4).sum().backward()
    assert w.tolist() == [-1.0]
    assert w.grad is None


def test_a_hook_on_several_gradients_runs_when_all_have_come():
    a, b, c = (wg.ones(1, requires_grad=True) for _ in range(3))
    seen = []
    handle = graph.register_multi_grad_hook(
        (a, b, c), lambda grads: seen.append([None if g is None else g.item() for g in grads])
    )
    (a * 2 + b * 3).sum().backward()
    assert seen == [[2.0, 3.0, None]]
    handle.remove()
    (a * 2 + c).sum().backward()
    assert len(seen) == 1


def test_a_hook_on_any_of_several_gradients_runs_once_per_backward():
    a, b = (wg.ones(1, requires_grad=True) for _ in range(2))
    seen = []
    graph.register_multi_grad_hook((a, b), lambda g: seen.append(g.item()), mode="any")
    for _ in range(2):
        (a * 2 + b * 2).sum().backward()
    assert seen == [2.0, 2.0]
    with pytest.raises(ValueError, match="'all' or 'any'"):
        graph.register_multi_grad_hook((a, b), print, mode="some")


def test_saved_tensors_go_to_a_file_and_come_back(tmp_path):
    paths = []

    def pack(t):
        paths.append(tmp_path / f"{len(paths)}.npy")
        np.save(paths[-1], t.detach().numpy())
        return paths[-1]

    x = wg.tensor([0.5, 1.5], requires_grad=True)
    with graph.saved_tensors_hooks(pack, lambda path: wg.from_numpy(np.load(path))):
        y = (x.exp() * x).sum()
    assert paths
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.5, 1.5]) * [1.5, 2.5], rtol=1e-6)


def test_only_the_innermost_saved_tensor_hooks_apply_and_they_can_be_refused():
    used = []
    outer = graph.saved_tensors_hooks(lambda t: used.append("outer") or t.detach(), lambda t: t)
    inner = graph.saved_tensors_hooks(lambda t: used.append("inner") or t.detach(), lambda t: t)
    x = wg.ones(1, requires_grad=True)
    with outer:
        with inner:
            x.exp()
        x.exp()
    x.exp()
    assert used == ["inner", "outer"]
    with pytest.raises(RuntimeError, match="not here"), graph.disable_saved_tensors_hooks("not here"), outer:
        pass


def test_an_unpacked_tensor_leads_back_into_the_graph():
    x = wg.tensor(2.0, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        y = x**3
    (first,) = wg.autograd.grad(y, x, create_graph=True)
    assert wg.autograd.grad(first, x)[0].item() == 12.0


def test_complex_gradients_are_pytorchs_conjugate_ones():
    z = wg.tensor([1 + 2j], requires_grad=True)
    cases = [(lambda z: (z * z.conj()).real, 2 * (1 + 2j)), (lambda z: (z * z).real, 2 * (1 - 2j)), (lambda z: z.imag, 1j),
             (lambda z: z.abs(), (1 + 2j) / abs(1 + 2j)), (lambda z: z.exp().real, np.conj(np.exp(1 + 2j)))]  # fmt: skip
    for f, want in cases:
        (g,) = wg.autograd.grad(f(z).sum(), z)
        np.testing.assert_allclose(g.numpy(), [want], rtol=1e-6)
