"""Models written for PyTorch's interface, which wengert shares: each is made with the ``framework`` that is given."""

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Sizes", "convolutional", "convolutional_weights", "gpt", "gpt_weights", "normal", "residual", "residual_weights", "scaled",
]  # fmt: skip


def convolutional(nn: Any) -> Any:
    """Return the network of 28 × 28 images: two convolutions, a pooling, two layers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def convolutional_weights(rng: np.random.Generator, batch: int = 64) -> dict[str, Any]:
    """Return a batch and first weights by their names in :func:`convolutional`."""
    shapes = {"0": (32, 1, 3, 3), "2": (64, 32, 3, 3), "6": (128, 9216), "8": (10, 128)}
    weights = {f"{k}.weight": scaled(rng, *shape) for k, shape in shapes.items()}
    biases = {f"{k}.bias": np.zeros(shape[0], np.float32) for k, shape in shapes.items()}
    return {"x": normal(rng, batch, 1, 28, 28), "y": rng.integers(0, 10, batch), **weights, **biases}


def residual(nn: Any, channels: int, blocks: int) -> Any:
    """Return a stem and residual blocks on 32 × 32 images: convolutions, batch normalisation, sums; a mean and a layer."""

    def pair(inputs: int) -> Any:
        return nn.Sequential(nn.Conv2d(inputs, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    class Block(nn.Module):  # type: ignore[misc]
        """Two convolutions, added to what went in."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = pair(channels), pair(channels)

        def forward(self, x: Any) -> Any:
            """(batch, channels, height, width) → the same."""
            return (self.second(self.first(x).relu()) + x).relu()

    class Residual(nn.Module):  # type: ignore[misc]
        """The stem, the blocks, the classes."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks = pair(3), nn.Sequential(*[Block() for _ in range(blocks)])
            self.head = nn.Linear(channels, 10)

        def forward(self, x: Any) -> Any:
            """(batch, 3, height, width) → (batch, 10)."""
            return self.head(self.blocks(self.stem(x).relu()).mean((2, 3)))

    return Residual()


def residual_weights(rng: np.random.Generator, channels: int, blocks: int, batch: int = 16) -> dict[str, Any]:
    """Return a batch and first weights by their names in :func:`residual`."""
    arrays: dict[str, Any] = {"x": normal(rng, batch, 3, 32, 32), "y": rng.integers(0, 10, batch)}
    for name in ("stem", *[f"blocks.{i}.{half}" for i in range(blocks) for half in ("first", "second")]):
        arrays[f"{name}.0.weight"] = scaled(rng, channels, 3 if name == "stem" else channels, 3, 3)
        arrays[f"{name}.1.weight"] = 1 + normal(rng, channels) / 10
        arrays[f"{name}.1.bias"] = normal(rng, channels) / 10
    return {**arrays, "head.weight": scaled(rng, 10, channels), "head.bias": np.zeros(10, np.float32)}


class Sizes(NamedTuple):
    """Of a GPT and its batch."""

    words: int
    context: int
    width: int
    heads: int
    layers: int
    batch: int


def gpt(framework: Any, sizes: Sizes) -> Any:
    """Return a GPT: words and places, blocks of attention and neurons that normalise first, a head without bias."""
    nn, functional = framework.nn, framework.nn.functional
    width = sizes.width

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Attention and a layer of neurons, each on what was normalised, each added."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            """(batch, context, width) → the same."""
            b, n, d = x.shape
            q, k, v = self.qkv(self.first(x)).view(b, n, 3, sizes.heads, d // sizes.heads).permute(2, 0, 3, 1, 4)
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(b, n, d))
            return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        """Words and places, blocks, a head."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(sizes.words, width), nn.Embedding(sizes.context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(sizes.layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, sizes.words, bias=False)

        def forward(self, x: Any) -> Any:
            """(batch, context) of words → (batch · context, words)."""
            h = self.words(x) + self.places.weight
            for block in self.blocks:
                h = block(h)
            return self.head(self.norm(h)).reshape(-1, sizes.words)

    return GPT()


def gpt_weights(sizes: Sizes, rng: np.random.Generator) -> dict[str, Any]:
    """Return a batch and first weights by their names in :func:`gpt`."""
    width = sizes.width
    arrays: dict[str, Any] = {
        "x": rng.integers(0, sizes.words, (sizes.batch, sizes.context)),
        "y": rng.integers(0, sizes.words, sizes.batch * sizes.context),
        "words.weight": scaled(rng, sizes.words, width), "places.weight": scaled(rng, sizes.context, width),
        "norm.weight": np.ones(width, np.float32), "norm.bias": np.zeros(width, np.float32),
        "head.weight": scaled(rng, sizes.words, width),
    }  # fmt: skip
    shapes = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
    for i in range(sizes.layers):
        for name in ("first", "second"):
            arrays[f"blocks.{i}.{name}.weight"] = np.ones(width, np.float32)
            arrays[f"blocks.{i}.{name}.bias"] = np.zeros(width, np.float32)
        for name, shape in shapes.items():
            arrays[f"blocks.{i}.{name}.weight"] = scaled(rng, *shape)
            arrays[f"blocks.{i}.{name}.bias"] = np.zeros(shape[0], np.float32)
    return arrays


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Return normal numbers in float32."""
    return rng.standard_normal(shape).astype(np.float32)


def scaled(rng: np.random.Generator, *shape: int) -> Any:
    """Return normal weights (outputs, inputs…) whose sums have a variance of one."""
    return (rng.standard_normal(shape) / int(np.prod(shape[1:])) ** 0.5).astype(np.float32)
