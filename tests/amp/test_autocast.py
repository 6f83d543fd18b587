"""Autocast: which dtypes operators run in, what is kept, and what else may be going on meanwhile."""

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

import wengert as wg
from wengert.amp.lists import RULES
from wengert.core.registry import operators
from wengert.core.state import thread
from wengert.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

F = wg.nn.functional
HALVES = [wg.bfloat16, wg.float16]
F32, F64 = wg.float32, wg.float64


def ones(*shape: int, dtype: Any = F32, **options: Any) -> Any:
    return wg.ones(*shape, dtype=dtype, **options)


def test_the_lists_name_operators() -> None:
    assert not set(RULES) - set(operators())


CALLS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("matmul", lambda x: x @ x, "lower"),
    ("linear", lambda x: F.linear(x, x), "lower"),
    ("conv1d", lambda x: F.conv1d(x[None], x[:, :, None]), "lower"),
    ("einsum", lambda x: wg.einsum("ij,jk->ik", x, x), "lower"),
    ("addmm", lambda x: wg.addmm(x, x, x), "lower"),
    ("attention", lambda x: F.scaled_dot_product_attention(x, x, x), "lower"),
    ("lstm", lambda x: wg.nn.LSTM(3, 3)(x[:, None].float())[0], "lower"),
    ("gru_cell", lambda x: wg.nn.GRUCell(3, 3)(x.float()), "lower"),
    ("exp", lambda x: x.exp(), "float32"),
    ("pow", lambda x: x**2, "float32"),
    ("layer_norm", lambda x: F.layer_norm(x, (3,)), "float32"),
    ("mse_loss", lambda x: F.mse_loss(x, x), "float32"),
    ("cross_entropy", lambda x: F.cross_entropy(x, wg.tensor([0, 1, 2])), "float32"),
    ("softmax", lambda x: x.softmax(0), "float32"),
    ("sum", lambda x: x.sum(), "float32"),
    ("relu", lambda x: x.relu(), "given"),
    ("add", lambda x: x + x, "given"),
    ("dropout", lambda x: F.dropout(x, 0.5), "given"),
    ("mean", lambda x: x.mean(), "given"),
    ("batch_norm", lambda x: F.batch_norm(x, wg.zeros(3), wg.ones(3)), "given"),
    ("reshape", lambda x: x.reshape(9), "given"),
    ("out=", lambda x: wg.exp(x, out=wg.empty(3, 3, dtype=x.dtype)), "given"),
    ("exp_", lambda x: x.clone().exp_(), "given"),
]


@pytest.mark.parametrize("lower", HALVES, ids=str)
@pytest.mark.parametrize("given", ["float32", "lower"])
@pytest.mark.parametrize(("name", "call", "kind"), CALLS, ids=[c[0] for c in CALLS])
def test_dtypes(name: str, call: Callable[[Any], Any], kind: str, given: str, lower: Any) -> None:
    x = ones(3, 3, dtype=F32 if given == "float32" else lower)
    with wg.autocast("cpu", dtype=lower):
        found = call(x).dtype
    assert found is {"lower": lower, "float32": F32, "given": x.dtype}[kind]
    assert call(ones(3, 3)).dtype is F32  # nothing is left behind


def test_float64_complex_and_integers_are_left_alone() -> None:
    with wg.autocast("cpu"):
        for dtype in (F64, wg.complex64, wg.int64):
            x = ones(2, 2, dtype=dtype)
            assert (x @ x).dtype is dtype
        assert ones(2, dtype=F64).exp().dtype is F64
        assert ones(2, dtype=wg.int64).sum().dtype is wg.int64


def test_sums_keep_a_dtype_that_is_asked_for() -> None:
    x = ones(3, dtype=wg.bfloat16)
    with wg.autocast("cpu"):
        assert x.sum(dtype=wg.bfloat16).dtype is wg.bfloat16
        assert x.softmax(0, dtype=F64).dtype is F64
        assert x.norm(dtype=F64).dtype is F64


@pytest.mark.parametrize(("dtypes", "expected"), [
    ((wg.bfloat16, wg.bfloat16, wg.bfloat16), wg.bfloat16), ((wg.bfloat16, F32, wg.bfloat16), F32),
    ((wg.bfloat16, wg.float16, wg.bfloat16), F32), ((F32, F32, F32), F32),
])  # fmt: skip
def test_the_widest_of_several(dtypes: Any, expected: Any) -> None:
    a, b, c = (ones(2, dtype=d) for d in dtypes)
    with wg.autocast("cpu"):
        assert wg.addcmul(a, b, c).dtype is expected


