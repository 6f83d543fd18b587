"""The lists and blocks of the memory pool's allocator (:mod:`wengert.codegen.allocator`), as LLVM IR.

Lists are circular and linked both ways, each around a pair of pointers of its own, so that a block leaves its lists
without a search. ``CLASSES`` stands for the number of classes.
"""

__all__ = ["BLOCKS", "LISTS", "TYPES"]

TYPES = """
%Links = type { ptr, ptr }  ; the one before, the one behind
%Block = type { %Links, %Links, i64, ptr, ptr, i64 }
; on the list of its class or of blocks in use | if free, on the list by age; if in use, bytes asked for and number
; | size of the data | list of its class | where the allocator below put it, and how large

@locked = global i32 0
@offset = global i64 0  ; of the last large block within its page
@live = global %Links zeroinitializer
@by_age = global %Links zeroinitializer
@classes = global [CLASSES x %Links] zeroinitializer
@below = global { ptr, ptr, ptr, ptr } zeroinitializer  ; context, malloc, calloc, free

declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)
declare i1 @llvm.vector.reduce.or.v64i1(<64 x i1>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

LISTS = """
define internal void @lock() {
entry:
  br label %try
try:
  %pair = cmpxchg ptr @locked, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %done, label %wait
wait:
  %seen = load atomic i32, ptr @locked monotonic, align 4
  %busy = icmp ne i32 %seen, 0
  br i1 %busy, label %wait, label %try
done:
  ret void
}

define internal void @unlock() {
  store atomic i32 0, ptr @locked release, align 4
  ret void
}

define internal void @empty(ptr %list) {
  %next = getelementptr %Links, ptr %list, i64 0, i32 1
  store ptr %list, ptr %list
  store ptr %list, ptr %next
  ret void
}

define internal void @link(ptr %list, ptr %node) {
  %list.next = getelementptr %Links, ptr %list, i64 0, i32 1
  %node.next = getelementptr %Links, ptr %node, i64 0, i32 1
  %behind = load ptr, ptr %list.next
  store ptr %list, ptr %node
  store ptr %behind, ptr %node.next
  store ptr %node, ptr %list.next
  store ptr %node, ptr %behind
  ret void
}

define internal void @unlink(ptr %node) {
  %node.next = getelementptr %Links, ptr %node, i64 0, i32 1
  %before = load ptr, ptr %node
  %behind = load ptr, ptr %node.next
  %before.next = getelementptr %Links, ptr %before, i64 0, i32 1
  store ptr %behind, ptr %before.next
  store ptr %before, ptr %behind
  ret void
}

define internal void @count(ptr %counter, i64 %more) {
  %old = load i64, ptr %counter
  %new = add i64 %old, %more
  store i64 %new, ptr %counter
  ret void
}

define internal void @peak(ptr %highest, i64 %now) {
  %old = load i64, ptr %highest
  %new = call i64 @llvm.umax.i64(i64 %old, i64 %now)
  store i64 %new, ptr %highest
  ret void
}

define internal void @empty_lists() {
entry:
  call void @empty(ptr @live)
  call void @empty(ptr @by_age)
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %next, %each ]
  %list = getelementptr [CLASSES x %Links], ptr @classes, i64 0, i64 %i
  call void @empty(ptr %list)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, CLASSES
  br i1 %more, label %each, label %done
done:
  ret void
}
"""

BLOCKS = """
; Give the free block that was used longest ago back.
define internal void @give_back() {
  %age = load ptr, ptr @by_age
  %block = getelementptr i8, ptr %age, i64 -16
  call void @unlink(ptr %block)
  call void @unlink(ptr %age)
  %size.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %size = load i64, ptr %size.at
  %less = sub i64 0, %size
  call void @count(ptr @cached_bytes, i64 %less)
  call void @count(ptr @cached_blocks, i64 -1)
  %base.at = getelementptr %Block, ptr %block, i64 0, i32 4
  %taken.at = getelementptr %Block, ptr %block, i64 0, i32 5
  %base = load ptr, ptr %base.at
  %taken = load i64, ptr %taken.at
  %context = load ptr, ptr @below
  %free.at = getelementptr { ptr, ptr, ptr, ptr }, ptr @below, i64 0, i32 3
  %free = load ptr, ptr %free.at
  call void %free(ptr %context, ptr %base, i64 %taken)
  ret void
}

