"""Several logical CPU devices: tensors of different devices do not mix, every operator stays where its arguments are."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.array.device import devices, index_of, placed, unplaced
from wengert.core.devices import MOVE
from wengert.core.interpret import memory_of
from wengert.core.registry import operators
from wengert.core.tensor import from_array
from wengert.testing.case import Case, close
from wengert.testing.samples import ErrorSample, samples_of

MIXED = "Expected all tensors to be on the same device, but found at least two devices"


@pytest.fixture(autouse=True)
def two_devices() -> Iterator[None]:
    devices.grow(2)
    yield
    devices.count, devices.default, devices.several = 1, 0, False


def there(*size: int) -> Any:
    return wg.rand(*size, device="cpu:1")


def index(tensor: Any) -> int | None:
    return index_of(tensor._payload.dtype)


# ---- every operator


def _same(got: Any, want: Any, what: str) -> None:
    close(np.asarray(unplaced(memory_of(got))), np.asarray(memory_of(want)), what)


@pytest.mark.parametrize("name", sorted(operators().keys() - {MOVE}))
def test_an_operator_stays_on_the_device_of_its_arguments(name: str) -> None:
    """Values and gradients are those of the first device, and where the arguments are."""
    op = operators()[name]
    for sample in (s for s in samples_of(op) if not isinstance(s, ErrorSample)):
        case = Case(op, sample)
        wanted, _ = case.results, case.places
        given, results = case.call(lambda array: from_array(placed(array, 1)))
        for got, want in zip(results, wanted, strict=True):
            assert got.dtype is want.dtype
            _same(got, want, name)
            if given:
                assert index(got) == 1, f"a result of {name} is on cpu:{index(got)}"
        if not case.differentiable:
            continue
        number = iter(range(100))

        def leaf(array: Any, case: Case = case, number: Iterator[int] = number) -> Any:
            made = from_array(placed(array, 1))
            return made.requires_grad_() if next(number) in case.places else made

        given, results = case.call(leaf)
        leaves = [t for t in given if t.requires_grad]
        tracked = [r for r in results if r.requires_grad]
        wg.autograd.backward(tracked, [wg.ones_like(r) for r in tracked])
        assert {x.grad.device for x in leaves if x.grad is not None} <= {wg.device("cpu:1")}


# ---- mixing


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: y * x,
        lambda x, y: x @ y,
        lambda x, y: wg.cat([x, y]),
        lambda x, y: wg.where(x > 0, x, y),
        lambda x, y: x.add_(y),
        lambda x, y: x.__iadd__(y),
        lambda x, y: x.addcmul_(x, y),
        lambda x, y: wg.nn.functional.linear(x, y),
        lambda x, y: wg.nn.functional.mse_loss(x, y),
        lambda x, y: wg.einsum("ij,jk", x, y),
        lambda x, y: x.lerp(x, y),
        lambda x, y: wg.func.vmap(wg.mul)(x, y),
        lambda x, y: wg.func.jvp(wg.exp, (x,), (y,)),
        lambda x, y: wg.nn.Linear(3, 3)(y) + wg.nn.Linear(3, 3, device="cpu:1")(y),
    ],
)
def test_tensors_of_two_devices_do_not_mix(call: Callable[..., Any]) -> None:
    for x, y in ((wg.rand(3, 3), there(3, 3)), (wg.rand(3, 3).double(), there(3, 3).double())):
        with pytest.raises(RuntimeError, match=MIXED):
            call(x, y)
    with wg.no_grad(), pytest.raises(RuntimeError, match=MIXED):
        call(wg.rand(3, 3), there(3, 3))


def test_the_message_says_what_to_do() -> None:
    with pytest.raises(
        RuntimeError, match=r"^mul\(\): Expected .* cpu:1 and cpu:0 \(argument 'other'\).*\.to\('cpu:1'\)$"
    ):
        wg.mul(there(2), wg.ones(2))


def test_numbers_and_tensors_without_dimensions_go_with_the_others() -> None:
    x = there(3)
    for y in (x * 2, 2 - x, x * wg.tensor(2.0), wg.tensor(2.0) / x, x * np.float64(2)):
        assert str(y.device) == "cpu:1"
    with pytest.raises(RuntimeError, match=MIXED):
        wg.ones(3) * wg.tensor(2.0, device="cpu:1").reshape(1)


def test_copy_goes_between_devices() -> None:
    x, y = wg.zeros(2, 3), there(3).requires_grad_()
    assert str(x.copy_(y).device) == "cpu"
    (x * wg.arange(6.0).reshape(2, 3)).sum().backward()
    assert str(y.grad.device) == "cpu:1"
    assert y.grad.tolist() == [3, 5, 7]
    z = wg.zeros(2, 3, device="cpu:1")
    z[1] = wg.ones(3)
    assert str(z.device) == "cpu:1"
    assert z.tolist() == [[0, 0, 0], [1, 1, 1]]


# ---- where tensors are made


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: wg.zeros(2, 3, **k),
        lambda **k: wg.ones(2, **k),
        lambda **k: wg.empty(2, **k),
        lambda **k: wg.full((2,), 1.0, **k),
        lambda **k: wg.tensor([1, 2], **k),
        lambda **k: wg.as_tensor([1.0], **k),
        lambda **k: wg.as_tensor(np.ones(2), **k),
        lambda **k: wg.asarray(np.ones(2), **k),
        lambda **k: wg.arange(4, **k),
        lambda **k: wg.linspace(0, 1, 3, **k),
        lambda **k: wg.eye(2, **k),
        lambda **k: wg.rand(2, **k),
        lambda **k: wg.randn(2, **k),
        lambda **k: wg.randint(3, (2,), **k),
        lambda **k: wg.randperm(3, **k),
        lambda **k: wg.hann_window(4, **k),
        lambda **k: wg.FloatTensor([1.0], **k),
        lambda **k: wg.Tensor([1.0], **k),
        lambda **k: wg.scalar_tensor(1, **k),
        lambda **k: wg.tril_indices(3, 3, **k),
        lambda **k: wg.ones(2).to(**k),
        lambda **k: wg.zeros_like(wg.ones(2), **k),
        lambda **k: wg.rand_like(wg.ones(2), **k),
        lambda **k: wg.ones(2).new_zeros(3, **k),
        lambda **k: wg.empty_strided((2,), (1,), **k),
        lambda **k: wg.nn.Linear(2, 2, **k).weight,
        lambda **k: wg.nn.Linear(2, 2).to(**k).bias,
        lambda **k: wg.nn.BatchNorm1d(2, **k).running_mean,
        lambda **k: wg.nn.Embedding(2, 2, **k).weight,
    ],
)
def test_tensors_are_made_on_the_device_asked_for(make: Callable[..., Any]) -> None:
    assert (index(make(device="cpu:1")), str(make(device="cpu:1").device)) == (1, "cpu:1")
    assert make(device="cpu:0").device == wg.device("cpu")
    with pytest.raises(RuntimeError, match=r"'cpu:2' is not available; there are 2"):
        make(device="cpu:2")


@pytest.mark.parametrize(
    "make",
    [
        wg.zeros_like,
        wg.ones_like,
        wg.empty_like,
        wg.rand_like,
        wg.randn_like,
        lambda x: wg.full_like(x, 2.0),
        lambda x: x.new_zeros(3),
        lambda x: x.new_tensor([1.0]),
        lambda x: x.new_full((2,), 1.0),
        wg.bernoulli,
        lambda x: x[0],
        lambda x: x.T,
        lambda x: x.view(-1),
        lambda x: x.expand(2, 3, 3),
        lambda x: x.detach(),
        lambda x: x.data,
        lambda x: x.clone(),
        lambda x: x.double(),
        lambda x: x > 0,
        lambda x: x.argmax(),
        lambda x: x.sort()[1],
        lambda x: x.max(0)[0],
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.to(wg.float64),
        lambda x: x.normal_(),
        lambda x: x.zero_(),
        lambda x: wg.nn.functional.dropout(x),
        copy.deepcopy,
        copy.copy,
        lambda x: x.to(x),
        lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: wg.ones(2).to(x),
        lambda x: x.to_device(x.device),
        lambda x: wg.as_tensor(x),
    ],
)
def test_what_is_made_of_a_tensor_is_where_it_is(make: Callable[..., Any]) -> None:
    assert str(make(there(3, 3)).device) == "cpu:1"
    assert str(make(wg.rand(3, 3)).device) == "cpu"


def test_the_default_device() -> None:
    wg.set_default_device("cpu:1")
    assert wg.get_default_device() == wg.device("cpu", 1)
    assert {str(x.device) for x in (wg.ones(2), wg.tensor(1), wg.randn(2), wg.nn.Linear(2, 2).weight)} == {"cpu:1"}
    assert str(wg.ones(2, device="cpu").device) == "cpu"
    wg.set_default_device(None)
    assert wg.ones(2).device == wg.get_default_device() == wg.device("cpu")
    wg.cpu.set_device(1)
    assert wg.cpu.current_device() == 1


def test_moves_copy_and_stay_home_where_they_are() -> None:
    x = wg.rand(2, 3)
    y = x.to("cpu:1")
    assert not np.shares_memory(x._payload, y._payload)
    assert x.to("cpu:0") is x
    assert x.cpu() is x
    assert y.to("cpu:1") is y
    assert y.to(wg.device("cpu:1"), wg.float64).dtype is wg.float64
    assert (y.get_device(), x.get_device()) == (1, -1)
    assert wg.equal(y.cpu(), x)
    assert y.t().to("cpu:0").stride() == (1, 3)
    assert repr(y).endswith(", device='cpu:1')")


def test_an_array_is_of_the_first_device() -> None:
    x = there(3)
    for read in (x.numpy, lambda: np.asarray(x), x.__dlpack__):
        with pytest.raises(TypeError, match=r"a tensor on cpu:1 .* use \.cpu\(\)"):
            read()
    assert wg.ones(3).numpy().dtype.metadata is None
    array = np.ones(3)
    y = wg.from_numpy(array)
    y[0] = 7
    assert array[0] == 7
    assert y.numpy().ctypes.data == array.ctypes.data
    assert (x.tolist(), x[0].item()) == (x.cpu().tolist(), x.cpu()[0].item())


def test_a_pickle_wants_its_device() -> None:
    data = pickle.dumps(there(2))
    devices.count, devices.several = 1, False
    with pytest.raises(RuntimeError, match="'cpu:1' is not available"):
        pickle.loads(data)


def test_tensors_made_before_go_with_any_device() -> None:
    devices.count, devices.several = 1, False
    x = wg.ones(2)
    devices.grow(2)
    assert str((x + there(2)).device) == "cpu:1"
    assert (x + wg.ones(2)).device == x.device == wg.device("cpu")


@pytest.mark.parametrize("count", [1, 0, -1, 2.5, "3", None, True])
def test_devices_are_not_taken_away(count: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number, at least the 2 there are"):
        wg.cpu.set_device_count(count)


# ---- derivatives


def test_gradients_go_back_to_where_their_tensors_are() -> None:
    x = wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (x * x).to("cpu:1")
    z = (y.exp() * there(3).fill_(2)).to("cpu:0").sum() + x.sum()
    z.backward(retain_graph=True)
    expected = 2 * np.exp(x.detach().numpy() ** 2) * 2 * x.detach().numpy() + 1
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-6)
    (first,) = wg.autograd.grad(z, x, create_graph=True)
    (second,) = wg.autograd.grad(first.to("cpu:1").sum(), x)
    a = x.detach().double().numpy()
    np.testing.assert_allclose(second.numpy(), np.exp(a**2) * (4 + 8 * a**2), rtol=1e-5)


def test_a_gradient_must_be_on_the_device_of_its_tensor() -> None:
    x = there(2).requires_grad_()
    with pytest.raises(RuntimeError, match="grad is on cpu, the tensor is on cpu:1"):
        x.grad = wg.ones(2)
    x.grad = there(2)


@pytest.mark.parametrize(
    "transform",
    [
        wg.func.grad(lambda x: (x.sin() * x).sum()),
        wg.func.hessian(lambda x: (x**3).sum()),
        wg.func.jacfwd(lambda x: x.exp()),
        wg.func.jacrev(lambda x: x.cumsum(0)),
        lambda x: wg.func.jvp(wg.sin, (x,), (wg.ones_like(x),))[1],
        lambda x: wg.func.vmap(lambda row: row * 2 + row.sum())(x),
        lambda x: wg.func.vmap(wg.func.grad(lambda a: a.exp() * 3))(x),
    ],
)
def test_transforms_stay_on_the_device(transform: Callable[..., Any]) -> None:
    x = there(3)
    got, want = transform(x), transform(x.cpu())
    assert (str(got.device), want.device) == ("cpu:1", wg.device("cpu"))
    assert wg.equal(got.cpu(), want)


class Pipeline(wg.nn.Module):
    """Two halves, each on its device."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        self.devices = first, second
        self.first = wg.nn.Sequential(wg.nn.Linear(5, 8), wg.nn.BatchNorm1d(8), wg.nn.ReLU()).to(first)
        self.second = wg.nn.Sequential(wg.nn.Linear(8, 8), wg.nn.Tanh(), wg.nn.Linear(8, 3)).to(second)

    def forward(self, x: Any) -> Any:
        first, second = self.devices
        return self.second(self.first(x.to(first)).to(second))


