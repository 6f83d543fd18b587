"""The memory pool's allocator as LLVM IR: NumPy's four allocation functions over blocks that are kept for reuse.

Blocks come from an allocator below (NumPy's own) and go back to it only when the pool is trimmed. A block is a header
of 64 bytes and, aligned to 64 bytes, its data; its size is of a class, eight to each doubling, so that less than an
eighth of it is unused (of small ones, less than 64 bytes). Every block is on one of two kinds of list: those that are in
use, and, for each class, those that are free, the last used first. Free blocks are also on one list by age, from the end
of which they are given back.

A module is one pool: its counters are the variables of the module. A lock of one word guards them. It is held for no
longer than its lists are changed, and never while Python's lock may be given away.
"""

from wengert.codegen.pool_blocks import BLOCKS, LISTS, TYPES

__all__ = ["COUNTERS", "FUNCTIONS", "LARGEST", "LIMITS", "allocator"]

LARGEST = 1 << 46
"""The largest array in bytes that is not refused unseen."""

COUNTERS = (
    "live_bytes", "live_blocks", "peak_bytes", "peak_blocks", "used_bytes", "cached_bytes", "cached_blocks",
    "peak_reserved", "total_bytes", "allocations", "reuses", "refusals", "refused", "damaged",
)  # fmt: skip
"""What is counted: bytes asked for and blocks in use, their peaks, the sizes of the blocks in use, those that are free,
the peak of both; bytes and blocks ever asked for, blocks found free, requests refused and the last one of them; the size
of an array past whose end something was written."""

LIMITS = ("limit", "cache_limit", "debug")
"""What is set from outside: the most bytes of all blocks, of free blocks, and whether memory is poisoned and checked."""

FUNCTIONS = ("start", "allocate", "allocate_zeros", "resize", "release", "trim", "in_use", "orphaned")
"""What the module offers; see :func:`allocator`."""

_CLASSES = 304  # the class of LARGEST is the last


def allocator() -> str:
    """Return the module that is one pool.

    Its functions, of which the first argument of the four in the middle is NumPy's context and not used:

    - ``start(context, malloc, calloc, free)``: before all others, with the functions of the allocator below.
    - ``allocate(context, size)``, ``allocate_zeros(context, count, each)``, ``resize(context, data, size)``,
      ``release(context, data, size)``: as NumPy wants them; null where there is no memory.
    - ``trim(keep)``: give free blocks back until at most ``keep`` bytes of them are left.
    - ``in_use(out, capacity)``: write address, size and number of each block in use; return how many there are.
    - ``orphaned()``: in a forked process, forget what a thread that is not there any more was doing.
    """
    variables = [f"@{name} = global i64 0" for name in (*COUNTERS, *LIMITS)]
    text = "\n".join([TYPES, *variables, LISTS, BLOCKS, _TAKE, _NUMPY, _REST])
    return text.replace("CLASSES", str(_CLASSES)).replace("LARGEST", str(LARGEST))


