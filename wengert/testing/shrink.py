"""Making a failing sample small: leave out statements, moves and parts of expressions while it fails in the same way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from wengert.errors import KernelError
from wengert.loops.accesses import expressions
from wengert.loops.ir import Kernel, Let, Loop, Stage, Statement, Store, Update, walk
from wengert.loops.moves import Move
from wengert.loops.scalar import Scalar, const, postorder, substitute
from wengert.loops.verify import verify
from wengert.testing.random_kernels import Sample

__all__ = ["shrink"]

Case = tuple[Sample, list[Move]]


def shrink(case: Case, fails: Callable[[Sample, list[Move]], bool], tries: int = 1000) -> Case:
    """Return a smaller case that still fails, after at most ``tries`` tries."""
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _candidates(case):
            if tries <= 0:
                break
            if not _valid(candidate[0].kernel):
                continue
            tries -= 1
            if fails(*candidate):
                case, smaller = candidate, True
                break
    return case


def _valid(kernel: Kernel) -> bool:
    try:
        verify(kernel)
    except KernelError:
        return False
    return True


def _candidates(case: Case) -> Iterator[Case]:
    sample, schedule = case
    for n in range(len(schedule)):
        yield sample, [*schedule[:n], *schedule[n + 1 :]]
    for body in _without_a_statement(sample.kernel.body):
        yield _tidy(replace(sample, kernel=sample.kernel.with_body(body))), schedule
    for name, n in sample.sizes.items():
        for less in dict.fromkeys((0, 1, 2, n // 2, n - 1)):
            if 0 <= less < n:
                yield _resized(sample, name, less), schedule
    for body in _with_less(sample.kernel.body):
        yield _tidy(replace(sample, kernel=sample.kernel.with_body(body))), schedule


def _without_a_statement(body: Sequence[Statement]) -> Iterator[tuple[Statement, ...]]:
    for n, s in enumerate(body):
        yield (*body[:n], *body[n + 1 :])
        if isinstance(s, Loop):
            yield (*body[:n], *s.body, *body[n + 1 :])
            for inner in _without_a_statement(s.body):
                left = {u.name for u in walk(inner) if isinstance(u, Update)}
                yield (
                    *body[:n],
                    replace(s, body=inner, folds=tuple(f for f in s.folds if f.name in left)),
                    *body[n + 1 :],
                )


def _with_less(body: Sequence[Statement]) -> Iterator[tuple[Statement, ...]]:
    """Bodies in which a part of an expression is replaced by an operand of it, or by a number."""
    for n, s in enumerate(body):
        if isinstance(s, Loop):
            for changed in _plainer(s):
                yield (*body[:n], changed, *body[n + 1 :])
            for inner in _with_less(s.body):
                yield (*body[:n], replace(s, body=inner), *body[n + 1 :])
            continue
        for x in reversed(postorder(expressions(s))):
            for less in [*([const(1, x.dtype)] if x.op != "const" else []), *(a for a in x.args if a.dtype == x.dtype)]:
                yield (*body[:n], _replaced(s, x, less), *body[n + 1 :])


def _plainer(loop: Loop) -> Iterator[Loop]:
    if loop.step > 1:
        yield replace(loop, step=1)
    if loop.start.op != "const" or loop.start.data:
        yield replace(loop, start=const(0, "i64"))
    if loop.stop.op == "minimum":
        yield from (replace(loop, stop=a) for a in loop.stop.args)


def _replaced(s: Statement, old: Scalar, new: Scalar) -> Statement:
    known = {old: new}
    if isinstance(s, Let):
        return replace(s, value=substitute(s.value, known))
    if isinstance(s, Update):
        return replace(s, values=tuple(substitute(v, known) for v in s.values))
    if isinstance(s, Store):
        guard = None if s.guard is None else substitute(s.guard, known)
        if guard is not None and guard.op == "const":
            guard = None
        index = tuple(substitute(i, known) for i in s.index)
        return replace(s, index=index, value=substitute(s.value, known), guard=guard)
    assert isinstance(s, Stage)
    return replace(s, size=substitute(s.size, known))


def _tidy(sample: Sample) -> Sample:
    """Leave out arguments that nothing uses."""
    kernel = sample.kernel
    nodes = [x for s in walk(kernel.body) for x in postorder(expressions(s))]
    used = {x.data[0] for x in nodes if x.op == "load"} | {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
    params = {x.data for x in nodes if x.op == "param"}
    buffers = tuple(b for b in kernel.buffers if b.name in used)
    sizes = {x.data for x in nodes if x.op == "size"} | {d for b in buffers for d in b.dims if isinstance(d, str)}
    kernel = replace(
        kernel, buffers=buffers, sizes=tuple(n for n in kernel.sizes if n in sizes),
        params=tuple(p for p in kernel.params if p.name in params),
    )  # fmt: skip
    return replace(
        sample, kernel=kernel, arrays={n: a for n, a in sample.arrays.items() if n in used},
        sizes={n: v for n, v in sample.sizes.items() if n in sizes},
        params={n: v for n, v in sample.params.items() if n in params},
    )  # fmt: skip


def _resized(sample: Sample, name: str, n: int) -> Sample:
    arrays = {
        b.name: sample.arrays[b.name][tuple(slice(n) if d == name else slice(None) for d in b.dims)]
        for b in sample.kernel.buffers
    }
    return replace(sample, sizes=sample.sizes | {name: n}, arrays=arrays)
