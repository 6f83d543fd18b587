"""Backward hooks: which gradients they see, when, and that they leave the computation as it is."""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import nn


def leaf(*values: float) -> Any:
    return wg.tensor(list(values), requires_grad=True)


class Fn(nn.Module):
    """Any function as a module."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def watched(fn: Any) -> tuple[Fn, list[Any]]:
    """A module of ``fn`` and the list that its backward hook fills with (grad_input, grad_output)."""
    module, seen = Fn(fn), []
    module.register_full_backward_hook(
        lambda m, gi, go: seen.append(tuple(tuple(None if g is None else g.tolist() for g in gs) for gs in (gi, go)))
    )
    return module, seen


def test_a_hook_sees_only_what_passes_through_its_module() -> None:
    m, seen = watched(lambda x: x * 3)
    x = leaf(1.0, 2.0)
    (m(x) * 2 + x * 100).sum().backward()
    assert seen == [(([6.0, 6.0],), ([2.0, 2.0],))]
    assert x.grad.tolist() == [106.0, 106.0]


@pytest.mark.parametrize(
    ("fn", "args", "want_input", "want_output"),
    [
        (lambda x, y: (x * 2, y * 3), 2, ([2.0], [3.0]), ([1.0], [1.0])),
        (lambda x, y: [x * y], 2, ([5.0], [2.0]), ([1.0],)),
        (lambda x, y: {"a": x + y}, 2, ([1.0], [1.0]), ([1.0],)),
        (lambda x, y: (x * 2, 7), 2, ([2.0], None), ([1.0], None)),
        (lambda x: x, 1, ([1.0],), ([1.0],)),
    ],
    ids=["tuple", "list", "dict", "with a number", "identity"],
)
def test_structures(fn: Any, args: int, want_input: Any, want_output: Any) -> None:
    m, seen = watched(fn)
    out = m(*(leaf(2.0), leaf(5.0))[:args])
    values = out.values() if isinstance(out, dict) else out if isinstance(out, tuple | list) else [out]
    sum(v.sum() for v in values if isinstance(v, wg.Tensor)).backward()
    assert seen == [(want_input, want_output)]


def test_named_tuples_keep_their_type() -> None:
    from typing import NamedTuple

    class Pair(NamedTuple):
        a: Any
        b: Any

    m, seen = watched(lambda x: Pair(x * 2, x * 3))
    out = m(leaf(1.0))
    assert isinstance(out, Pair)
    out.b.sum().backward()
    assert seen == [(([3.0],), (None, [1.0]))]


def test_keyword_tensors_follow_the_positional_ones() -> None:
    m, seen = watched(lambda x, *, y, flag: x * y)
    m(leaf(2.0), y=leaf(5.0), flag=True).sum().backward()
    assert seen == [(([5.0], [2.0]), ([1.0],))]


def test_without_gradient_for_an_input_the_hook_runs_after_the_outputs() -> None:
    m, seen = nn.Linear(2, 1), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append((gi, go[0].tolist())))
    m(wg.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]
    m.register_full_backward_hook(lambda mod, gi, go: gi)
    with pytest.raises(RuntimeError, match="no input requires one"):
        m(wg.ones(1, 2)).sum().backward()


def test_hooks_replace_gradients_in_order() -> None:
    m = Fn(lambda x: x * 3)
    m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 10,))
    m.register_full_backward_pre_hook(lambda mod, go: go[0] + 1)
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 100,))
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] + 1,), prepend=True)
    x = leaf(1.0)
    m(x).sum().backward()
    assert x.grad.item() == ((1 * 10 + 1) * 3 + 1) * 100


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_wrong_number_of_gradients_is_refused(register: str) -> None:
    m = Fn(lambda x: x * 3)
    getattr(m, register)(lambda mod, *grads: (grads[-1][0], grads[-1][0]))
    with pytest.raises(RuntimeError, match="returned 2 gradients"):
        m(leaf(1.0)).sum().backward()


def test_in_place_on_an_input_reaches_the_caller() -> None:
    m, _ = watched(lambda x: x.mul_(3))
    x = leaf(1.0, 2.0)
    z = x * 1
    out = m(z)
    assert z.tolist() == [3.0, 6.0]
    (z * 5).sum().backward()  # the caller's tensor went through the module
    assert x.grad.tolist() == [15.0, 15.0]
    assert out.tolist() == z.tolist()


def test_in_place_on_a_view_given_as_input_reaches_its_base() -> None:
    m, _ = watched(lambda x: x.mul_(3))
    x = leaf(1.0, 2.0)
    z = x * 1
    m(z[:1])
    assert z.tolist() == [3.0, 2.0]
    z.sum().backward()
    assert x.grad.tolist() == [3.0, 1.0]


def test_in_place_on_a_leaf_is_refused_before_it_is_written() -> None:
    m, _ = watched(lambda x: x.mul_(3))
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="leaf"):
        m(x)
    assert x.tolist() == [1.0]


def test_in_place_on_an_output_is_allowed_and_passes_the_hook() -> None:
    m, seen = watched(lambda x: x * 3)
    x = leaf(1.0)
    y = m(x)
    y.mul_(2)
    y.sum().backward()
    assert seen == [(([6.0],), ([2.0],))]
    assert x.grad.item() == 6.0


def test_an_output_is_the_object_that_forward_made() -> None:
    made: list[Any] = []

    def forward(x: Any) -> Any:
        made.append(x * 2)
        return made[0]

    m, _ = watched(forward)
    assert m(leaf(1.0)) is made[0]


def test_a_parameter_as_output() -> None:
    p = nn.Parameter(wg.ones(2))
    m, seen = watched(lambda x: p)
    out = m(wg.ones(1))
    assert out is not p
    (out * 2).sum().backward()
    assert p.grad.tolist() == [2.0, 2.0]
    assert seen == [((None,), ([2.0, 2.0],))]
    with pytest.raises(RuntimeError, match="leaf"):
        out.mul_(2)


def test_second_derivatives_pass_through() -> None:
    m, seen = watched(lambda x: x**3)
    x = leaf(2.0)
    (g,) = wg.autograd.grad(m(x).sum(), x, create_graph=True)
    g.sum().backward()
    np.testing.assert_allclose(x.grad.item(), 12.0)
    assert seen[0] == (([12.0],), ([1.0],))


def test_without_recording_there_is_no_boundary() -> None:
    m, seen = watched(lambda x: x)
    x = leaf(1.0)
    with wg.no_grad():
        assert m(x) is x
    assert seen == []


def test_an_output_without_tensors_warns() -> None:
    m, _ = watched(lambda x: "text")
    with pytest.warns(UserWarning, match="cannot be called"):
        assert m(leaf(1.0)) == "text"


def test_shared_module_is_seen_once_per_call() -> None:
    m, seen = watched(lambda x: x * 3)
    x = leaf(1.0)
    m(m(x)).sum().backward()
    assert seen == [(([3.0],), ([1.0],)), (([9.0],), ([3.0],))]
    assert x.grad.item() == 9.0
