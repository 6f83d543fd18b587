"""Kernels over sorted rows: the runs of equals in one, and the places of values in many."""

from typing import Final

from wengert.codegen.lanes import I64, POINTER
from wengert.codegen.program import Code, Program, Word
from wengert.codegen.sorting import Records

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


_TOGETHER: Final = 8  # values that are searched in step, so that their reads of memory overlap


def search(dtype: str, right: bool) -> str:
    """Return LLVM IR of ``search``: how many elements of a sorted row come before a value, over rows × parts of values.

    Slots: sorted rows (contiguous), size of a row (not 0), values (contiguous), how many values belong to a row, places out
    (i64), values of a part, parts. With ``right`` elements equal to the value count too.
    """
    program = Program("search")
    records = Records(program, dtype, descending=False)
    code = program.kernel("search")
    rows, values, places = (code.slot(n, POINTER) for n in (0, 2, 4))
    size, count, share, parts = (code.slot(n) for n in (1, 3, 5, 6))
    with code.loop(code.arguments[1], code.arguments[2]) as task:
        number = task // parts
        start = (task - number * parts) * share
        stop = code.smaller(start + share, count)
        middle = start + (stop - start) // _TOGETHER * _TOGETHER
        row, base = code.at(rows, number * size, records.element), number * count
        for together, first, last in ((_TOGETHER, start, middle), (1, middle, stop)):
            with code.loop(first, last, together) as i:
                keys = [records.key(code.load(values, base + i + n, records.element)) for n in range(together)]
                for n, before in enumerate(_bisected(code, records, row, size, keys, right)):
                    code.store(before, places, base + i + n)
    code.give()
    return str(program)


def _bisected(code: Code, records: Records, row: Word, size: Word, keys: list[Word], right: bool) -> list[Word]:
    """Return for each key how many keys of a sorted row are below it, by halving; no branch depends on what is found."""
    found, left = [code.cell(code.i64(0)) for _ in keys], code.cell(size)

    def passed(key: Word, place: Word) -> Word:
        probe = records.key(code.load(row, place, records.element))
        return ~key.below(probe) if right else probe.below(key)

    with code.repeat() as escape:
        escape.when(left.get().le(1))
        half = left.get() >> 1
        for key, before in zip(keys, found, strict=True):
            step = code.select(passed(key, before.get() + half - 1), half, 0)
            before.set(before.get() + step)
        left.set(left.get() - half)
    return [before.get() + passed(key, before.get()).to(I64) for key, before in zip(keys, found, strict=True)]
