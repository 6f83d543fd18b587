"""The workloads: they can be told apart, and a compiled training step of theirs is the eager one. No time is judged."""

import numpy as np
import pytest

import wengert as wg
from benchmarks.__main__ import load
from benchmarks.compare import worst_error
from benchmarks.models import Sizes, gpt, gpt_weights
from benchmarks.training import matrices_transposed, moved, train
from benchmarks.workload import Case, framework_of
from benchmarks.workloads import p02_mlp, p09_options

SMALL = Sizes(words=11, context=8, width=16, heads=2, layers=2, batch=2)


def test_workloads_are_told_apart_and_measure_wengert_beside_a_peer() -> None:
    known = load()
    assert len({(w.promise, w.name) for w in known}) == len(known)
    for workload in known:
        assert len({workload.is_subject(name) for name in workload.builders}) == 2, workload.name
        assert all(0 < case.aim <= case.must for case in workload.cases.values()), workload.name


@pytest.mark.parametrize("name", ["wengert", "wengert compiled", "wengert, written out"])
def test_a_variant_belongs_to_a_framework(name) -> None:
    assert framework_of(name) is wg


def steps(build, count=3):
    """Return the results after a few steps of a job."""
    job = build()
    for _ in range(count):
        job.step()
    return job.results()


def test_a_compiled_perceptron_trains_as_the_eager_one() -> None:
    case = Case("tiny", 1, 1, parameters={"sizes": (6, 5, 3), "batch": 4})
    data = p02_mlp.data(case, np.random.default_rng(0))
    eager, compiled = (
        steps(lambda name=name: p02_mlp.build(case, data, name)) for name in ("wengert eager", "wengert")
    )
    assert np.linalg.norm(eager["moved"]) > 0
    assert worst_error(compiled, eager) < 1e-4


def test_a_compiled_gpt_trains_as_the_eager_one() -> None:
    data = gpt_weights(SMALL, np.random.default_rng(0))

    def build(name):
        model = gpt(wg, SMALL)
        return train(name, data, model, lambda x, y: wg.nn.functional.cross_entropy(model(x), y), "SGD", lr=0.1)

    eager, compiled = (steps(lambda name=name: build(name)) for name in ("wengert eager", "wengert"))
    assert np.linalg.norm(eager["moved"]) > 0
    assert worst_error(compiled, eager) < 1e-3


def test_greeks_are_the_closed_forms() -> None:
    rng = np.random.default_rng(0)
    ranges = ((80, 120), (80, 120), (0.2, 2.0), (0.0, 0.05), (0.15, 0.5))
    data = {k: rng.uniform(*ends, 50) for k, ends in zip(p09_options.INPUTS, ranges, strict=True)}
    work = p09_options.greeks(wg.func.grad, wg.log, wg.sqrt, wg.exp, wg.erf)
    found = work(*(wg.tensor(data[k]) for k in p09_options.INPUTS))
    results = {k: t.detach().numpy() for k, t in zip(p09_options.RESULTS, found, strict=True)}
    assert worst_error(results, p09_options.reference(p09_options.CASES[1], data)) < 1e-12


def test_movement_is_one_vector_in_the_order_of_names() -> None:
    data = {"b": np.array([1.0]), "a": np.array([[2.0, 3.0]]), "x": np.zeros(9)}
    weights = {"b": np.array([1.5]), "a": np.array([[2.0, 4.0]])}
    np.testing.assert_array_equal(moved(weights, data), [0.0, 1.0, 0.5])


def test_layouts_lead_there_and_back() -> None:
    there, back = matrices_transposed(["w"])["w"]
    matrix = np.arange(6.0).reshape(2, 3)
    assert there(matrix).shape == (3, 2)
    np.testing.assert_array_equal(back(there(matrix)), matrix)
