"""Calls of every layer and loss, made alike here and in PyTorch, whose results are recorded in ``modules.npz``.

``python -m tests.peers.record_modules`` writes the record; ``test_recorded.py`` holds this package to it.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = ["CASES", "Case", "drawn", "run", "tensors"]


class Draw(NamedTuple):
    """Random numbers of a kind: "normal", "unit" (between 0 and 1), "signs" (-1 or 1) or "ints" (below ``high``)."""

    kind: str
    shape: tuple[int, ...]
    high: int = 0


class Case(NamedTuple):
    """One call: the module's name and arguments, the inputs (a list for a tuple of tensors), keywords of the call."""

    name: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012 - never written
    inputs: tuple[Any, ...] = ((2, 3),)
    call: dict[str, Any] = {}  # noqa: RUF012 - never written
    training: bool = True
    lengths: tuple[int, ...] = ()  # the first input is packed

    @property
    def label(self) -> str:
        """What the case is called in the record."""
        words = [*map(str, self.args), *(f"{k}={v}" for k, v in self.options.items())]
        words += [f"{k} given" for k in self.call] + ["packed"] * bool(self.lengths) + [f"{len(self.inputs)} inputs"]
        return f"{self.name}({', '.join(words)})"


def ints(high: int, *shape: int) -> Draw:
    return Draw("ints", shape, high)


def unit(*shape: int) -> Draw:
    return Draw("unit", shape)


def signs(*shape: int) -> Draw:
    return Draw("signs", shape)


CAUSAL = np.triu(np.ones((4, 4), dtype=bool), 1)
PADDED = np.array([[False, False, True], [False, False, False]])
LOG_PROBS = np.log(
    np.random.default_rng(3).dirichlet(np.ones(4), (6, 2))
)  # no leaf: the peer's gradient is another one
PLAIN = (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "LogSigmoid",
    "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh",
    "Tanhshrink",
)  # fmt: skip
EVALUATED = {
    "AlphaDropout": 3, "Dropout": 3, "Dropout1d": 3, "Dropout2d": 4, "Dropout3d": 5, "FeatureAlphaDropout": 3, "RReLU": 3,
}  # fmt: skip


