"""Kernels over sorted rows: the runs of equals in one, and the places of values in many."""

from wengert.codegen.lanes import BYTE, I64, POINTER
from wengert.codegen.program import Code, Program, Word
from wengert.codegen.sorting import Records
from wengert.loops.scalar import DTYPES

__all__ = ["runs", "search"]


def runs(dtype: str) -> str:
    """Return LLVM IR of ``runs``: the distinct elements of a sorted row; a kernel of one turn.

    Slots: sorted elements, where each came from, distinct elements out, starts of runs out (i64), for every element the
    number of its run out (i64, where it came from), size, a word for how many there are. A NaN equals nothing.
    """
    program = Program("runs")
    records = Records(program, dtype, descending=False)
    code = program.kernel("runs")
    elements, places, distinct, starts, inverse = (code.slot(n, POINTER) for n in range(5))
    size, answer = code.slot(5), code.slot(6, POINTER)
    found, last = code.cell(code.i64(0)), code.cell(code.constant(0, records.element))
    with code.loop(0, size) as i:
        raw = code.load(elements, i, records.element)
        key = records.key(raw)
        with code.when(i.eq(0) | key.ne(last.get()) | records.is_nan(raw)):
            code.store(raw, distinct, found.get())
            code.store(i, starts, found.get())
            found.set(found.get() + 1)
        last.set(key)
        code.store(found.get() - 1, inverse, code.load(places, i, I64))
    code.store(found.get(), answer, 0)
    code.give()
    return str(program)


def search(dtype: str, right: bool) -> str:
    """Return LLVM IR of ``search``: how many elements of a sorted row come before a value, over values.

    Slots: sorted rows (contiguous), size of a row, values (contiguous), how many values belong to a row, places out (i64).
    With ``right`` elements equal to the value count too.
    """
    program = Program("search")
    records = Records(program, dtype, descending=False)
    code = program.kernel("search")
    rows, values, places = (code.slot(n, POINTER) for n in (0, 2, 4))
    size, share = code.slot(1), code.slot(3)
    with code.loop(code.arguments[1], code.arguments[2]) as i:
        row = code.at(rows, i // share * size * (DTYPES[dtype] // 8 or 1), BYTE)
        key = records.key(code.load(values, i, records.element))
        code.store(_bisected(code, records, row, size, key, right), places, i)
    code.give()
    return str(program)


def _bisected(code: Code, records: Records, row: Word, size: Word, key: Word, right: bool) -> Word:
    """Return how many keys of a sorted row are below a key; without a branch that depends on what is found."""
    before, left = code.cell(code.i64(0)), code.cell(size)
    with code.repeat() as escape:
        escape.when(left.get().eq(0))
        half = (left.get() + 1) >> 1
        probe = records.key(code.load(row, before.get() + half - 1, records.element))
        passed = ~key.below(probe) if right else probe.below(key)
        before.set(code.select(passed, before.get() + half, before.get()))
        left.set(code.select(passed, left.get() - half, half - 1))
    return before.get()
