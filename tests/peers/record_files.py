"""Writes ``tests/serialization/pytorch/*.pt``: small files made by PyTorch, of every kind that is read or refused.

python -m tests.peers.record_files
"""

import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parents[1] / "serialization" / "pytorch"
DTYPES = (
    "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip


def training() -> dict[str, Any]:
    """A model, its optimiser and schedule after two steps, from fixed numbers."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.linspace(-1, 1 + i, parameter.numel()).reshape(parameter.shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        optimizer.zero_grad()
        (model(torch.linspace(0, 1, 12).reshape(4, 3)) ** 3).sum().backward()
        optimizer.step()
        schedule.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "epoch": 2,
    }  # fmt: skip


def views() -> dict[str, Any]:
    """Tensors that share memory, and such that do not lie in rows."""
    base = torch.arange(12.0).reshape(3, 4)
    turned = torch.tensor([1 + 2j, 3 - 4j])
    same = torch.tensor([5])
    return {
        "base": base, "t": base.t(), "part": base[1:, ::2], "wide": base[:, :1].expand(3, 5), "scalar": base[2, 3],
        "empty": torch.empty(0, 4), "conj": turned.conj(), "neg": turned.clone().conj().imag, "once": same,
        "twice": [same, same], "flags": torch.tensor([True, False, True])[1:],
    }  # fmt: skip


def values() -> dict[Any, Any]:
    """Everything but tensors, and tensors with something on them."""
    marked = torch.tensor([1.5])
    marked.note = "kept"
    kept = torch.nn.Parameter(torch.tensor([2.5]))
    kept.scale = 3
    return {
        "numbers": [0, -1, 255, 65535, 2**31, 2**70, -(2**70), 0.1, float("inf"), 1 + 2j, True, False, None],
        "texts": ("", "x", "ä€", "y" * 300), "bytes": [b"", b"ab\xff"], "set": {1, 2}, 3: {None: (), 2.5: [[]]},
        "ordered": OrderedDict(b=1, a=2), "counter": Counter([3, 3, 5]), "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "parameter": torch.nn.Parameter(torch.tensor([1.0])), "frozen": torch.nn.Parameter(torch.tensor([3.0]), False),
        "grad": torch.tensor([4.0], requires_grad=True), "marked": marked, "kept": kept,
    }  # fmt: skip


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    torch.save(training(), FOLDER / "training.pt")
    torch.save(views(), FOLDER / "views.pt")
    torch.save(values(), FOLDER / "values.pt")
    torch.save({n: torch.tensor([0, 1, 1]).to(getattr(torch, n)) for n in DTYPES}, FOLDER / "dtypes.pt")
    torch.save(torch.nn.Linear(1, 1).state_dict(), FOLDER / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(1, 1), FOLDER / "module.pt")
    torch.save(torch.eye(2).to_sparse(), FOLDER / "sparse.pt")
    torch.jit.save(torch.jit.script(torch.nn.Identity()), FOLDER / "script.pt")
    print(sum(path.stat().st_size for path in FOLDER.iterdir()), "bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
