"""States made by PyTorch are loaded key by key, and give its results and gradients, for every layer and loss."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wengert as wg
from tests.nn.peer_cases import CASES, Case, module_of, run
from wengert import nn

BASES = {
    "Module", "RNNBase", "RNNCellBase",  # what others derive from
    "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential",  # test_containers.py
    "CompiledModule", "CrossMapLRN2d", "TransformerDecoder", "TransformerEncoder",  # parts of others that are recorded
}  # fmt: skip


def _read() -> dict[str, dict[str, Any]]:
    with np.load(Path(__file__).parent / "modules.npz") as file:
        index, values = json.loads(file["index"].tobytes()), file["values"]
    found: dict[str, dict[str, Any]] = {}
    start = 0
    for label, parts in index.items():
        found[label] = {}
        for name, shape in parts:
            size = int(np.prod(shape))
            found[label][name] = values[start : start + size].reshape(shape)
            start += size
    assert start == len(values)
    return found


RECORD = _read()


@pytest.mark.parametrize("case", CASES, ids=[case.label for case in CASES])
def test_results_and_gradients(case: Case) -> None:
    record = RECORD[case.label]
    state = {n.removeprefix("state."): wg.tensor(v) for n, v in record.items() if n.startswith("state.")}
    module = module_of(wg, case)
    assert list(module.state_dict()) == list(state)
    module.load_state_dict(state)
    got = run(wg, module, case, [v for n, v in record.items() if n.startswith("in.")])
    want = {n: v for n, v in record.items() if n.startswith(("out.", "to.", "after."))}
    assert list(got) == list(want)
    for name, value in want.items():
        rtol = 1e-6 if case.name == "Hardsigmoid" else 1e-9  # the peer keeps 1/6 in float32
        np.testing.assert_allclose(got[name], value, rtol=rtol, atol=1e-11, err_msg=name)


def test_every_module_is_recorded() -> None:
    modules = {n for n in nn.__all__ if isinstance(getattr(nn, n), type) and issubclass(getattr(nn, n), nn.Module)}
    lazy = {n for n in modules if n.startswith("Lazy")}
    assert modules - lazy - BASES == {case.name for case in CASES}
    assert {n.removeprefix("Lazy") for n in lazy} <= modules
