"""P16: each form of a network gives what the eager model gives, on small sizes. No time is judged."""

import numpy as np
import pytest

import wengert as wg
from benchmarks.compare import worst_error
from benchmarks.models import Sizes, convolutional, gpt
from benchmarks.training import load_weights
from benchmarks.workload import Case
from benchmarks.workloads import p16_inference

CASES = [
    p16_inference.CASES[0],
    Case("tiny", 1, 1, parameters={"sizes": Sizes(words=11, context=8, width=16, heads=2, layers=2, batch=1)}),
]


def given(case):
    """The data of a case, with biases and scales that matter."""
    rng = np.random.default_rng(0)
    data = dict(p16_inference.data(case, rng))
    return {k: v + rng.standard_normal(v.shape).astype(v.dtype) if v.ndim == 1 else v for k, v in data.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", ["wengert", "jax", "onnxruntime"])
def test_an_answer_is_that_of_the_eager_model(case, name) -> None:
    for module in {"onnxruntime": ["onnx", "onnxruntime"], "jax": ["jax"]}.get(name, []):
        pytest.importorskip(module)
    data, sizes = given(case), case.parameters["sizes"]
    model = gpt(wg, sizes) if sizes else convolutional(wg.nn)
    load_weights(wg, model, data)
    job = p16_inference.WORKLOAD.builders[name](case, data, name)
    job.step()
    with wg.no_grad():
        assert worst_error(job.results(), {"y": model(wg.tensor(data["x"])).numpy()}) < 1e-5
