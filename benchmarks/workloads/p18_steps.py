"""P18: eager training steps: a convolutional network, and a small GPT, as anybody writes them."""

import importlib
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Case, Job, Workload

CASES = [
    Case("CNN 28 x 28, batch 64", must=1.2, aim=0.9, parameters={"kind": "cnn"}),
    Case("GPT 4 x 128, context 64, batch 8", must=1.2, aim=0.9, parameters={"kind": "gpt"}),
]
WORDS, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 65, 64, 128, 4, 4, 8


def _weights(rng: np.random.Generator, *shape: int) -> Any:
    fan = int(np.prod(shape[1:]))
    return (rng.standard_normal(shape) / fan**0.5).astype(np.float32)


def data(case: Case, rng: np.random.Generator) -> Arrays:
    """A batch, and first weights by their names in the model."""
    if case.parameters["kind"] == "cnn":
        return {
            "x": rng.standard_normal((64, 1, 28, 28)).astype(np.float32), "y": rng.integers(0, 10, 64),
            "0.weight": _weights(rng, 32, 1, 3, 3), "2.weight": _weights(rng, 64, 32, 3, 3),
            "6.weight": _weights(rng, 128, 9216), "8.weight": _weights(rng, 10, 128),
        }  # fmt: skip
    arrays: dict[str, Any] = {
        "x": rng.integers(0, WORDS, (BATCH, CONTEXT)), "y": rng.integers(0, WORDS, BATCH * CONTEXT),
        "words.weight": _weights(rng, WORDS, WIDTH), "places.weight": _weights(rng, CONTEXT, WIDTH),
        "head.weight": _weights(rng, WORDS, WIDTH),
    }  # fmt: skip
    for i in range(LAYERS):
        arrays[f"blocks.{i}.qkv.weight"] = _weights(rng, 3 * WIDTH, WIDTH)
        arrays[f"blocks.{i}.out.weight"] = _weights(rng, WIDTH, WIDTH)
        arrays[f"blocks.{i}.up.weight"] = _weights(rng, 4 * WIDTH, WIDTH)
        arrays[f"blocks.{i}.down.weight"] = _weights(rng, WIDTH, 4 * WIDTH)
    return arrays


WORKLOAD = Workload(
    "P18", "steps", "zero_grad, forward, loss, backward, optimiser step, eager", CASES, data, steps=3, tolerance=0.03
)


def _cnn(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def _gpt(framework: Any) -> Any:
    nn, functional = framework.nn, framework.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Attention and a layer of neurons, each on what was normalised, each added."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            """(batch, context, width) → the same."""
            b, n, d = x.shape
            q, k, v = self.qkv(self.first(x)).view(b, n, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(b, n, d))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        """Words and places, blocks, a head."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, x: Any) -> Any:
            """(batch, context) of words → (batch · context, words)."""
            h = self.words(x) + self.places.weight
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h)).reshape(-1, WORDS)

    return GPT()


@WORKLOAD.framework("wengert", "torch")
def build(case: Case, data: Arrays, name: str) -> Job:
    """The same program runs in both."""
    framework = importlib.import_module(name)
    cnn = case.parameters["kind"] == "cnn"
    model = _cnn(framework.nn) if cnn else _gpt(framework)
    with framework.no_grad():
        for key, parameter in model.named_parameters():
            if key in data:
                parameter.copy_(framework.tensor(data[key]))
            elif key.endswith("bias"):
                parameter.zero_()
    optim = framework.optim
    optimizer: Any = (
        optim.SGD(model.parameters(), lr=0.01, momentum=0.9) if cnn else optim.AdamW(model.parameters(), lr=1e-3)
    )
    x, y = framework.tensor(data["x"]), framework.tensor(data["y"])
    loss_of, last = framework.nn.functional.cross_entropy, [None]

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        last[0] = loss

    def results() -> Arrays:
        loss: Any = last[0]
        moved = {k: p.detach().numpy() - data[k] for k, p in model.named_parameters() if k in data}
        return {"loss": loss.detach().numpy(), **moved}

    return Job(step, results)
