"""Kernels that sort rows.

An element becomes a *record*: an unsigned key that orders as the element does, with the element's place below it::

    f32  -2.5  at place 7   →   0x3fdfffff_00000007

Records are distinct and equal elements order by place, so any way to sort records sorts elements stably. Short rows are
sorted by counting, for each record, those below it; others by digits of the key, the last digit first (LSD radix sort;
D. Knuth, The Art of Computer Programming 3, section 5.2.5), where a digit that all keys share costs nothing. A long
row is first parted by its leading bits into buckets that fit the cache, and each bucket sorted so.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir

from wengert.codegen.lanes import BYTE, I64, POINTER, vector_of
from wengert.codegen.program import Cell, Code, Program, Word
from wengert.codegen.target import host
from wengert.loops.scalar import DTYPES

__all__ = ["BUCKETS", "LEADING", "Records", "count_one", "record_bytes", "rows_of_tasks", "sort_long", "sort_rows"]

LEADING: Final = 11  # bits of a key by which a long row is parted
BUCKETS: Final = 1 << LEADING
_DIGIT: Final = 8  # bits of a digit
_WIDE: Final = 11  # bits of a digit of middling rows, those of these lengths:
_WIDE_FROM: Final = 4096
_WIDE_TO: Final = 32768
_SHORT: Final = {8: 128, 16: 64}  # the longest rows sorted by counting, by the size of a record
_INFINITY: Final = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def record_bytes(dtype: str) -> int:
    """Return the size of a record: half is the key, half the place."""
    return 16 if DTYPES[dtype] == 64 else 8


class Records:
    """How the elements of a dtype become records, and how an array of records is sorted."""

    def __init__(self, program: Program, dtype: str, descending: bool) -> None:
        self.program = program
        self.dtype = dtype
        self.descending = descending
        self.bits = max(DTYPES[dtype], 8)
        self.bytes = record_bytes(dtype)
        self.half = 4 * self.bytes
        self.element = ir.IntType(self.bits)
        self.kind = ir.IntType(2 * self.half)
        self._sort = self._define_sort()

    # ---- elements and records

    def key(self, raw: Word) -> Word:
        """Return the key of an element, or of a vector of them, given as bits.

        Zeros of both signs have one key; so have NaNs, the highest (in a descending order the lowest).
        """
        top = 1 << self.bits - 1
        if self.dtype in _INFINITY:
            ordered = raw.code.select(raw.like(top).below(raw), ~raw, raw | top)
            found = raw.code.select(self.is_nan(raw), raw.like(2 * top - 1), ordered)
        else:
            found = raw ^ top if self.dtype[0] == "i" else raw
        return ~found if self.descending else found

    def is_nan(self, raw: Word) -> Word:
        """Return whether an element is a NaN; or for every lane of a vector."""
        if self.dtype not in _INFINITY:
            return raw.ne(raw)
        return raw.like(_INFINITY[self.dtype]).below(raw & ((1 << self.bits - 1) - 1))

    def element_of(self, key: Word, elements: Word, place: Word) -> Word:
        """Return the element of a key; of zeros and NaNs, which a key does not tell apart, the one at ``place``."""
        code, top = key.code, 1 << self.bits - 1
        key = ~key if self.descending else key
        if self.dtype not in _INFINITY:
            return key ^ top if self.dtype[0] == "i" else key
        found = code.cell(code.select(key.lt(0), key ^ top, ~key))
        with code.when(key.eq(top) | key.eq(2 * top - 1)):
            found.set(code.load(elements, place, self.element))
        return found.get()

    def make(self, raw: Word, place: Word) -> Word:
        """Return the record of an element."""
        return (self.key(raw).to(self.kind) << self.half) | place.to(self.kind)

    def key_of(self, record: Word) -> Word:
        """Return the key in a record, as 64 bits."""
        return (record >> self.half).to(I64)

    def place_of(self, record: Word) -> Word:
        """Return where the element of a record came from."""
        return (record & ((1 << self.half) - 1)).to(I64)

    def fill(self, records: Word, elements: Word, start: Word, stop: Word) -> None:
        """Make the records of the elements from start to stop of a row."""
        code = records.code
        with code.loop(start, stop) as i:
            code.store(self.make(code.load(elements, i, self.element), i), records, i)

    def unpack(self, records: Word, count: Word, elements: Word, places: Word, values: Word | None) -> None:
        """Write the places in records (``places`` may be where they are), and the elements that were there."""
        code = records.code
        with code.loop(0, count) as i:
            record = code.load(records, i, self.kind)
            place = self.place_of(record)
            code.store(place, places, i)
            if values is not None:
                key = self.key_of(record).to(self.element)
                code.store(self.element_of(key, elements, place), values, i)

    # ---- sorting

    def sort(self, records: Word, spare: Word, count: Word) -> Word:
        """Sort an array of records; return where they are then: where they were, or in ``spare``."""
        return records.code.call(self._sort, records, spare, count)

    def _define_sort(self) -> Any:
        code = self.program.function("sort_records", (POINTER, POINTER, I64), POINTER)
        records, spare, count = code.arguments
        current = code.cell(records)
        with code.either(count.le(_SHORT[self.bytes])) as (short, long):
            with short:
                self._by_counting(records, spare, count)
                current.set(spare)
            with long:
                self._by_digits(current, code.cell(spare), count)
        code.give(current.get())
        return code.function

    def _by_counting(self, records: Word, spare: Word, count: Word) -> None:
        """Put each record where as many as are below it come before."""
        code, lanes, top = records.code, host().vector_bytes // 8, 1 << 63
        kind, step = vector_of(I64, lanes), 2 * lanes
        keys = code.room(I64, _SHORT[self.bytes] + step)
        with code.loop(0, count) as i:
            code.store((code.load(records, i, self.kind) >> (2 * self.half - 64)).to(I64) ^ top, keys, i)
        for after in (0, lanes):  # no key is below these
            code.store(code.constant(top - 1, kind), keys, count + after)
        numbers = Word(code, ir.Constant(kind, list(range(lanes))))
        with code.loop(0, count) as i:
            key, here = (code.spread(word, lanes) for word in (code.load(keys, i, I64), i))
            below = code.cell(code.constant(0, kind))
            with code.loop(0, count, step) as begin:
                for j in (begin, begin + lanes):
                    others = code.load(keys, j, I64, lanes)
                    less = others.lt(key)
                    if self.bytes == 16:  # keys alone, which may be equal
                        less = less | (others.eq(key) & (numbers + code.spread(j, lanes)).lt(here))
                    below.set(below.get() + less.to(kind))
            rank = code.intrinsic("vector.reduce.add", I64, below.get(), overloads=(kind,))
            code.store(code.load(records, i, self.kind), spare, rank)

    def _by_digits(self, current: Cell, spare: Cell, count: Word) -> None:
        """Sort by digits of the key: only by those in which keys differ, wide ones where their buckets stay in the cache."""
        code = count.code
        differ = self._differences(current.get(), count)
        cached = code.i64(_WIDE_FROM).lt(count) & count.lt(_WIDE_TO)
        width = code.select(cached, code.i64(_WIDE), _DIGIT)
        mask, table = (code.i64(1) << width) - 1, code.room(I64, 1 << _WIDE)
        shift = code.cell(self._zeros_below(differ))
        with code.repeat() as escape:
            escape.when(code.i64(63).lt(shift.get()))
            escape.when((differ >> shift.get()).eq(0))
            code.clear(table, (mask + 1) * 8)
            with code.loop(0, count) as i:
                digit = (self.key_of(code.load(current.get(), i, self.kind)) >> shift.get()) & mask
                count_one(table, digit)
            _running_total(table, mask + 1)
            source, target = current.get(), spare.get()
            with code.loop(0, count) as i:
                record = code.load(source, i, self.kind)
                self.append(target, table, (self.key_of(record) >> shift.get()) & mask, record)
            current.set(target)
            spare.set(source)
            shift.set(shift.get() + width)

    def _differences(self, records: Word, count: Word) -> Word:
        """Return the bits in which keys differ from the first one."""
        code = records.code
        first, differ = code.load(records, 0, self.kind), code.cell(code.constant(0, self.kind))
        with code.loop(1, count) as i:
            differ.set(differ.get() | (code.load(records, i, self.kind) ^ first))
        return self.key_of(differ.get())

    def _zeros_below(self, word: Word) -> Word:
        """Return how many zeros end a word (64 if it is zero)."""
        return word.code.intrinsic("cttz", I64, word, word.code.constant(0, ir.IntType(1)), overloads=(I64,))

    def append(self, target: Word, table: Word, bucket: Word, record: Word) -> None:
        """Put a record at the place that a table has for its bucket, and move the table's place on."""
        code = target.code
        where = code.load(table, bucket, I64)
        code.store(record, target, where)
        code.store(where + 1, table, bucket)


