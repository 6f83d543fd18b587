"""Element-wise kernels: one expression per result, over an iteration space."""

from collections.abc import Sequence

from wengert.loops.ir import Buffer, Kernel, Let, Loop, Param, Statement, Store, bound, load, size
from wengert.loops.layout import Space
from wengert.loops.scalar import Scalar, cast, index, make, param, substitute, var
from wengert.loops.tracing import placeholder

__all__ = ["BLOCK", "pointwise"]

BLOCK = 2048  # elements of the innermost loop that one parallel iteration takes

Pattern = tuple[tuple[int | None, ...], ...]


def pointwise(
    name: str, results: Sequence[Scalar], dtypes: Sequence[str], inputs: Sequence[tuple[int, str, str]], where: Space,
    numbers: Sequence[tuple[int, str]] = (), lanes: int = 8, unroll: int = 1,
) -> Kernel:  # fmt: skip
    """Return the kernel that computes ``results`` for each element.

    Args:
        results: expressions of placeholders. dtypes: of the results in memory. inputs: for each array its position among the
            arguments, the dtype of its placeholder, and its dtype in memory. numbers: position and dtype of arguments that are
            numbers given with the call. where: the space; its arrays are the results, then the inputs.
    """
    rank, count = len(where.sizes), len(results)
    dims = tuple(f"n{d}" for d in range(rank))
    loops = tuple(f"i{d}" for d in range(rank))
    outs = [Buffer(f"y{k}", d, dims, where.pattern[k], "out") for k, d in enumerate(dtypes)]
    ins = [Buffer(f"x{i}", d, dims, where.pattern[count + k], "in") for k, (i, _, d) in enumerate(inputs)]
    known = {
        placeholder(i, kind): cast(load(buffer, *loops), kind) for (i, kind, _), buffer in zip(inputs, ins, strict=True)
    }
    known.update({placeholder(i, d): param(f"p{i}", d) for i, d in numbers})
    at = tuple(index(i) for i in loops)
    values = [cast(substitute(r, known), b.dtype) for b, r in zip(outs, results, strict=True)]
    # every value is computed before the first is written: a result may lie where an argument does
    names = tuple(Let(f"v{k}", v) for k, v in enumerate(values)) if len(values) > 1 else ()
    values = [var(n.name, n.value.dtype) for n in names] or values
    stores = tuple(Store(b.name, at, v) for b, v in zip(outs, values, strict=True))
    body = _nest(loops, dims, (*names, *stores), lanes, unroll)
    params = tuple(Param(f"p{i}", d) for i, d in numbers)
    return Kernel(name, (*outs, *ins), dims, body, params)


def _nest(
    loops: tuple[str, ...], dims: tuple[str, ...], body: tuple[Statement, ...], lanes: int, unroll: int
) -> tuple[Statement, ...]:
    """Put statements into parallel loops, the innermost in blocks of vectors."""
    start = index("block")
    stop = make("minimum", (start + BLOCK, size(dims[-1])))
    inner: Statement = Loop(loops[-1], start, stop, body, lanes=lanes, unroll=unroll)
    nest: Statement = Loop("block", bound(0), bound(dims[-1]), (inner,), step=BLOCK, parallel=True)
    for variable, n in zip(reversed(loops[:-1]), reversed(dims[:-1]), strict=True):
        nest = Loop(variable, bound(0), bound(n), (nest,), parallel=True)
    return (nest,)