define internal void @keep_at_most(i64 %bytes) {
entry:
  br label %look
look:
  %cached = load i64, ptr @cached_bytes
  %over = icmp ugt i64 %cached, %bytes
  br i1 %over, label %one, label %done
one:
  call void @give_back()
  br label %look
done:
  ret void
}

; Large arrays that start at the same place of their pages slow each other down when a kernel walks through them together,
; by a quarter on some processors: each large block starts 21 cache lines further than the last one.
define internal i64 @page_offset(i64 %size) {
  %old = load i64, ptr @offset
  %sum = add i64 %old, 1344
  %next = and i64 %sum, 4095
  %large = icmp uge i64 %size, 32768
  %new = select i1 %large, i64 %next, i64 %old
  store i64 %new, ptr @offset
  %used = select i1 %large, i64 %next, i64 0
  ret i64 %used
}

; A new block for data of a class's size, or null: beyond the limit, or none to be had even without the free ones.
; The lock is not held while the allocator below is asked: NumPy's gives Python's lock away while it makes zeros, and a
; thread that took that one and waited for ours would wait for ever. Until then the bytes count as used, for the limit.
define internal ptr @make(i64 %size, ptr %home, i1 %zeros) {
entry:
  %used = load i64, ptr @used_bytes
  %limit = load i64, ptr @limit
  %all = add i64 %used, %size
  %over = icmp ugt i64 %all, %limit
  br i1 %over, label %none, label %within
within:
  %room = sub i64 %limit, %all
  call void @keep_at_most(i64 %room)
  %offset = call i64 @page_offset(i64 %size)
  %more = add i64 %size, 192  ; header, alignment, the bytes behind that are checked
  %taken = add i64 %more, %offset
  br label %ask
ask:
  call void @count(ptr @used_bytes, i64 %size)
  call void @unlock()
  %context = load ptr, ptr @below
  %malloc.at = getelementptr { ptr, ptr, ptr, ptr }, ptr @below, i64 0, i32 1
  %calloc.at = getelementptr { ptr, ptr, ptr, ptr }, ptr @below, i64 0, i32 2
  br i1 %zeros, label %calloc, label %malloc
calloc:
  %calloc.function = load ptr, ptr %calloc.at
  %base.zeros = call ptr %calloc.function(ptr %context, i64 1, i64 %taken)
  br label %asked
malloc:
  %malloc.function = load ptr, ptr %malloc.at
  %base.unset = call ptr %malloc.function(ptr %context, i64 %taken)
  br label %asked
asked:
  %base = phi ptr [ %base.zeros, %calloc ], [ %base.unset, %malloc ]
  %less = sub i64 0, %size
  call void @lock()
  call void @count(ptr @used_bytes, i64 %less)
  %failed = icmp eq ptr %base, null
  br i1 %failed, label %again, label %made
again:
  %cached = load i64, ptr @cached_blocks
  %hope = icmp ne i64 %cached, 0
  br i1 %hope, label %without, label %none
without:
  call void @give_back()
  br label %ask
made:
  %address = ptrtoint ptr %base to i64
  %up = add i64 %address, 63
  %aligned = and i64 %up, -64
  %place = add i64 %aligned, %offset
  %block = inttoptr i64 %place to ptr
  %size.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %home.at = getelementptr %Block, ptr %block, i64 0, i32 3
  %base.at = getelementptr %Block, ptr %block, i64 0, i32 4
  %taken.at = getelementptr %Block, ptr %block, i64 0, i32 5
  store i64 %size, ptr %size.at
  store ptr %home, ptr %home.at
  store ptr %base, ptr %base.at
  store i64 %taken, ptr %taken.at
  ret ptr %block
none:
  ret ptr null
}
"""