@pytest.mark.parametrize("optimizer", [wg.optim.SGD, wg.optim.AdamW])
def test_a_model_on_two_devices_trains_as_on_one(optimizer: Any) -> None:
    losses = []
    for first, second in (("cpu", "cpu"), ("cpu:1", "cpu:0"), ("cpu:0", "cpu:1")):
        wg.manual_seed(0)
        model = Pipeline(first, second)
        steps = optimizer(model.parameters(), lr=0.1)
        x, y = wg.randn(16, 5), wg.randint(3, (16,))
        found = []
        for _ in range(5):
            steps.zero_grad()
            loss = wg.nn.functional.cross_entropy(model(x), y.to(second))
            loss.backward()
            steps.step()
            found.append(loss.item())
        assert {p.grad.device for p in model.first.parameters()} == {p.device for p in model.first.parameters()}
        assert str(loss.device) == second.replace(":0", "")
        losses.append(found)
    assert losses[0] == losses[1] == losses[2]
    assert losses[0][-1] < losses[0][0]


def test_input_on_another_device_than_the_model_is_refused() -> None:
    with pytest.raises(RuntimeError, match=MIXED):
        wg.nn.Linear(3, 2)(there(4, 3))
    with pytest.raises(RuntimeError, match=MIXED):
        wg.nn.Linear(3, 2).to("cpu:1")(wg.rand(4, 3))
