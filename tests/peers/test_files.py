"""Files go from PyTorch here and back."""

import io
from typing import Any

import numpy as np
import pytest
import torch

import wengert as wg
from wengert import nn

LAYERS: dict[str, Any] = {
    "convolutions": lambda lib: lib.nn.Sequential(
        lib.nn.Conv2d(2, 3, 3), lib.nn.BatchNorm2d(3), lib.nn.ConvTranspose2d(3, 2, 2)
    ),
    "recurrent": lambda lib: lib.nn.LSTM(3, 4, 2, bidirectional=True),
    "attention": lambda lib: lib.nn.TransformerEncoderLayer(8, 2, 16),
    "embedding": lambda lib: lib.nn.Embedding(10, 300),
}


@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
@pytest.mark.parametrize("name", LAYERS)
def test_states_come_from_pytorch(name: str, mmap: bool, tmp_path: Any) -> None:
    peer, own = LAYERS[name](torch).bfloat16(), LAYERS[name](wg).bfloat16()
    torch.save(peer.state_dict(), tmp_path / "state.pt")
    own.load_state_dict(wg.load(tmp_path / "state.pt", mmap=mmap))
    for (key, want), (other, got) in zip(peer.state_dict().items(), own.state_dict().items(), strict=True):
        assert key == other
        np.testing.assert_array_equal(got.float().numpy(), want.float().numpy())


def test_random_views() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        dims = int(rng.integers(0, 4))
        base = torch.arange(float(rng.integers(1, 400)))
        size, stride = [int(n) for n in rng.integers(0, 4, dims)], [int(n) for n in rng.integers(0, 6, dims)]
        last = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else 0
        if last >= len(base):
            continue
        view = base.as_strided(size, stride, int(rng.integers(0, len(base) - max(last, 0))))
        file = io.BytesIO()
        torch.save([view, base], file)
        file.seek(0)
        got, whole = wg.load(file)
        np.testing.assert_array_equal(got.numpy(), view.numpy())
        np.testing.assert_array_equal(whole.numpy(), base.numpy())


def test_safetensors_go_to_pytorch(tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    own, peer = nn.Linear(3, 4).to(wg.bfloat16), torch.nn.Linear(3, 4).bfloat16()
    wg.save_file(own.state_dict(), tmp_path / "w.safetensors")
    peer.load_state_dict(safetensors.load_file(tmp_path / "w.safetensors"))
    np.testing.assert_array_equal(peer.weight.detach().float().numpy(), own.weight.detach().float().numpy())
    safetensors.save_file(peer.state_dict(), tmp_path / "v.safetensors")
    assert wg.load_file(tmp_path / "v.safetensors")["weight"].tolist() == own.weight.tolist()
