"""Large arrays leave NumPy for native code: the same results, whichever way the arrays lie, and never a stall."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert.codegen.cache import counters
from wengert.core.native import OFF, beside, native
from wengert.core.tensor import from_array
from wengert.runtime import ahead
from wengert.runtime.launch import watched
from wengert.runtime.recording import recording
from wengert.settings import settings
from wengert.testing.opcheck_native import natively

F = wg.nn.functional


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    native.loaded()
    with natively():
        yield


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Random numbers, with zeros of both signs among them."""
    x = np.random.default_rng(seed).standard_normal(shape)
    x.reshape(-1)[::7] = 0.0
    x.reshape(-1)[3::11] = -0.0
    return (x * 10).astype(dtype)


def both(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """Return what native code gives, and what NumPy gives."""
    got = function(*arguments)
    with natively(OFF):
        return got, function(*arguments)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "reversed rows": lambda x: x[:, ::-1],
    "every other": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "column": lambda x: x[:, :1],
    "row": lambda x: x[:1],
    "one row expanded": lambda x: np.broadcast_to(x[0], x.shape),
    "in a larger one": lambda x: np.pad(x, 3)[3:-3, 3:-3],
    "one element": lambda x: x[:1, :1],
}


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_any_two_layouts(left: str, right: str) -> None:
    x, y = LAYOUTS[left](numbers(37, 37)), LAYOUTS[right](numbers(37, 37, seed=1))
    a, b = from_array(x), from_array(y)
    np.testing.assert_array_equal((a + b).numpy(), x + y)
    np.testing.assert_array_equal(wg.maximum(a, b).numpy(), np.maximum(x, y))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32", "float64", "bool"])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, 63, 65, 127, 2047, 2048, 2049, 4500])
def test_every_dtype_and_tail(size: int, dtype: str) -> None:
    x, y = (wg.from_numpy(numbers(size, seed=s, dtype=dtype)) for s in (0, 1))
    for function in (wg.add, wg.mul, wg.maximum, wg.eq, lambda a, b: wg.where(a > b, a, b)):
        got, want = both(function, x, y)
        assert got.dtype is want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("number", [2.5, -1, 0, float("inf"), float("nan"), True])
def test_numbers_beside_tensors(number: Any) -> None:
    x = wg.from_numpy(numbers(100))
    for function in (lambda x: x * number, lambda x: number - x, lambda x: x / number, lambda x: x > number):
        got, want = both(function, x)
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_new_number_is_no_new_kernel() -> None:
    x = wg.from_numpy(numbers(50))
    _ = x * 0.5
    before = counters()
    for k in range(100):
        np.testing.assert_array_equal((x * (k / 7)).numpy(), x.numpy() * np.float32(k / 7))
    assert counters() == before


def test_in_place_on_overlapping_memory() -> None:
    for step in (1, 2, 3):
        base = numbers(200)
        want = base.copy()
        with np.errstate(all="ignore"):
            want[step:] += want[:-step].copy()
        t = wg.from_numpy(base)
        t[step:].add_(t[:-step])
        np.testing.assert_array_equal(t.numpy(), want)


def test_in_place_keeps_the_memory() -> None:
    x = wg.from_numpy(numbers(300))
    address = x.data_ptr()
    want = (x.numpy() * np.float32(3) - x.numpy()).clip(0)
    x.mul_(3).sub_(wg.from_numpy(numbers(300))).relu_()
    assert x.data_ptr() == address
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-6)


def test_writing_to_an_expanded_tensor_is_refused_as_ever() -> None:
    with pytest.raises(RuntimeError, match="share one memory location"):
        wg.zeros(1).expand(100).add_(1)


@pytest.mark.parametrize("optimizer", [
    lambda p: wg.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda p: wg.optim.SGD(p, lr=0.1),
    lambda p: wg.optim.Adam(p, lr=0.1), lambda p: wg.optim.Adam(p, lr=0.1, amsgrad=True, maximize=True),
    lambda p: wg.optim.AdamW(p, lr=0.1), lambda p: wg.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    lambda p: wg.optim.Adagrad(p, lr=0.1), lambda p: wg.optim.NAdam(p, lr=0.1), lambda p: wg.optim.RAdam(p, lr=0.1),
    lambda p: wg.optim.Adamax(p, lr=0.1), lambda p: wg.optim.Adadelta(p, lr=0.1), lambda p: wg.optim.ASGD(p, lr=0.1),
    lambda p: wg.optim.Rprop(p, lr=0.1),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [wg.float32, wg.float64])
def test_optimisers_step_as_with_numpy(optimizer: Any, dtype: Any) -> None:
    def trajectory(smallest: int) -> list[Any]:
        with natively(smallest):
            p = wg.nn.Parameter(wg.from_numpy(numbers(3, 50)).to(dtype))
            o = optimizer([p])
            found = []
            for k in range(6):
                p.grad = wg.from_numpy(numbers(3, 50, seed=k)).to(dtype)
                o.step()
                found.append(p.detach().numpy().copy())
            return found

    tolerance = 2e-5 if dtype is wg.float32 else 1e-11
    for got, want in zip(trajectory(0), trajectory(OFF), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_gradients_of_a_chain() -> None:
    def chain(array: Any) -> Any:
        x = wg.from_numpy(array.copy()).requires_grad_()
        y = F.relu(wg.sigmoid(wg.sigmoid(x)) * x - x.exp().log1p()) + F.leaky_relu(x, 0.3) * F.hardtanh(x)
        (y * y).sum().backward()
        return x.grad

    got, want = both(chain, numbers(40, 30, dtype=np.float64) / 5)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-11, atol=1e-12)


def test_threads_share_kernels() -> None:
    found: list[Any] = []

    def work(seed: int) -> None:
        with natively():
            x = wg.from_numpy(numbers(5000, seed=seed))
            found.append((x.exp() * 2 - x).numpy().tobytes() == (x.exp() * 2 - x).numpy().tobytes())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 8


def test_in_the_background_numpy_answers_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "native", "auto")
    made = threading.Event()
    job: ahead.Ahead[str] = ahead.Ahead(lambda: "made" if made.wait(10) else None)
    assert job.get() is None
    made.set()
    ahead.finish()
    assert job.get() == "made"