def count_one(table: Word, bucket: Word) -> None:
    """Add one to a bucket's size."""
    code = table.code
    code.store(code.load(table, bucket, I64) + 1, table, bucket)


def _running_total(table: Word, count: Word) -> None:
    """Turn the sizes of buckets into where they start."""
    code = table.code
    total = code.cell(code.i64(0))
    with code.loop(0, count) as bucket:
        here = code.load(table, bucket, I64)
        code.store(total.get(), table, bucket)
        total.set(total.get() + here)


@contextmanager
def rows_of_tasks(code: Code, rows: Word, tasks: Word) -> Iterator[tuple[Word, Word]]:
    """Run the block for every row of the tasks of this call, with (task, row); a task is a share of the rows."""
    with (
        code.loop(code.arguments[1], code.arguments[2]) as task,
        code.loop(task * rows // tasks, (task + 1) * rows // tasks) as row,
    ):
        yield task, row


def sort_rows(dtype: str, descending: bool, values: bool) -> str:
    """Return LLVM IR of ``sort_rows``: sorts rows, over tasks.

    Slots: elements, bytes from a row to the next, places out (i64, contiguous), values out (contiguous), scratch (2 ``size``
    records per task), rows, size of a row, tasks. The values are written only if ``values``.
    """
    program = Program("sort_rows")
    records = Records(program, dtype, descending)
    code = program.kernel("sort_rows")
    elements, stride = code.slot(0, POINTER), code.slot(1)
    places, out, scratch = (code.slot(n, POINTER) for n in (2, 3, 4))
    rows, size, tasks = (code.slot(n) for n in (5, 6, 7))
    with rows_of_tasks(code, rows, tasks) as (task, row):
        source, target = code.at(elements, row * stride, BYTE), code.at(places, row * size, I64)
        a = code.at(scratch, task * size * 2, records.kind)
        b = code.at(a, size, records.kind)
        records.fill(a, source, code.i64(0), size)
        found = records.sort(a, b, size)
        records.unpack(found, size, source, target, code.at(out, row * size, records.element) if values else None)
    code.give()
    return str(program)


def sort_long(dtype: str, descending: bool, values: bool) -> str:
    """Return LLVM IR of four kernels that sort one long row, one after the other.

    Slots: elements, places out, values out, records, other records, the size of the row, the size of a block, a table of
    ``BUCKETS`` i64 per block, a word per block, by how many bits to shift a key.

    - ``fill``, over blocks: make records; the word of a block gets the bits in which its keys differ from the row's first.
    - ``count``, over blocks: the table gets how many records of the block go to each bucket.
    - ``part``, over blocks: move the records to their buckets; the table must hold where those of each block start.
    - ``finish``, over buckets: sort, and write places and values; the table of the last block must hold where buckets end.
    """
    program = Program("sort_long")
    records = Records(program, dtype, descending)
    _fill_blocks(program.kernel("fill"), records)
    _count_blocks(program.kernel("count"), records)
    _part_blocks(program.kernel("part"), records)
    _finish_buckets(program.kernel("finish"), records, values)
    return str(program)


@contextmanager
def _blocks(code: Code) -> Iterator[tuple[Word, Word, Word, Word]]:
    """Run the block for every block of this call, with (block, first element, element after the last, its table)."""
    size, length, tables = code.slot(5), code.slot(6), code.slot(7, POINTER)
    with code.loop(code.arguments[1], code.arguments[2]) as block:
        stop = code.smaller((block + 1) * length, size)
        yield block, block * length, stop, code.at(tables, block * BUCKETS, I64)


def _bucket(code: Code, records: Records, record: Word) -> Word:
    return (records.key_of(record) >> code.slot(9)) & (BUCKETS - 1)


def _fill_blocks(code: Code, records: Records) -> None:
    elements, target, words = (code.slot(n, POINTER) for n in (0, 3, 8))
    first = records.key(code.load(elements, 0, records.element))
    with _blocks(code) as (block, start, stop, _):
        differ = code.cell(first ^ first)
        with code.loop(start, stop) as i:
            raw = code.load(elements, i, records.element)
            code.store(records.make(raw, i), target, i)
            differ.set(differ.get() | (records.key(raw) ^ first))
        code.store(differ.get().to(I64), words, block)
    code.give()


def _count_blocks(code: Code, records: Records) -> None:
    source = code.slot(3, POINTER)
    with _blocks(code) as (_, start, stop, table):
        code.clear(table, 8 * BUCKETS)
        with code.loop(start, stop) as i:
            bucket = _bucket(code, records, code.load(source, i, records.kind))
            count_one(table, bucket)
    code.give()


def _part_blocks(code: Code, records: Records) -> None:
    source, target = code.slot(3, POINTER), code.slot(4, POINTER)
    with _blocks(code) as (_, start, stop, table), code.loop(start, stop) as i:
        record = code.load(source, i, records.kind)
        records.append(target, table, _bucket(code, records, record), record)
    code.give()


def _finish_buckets(code: Code, records: Records, values: bool) -> None:
    elements, places, out, spare, parted = (code.slot(n, POINTER) for n in (0, 1, 2, 3, 4))
    size, length, tables = code.slot(5), code.slot(6), code.slot(7, POINTER)
    last = (size + length - 1) // length - 1
    ends = code.at(tables, last * BUCKETS, I64)
    with code.loop(code.arguments[1], code.arguments[2]) as bucket:
        start = code.cell(code.i64(0))
        with code.when(code.i64(0).lt(bucket)):
            start.set(code.load(ends, bucket - 1, I64))
        begin = start.get()
        count = code.load(ends, bucket, I64) - begin
        with code.when(code.i64(0).lt(count)):
            a, b = (code.at(array, begin, records.kind) for array in (parted, spare))
            found = records.sort(a, b, count)
            target = code.at(out, begin, records.element) if values else None
            records.unpack(found, count, elements, code.at(places, begin, I64), target)
    code.give()