def test_the_rule_of_a_composite_holds_for_what_it_is_made_of() -> None:
    """mse_loss of what does not fit float16: squares are taken in float32, not in the dtype of a product."""
    x = wg.tensor([300.0], dtype=wg.float16)
    with wg.autocast("cpu", dtype=wg.float16):
        assert F.mse_loss(x, wg.zeros(1)).item() == 90000.0
        assert (x * x).item() == float("inf")


def test_binary_cross_entropy_is_refused_in_float16() -> None:
    p = wg.full((2,), 0.5)
    with wg.autocast("cpu", dtype=wg.float16):
        with pytest.raises(RuntimeError, match=r"unsafe to autocast.*with_logits"):
            F.binary_cross_entropy(p, p)
        with wg.autocast("cpu", enabled=False):
            assert F.binary_cross_entropy(p, p).item() == pytest.approx(np.log(2))
    with wg.autocast("cpu", dtype=wg.bfloat16):
        assert F.binary_cross_entropy(p.bfloat16(), p).dtype is F32


# ---- regions


def test_regions_nest_and_restore() -> None:
    w = ones(2, 2)
    with wg.autocast("cpu", dtype=wg.float16):
        with wg.autocast("cpu", enabled=False):
            assert (w @ w).dtype is F32
            assert not wg.is_autocast_enabled("cpu")
            with wg.autocast("cpu"):  # inherits the dtype
                assert (w @ w).dtype is wg.float16
                assert wg.is_autocast_enabled()
        with pytest.raises(ZeroDivisionError), wg.autocast("cpu", dtype=wg.bfloat16):
            divmod(int(wg.get_autocast_dtype("cpu") is wg.bfloat16), 0)
        assert (w @ w).dtype is wg.float16
    assert (w @ w).dtype is F32
    assert wg.get_autocast_dtype("cpu") is wg.bfloat16
    assert not thread.state.slow
    assert thread.state.casting is None


def test_one_region_may_be_entered_again_and_decorate() -> None:
    region, w = wg.autocast("cpu"), ones(2, 2)
    for _ in range(2):
        with region, region:
            assert (w @ w).dtype is wg.bfloat16

    @wg.autocast("cpu", dtype=wg.float16)
    def product(a: Any) -> Any:
        return a @ a

    @wg.autocast("cpu", dtype=wg.float16)
    def products(a: Any) -> Any:
        yield a @ a
        yield a @ a

    assert product(w).dtype is wg.float16
    assert [(p.dtype, (w @ w).dtype) for p in products(w)] == [(wg.float16, F32)] * 2


def test_the_setters_change_the_thread() -> None:
    w = ones(2, 2)
    try:
        wg.set_autocast_enabled("cpu", True)
        wg.set_autocast_dtype("cpu", wg.float16)
        wg.set_autocast_cache_enabled(False)
        assert (w @ w).dtype is wg.float16
        assert not wg.is_autocast_cache_enabled()
        with pytest.raises(ValueError, match=r"not to .*float64"):
            wg.set_autocast_dtype("cpu", F64)
    finally:
        thread.state.casting = None
        thread.state.update()
    assert (w @ w).dtype is F32
    assert wg.is_autocast_cache_enabled()


def test_threads_have_their_own() -> None:
    found: list[Any] = []
    with wg.autocast("cpu"):
        other = threading.Thread(target=lambda: found.append((ones(2, 2) @ ones(2, 2)).dtype))
        other.start()
        other.join()
    assert found == [F32]


@pytest.mark.parametrize(("options", "match"), [
    ({"device_type": "cpu", "dtype": F64}, "not to .*float64"), ({"device_type": "cuda"}, "not available"),
])  # fmt: skip
def test_what_it_cannot_do_it_says_and_leaves(options: Any, match: str) -> None:
    with pytest.warns(UserWarning, match=match):
        region = wg.autocast(**options)
    with region:
        assert (ones(2, 2) @ ones(2, 2)).dtype is F32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wg.autocast(**options, enabled=False)


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="'tpu'"):
        wg.autocast("tpu")
    with pytest.raises(ValueError, match="type `str`"):
        wg.autocast(wg.float16)  # type: ignore[arg-type]
    assert [wg.amp.is_autocast_available(d) for d in ("cpu", "cuda")] == [True, False]


# ---- gradients, and the casts that are kept


def test_gradients_of_float32_parameters_are_float32() -> None:
    w = wg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with wg.autocast("cpu"):
        loss = (w @ w).sum()
    loss.backward()
    assert w.grad.dtype is F32
    np.testing.assert_array_equal(w.grad.numpy(), [[7.0, 11.0], [9.0, 13.0]])  # exact in bfloat16


