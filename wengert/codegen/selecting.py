"""Kernels that find the first k elements of rows in sorted order without sorting the rows."""

from typing import Any, Final

from llvmlite import ir

from wengert.codegen.lanes import BYTE, I64, POINTER, vector_of
from wengert.codegen.program import Program, Word
from wengert.codegen.sorting import BUCKETS, LEADING, Records, count_one, rows_of_tasks
from wengert.codegen.target import host

__all__ = ["choose_rows", "part_rows"]

_UNROLL: Final = 4  # vectors of elements that are compared with the k-th before a branch


def choose_rows(dtype: str, descending: bool) -> str:
    """Return LLVM IR of ``choose_rows``: the first k elements of each row in sorted order, over tasks; for small k.

    Slots: elements, bytes from a row to the next, places out (i64, rows of k), values out (rows of k), scratch (2 ``room``
    records per task), rows, size of a row, tasks, k, room: how many candidates to keep, more than k.

    Elements that come before the k-th of those kept so far become candidates; when the room is full they are sorted, and
    the first k kept.
    """
    program = Program("choose_rows")
    records = Records(program, dtype, descending)
    consider = _define_consider(program, records)
    code = program.kernel("choose_rows")
    elements, stride = code.slot(0, POINTER), code.slot(1)
    places, out, scratch = (code.slot(n, POINTER) for n in (2, 3, 4))
    rows, size, tasks, k, room = (code.slot(n) for n in range(5, 10))
    with rows_of_tasks(code, rows, tasks) as (task, row):
        source = code.at(elements, row * stride, BYTE)
        a = code.at(scratch, task * room * 2, records.kind)
        b = code.at(a, room, records.kind)
        first = code.smaller(size, room)
        records.fill(a, source, code.i64(0), first)
        _keep(records, a, b, first, k)
        count = code.call(consider, source, first, size, a, b, k, room)
        _keep(records, a, b, count, k)
        records.unpack(a, k, source, code.at(places, row * k, I64), code.at(out, row * k, records.element))
    code.give()
    return str(program)


def _keep(records: Records, candidates: Word, spare: Word, count: Word, k: Word) -> None:
    """Sort candidates and leave the first k where they were."""
    code = candidates.code
    found = records.sort(candidates, spare, count)
    with code.loop(0, k) as i:
        code.store(code.load(found, i, records.kind), candidates, i)


def _define_consider(program: Program, records: Records) -> Any:
    """Define the walk over a row's elements from start on, with k sorted candidates; it returns how many there are then."""
    code = program.function("consider", (POINTER, I64, I64, POINTER, POINTER, I64, I64), I64)
    source, start, stop, candidates, spare, k, room = code.arguments
    lanes = max(host().vector_bytes * 8 // records.bits, 2)
    count, limit = code.cell(k), code.cell(code.load(candidates, k - 1, records.kind))

    def one(place: Word) -> None:
        record = records.make(code.load(source, place, records.element), place)
        with code.when(record.below(limit.get())):
            code.store(record, candidates, count.get())
            count.set(count.get() + 1)
            with code.when(count.get().eq(room)):
                _keep(records, candidates, spare, room, k)
                count.set(k)
                limit.set(code.load(candidates, k - 1, records.kind))

    step = _UNROLL * lanes
    vectors = start + (stop - start) // step * step
    with code.loop(start, vectors, step) as i:
        bound = code.spread(records.key_of(limit.get()).to(records.element), lanes)
        better = code.constant(0, vector_of(ir.IntType(1), lanes))
        for number in range(_UNROLL):
            keys = records.key(code.load(source, i + number * lanes, records.element, lanes))
            better = better | keys.below(bound)
        with code.when(code.any_of(better)), code.loop(i, i + step) as place:
            one(place)
    with code.loop(vectors, stop) as place:
        one(place)
    code.give(count.get())
    return code.function


def part_rows(dtype: str, descending: bool, single: bool) -> str:
    """Return LLVM IR of ``part_rows``: the first k elements of each row in sorted order, over tasks; for any k.

    Slots: those of ``choose_rows``, but scratch is 2 ``room`` records per task with room for a row and one more. With
    ``single`` the k-th element alone is found (and the outputs are rows of 1).

    The leading bits of keys are counted: they say in which bucket the k-th element is. Only the elements of this bucket
    (and, unless ``single``, of those before it) are sorted.
    """
    program = Program("part_rows")
    records = Records(program, dtype, descending)
    code = program.kernel("part_rows")
    elements, stride = code.slot(0, POINTER), code.slot(1)
    places, out, scratch = (code.slot(n, POINTER) for n in (2, 3, 4))
    rows, size, tasks, k, room = (code.slot(n) for n in range(5, 10))
    table, wanted = code.room(I64, BUCKETS), code.i64(1) if single else k
    with rows_of_tasks(code, rows, tasks) as (task, row):
        source = code.at(elements, row * stride, BYTE)
        a = code.at(scratch, task * room * 2, records.kind)
        b = code.at(a, room, records.kind)
        bucket, before = _bucket_of(records, source, size, k, table)
        count = code.cell(code.i64(0))
        with code.loop(0, size) as i:
            raw = code.load(source, i, records.element)
            code.store(records.make(raw, i), a, count.get())
            leading = _leading(records, raw)
            taken = leading.eq(bucket) if single else leading.le(bucket)
            count.set(count.get() + taken.to(I64))
        found = records.sort(a, b, count.get())
        found = code.at(found, k - before - 1, records.kind) if single else found
        target = code.at(out, row * wanted, records.element)
        records.unpack(found, wanted, source, code.at(places, row * wanted, I64), target)
    code.give()
    return str(program)


def _leading(records: Records, raw: Word) -> Word:
    """Return the leading bits of an element's key, as a bucket."""
    bits = min(records.bits, LEADING)
    return (records.key(raw) >> (records.bits - bits)).to(I64)


def _bucket_of(records: Records, source: Word, size: Word, k: Word, table: Word) -> tuple[Word, Word]:
    """Return the bucket that the k-th element of a row is in, and how many elements buckets before it hold."""
    code = source.code
    code.clear(table, 8 * BUCKETS)
    with code.loop(0, size) as i:
        bucket = _leading(records, code.load(source, i, records.element))
        count_one(table, bucket)
    found, before = code.cell(code.i64(0)), code.cell(code.i64(0))
    with code.repeat() as escape:
        after = before.get() + code.load(table, found.get(), I64)
        escape.when(k.le(after))
        before.set(after)
        found.set(found.get() + 1)
    return found.get(), before.get()
