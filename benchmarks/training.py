"""Training steps as every framework takes them: the same first weights, one batch, loss, gradients, optimiser.

wengert compiles the whole step. PyTorch runs it eagerly, or compiles the loss with its gradient; either way its optimiser is
the fused one. JAX compiles the whole step and gives the memory of the old weights back.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Job, framework_of

__all__ = [
    "Layouts",
    "adam_jax",
    "cross_entropy_jax",
    "load_weights",
    "matrices_transposed",
    "moved",
    "sgd_jax",
    "train",
    "train_jax",
]

BATCH = ("x", "y")


def load_weights(framework: Any, model: Any, data: Arrays) -> None:
    """Copy first weights into the model's parameters, by name.

    Raises:
        KeyError: if there is none for a parameter.
    """
    with framework.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(framework.tensor(data[key]))


def train(name: str, data: Arrays, model: Any, loss_of: Callable[[Any, Any], Any], make: str, **options: Any) -> Job:
    """Return the training step of a model written for PyTorch's interface, in wengert or PyTorch.

    Args:
        name: the variant: ``"wengert"``, ``"wengert eager"``, ``"torch"`` or ``"torch compiled"``.
        data: first weights by the names of parameters; "x" and "y" are the batch.
        loss_of: the loss of a batch.
        make: the name of the optimiser's class; ``options`` are its own.
    """
    framework = framework_of(name)
    load_weights(framework, model, data)
    fused = {"fused": True} if framework.__name__ == "torch" else {}
    optimizer = getattr(framework.optim, make)(model.parameters(), **options, **fused)
    x, y = (framework.tensor(data[k]) for k in BATCH)
    compute = framework.compile(loss_of, dynamic=False) if name == "torch compiled" else loss_of
    last: list[Any] = [None]

    def training(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = compute(x, y)
        loss.backward()
        optimizer.step()
        return loss

    run = framework.compile(training, fullgraph=True) if name == "wengert" else training

    def step() -> None:
        last[0] = run(x, y)

    def results() -> Arrays:
        weights = {k: p.detach().numpy() for k, p in model.named_parameters()}
        return {"loss": last[0].detach().numpy(), "moved": moved(weights, data)}

    return Job(step, results)


def moved(weights: Arrays, data: Arrays) -> Any:
    """Return how far the weights came, as one vector.

    Where a gradient is zero but for rounding, as that of the keys' bias is, Adam moves by noise: weights are not judged apart.
    """
    return np.concatenate([(weights[k] - data[k]).reshape(-1) for k in sorted(weights)])


# ---- JAX

Tree = Any
Optimiser = tuple[Callable[[Tree], Tree], Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]]
Layouts = Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]


def adam_jax(lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, decay: float = 0.0) -> Optimiser:
    """Return Adam as two functions: of the weights to its state; of weights, gradients and state to new weights and state."""
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    one, two = betas

    def first(weights: Tree) -> Tree:
        zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
        return (*zeros, jnp.zeros((), jnp.float32))

    def update(weights: Tree, slopes: Tree, state: Tree) -> tuple[Tree, Tree]:
        count = state[2] + 1
        mean = jax.tree.map(lambda m, g: one * m + (1 - one) * g, state[0], slopes)
        square = jax.tree.map(lambda v, g: two * v + (1 - two) * g * g, state[1], slopes)
        rate, root = lr / (1 - one**count), 1 / jnp.sqrt(1 - two**count)
        moved = jax.tree.map(
            lambda w, m, v: w * (1 - lr * decay) - rate * m / (jnp.sqrt(v) * root + eps), weights, mean, square
        )
        return moved, (mean, square, count)

    return first, update


def sgd_jax(lr: float, momentum: float) -> Optimiser:
    """Return gradient descent with momentum, in the form of :func:`adam_jax`."""
    jax = importlib.import_module("jax")

    def update(weights: Tree, slopes: Tree, state: Tree) -> tuple[Tree, Tree]:
        state = jax.tree.map(lambda s, g: momentum * s + g, state, slopes)
        return jax.tree.map(lambda w, s: w - lr * s, weights, state), state

    return lambda weights: jax.tree.map(jax.numpy.zeros_like, weights), update


def train_jax(
    data: Arrays, loss_of: Callable[[Any, Any, Any], Any], optimiser: Optimiser, layouts: Layouts | None = None,
    more: Any = None, batch: tuple[str, str] = BATCH,
) -> Job:  # fmt: skip
    """Return the training step of a pure function in JAX.

    Args:
        data: as for :func:`train`.
        loss_of: of the weights and the batch; with ``more``, of the pair of both and the batch: the loss and the new ``more``.
        layouts: for a weight that is kept in another layout here, the way there and back.
        more: what the model updates besides, such as running statistics. batch: the names of what is not a weight.
    """
    jax = importlib.import_module("jax")
    layouts = layouts or {}
    first, update = optimiser
    weights = {k: jax.numpy.array(layouts[k][0](v) if k in layouts else v) for k, v in data.items() if k not in batch}
    x, y = (jax.numpy.asarray(data[k].astype(np.int32) if data[k].dtype.kind == "i" else data[k]) for k in batch)

    def training(weights: Tree, state: Tree, more: Tree, x: Any, y: Any) -> Any:
        if more is None:
            loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
        else:
            (loss, more), slopes = jax.value_and_grad(lambda w: loss_of((w, more), x, y), has_aux=True)(weights)
        weights, state = update(weights, slopes, state)
        return weights, state, more, loss

    run = jax.jit(training, donate_argnums=(0, 1, 2))
    held = [weights, first(weights), jax.tree.map(jax.numpy.array, more), None]

    def step() -> None:
        held[:] = jax.block_until_ready(run(*held[:3], x, y))

    def results() -> Arrays:
        weights = {k: layouts[k][1](np.asarray(v)) if k in layouts else np.asarray(v) for k, v in held[0].items()}
        return {"loss": np.asarray(held[3]), "moved": moved(weights, data)}

    return Job(step, results)


def matrices_transposed(names: Sequence[str]) -> Layouts:
    """Return the layouts of weights that are (outputs, inputs) here, and (inputs, outputs) there."""
    return dict.fromkeys(names, (np.transpose, np.transpose))


def cross_entropy_jax(logits: Any, classes: Any) -> Any:
    """Return the mean cross-entropy of rows."""
    jax = importlib.import_module("jax")
    return -jax.numpy.take_along_axis(jax.nn.log_softmax(logits), classes[..., None], -1).mean()