def _layers() -> list[Case]:
    line, plane, space = (1, 2, 7), (1, 2, 6, 6), (1, 2, 4, 4, 4)
    return [
        Case("Linear", (3, 4)), Case("Linear", (3, 4), {"bias": False}), Case("Bilinear", (3, 2, 2), {}, ((2, 3), (2, 2))),
        Case("Conv1d", (2, 4, 3), {"padding": "same", "padding_mode": "reflect"}, (line,)),
        Case("Conv2d", (2, 4, 3), {"groups": 2, "stride": 2, "padding": 1}, (plane,)),
        Case("Conv3d", (2, 1, 2), {"dilation": 2, "bias": False}, (space,)),
        Case("ConvTranspose1d", (2, 2, 3), {"stride": 2, "output_padding": 1}, (line,)),
        Case("ConvTranspose2d", (2, 4, 2), {"groups": 2, "dilation": 2}, ((1, 2, 3, 3),)),
        Case("ConvTranspose3d", (2, 1, 2), {}, ((1, 2, 2, 2, 2),)),
        Case("Embedding", (5, 3), {"padding_idx": 1}, (ints(5, 2, 3),)),
        Case("EmbeddingBag", (5, 3), {"mode": "sum"}, (ints(5, 2, 3),)),
        Case("EmbeddingBag", (5, 3), {"mode": "max"}, (ints(5, 2, 3),)),
        Case("BatchNorm1d", (3,), {}, ((4, 3),)), Case("BatchNorm2d", (2,), {"momentum": None}, ((2, 2, 3, 3),)),
        Case("BatchNorm3d", (2,), {"eps": 0.1}, ((2, 2, 2, 2, 2),)),
        Case("InstanceNorm1d", (2,), {"affine": True}, ((2, 2, 5),)),
        Case("InstanceNorm2d", (2,), {"track_running_stats": True}, ((2, 2, 3, 3),)),
        Case("InstanceNorm3d", (2,), {}, ((1, 2, 2, 2, 2),)), Case("LayerNorm", ((2, 3),), {}, ((4, 2, 3),)),
        Case("GroupNorm", (2, 4), {}, ((2, 4, 3),)), Case("RMSNorm", (3,)), Case("LocalResponseNorm", (2,), {}, ((1, 4, 5),)),
        Case("MaxPool1d", (2,), {"padding": 1, "return_indices": True}, (line,)), Case("MaxPool2d", (2,), {}, (plane,)),
        Case("MaxPool3d", (2,), {"stride": 1}, (space,)), Case("AvgPool1d", (3,), {"ceil_mode": True}, (line,)),
        Case("AvgPool2d", (2,), {"padding": 1, "count_include_pad": False}, (plane,)),
        Case("AvgPool3d", (2,), {"divisor_override": 3}, (space,)), Case("LPPool1d", (2, 3), {}, (line,)),
        Case("LPPool2d", (3, 2), {}, (Draw("unit", plane),)), Case("LPPool3d", (2, 2), {}, (space,)),
        Case("AdaptiveAvgPool1d", (3,), {}, (line,)), Case("AdaptiveAvgPool2d", ((2, None),), {}, (plane,)),
        Case("AdaptiveAvgPool3d", (3,), {}, (space,)), Case("AdaptiveMaxPool1d", (3,), {}, (line,)),
        Case("AdaptiveMaxPool2d", (4,), {"return_indices": True}, (plane,)), Case("AdaptiveMaxPool3d", (2,), {}, (space,)),
        Case("FractionalMaxPool2d", (2,), {"output_size": 3, "_random_samples": np.full((1, 2, 2), 0.4)}, (plane,)),
        Case("FractionalMaxPool3d", (2,), {"output_size": 2, "_random_samples": np.full((1, 2, 3), 0.4)}, (space,)),
        Case("MaxUnpool1d", (2,), {}, ((1, 1, 2),), {"indices": np.array([[[1, 2]]])}),
        Case("MaxUnpool2d", (2,), {}, ((1, 1, 2, 2),), {"indices": np.array([[[[0, 3], [9, 14]]]])}),
        Case("MaxUnpool3d", (2,), {}, ((1, 1, 1, 1, 2),), {"indices": np.array([[[[[5, 11]]]]])}),
        Case("CircularPad1d", (2,), {}, (line,)), Case("CircularPad2d", (1,), {}, ((1, 1, 3, 3),)),
        Case("CircularPad3d", (1,), {}, ((1, 1, 2, 2, 2),)), Case("ConstantPad1d", ((1, 2), 3.0), {}, ((2, 3),)),
        Case("ConstantPad2d", (1, 2.0), {}, ((1, 2, 2),)), Case("ConstantPad3d", (1, 2.0), {}, ((1, 1, 2, 1),)),
        Case("ReflectionPad1d", (2,), {}, ((2, 4),)), Case("ReflectionPad2d", ((1, 2, 0, 1),), {}, ((1, 3, 3),)),
        Case("ReflectionPad3d", (1,), {}, ((1, 2, 2, 2),)), Case("ReplicationPad1d", (2,), {}, ((2, 3),)),
        Case("ReplicationPad2d", (1,), {}, ((1, 2, 2),)), Case("ReplicationPad3d", (1,), {}, ((1, 1, 2, 2),)),
        Case("ZeroPad1d", (2,)), Case("ZeroPad2d", (1,), {}, ((1, 2, 2),)), Case("ZeroPad3d", (1,), {}, ((1, 1, 2, 1),)),
        Case("Flatten", (), {}, ((2, 3, 2),)), Case("Unflatten", (1, (3, 2)), {}, ((2, 6),)),
        Case("PixelShuffle", (2,), {}, ((1, 4, 2, 2),)), Case("PixelUnshuffle", (2,), {}, ((1, 1, 4, 4),)),
        Case("ChannelShuffle", (2,), {}, ((1, 4, 2, 2),)), Case("Fold", ((3, 3), 2), {}, ((1, 4, 4),)),
        Case("Unfold", (2,), {"padding": 1}, ((1, 1, 3, 3),)),
        Case("Upsample", (), {"size": (5, 4), "mode": "bicubic"}, ((1, 1, 3, 3),)),
        Case("UpsamplingBilinear2d", (4,), {}, ((1, 1, 2, 3),)),
        Case("UpsamplingNearest2d", (), {"scale_factor": 2}, ((1, 1, 2, 2),)),
        Case("CosineSimilarity", (), {}, ((2, 3), (2, 3))), Case("PairwiseDistance", (), {}, ((2, 3), (2, 3))),
        *(Case(name) for name in PLAIN),
        *(Case(name, (), {}, ((2, 2, 3, 3, 3)[:dims],), training=False) for name, dims in EVALUATED.items()),
        Case("GELU", (), {"approximate": "tanh"}), Case("GLU", (), {}, ((2, 4),)), Case("Threshold", (0.1, 2.0)),
        Case("Softmax", (1,)), Case("Softmin", (0,)), Case("LogSoftmax", (-1,)), Case("Softmax2d", (), {}, ((1, 3, 2, 2),)),
    ]  # fmt: skip