_TAKE = """
; The class of a size: a multiple of 64 up to 512, from there eight to each doubling. Returns its size and its number.
define internal { i64, i64 } @class_of(i64 %bytes) {
entry:
  %up = add i64 %bytes, 63
  %lines = and i64 %up, -64
  %small = icmp ule i64 %lines, 512
  br i1 %small, label %linear, label %geometric
linear:
  %index = lshr i64 %lines, 6
  %number.linear = sub i64 %index, 1
  br label %found
geometric:
  %last = sub i64 %lines, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %last, i1 true)
  %exponent = sub i64 63, %zeros
  %shift = sub i64 %exponent, 3
  %eighths = lshr i64 %last, %shift  ; 8 to 15
  %next = add i64 %eighths, 1
  %size.geometric = shl i64 %next, %shift
  %octave = sub i64 %exponent, 9
  %first = shl i64 %octave, 3
  %number.geometric = add i64 %first, %eighths
  br label %found
found:
  %size = phi i64 [ %lines, %linear ], [ %size.geometric, %geometric ]
  %number = phi i64 [ %number.linear, %linear ], [ %number.geometric, %geometric ]
  %half = insertvalue { i64, i64 } poison, i64 %size, 0
  %pair = insertvalue { i64, i64 } %half, i64 %number, 1
  ret { i64, i64 } %pair
}

define internal ptr @take(i64 %wanted, i1 %zeros) {
entry:
  %asked = call i64 @llvm.umax.i64(i64 %wanted, i64 1)
  call void @lock()
  %absurd = icmp ugt i64 %asked, LARGEST
  br i1 %absurd, label %refuse, label %search
search:
  %class = call { i64, i64 } @class_of(i64 %asked)
  %size = extractvalue { i64, i64 } %class, 0
  %number = extractvalue { i64, i64 } %class, 1
  %home = getelementptr [CLASSES x %Links], ptr @classes, i64 0, i64 %number
  %home.next = getelementptr %Links, ptr %home, i64 0, i32 1
  %first = load ptr, ptr %home.next
  %none = icmp eq ptr %first, %home
  br i1 %none, label %new, label %old
old:
  %first.age = getelementptr %Block, ptr %first, i64 0, i32 1
  call void @unlink(ptr %first)
  call void @unlink(ptr %first.age)
  %less = sub i64 0, %size
  call void @count(ptr @cached_bytes, i64 %less)
  call void @count(ptr @cached_blocks, i64 -1)
  call void @count(ptr @reuses, i64 1)
  br label %found
new:
  %made = call ptr @make(i64 %size, ptr %home, i1 %zeros)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %refuse, label %found
found:
  %block = phi ptr [ %first, %old ], [ %made, %new ]
  %dirty = phi i1 [ %zeros, %old ], [ false, %new ]
  call void @link(ptr @live, ptr %block)
  call void @enter(ptr %block, i64 %asked, i64 %size)
  call void @unlock()
  %data = getelementptr %Block, ptr %block, i64 1
  br i1 %dirty, label %wipe, label %wiped
wipe:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %asked, i1 false)
  br label %wiped
wiped:
  %debug = load i64, ptr @debug
  %checked = icmp ne i64 %debug, 0
  br i1 %checked, label %mark, label %done
mark:
  %from = select i1 %zeros, i64 %asked, i64 0
  call void @poison(ptr %data, i64 %from, i64 %size)
  br label %done
done:
  ret ptr %data
refuse:
  store i64 %asked, ptr @refused
  call void @count(ptr @refusals, i64 1)
  call void @unlock()
  ret ptr null
}

; Note a block that comes into use.
define internal void @enter(ptr %block, i64 %asked, i64 %size) {
  call void @count(ptr @allocations, i64 1)
  call void @count(ptr @total_bytes, i64 %asked)
  call void @count(ptr @live_bytes, i64 %asked)
  call void @count(ptr @live_blocks, i64 1)
  call void @count(ptr @used_bytes, i64 %size)
  %asked.at = getelementptr %Block, ptr %block, i64 0, i32 1, i32 0
  %number.at = getelementptr %Block, ptr %block, i64 0, i32 1, i32 1
  %number = load i64, ptr @allocations
  store i64 %asked, ptr %asked.at
  store i64 %number, ptr %number.at
  %bytes = load i64, ptr @live_bytes
  %blocks = load i64, ptr @live_blocks
  call void @peak(ptr @peak_bytes, i64 %bytes)
  call void @peak(ptr @peak_blocks, i64 %blocks)
  %used = load i64, ptr @used_bytes
  %cached = load i64, ptr @cached_bytes
  %reserved = add i64 %used, %cached
  call void @peak(ptr @peak_reserved, i64 %reserved)
  ret void
}

; Fill the data from a byte on, and the 64 bytes behind it, with ones: NaN in every floating-point format.
define internal void @poison(ptr %data, i64 %from, i64 %size) {
  %start = getelementptr i8, ptr %data, i64 %from
  %all = add i64 %size, 64
  %bytes = sub i64 %all, %from
  call void @llvm.memset.p0.i64(ptr %start, i8 -1, i64 %bytes, i1 false)
  ret void
}
"""