def test_what_is_recorded_is_made_at_once_and_the_background_hears_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "native", "auto")
    submitted: list[Any] = []
    monkeypatch.setattr(ahead, "_submit", submitted.append)
    with recording():
        first, second = ahead.Ahead(lambda: "made"), ahead.Ahead(lambda: "later")
        assert (first.get(), submitted) == ("made", [])
    assert (second.get(), second.get(), submitted) == (None, None, [second])


def test_a_kernel_that_cannot_be_made_is_reported_once_and_numpy_used(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Any] = []
    monkeypatch.setattr(settings, "native", "auto")
    monkeypatch.setattr(threading, "excepthook", reports.append)

    def make() -> str:
        raise RuntimeError("no")

    job = ahead.Ahead(make)
    ahead.finish()
    assert job.get() is None
    assert [(str(r.exc_value), *r.exc_value.__notes__) for r in reports] == [
        ("no", "a kernel could not be made; NumPy is used instead")
    ]
    threading.ExceptHookArgs(reports[0])  # what Python's own hook takes
    assert "wengert kernels" in {t.name for t in threading.enumerate()}


def test_what_works_beside_the_program_leaves_its_switch_interval_as_it_was() -> None:
    before = sys.getswitchinterval()
    first, second = beside(), beside()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() < before
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


def test_an_array_that_is_not_aligned_stays_with_numpy_after_one_of_its_shape_that_is() -> None:
    memory = np.zeros(4 * 100 + 1, np.uint8)
    uneven = from_array(memory[1:].view(np.float32))
    with watched() as launches:
        assert (wg.zeros(100) + 1).sum().item() == 100
        aligned = len(launches)
        np.testing.assert_array_equal((uneven + 1).numpy(), np.ones(100, np.float32))
    assert aligned
    assert len(launches) == aligned


def test_off_means_numpy() -> None:
    with natively(OFF):
        calls = []
        keep, native.run = native.run, lambda *given: calls.append(given) or NotImplemented
        try:
            _ = wg.ones(100_000) + 1
        finally:
            native.run = keep
        assert not calls


def test_results_lie_in_memory_as_numpys_do() -> None:
    x = numbers(4, 5, 6, 7)
    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)):
        array = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        for y in (array, x, x[:1], array[:, :1], np.repeat(array, 2, 3)[..., ::2]):
            got, want = from_array(array) + from_array(y), array + y
            assert got.stride() == tuple(s // 4 for s in want.strides)
            np.testing.assert_array_equal(got.numpy(), want)
        assert from_array(array).exp().stride() == tuple(s // 4 for s in array.strides)


@pytest.mark.parametrize("dtype", [wg.float16, wg.bfloat16])
def test_halves_forward_and_backward(dtype: Any) -> None:
    def chain() -> list[Any]:
        x = wg.from_numpy(numbers(60) / 10).to(dtype).requires_grad_()
        y = wg.sigmoid(x) * x + F.gelu(x) - F.relu(x) * 0.3
        (y * y).sum().backward()
        assert y.dtype is x.grad.dtype is dtype
        return [y.detach().float().numpy(), x.grad.float().numpy()]

    for got, want in zip(*both(chain), strict=True):
        np.testing.assert_allclose(got, want, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("there", [True, False])
def test_what_was_saved_is_unpacked_once_whether_there_is_a_kernel_or_not(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not there:
        monkeypatch.setattr(native, "rule", lambda *given: NotImplemented)
    unpacked: list[Any] = []
    x = wg.ones(100, requires_grad=True)

    def unpack(tensor: Any) -> Any:
        unpacked.append(tensor)
        return tensor

    with wg.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = x.sin()
    y.sum().backward()
    assert len(unpacked) == 1
    np.testing.assert_allclose(x.grad.numpy(), np.cos(np.ones(100)), rtol=1e-6)


def test_a_new_number_in_a_rule_is_no_new_kernel() -> None:
    x = wg.from_numpy(numbers(90)).requires_grad_()

    def slope(factor: float) -> Any:
        (g,) = wg.autograd.grad((x * factor).sum(), x)
        return g.numpy()

    slope(0.5)
    before = counters()
    for k in range(100):
        np.testing.assert_array_equal(slope(k / 7), np.full(90, np.float32(k / 7)))
    assert counters() == before
