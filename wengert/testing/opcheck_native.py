"""The native kernels of an operator beside its NumPy kernel: the same results, the same gradients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wengert.core.native import OFF, native
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import MissingRuleError
from wengert.settings import settings
from wengert.tape.api import grad
from wengert.testing.case import Case, close, directions, require

__all__ = ["check_native", "natively"]

TOLERANCES = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-12}  # of results; others must be near 1 %


@contextmanager
def natively(smallest: int = 0) -> Iterator[None]:
    """Run a block in which every array with ``smallest`` elements or more goes to native code, made when it is needed."""
    before, mode = native.smallest, settings.native
    native.smallest, settings.native = smallest, "wait"
    try:
        yield
    finally:
        native.smallest, settings.native = before, mode


def _of_dtype(case: Case, dtype: Any) -> Callable[[], Callable[[Any], Any]]:
    """Return what makes a converter of arrays: floats to ``dtype``, and those to be differentiated by to leaves."""

    def converter() -> Callable[[Any], Any]:
        leaf = case.leaves()

        def convert(array: Any) -> Any:
            made = leaf(array)
            if array.dtype != np.float64 or dtype == np.float64:
                return made
            tensor = from_array(array.astype(dtype))
            return tensor.requires_grad_() if made.requires_grad else tensor

        return convert

    return converter


def _computed(case: Case, convert: Callable[[], Callable[[Any], Any]]) -> tuple[list[Any], list[Any]]:
    """Return the results of a call, and the gradients for fixed cotangents."""
    try:
        given, results = case.call(convert())
    except MissingRuleError:  # it has no derivative, and says so when a leaf comes
        detached = convert()
        given, results = case.call(lambda array: ops.detach(detached(array)))
    values = [r._payload for r in results]
    if not case.sample.grad or case.op.family == "nondifferentiable":
        return values, []
    inputs, outputs = [t for t in given if t.requires_grad], [r for r in results if r.requires_grad]
    if not inputs or not outputs:
        return values, []
    cotangents = directions(np.random.default_rng(case.sample.seed + 2), [r._payload for r in outputs])
    found = grad(outputs, inputs, list(map(from_array, cotangents)), materialize_grads=True)
    return values, [g._payload for g in found]


def check_native(case: Case) -> bool:
    """Native kernels give what NumPy's do, in float64 and float32, forward and backward."""
    ran = False
    for dtype in TOLERANCES:
        if dtype == np.float32 and all(a.dtype != np.float64 for a in case.arrays):
            continue
        convert = _of_dtype(case, dtype)
        with natively(OFF):
            want = _computed(case, convert)
        with natively():
            got = _computed(case, convert)
        for what, g, w in (*(("result", *pair) for pair in zip(got[0], want[0], strict=True)),
                           *(("gradient", *pair) for pair in zip(got[1], want[1], strict=True))):  # fmt: skip
            require(g.dtype == w.dtype, f"{what} in {dtype}: native code gives {g.dtype}, NumPy {w.dtype}")
            scale = 1.0
            if w.dtype.kind in "fc" and w.size:
                scale = float(np.max(np.abs(w), initial=1.0, where=np.isfinite(w)))
            own = TOLERANCES.get(np.empty(0, w.dtype).real.dtype, 1e-2)
            tolerance = 8 * max(own, TOLERANCES[dtype])  # float64 of float32 operands (moments) is as exact as these
            close(g, w, f"the {what} of native code in {dtype}", rtol=tolerance, atol=tolerance * scale)
        ran = True
    return ran