_NUMPY = """
define ptr @allocate(ptr %context, i64 %bytes) {
  %data = call ptr @take(i64 %bytes, i1 false)
  ret ptr %data
}

define ptr @allocate_zeros(ptr %context, i64 %number, i64 %each) {
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %number, i64 %each)
  %bytes = extractvalue { i64, i1 } %product, 0
  %overflow = extractvalue { i64, i1 } %product, 1
  %wanted = select i1 %overflow, i64 -1, i64 %bytes
  %data = call ptr @take(i64 %wanted, i1 true)
  ret ptr %data
}

define void @release(ptr %context, ptr %data, i64 %unreliable) {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %done, label %some
some:
  %block = getelementptr %Block, ptr %data, i64 -1
  %age = getelementptr %Block, ptr %block, i64 0, i32 1
  %size.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %home.at = getelementptr %Block, ptr %block, i64 0, i32 3
  call void @lock()
  %asked = load i64, ptr %age
  %size = load i64, ptr %size.at
  %home = load ptr, ptr %home.at
  %debug = load i64, ptr @debug
  %checked = icmp ne i64 %debug, 0
  br i1 %checked, label %check, label %free
check:
  call void @check(ptr %data, i64 %asked)
  call void @poison(ptr %data, i64 0, i64 %size)
  br label %free
free:
  call void @unlink(ptr %block)
  %asked.less = sub i64 0, %asked
  %size.less = sub i64 0, %size
  call void @count(ptr @live_bytes, i64 %asked.less)
  call void @count(ptr @live_blocks, i64 -1)
  call void @count(ptr @used_bytes, i64 %size.less)
  call void @link(ptr %home, ptr %block)
  call void @link(ptr @by_age, ptr %age)
  call void @count(ptr @cached_bytes, i64 %size)
  call void @count(ptr @cached_blocks, i64 1)
  %limit = load i64, ptr @cache_limit
  call void @keep_at_most(i64 %limit)
  call void @unlock()
  br label %done
done:
  ret void
}

; Note it if one of the 64 bytes behind an array was written.
define internal void @check(ptr %data, i64 %asked) {
entry:
  %end = getelementptr i8, ptr %data, i64 %asked
  %bytes = load <64 x i8>, ptr %end, align 1
  %wrong = icmp ne <64 x i8> %bytes, splat (i8 -1)
  %any = call i1 @llvm.vector.reduce.or.v64i1(<64 x i1> %wrong)
  br i1 %any, label %note, label %done
note:
  store i64 %asked, ptr @damaged
  br label %done
done:
  ret void
}

define ptr @resize(ptr %context, ptr %data, i64 %wanted) {
entry:
  %new = icmp eq ptr %data, null
  br i1 %new, label %move, label %compare
compare:
  %block = getelementptr %Block, ptr %data, i64 -1
  %asked.at = getelementptr %Block, ptr %block, i64 0, i32 1
  %size.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %asked = load i64, ptr %asked.at
  %size = load i64, ptr %size.at
  %more = call i64 @llvm.umax.i64(i64 %wanted, i64 1)
  %class = call { i64, i64 } @class_of(i64 %more)
  %fitting = extractvalue { i64, i64 } %class, 0
  %stays = icmp eq i64 %fitting, %size
  br i1 %stays, label %stay, label %move
stay:
  %change = sub i64 %more, %asked
  call void @lock()
  store i64 %more, ptr %asked.at
  call void @count(ptr @live_bytes, i64 %change)
  %bytes = load i64, ptr @live_bytes
  call void @peak(ptr @peak_bytes, i64 %bytes)
  call void @unlock()
  %debug = load i64, ptr @debug
  %checked = icmp ne i64 %debug, 0
  br i1 %checked, label %mark, label %stayed
mark:
  call void @poison(ptr %data, i64 %more, i64 %size)
  br label %stayed
stayed:
  ret ptr %data
move:
  %held = phi i64 [ 0, %entry ], [ %asked, %compare ]
  %moved = call ptr @take(i64 %wanted, i1 false)
  %failed = icmp eq ptr %moved, null
  br i1 %failed, label %none, label %copy
copy:
  %common = call i64 @llvm.umin.i64(i64 %held, i64 %wanted)
  call void @llvm.memcpy.p0.p0.i64(ptr %moved, ptr %data, i64 %common, i1 false)
  call void @release(ptr %context, ptr %data, i64 0)
  ret ptr %moved
none:
  ret ptr null
}
"""

_REST = """
define void @start(ptr %context, ptr %malloc, ptr %calloc, ptr %free) {
  store ptr %context, ptr @below
  %malloc.at = getelementptr { ptr, ptr, ptr, ptr }, ptr @below, i64 0, i32 1
  %calloc.at = getelementptr { ptr, ptr, ptr, ptr }, ptr @below, i64 0, i32 2
  %free.at = getelementptr { ptr, ptr, ptr, ptr }, ptr @below, i64 0, i32 3
  store ptr %malloc, ptr %malloc.at
  store ptr %calloc, ptr %calloc.at
  store ptr %free, ptr %free.at
  call void @empty_lists()
  ret void
}

define void @trim(i64 %keep) {
  call void @lock()
  call void @keep_at_most(i64 %keep)
  call void @unlock()
  ret void
}

define i64 @in_use(ptr %out, i64 %capacity) {
entry:
  call void @lock()
  %live.next = getelementptr %Links, ptr @live, i64 0, i32 1
  %first = load ptr, ptr %live.next
  br label %look
look:
  %block = phi ptr [ %first, %entry ], [ %behind, %write ]
  %i = phi i64 [ 0, %entry ], [ %next, %write ]
  %end = icmp eq ptr %block, @live
  %full = icmp uge i64 %i, %capacity
  %stop = or i1 %end, %full
  br i1 %stop, label %done, label %write
write:
  %row = getelementptr [3 x i64], ptr %out, i64 %i
  %row.1 = getelementptr i64, ptr %row, i64 1
  %row.2 = getelementptr i64, ptr %row, i64 2
  %data = getelementptr %Block, ptr %block, i64 1
  %address = ptrtoint ptr %data to i64
  %asked.at = getelementptr %Block, ptr %block, i64 0, i32 1, i32 0
  %number.at = getelementptr %Block, ptr %block, i64 0, i32 1, i32 1
  %asked = load i64, ptr %asked.at
  %number = load i64, ptr %number.at
  store i64 %address, ptr %row
  store i64 %asked, ptr %row.1
  store i64 %number, ptr %row.2
  %block.next = getelementptr %Block, ptr %block, i64 0, i32 0, i32 1
  %behind = load ptr, ptr %block.next
  %next = add i64 %i, 1
  br label %look
done:
  call void @unlock()
  ret i64 %i
}

define void @orphaned() {
entry:
  %held = load i32, ptr @locked
  %torn = icmp ne i32 %held, 0
  br i1 %torn, label %anew, label %done
anew:
  call void @empty_lists()
  store i64 0, ptr @cached_bytes
  store i64 0, ptr @cached_blocks
  call void @unlock()
  br label %done
done:
  ret void
}
"""