def test_backward_inside_is_the_same_as_outside() -> None:
    def run(inside: bool) -> Any:
        w = wg.linspace(-1, 1, 9).reshape(3, 3).requires_grad_()
        with wg.autocast("cpu"):
            loss = ((w @ w).softmax(1) @ w).exp().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return w.grad.numpy()

    np.testing.assert_array_equal(run(True), run(False))


def test_a_pass_without_grad_before_leaves_the_gradients() -> None:
    """The cast of a parameter that was made in no_grad() has no history, and must not serve the next pass."""
    model = wg.nn.Linear(2, 2)
    with wg.autocast("cpu"):
        with wg.no_grad():
            model(ones(1, 2))
        loss = model(ones(1, 2)).sum()
    loss.backward()
    assert model.weight.grad is not None
    assert model.bias.grad is not None
    with wg.autocast("cpu"):
        model(ones(1, 2))
        with wg.no_grad():
            assert not model(ones(1, 2)).requires_grad


def casts_of(call: Callable[[], Any], region: Any) -> int:
    """Return how often a call casts, by the watchers of the thread of the operators below."""
    count = 0
    cast = wg.ops.cast

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return cast(*args, **kwargs)

    wg.ops.cast = counting
    try:
        with region:
            call()
    finally:
        wg.ops.cast = cast
    return count


@pytest.mark.parametrize(("between", "cached", "expected"), [
    (lambda w: None, True, 1),
    (lambda w: None, False, 2),
    (lambda w: w.detach().add_(1), True, 2),  # written: its version
    (lambda w: setattr(w, "data", ones(2, 2)), True, 2),  # other memory
    (lambda w: w.requires_grad_(False).requires_grad_(True), True, 1),  # a leaf stays the same
    (lambda w: wg.clear_autocast_cache(), True, 2),
])  # fmt: skip
def test_a_cast_is_kept_as_long_as_it_is_right(between: Callable[[Any], Any], cached: bool, expected: int) -> None:
    w, x = ones(2, 2, requires_grad=True), ones(2, 2, dtype=wg.bfloat16)
    results: list[Any] = []

    def call() -> None:
        results.append(x @ w)
        between(w)
        results.append(x @ w)

    assert casts_of(call, wg.autocast("cpu", cache_enabled=cached)) == expected
    results[1].sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [[2.0, 2.0], [2.0, 2.0]])


def test_regions_inside_share_what_is_kept_until_the_outermost_ends() -> None:
    w, x = ones(2, 2, requires_grad=True), ones(2, 2, dtype=wg.bfloat16)

    def call() -> None:
        for _ in range(3):
            with wg.autocast("cpu"):
                _ = x @ w

    assert casts_of(call, wg.autocast("cpu")) == 1
    assert casts_of(call, wg.no_grad()) == 3


def test_only_leaves_that_require_a_gradient_are_kept() -> None:
    x = ones(2, 2)
    assert casts_of(lambda: [x @ x, x @ x], wg.autocast("cpu")) == 4


# ---- with the rest


@pytest.mark.parametrize("region", [None, wg.bfloat16, wg.float16], ids=str)
@pytest.mark.parametrize("selective", [False, True])
def test_a_checkpoint_computes_again_in_the_same_region(region: Any, selective: bool) -> None:
    seen: list[Any] = []
    w = wg.linspace(-1, 1, 9).reshape(3, 3).requires_grad_()

    def f(x: Any) -> Any:
        y = (x @ w).tanh()
        seen.append(y.dtype)
        return (y @ w).exp()

    def run(call: Callable[[Any], Any]) -> Any:
        w.grad = None
        with wg.autocast("cpu", dtype=region, enabled=region is not None):
            _ = w @ w  # its cast is kept when the function first runs, and not when it runs again
            loss = call(ones(3, 3)).sum()
        loss.backward()
        return w.grad.numpy()

    options: dict[str, Any] = {}
    if selective:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, [wg.matmul])
    plain = run(f)
    seen.clear()
    np.testing.assert_array_equal(run(lambda x: checkpoint(f, x, use_reentrant=False, **options)), plain)
    assert seen == [F32 if region is None else region] * 2


