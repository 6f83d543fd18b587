"""Writes ``tests/optim/trajectories.npz``: what PyTorch's optimisers and schedules do in fifty steps.

python -m tests.peers.record_optim
"""

import json
import warnings
from pathlib import Path

import numpy as np
import torch

from tests.optim.peer_cases import OPTIMIZERS, SCHEDULES, rates, trajectory

PATH = Path(__file__).parents[1] / "optim" / "trajectories.npz"


def main() -> None:
    """Record every case; equal trajectories, as of ``foreach`` and without, are kept once."""
    kept: list[np.ndarray] = []
    index: dict[str, int] = {}
    for label, found in [
        *((case.label, trajectory(torch, case)) for case in OPTIMIZERS),
        *((case.label, rates(torch, case)) for case in SCHEDULES),
    ]:
        assert label not in index, label
        assert np.isfinite(found).all(), label
        same = (
            i for i, other in enumerate(kept) if other.shape == found.shape and np.allclose(other, found, 1e-13, 1e-13)
        )
        index[label] = next(same, len(kept))
        if index[label] == len(kept):
            kept.append(found)
    text = np.frombuffer(json.dumps(index, separators=(",", ":")).encode(), dtype=np.uint8)
    np.savez_compressed(PATH, index=text, **{str(i): found for i, found in enumerate(kept)})
    print(f"{len(index)} cases, {len(kept)} kept, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
