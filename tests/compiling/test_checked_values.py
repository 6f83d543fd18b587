"""Operators that refuse some values refuse them in compiled functions too, in calls after the one that was captured.

Other values that they take run the same program.
"""

from typing import Any

import numpy as np
import pytest

import wengert as wg
from wengert import func
from wengert.nn import functional as F

DATA = wg.arange(4.0, dtype=wg.float64)
SCORES = wg.zeros(4, 1, 3)


def filled(dtype: Any) -> Any:
    return lambda value: wg.zeros(2, dtype=dtype).masked_fill(wg.tensor([True, False]), value)


# a function, values that it takes, others, and values that it refuses
CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "histogram": (lambda edges: wg.histogram(DATA, edges)[0], [0.0, 1.0, 2.0], [0.0, 2.0, 3.0], [0.0, 2.0, 1.0]),
    "histogramdd": (
        lambda edges: wg.histogramdd(DATA[:, None], [edges])[0], [0.0, 1.0, 2.0], [0.0, 0.0, 9.0], [0.0, 2.0, 1.0],
    ),
    "histogram of": (lambda x: wg.histogram(x, 3)[0], [0.0, 1.0, 2.0], [5.0, -1.0, 2.0], [0.0, np.inf, 1.0]),
    "quantile": (lambda q: wg.quantile(DATA, q), [0.5, 0.2], [0.0, 1.0], [0.5, 1.5]),
    "masked_fill": (filled(wg.int8), 1.0, -100.0, 1000.0),
    "masked_fill inf": (filled(wg.int32), 1.0, -2147483647.0, np.inf),
    "masked_fill 8 bytes": (filled(wg.int64), 1.0, 9223372036854774784.0, 9223372036854775808.0),
    "fill_": (lambda value: (value.expand(2) * 0).to(wg.int16).fill_(value.float()), 1.0, 7.0, np.nan),
    "take": (lambda i: wg.take(DATA, i.long()), [0.0, 3.0], [-4.0, 2.0], [0.0, 4.0]),
    "put": (lambda i: wg.put(DATA, i.long(), DATA[:2]), [0.0, 3.0], [-4.0, 2.0], [0.0, -5.0]),
    "embedding": (lambda i: F.embedding(i.long(), DATA[:, None]), [0.0, 3.0], [2.0, 1.0], [0.0, -1.0]),
    "cov": (lambda w: wg.cov(DATA[:3], aweights=w), [1.0, 2.0, 1.0], [1.0, 3.0, 0.0], [1.0, -2.0, 1.0]),
    "ctc_loss input": (
        lambda n: F.ctc_loss(SCORES, wg.tensor([[1, 2]]), n.long(), wg.tensor([2])), [4.0], [3.0], [5.0]
    ),
    "ctc_loss target": (
        lambda n: F.ctc_loss(SCORES, wg.tensor([[1, 2]]), wg.tensor([4]), n.long()), [2.0], [1.0], [3.0]
    ),
    "ctc_loss classes": (
        lambda t: F.ctc_loss(SCORES, t.long(), wg.tensor([4]), wg.tensor([2])), [[1.0, 2.0]], [[2.0, 1.0]], [[1.0, 7.0]]
    ),
}  # fmt: skip
ARGUMENTS = {
    "take": wg.int64,
    "put": wg.int64,
    "embedding": wg.int64,
    "ctc_loss input": wg.int64,
    "ctc_loss target": wg.int64,
}


@pytest.mark.parametrize("batched", [False, True], ids=["alone", "batched"])
@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_is_refused_by_a_program(name: str, backend: str, batched: bool) -> None:
    function, *values = CASES[name]
    dtype = ARGUMENTS.get(name, wg.float64)
    good, other, bad = (wg.tensor(v, dtype=dtype) for v in values)
    if batched:
        function = func.vmap(function)
        good, other, bad = (wg.stack((good, v)) for v in (good, other, bad))
    compiled = wg.compile(function, fullgraph=True, backend=backend)
    for given in (good, other, good):
        np.testing.assert_allclose(compiled(given).numpy(), function(given).numpy(), rtol=1e-12)
    assert sum(map(len, compiled.programs.values())) == 1, compiled.retraces
    with pytest.raises((ValueError, RuntimeError, IndexError)) as plain:
        function(bad)
    with pytest.raises(type(plain.value)) as error:
        compiled(bad)
    assert str(error.value).split(":")[0].replace("_", "") == str(plain.value).split(":")[0].replace("_", "")
    np.testing.assert_allclose(compiled(other).numpy(), function(other).numpy(), rtol=1e-12)


def test_more_values_than_a_decision_holds() -> None:
    edges = wg.arange(101.0, dtype=wg.float64)
    compiled = wg.compile(lambda edges: wg.histogram(DATA, edges)[0], fullgraph=True)
    assert compiled(edges)[:5].tolist() == [1.0] * 4 + [0.0]
    assert compiled(edges * 2)[:3].tolist() == [2.0, 2.0, 0.0]
    with pytest.raises((ValueError, wg.errors.CaptureError)):
        compiled(edges.flip(0))