def _recurrent() -> list[Case]:
    made = []
    for kind in ("RNN", "GRU", "LSTM"):
        states: Any = [(4, 2, 3), (4, 2, 3)] if kind == "LSTM" else (4, 2, 3)
        both = {"num_layers": 2, "bidirectional": True}
        made += [
            Case(kind, (2, 3), {}, ((4, 2),)),
            Case(kind, (2, 3), both, ((4, 2, 2), states)),
            Case(kind, (2, 3), {"batch_first": True, "bias": False}, ((2, 4, 2),)),
            Case(kind, (2, 3), both, ((4, 2, 2), states), lengths=(2, 4)),
        ]
    cell: Any = [(2, 3), (2, 3)]
    return [
        *made, Case("RNN", (2, 3), {"nonlinearity": "relu"}, ((4, 2, 2),)),
        Case("LSTM", (2, 3), {"proj_size": 2}, ((4, 2, 2),)),
        Case("RNNCell", (2, 3), {"nonlinearity": "relu"}, ((2, 2), (2, 3))), Case("RNNCell", (2, 3), {}, ((2,), (3,))),
        Case("GRUCell", (2, 3), {}, ((2, 2), (2, 3))), Case("LSTMCell", (2, 3), {}, ((2, 2), cell)),
        Case("LSTMCell", (2, 3), {"bias": False}, ((2,), [(3,), (3,)])),
    ]  # fmt: skip


