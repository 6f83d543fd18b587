"""An operator and its derivative inside a compiled function beside the same calls as they are."""

from typing import Any

import numpy as np

from wengert.compiling.function import Compiled
from wengert.core.registry import ops
from wengert.core.tensor import from_array
from wengert.errors import MissingRuleError, TransformError
from wengert.tape.api import grad
from wengert.testing.case import Case, close, directions, require

__all__ = ["check_compiled"]


def _program(case: Case, wanted: list[int], cotangents: list[Any]) -> Any:
    """Return a function of the sample's tensors that gives the results, and the gradients for fixed cotangents."""

    def program(*tensors: Any) -> Any:
        results = case.run(*tensors)
        outputs = [r for r in results if r.requires_grad]
        if not wanted or not outputs or not cotangents:
            return list(results), []
        inputs = [tensors[i] for i in wanted]
        return list(results), list(grad(outputs, inputs, list(map(from_array, cotangents)), materialize_grads=True))

    return program


def check_compiled(case: Case, backends: tuple[str, ...] = ("reference", "native")) -> bool:
    """A compiled call gives what the call gives, again and again, whatever lies in its memory from the last time."""
    tensors = _tensors(case)
    try:
        results = case.run(*tensors)
    except MissingRuleError:
        tensors = [ops.detach(t) for t in tensors]
        results = case.run(*tensors)
    wanted = [i for i, t in enumerate(tensors) if t.requires_grad] if case.sample.grad else []
    outputs = [r._payload for r in results if r.requires_grad]
    cotangents = directions(np.random.default_rng(case.sample.seed + 2), outputs)
    program = _program(case, wanted, cotangents)
    want = _flat(program(*_tensors_like(tensors)))
    for backend in backends:
        compiled = Compiled(program, fullgraph=True, backend=backend)
        try:
            found = [_flat(compiled(*_tensors_like(tensors)))]
        except TransformError:  # it needs values, and is run as it is
            return False
        for programs in compiled.programs.values():
            for made in programs:
                made.scramble()
        found.append(_flat(compiled(*_tensors_like(tensors))))
        for got in found:
            require(len(got) == len(want), f"{len(got)} results instead of {len(want)}")
            for g, w in zip(got, want, strict=True):
                require(g.dtype == w.dtype, f"compiled code gives {g.dtype} instead of {w.dtype}")
                own = (
                    {2: 2e-2, 4: 2e-5}.get(np.empty(0, w.dtype).real.itemsize, 1e-11) if w.dtype.kind in "fcV" else 0.0
                )
                scale = float(np.max(np.abs(w), initial=1.0, where=np.isfinite(w))) if w.dtype.kind in "fc" else 1.0
                close(g, w, f"a result of the {backend} backend", rtol=own, atol=own * scale)
    return True


def _tensors(case: Case) -> list[Any]:
    convert = case.leaves()
    return [convert(array.copy()) for array in case.arrays]


def _tensors_like(tensors: list[Any]) -> list[Any]:
    """Return the same tensors in other memory."""
    found = []
    for tensor in tensors:
        made = from_array(np.array(tensor._payload, order="K"))
        found.append(made.requires_grad_() if tensor.requires_grad else made)
    return found


def _flat(returned: Any) -> list[Any]:
    results, gradients = returned
    return [r._payload for r in (*results, *gradients)]
