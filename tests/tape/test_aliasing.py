"""What shares memory and what does not, and what the tape notices of writes to shared memory."""

import numpy as np
import pytest

import wengert as wg
from wengert.errors import InplaceError

COPIES = {
    "flip": lambda x: x.flip(0), "flip all": lambda x: x.flip(tuple(range(x.ndim))), "roll": lambda x: x.roll(0),
    "rot90": lambda x: x.rot90(2), "repeat": lambda x: x.repeat(*[1] * x.ndim), "tile": lambda x: x.tile((1,)),
    "clone": lambda x: x.clone(), "cat": lambda x: wg.cat([x]), "index": lambda x: x[[0]], "cumsum": lambda x: x.cumsum(0),
    "sum of nothing": lambda x: x.sum(0, keepdim=True), "amax": lambda x: x.amax(0), "sort": lambda x: x.sort(0)[0],
    "tril": lambda x: x.tril(), "clamp": lambda x: x.clamp(min=-9.0), "where": lambda x: wg.where(x == x, x, x),
    "pad": lambda x: wg.nn.functional.pad(x, (0, 0)), "power": lambda x: wg.linalg.matrix_power(x, 1), "pow": lambda x: x**1,
    "gather": lambda x: x.gather(0, wg.zeros(x.shape, dtype=wg.int64)), "scatter": lambda x: x.slice_scatter(x.clone()),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_a_copy_shares_no_memory_even_where_nothing_moves(name, shape):
    if name == "power" and shape[0] != shape[1]:
        pytest.skip("only square matrices have powers")
    x = wg.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
    assert not np.shares_memory(x.numpy(), COPIES[name](x).numpy())


def test_an_expanded_view_without_repetition_can_be_written():
    x = wg.zeros(1, 3)
    x.expand(1, 3).fill_(2.0)
    x.expand(1, 1, 3)[0, 0, 0] = 5.0
    np.testing.assert_array_equal(x.numpy(), [[5.0, 2.0, 2.0]])
    with pytest.raises(InplaceError, match="share one memory location"):
        x.expand(2, 3).fill_(1.0)
    frozen = np.ones((1, 3))
    frozen.flags.writeable = False
    with pytest.raises(InplaceError, match="read-only"):
        wg.from_numpy(frozen).expand(1, 3).fill_(1.0)


@pytest.mark.parametrize(
    "divide", [lambda x, y: x / y, lambda x, y: x / y.norm(), lambda x, y: wg.nn.functional.normalize(x + y, dim=0)]
)
def test_a_quotient_may_be_changed_in_place(divide):
    x = wg.tensor([1.0, 2.0], dtype=wg.float64, requires_grad=True)
    y = wg.tensor([4.0, 5.0], dtype=wg.float64, requires_grad=True)
    plain = wg.autograd.grad((divide(x, y) * 2).sum(), [x, y])
    quotient = divide(x, y)
    quotient.mul_(2)
    for found, wanted in zip(wg.autograd.grad(quotient.sum(), [x, y]), plain, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-15)


@pytest.mark.parametrize(
    "write", [lambda x: x[:1].add_(1), lambda x: x.detach().add_(1), lambda x: x.view(2).zero_(), lambda x: x.add_(1)]
)
def test_writes_in_inference_mode_are_noticed_through_every_alias(write):
    x = wg.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    with wg.inference_mode():
        write(x)
    with pytest.raises(InplaceError, match="changed in place"):
        y.backward()


def test_views_of_inference_tensors_are_inference_tensors():
    with wg.inference_mode():
        x = wg.ones(2)
        inner = wg.tensor([1.0, 2.0])[:1]
    assert x[:1].is_inference()
    assert inner.is_inference()
    with pytest.raises(InplaceError, match="inference_mode"):
        x[:1].add_(1)


def test_a_pack_hook_must_not_change_what_it_is_given():
    x = wg.tensor([3.0], requires_grad=True)
    with (
        wg.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t),
        pytest.raises(InplaceError, match="pack hook"),
    ):
        x.exp()
    (x * x).sum().backward()
    assert x.grad.item() == 6.0
