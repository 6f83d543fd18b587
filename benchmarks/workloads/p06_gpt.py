"""P6: training steps of GPTs, compiled: products, attention, normalisation and what lies between them."""

import importlib
from typing import Any

import numpy as np

from benchmarks.models import Sizes, gpt, gpt_weights
from benchmarks.training import Layouts, adam_jax, cross_entropy_jax, matrices_transposed, train, train_jax
from benchmarks.workload import Arrays, Case, Job, Workload, framework_of

SMALL = Sizes(words=256, context=64, width=128, heads=4, layers=4, batch=8)
MEDIUM = Sizes(words=256, context=256, width=384, heads=6, layers=6, batch=4)
LEARNING_RATE, BETAS, DECAY = 3e-4, (0.9, 0.95), 0.1

CASES = [
    Case("4 x 128, context 64, batch 8", must=0.9, aim=0.6, parameters={"sizes": SMALL}),
    Case("6 x 384, context 256, batch 4", must=1.0, aim=0.8, parameters={"sizes": MEDIUM}),
]


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights by their names in the model."""
    return gpt_weights(case.parameters["sizes"], rng)


WORKLOAD = Workload(
    "P6", "gpt", "training step of a GPT with cross-entropy and AdamW, compiled", CASES, data, steps=3, tolerance=0.05
)


@WORKLOAD.framework("wengert", "torch", "torch compiled")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in all of them."""
    framework = framework_of(name)
    model, loss = gpt(framework, case.parameters["sizes"]), framework.nn.functional.cross_entropy
    options = {"lr": LEARNING_RATE, "betas": BETAS, "weight_decay": DECAY}
    return train(name, data, model, lambda x, y: loss(model(x), y), "AdamW", **options)


@WORKLOAD.framework("jax")
def build_jax(case: Case, data: Arrays, name: str) -> Job:
    """Compiled as one function."""
    sizes = case.parameters["sizes"]
    forward = gpt_jax(sizes)
    return train_jax(
        data,
        lambda weights, x, y: cross_entropy_jax(forward(weights, x), y),
        adam_jax(LEARNING_RATE, BETAS, decay=DECAY),
        layouts_jax(sizes),
    )


def layouts_jax(sizes: Sizes) -> Layouts:
    """Return the layouts of the weights that are matrices."""
    parts = [f"blocks.{i}.{part}.weight" for i in range(sizes.layers) for part in ("qkv", "out", "up", "down")]
    return matrices_transposed([*parts, "head.weight"])


def gpt_jax(sizes: Sizes) -> Any:
    """Return the GPT as a function of weights and words."""
    jax = importlib.import_module("jax")
    jnp, heads = jax.numpy, sizes.heads

    def norm(p: Any, name: str, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(p: Any, name: str, x: Any) -> Any:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def block(p: Any, name: str, x: Any) -> Any:
        b, n, d = x.shape
        qkv = linear(p, f"{name}.qkv", norm(p, f"{name}.first", x))
        q, k, v = qkv.reshape(b, n, 3, heads, d // heads).transpose(2, 0, 3, 1, 4)
        scores = jnp.where(jnp.tril(jnp.ones((n, n), bool)), (q @ k.swapaxes(-1, -2)) * (d // heads) ** -0.5, -1e30)
        attended = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, n, d)
        x = x + linear(p, f"{name}.out", attended)
        hidden = jax.nn.gelu(linear(p, f"{name}.up", norm(p, f"{name}.second", x)), approximate=True)
        return x + linear(p, f"{name}.down", hidden)

    def forward(p: Any, x: Any) -> Any:
        h = p["words.weight"][x] + p["places.weight"]
        for i in range(sizes.layers):
            h = block(p, f"blocks.{i}", h)
        return (norm(p, "norm", h) @ p["head.weight"]).reshape(-1, sizes.words)

    return forward
