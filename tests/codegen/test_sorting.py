"""Kernels that sort, scan and scatter, between pages that may not be touched: an access outside ends the process."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.codegen.guard import guarded
from tests.runtime.samples import DTYPES, IDS, is_float, sample
from wengert.codegen import scanning as scan_kernels
from wengert.codegen import scattering as scatter_kernels
from wengert.codegen import selecting
from wengert.codegen import sorting as sort_kernels
from wengert.codegen.engine import assembly
from wengert.runtime import scanning, scattering, sorting
from wengert.testing.opcheck_native import natively

LENGTHS = (1, 2, 5, 33, 64, 129, 700)


@pytest.fixture(autouse=True)
def _native() -> Iterator[None]:
    with natively(), np.errstate(all="ignore"):
        yield


@pytest.fixture(params=[False, True], ids=["end", "start"])
def placed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put inputs, results and scratch at a protected page; return what places an input."""

    def empty(shape: Any, dtype: Any) -> Any:
        return guarded(np.empty(shape, dtype), start=request.param)

    for module in (sorting, scanning, scattering):
        monkeypatch.setattr(module, "empty", empty)
    monkeypatch.setattr(scattering, "zeros", lambda shape, dtype: guarded(np.zeros(shape, dtype), start=request.param))
    return lambda array: guarded(array, start=request.param)


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_sorting_stays_inside(dtype: Any, placed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for length in LENGTHS:
        x = placed(sample((3, length), dtype))
        sorting.sort(x, 1)
        sorting.argsort(x, 1, True)
        for k in {1, length // 3, length // 2} - {0}:
            sorting.topk(x, k, 1)
            sorting.kthvalue(x, k, 1)
        sorting.unique(x)
        sorting.searchsorted(placed(np.sort(x[0])), x)
        monkeypatch.setattr(sorting, "LONG", 1)
        sorting.sort(x, 1)
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_scanning_stays_inside(dtype: Any, placed: Any) -> None:
    for shape in ((1,), (15,), (17,), (3, 33), (5, 2, 7), (2, 9, 70), (9000,)):
        x = placed(sample(shape, dtype))
        for dim in range(len(shape)):
            for name in ("cumsum", "cumprod", "cummax", "cummin"):
                assert getattr(scanning, name)(x, dim) is not NotImplemented
            if is_float(x.dtype):
                assert scanning.logcumsumexp(x, dim) is not NotImplemented


@pytest.mark.parametrize("dtype", DTYPES, ids=IDS)
def test_scattering_stays_inside(dtype: Any, placed: Any) -> None:
    rng = np.random.default_rng(0)
    for shape in ((7,), (5, 3), (4, 33), (2, 3, 9)):
        x = placed(sample(shape, dtype))
        for dim, size in enumerate(shape):
            index = placed(rng.integers(0, size, 12))
            slices = placed(sample((*shape[:dim], 12, *shape[dim + 1 :]), dtype))
            wide = placed(rng.integers(0, size, slices.shape))
            assert scattering.index_read(x, [index], [dim]) is not NotImplemented
            assert scattering.index_transpose(slices, [index], [dim], shape) is not NotImplemented
            assert scattering.gather(x, dim, wide) is not NotImplemented
            assert scattering.scatter_reduce(x, dim, wide, slices, "amax") is not NotImplemented
            wide[...] = rng.choice([-1, size, 1 << 60, -(1 << 60)], wide.shape)
            index[...] = rng.choice([-size - 1, size, 1 << 60, -(1 << 60)], index.shape)
            assert scattering.index_read(x, [index], [dim]) is NotImplemented
            assert scattering.gather(x, dim, wide) is NotImplemented


@pytest.mark.parametrize(
    ("build", "choices"),
    [
        (sort_kernels.sort_rows, ("f32", False, True)), (selecting.choose_rows, ("f32", True)),
        (scan_kernels.sum_rows, ("f32", "f32")), (scan_kernels.scan_columns, ("cumsum", "f64", "f64")),
        (scatter_kernels.combine_rows, ("sum", "f32")),
    ],
)  # fmt: skip
def test_kernels_use_vectors(build: Any, choices: Any) -> None:
    """The inner loops are vector code, whatever the machine calls its registers."""
    text = assembly(build(*choices))
    assert any(name in text for name in ("%ymm", "%zmm", "%xmm", "v0.2d", "v0.4s"))
