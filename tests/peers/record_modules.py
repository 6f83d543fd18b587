"""Writes ``tests/nn/modules.npz``: states, inputs, results and gradients of PyTorch's modules, in one vector of numbers.

python -m tests.peers.record_modules
"""

import json
import warnings
from pathlib import Path

import numpy as np
import torch

from tests.nn.peer_cases import CASES, drawn, module_of, run

PATH = Path(__file__).parents[1] / "nn" / "modules.npz"


def main() -> None:
    """Record every case; the index says which names and shapes follow one another."""
    torch.manual_seed(0)
    rng, index, values = np.random.default_rng(0), {}, []
    for case in CASES:
        module, arrays = module_of(torch, case), drawn(case, rng)
        parts = {f"in.{k}": a for k, a in enumerate(arrays)}
        parts.update({f"state.{n}": v.detach().numpy().copy() for n, v in module.state_dict().items()})
        parts.update(run(torch, module, case, arrays))
        assert case.label not in index, case.label
        index[case.label] = [[name, list(part.shape)] for name, part in parts.items()]
        values += [np.ravel(part).astype(np.float64) for part in parts.values()]
    text = np.frombuffer(json.dumps(index, separators=(",", ":")).encode(), dtype=np.uint8)
    np.savez_compressed(PATH, index=text, values=np.concatenate(values))
    print(f"{len(CASES)} cases, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