@pytest.mark.parametrize("inside", [False, True])
def test_transforms_inside_and_outside(inside: bool) -> None:
    """Batches, tangents and gradients of products in bfloat16; the values are exact there."""
    x, w = wg.tensor([[1.0, 2.0], [3.0, 4.0]]), wg.tensor([[1.0, -1.0], [2.0, 0.5]])

    def product(a: Any) -> Any:
        if inside:
            with wg.autocast("cpu"):
                return a @ w
        return a @ w

    def all_of() -> list[Any]:
        def loss(a: Any) -> Any:
            return (product(a).float() ** 2).sum()

        return [
            wg.func.vmap(product)(x), wg.func.jvp(product, (x,), (wg.ones(2, 2),))[1], wg.func.vmap(wg.func.grad(loss))(x),
            wg.func.grad(loss)(x), wg.func.jacfwd(product)(x[0]), wg.func.hessian(loss)(x[0]),
        ]  # fmt: skip

    if inside:
        found = all_of()
    else:
        with wg.autocast("cpu"):
            found = all_of()
    a, b = x.numpy(), w.numpy()
    gradient = 2 * (a @ b) @ b.T
    expected = [a @ b, np.ones((2, 2)) @ b, gradient, gradient, b.T, 2 * b @ b.T]
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got.float().numpy(), want, rtol=1e-6)
    assert [f.dtype for f in found[:3]] == [wg.bfloat16, wg.bfloat16, F32]


class Product(wg.autograd.Function):
    """A product that tells which dtypes its forward and its backward saw."""

    seen: ClassVar[list[Any]] = []

    @staticmethod
    @wg.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @wg.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: Any) -> Any:
        a, b = ctx.saved_tensors
        Product.seen.append((a.dtype, (a @ b).dtype, wg.get_autocast_dtype()))
        return (g @ b.T).float(), (a.T @ g).float()


class InFloat32(wg.autograd.Function):
    """Casts what it is given."""

    @staticmethod
    @wg.amp.custom_fwd(device_type="cpu", cast_inputs=F32)
    def forward(ctx: Any, a: Any) -> Any:
        ctx.save_for_backward(a)
        return a @ a

    @staticmethod
    @wg.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: Any) -> Any:
        (a,) = ctx.saved_tensors
        found = g @ a.T + a.T @ g
        assert found.dtype is F32
        return found


def test_functions_of_the_users_own() -> None:
    a = ones(2, 2, requires_grad=True)
    Product.seen.clear()
    with wg.autocast("cpu", dtype=wg.float16):
        y = Product.apply(a, a)
    assert y.dtype is wg.float16
    y.sum().backward()
    assert Product.seen == [(F32, wg.float16, wg.float16)]
    assert a.grad.dtype is F32
    Product.apply(a, a).sum().backward()
    assert Product.seen[1][1] is F32
    half = ones(2, 2, dtype=wg.bfloat16, requires_grad=True)
    with wg.autocast("cpu"):
        y = InFloat32.apply(half)
    assert y.dtype is F32
    y.sum().backward()
    assert half.grad.dtype is wg.bfloat16
    assert InFloat32.apply(half.detach()).dtype is wg.bfloat16  # outside of a region nothing is cast


@pytest.fixture
def square() -> Any:
    @wg.library.custom_op("amptest::square", mutates_args=())
    def square(x: wg.Tensor, scale: float = 1.0) -> wg.Tensor:
        return (x @ x) * scale

    square.register_fake(lambda x, scale=1.0: wg.empty_like(x))
    return square


def test_custom_operators(square: Any) -> None:
    x = ones(2, 2)
    with wg.autocast("cpu"):
        assert square(x).dtype is F32  # nobody looks into it
        wg.library.register_autocast("amptest::square", "cpu", wg.float16)
        assert square(x).dtype is wg.float16
        assert square(x.double()).dtype is F64
        with wg.autocast("cpu", enabled=False):
            assert square(x).dtype is F32
    assert square(x).dtype is F32
    with pytest.raises(ValueError, match="no device 'cuda'"):
        square.register_autocast("cuda", wg.float16)


def test_a_small_model_trains_as_well_as_in_float32() -> None:
    rng = np.random.default_rng(0)
    x = wg.tensor(rng.standard_normal((128, 6)), dtype=F32)
    classes = np.argmax(x.numpy() @ rng.standard_normal((6, 3)), 1)
    y = wg.tensor(np.where(rng.random(128) < 0.25, rng.integers(0, 3, 128), classes))  # some are wrong

    def loss_after(dtype: Any, scaled: bool) -> float:
        wg.manual_seed(0)
        model = wg.nn.Sequential(wg.nn.Linear(6, 16), wg.nn.LayerNorm(16), wg.nn.GELU(), wg.nn.Linear(16, 3))
        optimizer = wg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scaler = wg.amp.GradScaler(enabled=scaled)
        for _ in range(30):
            optimizer.zero_grad()
            with wg.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return float(loss.item())

    full = loss_after(None, False)
    assert full < 0.6
    assert loss_after(wg.bfloat16, False) == pytest.approx(full, rel=0.02)
    assert loss_after(wg.float16, True) == pytest.approx(full, rel=0.02)