def _attention() -> list[Case]:
    heads, x, memory = (4, 2), (4, 2, 4), (3, 2, 4)
    still: dict[str, Any] = {"dropout": 0.0}
    deep = {**still, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 4}
    return [
        Case("MultiheadAttention", heads, {}, (x, memory, memory)),
        Case("MultiheadAttention", heads, {"kdim": 3, "vdim": 2, "bias": False}, (x, (3, 2, 3), (3, 2, 2)),
             {"key_padding_mask": PADDED, "average_attn_weights": False}),
        Case("MultiheadAttention", heads, {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True}, ((2, 4, 4),) * 3,
             {"attn_mask": CAUSAL}),
        Case("MultiheadAttention", heads, {}, (x,) * 3, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
        Case("TransformerEncoderLayer", (*heads, 5), still, (memory,), {"src_key_padding_mask": PADDED}),
        Case("TransformerEncoderLayer", (*heads, 5), {**still, "norm_first": True, "activation": "gelu", "bias": False}, (x,),
             {"src_mask": CAUSAL}),
        Case("TransformerDecoderLayer", (*heads, 5), still, (x, memory), {"tgt_mask": CAUSAL, "tgt_is_causal": True}),
        Case("Transformer", heads, deep, (memory, x), {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDED}),
    ]  # fmt: skip


def _losses() -> list[Case]:
    pair, classes = ((3, 4), (3, 4)), ((3, 4), ints(4, 3))
    return [
        Case("L1Loss", (), {"reduction": "sum"}, pair), Case("MSELoss", (), {}, pair),
        Case("HuberLoss", (), {"delta": 0.5}, pair), Case("SmoothL1Loss", (), {"beta": 0.5, "reduction": "none"}, pair),
        Case("SoftMarginLoss", (), {}, ((3, 4), signs(3, 4))),
        Case("HingeEmbeddingLoss", (), {"margin": 0.5}, ((3, 4), signs(3, 4))),
        Case("KLDivLoss", (), {"reduction": "batchmean"}, ((3, 4), unit(3, 4))),
        Case("PoissonNLLLoss", (), {"full": True}, ((3, 4), unit(3, 4))),
        Case("GaussianNLLLoss", (), {}, ((3, 4), (3, 4), unit(3, 4))),
        Case("MarginRankingLoss", (), {"margin": 0.2}, ((3,), (3,), signs(3))),
        Case("CosineEmbeddingLoss", (), {}, ((3, 4), (3, 4), signs(3))),
        Case("TripletMarginLoss", (), {"swap": True}, ((3, 4),) * 3),
        Case("TripletMarginWithDistanceLoss", (), {}, ((3, 4),) * 3),
        Case("NLLLoss", (), {"ignore_index": 1}, classes), Case("NLLLoss2d", (), {}, ((2, 3, 2, 2), ints(3, 2, 2, 2))),
        Case("CrossEntropyLoss", (), {"label_smoothing": 0.1}, classes), Case("CrossEntropyLoss", (), {}, ((3, 4), unit(3, 4))),
        Case("LinearCrossEntropyLoss", (4, 3), {"bias": True}, ((2, 4), ints(3, 2))),
        Case("BCELoss", (), {}, (unit(3, 4), unit(3, 4))), Case("BCEWithLogitsLoss", (), {}, ((3, 4), unit(3, 4))),
        Case("CTCLoss", (), {}, (), {"log_probs": LOG_PROBS, "targets": np.array([[1, 2, 2], [3, 1, 0]]),
                                     "input_lengths": np.array([6, 5]), "target_lengths": np.array([3, 2])}),
        Case("MultiMarginLoss", (), {"p": 2}, classes), Case("MultiLabelMarginLoss", (), {}, ((2, 4),),
                                                             {"target": np.array([[3, 0, -1, 1], [1, -1, 0, 0]])}),
        Case("MultiLabelSoftMarginLoss", (), {}, ((3, 4), ints(2, 3, 4))),
        Case("AdaptiveLogSoftmaxWithLoss", (4, 6, [2, 4]), {"div_value": 2.0}, ((3, 4), ints(6, 3))),
    ]  # fmt: skip


CASES = [*_layers(), *_recurrent(), *_attention(), *_losses()]


def _array(draw: Draw, rng: np.random.Generator) -> Any:
    if draw.kind == "ints":
        return rng.integers(0, draw.high, draw.shape)
    if draw.kind == "signs":
        return rng.choice([-1.0, 1.0], draw.shape)
    return rng.uniform(0.1, 0.9, draw.shape) if draw.kind == "unit" else rng.normal(size=draw.shape)


def drawn(case: Case, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the arrays of the inputs, lists flattened."""
    found = []
    for given in case.inputs:
        for one in given if isinstance(given, list) else [given]:
            draw = one if isinstance(one, Draw) else Draw("normal", one)
            found.append(np.asarray(_array(draw, rng)))
    return found


def tensors(lib: Any, case: Case, arrays: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
    """Return the inputs as a call takes them, and the leaves among them."""
    rest, given, leaves = iter(arrays), [], []

    def one(spec: Any) -> Any:
        kind = spec.kind if isinstance(spec, Draw) else "normal"
        made = lib.tensor(next(rest), dtype=lib.int64 if kind == "ints" else lib.float64)
        if kind == "normal":
            leaves.append(made.requires_grad_())
        return made

    for spec in case.inputs:
        given.append(tuple(map(one, spec)) if isinstance(spec, list) else one(spec))
    return given, leaves


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [part for r in result for part in _flat(r)]
    return [] if result is None else [result]


def _given(lib: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {k: lib.tensor(v) if isinstance(v, np.ndarray) else v for k, v in values.items()}


def module_of(lib: Any, case: Case) -> Any:
    """Return the case's module, in float64."""
    return getattr(lib.nn, case.name)(*case.args, **_given(lib, case.options)).double().train(case.training)


def run(lib: Any, module: Any, case: Case, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Call the module, go back, and return results, gradients and the buffers afterwards, by name."""
    given, leaves = tensors(lib, case, arrays)
    if case.lengths:
        pack = lib.nn.utils.rnn.pack_padded_sequence
        given[0] = pack(given[0], list(case.lengths), enforce_sorted=False)
    results = _flat(module(*given, **_given(lib, case.call)))
    total = sum(((k + 1) * r**2).sum() for k, r in enumerate(results) if r.requires_grad)
    if results[0].requires_grad:
        total.backward()
    found = {f"out.{k}": r.detach().numpy() for k, r in enumerate(results)}
    for k, leaf in enumerate(leaves):
        found[f"to.{k}"] = np.zeros(tuple(leaf.shape)) if leaf.grad is None else leaf.grad.numpy()
    for name, parameter in module.named_parameters():
        found[f"to.{name}"] = np.zeros(tuple(parameter.shape)) if parameter.grad is None else parameter.grad.numpy()
    found.update({f"after.{name}": b.numpy() for name, b in module.named_buffers()})
    return found
