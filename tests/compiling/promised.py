"""What tests of capture share: tensors, how results are compared, and operators that Python runs."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import wengert as wg
from wengert import Tensor
from wengert.core import registry
from wengert.library import custom_op

__all__ = [
    "add_to",
    "agree",
    "arrays",
    "count",
    "cube",
    "drawn",
    "failing",
    "fragile",
    "leaf",
    "liar",
    "linear",
    "log",
    "logged",
    "outcome",
    "scaled",
    "shapeless",
    "sharer",
    "weight",
]


def outcome(call: Callable[[], Any]) -> Exception | None:
    """Return what a call raises."""
    wg.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return error
    return None


def drawn(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return wg.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def leaf(*shape: int, seed: int = 0) -> Any:
    return drawn(*shape, seed=seed).requires_grad_()


def weight(*shape: int, seed: int = 9) -> Any:
    return wg.nn.Parameter(drawn(*shape, seed=seed))


def linear(rows: int, columns: int) -> Any:
    layer = wg.nn.Linear(columns, rows).to(wg.float64)
    with wg.no_grad():
        layer.weight.copy_(drawn(rows, columns, seed=7))
        layer.bias.copy_(drawn(rows, seed=8))
    return layer


def arrays(value: Any) -> list[Any]:
    return [np.array(v.detach().numpy()) if isinstance(v, Tensor) else v for v in wg.tree.leaves(value)]


def agree(found: Any, want: Any) -> bool:
    if isinstance(want, list | tuple):
        return len(found) == len(want) and all(map(agree, found, want))
    if isinstance(want, np.ndarray):
        same = isinstance(found, np.ndarray) and found.shape == want.shape and found.dtype == want.dtype
        return same and np.allclose(found, want, rtol=1e-10, atol=1e-12, equal_nan=True)
    return type(found) is type(want) and bool(found == want)


def count(run: Any) -> int:
    return sum(len(programs) for programs in run.programs.values())


# ---- custom operators


@custom_op("promises::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return wg.from_numpy(np.asarray(x) ** 3)


cube.register_fake(lambda x: wg.empty_like(x))
cube.register_vmap(lambda info, dims, x: (cube(x), dims[0]))
cube.register_autograd(
    lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@custom_op("promises::scaled", mutates_args=())
def scaled(xs: list[Tensor], k: int, *, shift: float = 0.0) -> list[Tensor]:
    return [wg.from_numpy(np.asarray(x) * k + shift) for x in xs]


scaled.register_fake(lambda xs, k, *, shift=0.0: [wg.empty_like(x) for x in xs])
scaled.register_autograd(
    lambda ctx, gs: ([g * ctx.k for g in gs], None),
    setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(ctx, "k", inputs[1]),
)


@custom_op("promises::add_to", mutates_args={"total"})
def add_to(total: Tensor, x: Tensor) -> Tensor:
    np.asarray(total)[...] += np.asarray(x)
    return total.sum()


add_to.register_fake(lambda total, x: wg.empty((), dtype=total.dtype))

logged: list[float] = []


@custom_op("promises::log", mutates_args=())
def log(x: Tensor) -> None:
    logged.append(float(np.asarray(x).sum()))


failing: list[bool] = []


@custom_op("promises::fragile", mutates_args=())
def fragile(x: Tensor) -> Tensor:
    if failing:
        raise ValueError("of the kernel")
    return x.clone()


fragile.register_fake(lambda x: wg.empty_like(x))
fragile.register_autograd(lambda ctx, g: g * 1)


@custom_op("promises::shapeless", mutates_args=())
def shapeless(x: Tensor) -> Tensor:
    return wg.from_numpy(np.asarray(x) * 2)


@custom_op("promises::liar", mutates_args=())
def liar(x: Tensor) -> Tensor:
    return x[:1].clone()


liar.register_fake(lambda x: wg.empty_like(x))


@custom_op("promises::sharer", mutates_args=())
def sharer(x: Tensor) -> Tensor:
    return x


sharer.register_fake(lambda x: wg.empty_like(x))

for declared in [name for name in registry.operators() if name.startswith("promises::")]:
    registry.withdraw(declared)  # other tests ask something of every operator there is
