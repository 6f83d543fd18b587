"""In-place writes and views: what is allowed, what is noticed, and the history that follows."""

import numpy as np
import pytest

import wengert as wg
from wengert.errors import InplaceError


def leaf(data, dtype=wg.float64):
    return wg.tensor(data, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.mul_(2),
        lambda x: x.zero_(),
        lambda x: x.__setitem__(0, 5.0),
        lambda x: x[:1].mul_(2),
    ],
)
def test_a_leaf_that_requires_grad_is_not_changed_in_place(write):
    x = leaf([1.0, 2.0])
    with pytest.raises(InplaceError, match="leaf"):
        write(x)
    np.testing.assert_array_equal(x.detach().numpy(), [1.0, 2.0])


def test_a_leaf_may_be_changed_under_no_grad():
    x = leaf([1.0, 2.0])
    with wg.no_grad():
        x.add_(1)
    np.testing.assert_array_equal(x.detach().numpy(), [2.0, 3.0])


def test_an_overwritten_saved_tensor_names_both_lines_shapes_and_versions():
    x = leaf([1.0, 2.0])
    y = x.exp()  # the saving line
    y.mul_(2)  # the writing line
    with pytest.raises(InplaceError) as caught:
        y.sum().backward()
    text = str(caught.value)
    for part in ("exp()", "mul_()", "the saving line", "the writing line", "(2,)", "version 0", "version 1"):
        assert part in text, f"{part!r} is missing from:\n{text}"


def test_values_that_backward_does_not_need_may_be_overwritten():
    x = leaf([1.0, 2.0])
    a = x + 1
    b = a * 3
    a.zero_()
    b.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [3.0, 3.0])


def test_writing_through_detach_is_noticed():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    x.detach().zero_()
    with pytest.raises(InplaceError):
        y.backward()


def test_versions_count_writes_through_every_alias():
    x = wg.tensor([1.0, 2.0])
    before = x._version
    x.add_(1)
    x[0].zero_()
    x.detach().add_(1)
    assert x._version == before + 3


def test_a_chain_of_writes_has_the_right_gradient():
    x = leaf([1.0, 2.0])
    y = x * 2
    y.mul_(3)
    y.add_(x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [7.0, 7.0])


def test_a_write_to_the_base_is_seen_by_the_view_and_its_gradient():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1
    v = y[0]
    y.mul_(3)
    np.testing.assert_array_equal(v.detach().numpy(), [3.0, 6.0])
    v.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[3.0, 3.0], [0.0, 0.0]])


def test_writes_through_views_of_views_rebase_the_base():
    x = leaf(np.ones((3, 3)))
    y = x * 1
    y.t()[0].mul_(2)
    y.diagonal().mul_(5)
    y.narrow(0, 2, 1).zero_()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[10.0, 1.0, 1.0], [2.0, 5.0, 1.0], [0.0, 0.0, 0.0]])


def test_overlapping_views_see_each_other():
    x = leaf([1.0, 2.0, 3.0, 4.0])
    y = x * 1
    a, b = y[:3], y[1:]
    a.mul_(2)
    (b * b).sum().backward()
    np.testing.assert_array_equal(b.detach().numpy(), [4.0, 6.0, 4.0])
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 16.0, 24.0, 8.0])


def test_a_plain_base_gets_history_through_a_view():
    x = leaf([5.0])
    base = wg.zeros(3, dtype=wg.float64)
    v = base[1:2]
    v.copy_(x * x)
    assert base.requires_grad
    assert v.requires_grad
    (base * 2).sum().backward()
    assert x.grad.item() == 20.0


def test_second_derivatives_pass_through_writes():
    x = leaf([2.0, 3.0])
    y = x * 1
    y[0:1].copy_(x[:1] * x[1:])
    (g,) = wg.autograd.grad((y**2).sum(), x, create_graph=True)
    (h,) = wg.autograd.grad(g.sum(), x)
    # f = (x0 x1)^2 + x1^2; grad = (2 x0 x1^2, 2 x0^2 x1 + 2 x1)
    np.testing.assert_allclose(g.detach().numpy(), [2 * 2 * 9, 2 * 4 * 3 + 6])
    np.testing.assert_allclose(h.numpy(), [2 * 9 + 4 * 2 * 3, 4 * 2 * 3 + 2 * 4 + 2])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda y: y.unbind(0)[0].mul_(2), "several views"),
        (lambda y: y.split(1)[0].mul_(2), "several views"),
        (lambda y: y[0:1].expand(2, 2).add_(1), "share one memory location"),
    ],
)
def test_ambiguous_writes_are_refused(write, message):
    y = leaf([[1.0, 2.0], [3.0, 4.0]]) * 1
    with pytest.raises(RuntimeError, match=message):
        write(y)


def test_a_view_made_under_no_grad_is_not_written_while_recording():
    y = leaf([1.0, 2.0]) * 1
    with wg.no_grad():
        v = y[:1]
    with pytest.raises(InplaceError, match="no_grad"):
        v.mul_(2)


def test_read_only_memory_is_never_written():
    array = np.ones(3)
    array.flags.writeable = False
    with pytest.raises(InplaceError, match="read-only"):
        wg.from_numpy(array).add_(1)


def test_a_result_of_a_higher_category_does_not_fit():
    x = wg.tensor([1, 2])
    with pytest.raises(RuntimeError, match="cannot be written"):
        x.mul_(1.5)


def test_a_result_of_a_larger_shape_does_not_fit():
    with pytest.raises(RuntimeError, match="does not fit"):
        wg.ones(2).add_(wg.ones(3, 2))


def test_inference_tensors_stay_inside():
    with wg.inference_mode():
        y = wg.ones(2)
        y.add_(1)
    assert y.is_inference()
    with pytest.raises(InplaceError, match="inference_mode"):
        y.add_(1)
    x = wg.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="inference_mode"):
        x * y
    assert not y.clone().is_inference()


def test_data_bypasses_the_tape_and_can_be_replaced():
    x = leaf([1.0, 2.0])
    x.data.add_(1)
    np.testing.assert_array_equal(x.detach().numpy(), [2.0, 3.0])
    x.data = wg.tensor([5.0, 6.0], dtype=wg.float64)
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [10.0, 12.0])
