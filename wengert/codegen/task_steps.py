"""What a thread does with one task of a graph, as LLVM IR: take it, run its chunks, help with another's, tell its successors.

:mod:`wengert.codegen.task_graph` has these parts in its module, and says how they play together. The memory of a run, its
*state*, is laid out here.
"""

from typing import Final

__all__ = ["BUSY", "LINE", "SLOTS", "STATE", "TASK_STEPS", "TIMED"]

# The words of a state, eight to a line of the cache. TABLE, STARTS (of each task's successors, and their number),
# SUCCESSORS and TIMES (or 0) are addresses; SEATS and PAIRS are numbers; READY and STEPS count words from the beginning of
# the state. LEFT is how many tasks have not ended. The seats follow from SLOTS on, a line each: 1 + the task that was begun
# there; and BUSY, if times are wanted: for how many nanoseconds its thread has worked, on whatever task.
STATE: Final = {
    "TABLE": 0, "STARTS": 1, "SUCCESSORS": 2, "SEATS": 3, "READY": 4, "PAIRS": 5, "STEPS": 6, "TIMES": 7,
    "POOL": 8, "DEADLINE": 9, "SPIN": 10,
    "LEFT": 16, "PAUSE": 17,
    "SLEEPERS": 24, "EPOCH": 25,
}  # fmt: skip
LINE: Final = 8
SLOTS: Final = 32
BUSY: Final = 1

# READY: a pair of words for 64 tasks each, ready and taken. STEPS: two words for each task: how many tasks it waits for (32
# bits), how many of its chunks have not finished (32 bits); and the range of those that nobody has claimed.
TIMED: Final = 3  # words for each task in TIMES: when it began and ended, in nanoseconds, and its seat

_PARTS: Final = """
define internal ptr @field(ptr %state, i64 %number) alwaysinline {
  %slot = getelementptr i64, ptr %state, i64 %number
  ret ptr %slot
}

define internal i64 @word(ptr %state, i64 %number) alwaysinline {
  %slot = getelementptr i64, ptr %state, i64 %number
  %value = load i64, ptr %slot
  ret i64 %value
}

define internal ptr @address(ptr %state, i64 %number) alwaysinline {
  %slot = getelementptr i64, ptr %state, i64 %number
  %value = load ptr, ptr %slot
  ret ptr %value
}

; Where the counts of a task are; its range is in the next word.
define internal ptr @steps(ptr %state, i64 %task) alwaysinline {
  %first = call i64 @word(ptr %state, i64 $STEPS)
  %offset = shl i64 %task, 1
  %place = add i64 %first, %offset
  %slot = getelementptr i64, ptr %state, i64 %place
  ret ptr %slot
}

define internal ptr @row(ptr %state, i64 %task) alwaysinline {
  %table = call ptr @address(ptr %state, i64 $TABLE)
  %offset = shl i64 %task, 2
  %slot = getelementptr i64, ptr %table, i64 %offset
  ret ptr %slot
}

define internal ptr @seat(ptr %state, i64 %number) alwaysinline {
  %offset = shl i64 %number, 3
  %place = add i64 %offset, $SLOTS
  %slot = getelementptr i64, ptr %state, i64 %place
  ret ptr %slot
}

; The pair of words for the tasks from 64 * number on.
define internal ptr @pair(ptr %state, i64 %number) alwaysinline {
  %first = call i64 @word(ptr %state, i64 $READY)
  %offset = shl i64 %number, 1
  %place = add i64 %first, %offset
  %slot = getelementptr i64, ptr %state, i64 %place
  ret ptr %slot
}

define internal void @stamp(ptr %state, i64 %task, i64 %place, i64 %value) alwaysinline {
entry:
  %times = call ptr @address(ptr %state, i64 $TIMES)
  %wanted = icmp ne ptr %times, null
  br i1 %wanted, label %write, label %done
write:
  %first = mul i64 %task, $TIMED
  %index = add i64 %first, %place
  %slot = getelementptr i64, ptr %times, i64 %index
  %clock = icmp eq i64 %value, -1
  br i1 %clock, label %look, label %store
look:
  %time = call i64 @now()
  br label %store
store:
  %what = phi i64 [ %value, %write ], [ %time, %look ]
  store i64 %what, ptr %slot
  br label %done
done:
  ret void
}

; Wake up to so many sleepers.
define internal void @wake(ptr %state, i32 %threads) {
entry:
  %sleepers = call ptr @field(ptr %state, i64 $SLEEPERS)
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %nobody = icmp eq i32 %asleep, 0
  br i1 %nobody, label %done, label %call
call:
  %epoch = call ptr @field(ptr %state, i64 $EPOCH)
  %old = atomicrmw add ptr %epoch, i32 1 seq_cst
  call void @unpark(ptr %epoch, i32 %threads)
  br label %done
done:
  ret void
}

define internal void @pause(ptr %state) {
  %pause = call ptr @field(ptr %state, i64 $PAUSE)
  store atomic i64 1, ptr %pause seq_cst, align 8
  call void @wake(ptr %state, i32 $EVERYBODY)
  ret void
}

define internal i1 @is_late(ptr %state, i64 %time) alwaysinline {
  %deadline = call i64 @word(ptr %state, i64 $DEADLINE)
  %late = icmp sge i64 %time, %deadline
  ret i1 %late
}
"""

_CHUNKS: Final = """
define internal i1 @is_empty(i64 %range) alwaysinline {
  %first = and i64 %range, $MOST_CHUNKS
  %last = lshr i64 %range, 32
  %empty = icmp eq i64 %first, %last
  ret i1 %empty
}

; Make a range one shorter, at its front (1) or back (-2**32), unless it is empty; return what it was before.
define internal i64 @claim(ptr %place, i64 %step) alwaysinline {
entry:
  %seen = load atomic i64, ptr %place seq_cst, align 8
  br label %look
look:
  %range = phi i64 [ %seen, %entry ], [ %now, %take ]
  %empty = call i1 @is_empty(i64 %range)
  br i1 %empty, label %done, label %take
take:
  %rest = add i64 %range, %step
  %swap = cmpxchg ptr %place, i64 %range, i64 %rest acq_rel monotonic, align 8
  %now = extractvalue { i64, i1 } %swap, 0
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %done, label %look
done:
  ret i64 %range
}

define internal void @run_chunk(ptr %row, i64 %index) alwaysinline {
  %kernel = call ptr @address(ptr %row, i64 0)
  %count = call i64 @word(ptr %row, i64 1)
  %grain = call i64 @word(ptr %row, i64 2)
  %args = call ptr @address(ptr %row, i64 3)
  %begin = mul i64 %index, %grain
  %rest = sub i64 %count, %begin
  %last = icmp slt i64 %rest, %grain
  %steps = select i1 %last, i64 %rest, i64 %grain
  %end = add i64 %begin, %steps
  call void %kernel(ptr %args, i64 %begin, i64 %end)
  ret void
}

; A task has ended: its successors wait for one less.
define internal void @complete(ptr %state, i64 %task) {
entry:
  call void @stamp(ptr %state, i64 %task, i64 1, i64 -1)
  %starts = call ptr @address(ptr %state, i64 $STARTS)
  %successors = call ptr @address(ptr %state, i64 $SUCCESSORS)
  %after = add i64 %task, 1
  %first = call i64 @word(ptr %starts, i64 %task)
  %end = call i64 @word(ptr %starts, i64 %after)
  br label %look
look:
  %i = phi i64 [ %first, %entry ], [ %next, %on ]
  %ready = phi i32 [ 0, %entry ], [ %ready_now, %on ]
  %over = icmp eq i64 %i, %end
  br i1 %over, label %told, label %tell
tell:
  %successor = call i64 @word(ptr %successors, i64 %i)
  %waits = call ptr @steps(ptr %state, i64 %successor)
  %before = atomicrmw sub ptr %waits, i32 1 acq_rel
  %free = icmp eq i32 %before, 1
  br i1 %free, label %set, label %on
set:
  %number = lshr i64 %successor, 6
  %shift = and i64 %successor, 63
  %bit = shl i64 1, %shift
  %pair = call ptr @pair(ptr %state, i64 %number)
  %old_bits = atomicrmw or ptr %pair, i64 %bit seq_cst
  br label %on
on:
  %increment = phi i32 [ 0, %tell ], [ 1, %set ]
  %ready_now = add i32 %ready, %increment
  %next = add i64 %i, 1
  br label %look
told:
  %left = call ptr @field(ptr %state, i64 $LEFT)
  %remaining = atomicrmw sub ptr %left, i64 1 seq_cst
  %last = icmp eq i64 %remaining, 1
  %others = sub i32 %ready, 1
  %needed = select i1 %last, i32 $EVERYBODY, i32 %others
  %any = icmp sgt i32 %needed, 0
  br i1 %any, label %wake, label %done
wake:
  call void @wake(ptr %state, i32 %needed)
  br label %done
done:
  ret void
}

; So many chunks of a task have finished.
define internal void @finish(ptr %state, i64 %task, i32 %chunks) alwaysinline {
entry:
  %counts = call ptr @steps(ptr %state, i64 %task)
  %unfinished = getelementptr i32, ptr %counts, i64 1
  %before = atomicrmw sub ptr %unfinished, i32 %chunks acq_rel
  %whole = icmp eq i32 %before, %chunks
  br i1 %whole, label %end, label %done
end:
  call void @complete(ptr %state, i64 %task)
  br label %done
done:
  ret void
}
"""

_WORK: Final = """
; Run chunks of a task from the front until none is unclaimed, or a slice is over.
define internal void @lead(ptr %state, i64 %task) {
entry:
  %row = call ptr @row(ptr %state, i64 %task)
  %counts = call ptr @steps(ptr %state, i64 %task)
  %place = call ptr @field(ptr %counts, i64 1)
  br label %claim
claim:
  %ran = phi i32 [ 0, %entry ], [ %more, %run ]
  %range = call i64 @claim(ptr %place, i64 1)
  %empty = call i1 @is_empty(i64 %range)
  br i1 %empty, label %count, label %run
run:
  %index = and i64 %range, $MOST_CHUNKS
  call void @run_chunk(ptr %row, i64 %index)
  %more = add i32 %ran, 1
  %time = call i64 @now()
  %late = call i1 @is_late(ptr %state, i64 %time)
  br i1 %late, label %leave, label %claim
leave:
  call void @pause(ptr %state)
  br label %count
count:
  %all = phi i32 [ %ran, %claim ], [ %more, %leave ]
  %some = icmp ne i32 %all, 0
  br i1 %some, label %tell, label %done
tell:
  call void @finish(ptr %state, i64 %task, i32 %all)
  br label %done
done:
  ret void
}

; Run a task that this thread has taken.
define internal void @begin(ptr %state, i64 %number, i64 %task) alwaysinline {
entry:
  %row = call ptr @row(ptr %state, i64 %task)
  call void @stamp(ptr %state, i64 %task, i64 0, i64 -1)
  call void @stamp(ptr %state, i64 %task, i64 2, i64 %number)
  %count = call i64 @word(ptr %row, i64 1)
  %grain = call i64 @word(ptr %row, i64 2)
  %nothing = icmp eq i64 %count, 0
  br i1 %nothing, label %end, label %look
look:
  %single = icmp sle i64 %count, %grain
  br i1 %single, label %whole, label %share
whole:
  call void @run_chunk(ptr %row, i64 0)
  br label %end
end:
  call void @complete(ptr %state, i64 %task)
  br label %done
share:
  %seat = call ptr @seat(ptr %state, i64 %number)
  %mark = add i64 %task, 1
  store atomic i64 %mark, ptr %seat seq_cst, align 8
  %counts = call ptr @steps(ptr %state, i64 %task)
  %unfinished = getelementptr i32, ptr %counts, i64 1
  %chunks = load atomic i32, ptr %unfinished monotonic, align 4
  %others = sub i32 %chunks, 1
  %many = icmp ugt i32 %others, $EVERYBODY
  %threads = select i1 %many, i32 $EVERYBODY, i32 %others
  %helpful = icmp ne i32 %threads, 0
  br i1 %helpful, label %call, label %run
call:
  call void @wake(ptr %state, i32 %threads)
  br label %run
run:
  call void @lead(ptr %state, i64 %task)
  br label %done
done:
  ret void
}

; Take the most urgent ready task: its number, or -1. Before the floor, which is a pair, all have been taken.
define internal i64 @take(ptr %state, ptr %floor) {
entry:
  %pairs = call i64 @word(ptr %state, i64 $PAIRS)
  %first = load i64, ptr %floor
  br label %look
look:
  %number = phi i64 [ %first, %entry ], [ %next, %skip ], [ %number, %try ]
  %over = icmp sge i64 %number, %pairs
  br i1 %over, label %none, label %read
read:
  %ready_word = call ptr @pair(ptr %state, i64 %number)
  %taken_word = getelementptr i64, ptr %ready_word, i64 1
  %taken = load atomic i64, ptr %taken_word monotonic, align 8
  %ready = load atomic i64, ptr %ready_word seq_cst, align 8
  %not_taken = xor i64 %taken, -1
  %free = and i64 %ready, %not_taken
  %any = icmp ne i64 %free, 0
  br i1 %any, label %try, label %pass
pass:
  %full = icmp eq i64 %not_taken, 0
  %floor_now = load i64, ptr %floor
  %lowest = icmp eq i64 %floor_now, %number
  %raise = and i1 %full, %lowest
  %next = add i64 %number, 1
  br i1 %raise, label %up, label %skip
up:
  store i64 %next, ptr %floor
  br label %skip
skip:
  br label %look
try:
  %shift = call i64 @llvm.cttz.i64(i64 %free, i1 true)
  %bit = shl i64 1, %shift
  %before = atomicrmw or ptr %taken_word, i64 %bit acq_rel
  %mine_before = and i64 %before, %bit
  %won = icmp eq i64 %mine_before, 0
  br i1 %won, label %found, label %look
found:
  %base = shl i64 %number, 6
  %task = or i64 %base, %shift
  ret i64 %task
none:
  ret i64 -1
}

declare i64 @llvm.cttz.i64(i64, i1)

; Run a chunk from the back of a task that some seat is at; say whether there was one.
define internal i1 @help(ptr %state) {
entry:
  %seats = call i64 @word(ptr %state, i64 $SEATS)
  br label %look
look:
  %number = phi i64 [ 0, %entry ], [ %next, %on ]
  %over = icmp eq i64 %number, %seats
  br i1 %over, label %none, label %read
read:
  %next = add i64 %number, 1
  %seat = call ptr @seat(ptr %state, i64 %number)
  %mark = load atomic i64, ptr %seat seq_cst, align 8
  %vacant = icmp eq i64 %mark, 0
  br i1 %vacant, label %on, label %claim
claim:
  %task = sub i64 %mark, 1
  %counts = call ptr @steps(ptr %state, i64 %task)
  %place = call ptr @field(ptr %counts, i64 1)
  %range = call i64 @claim(ptr %place, i64 -4294967296)
  %empty = call i1 @is_empty(i64 %range)
  br i1 %empty, label %on, label %run
on:
  br label %look
run:
  %last = lshr i64 %range, 32
  %index = sub i64 %last, 1
  %row = call ptr @row(ptr %state, i64 %task)
  call void @run_chunk(ptr %row, i64 %index)
  call void @finish(ptr %state, i64 %task, i32 1)
  ret i1 true
none:
  ret i1 false
}
"""

TASK_STEPS: Final = _PARTS + _CHUNKS + _WORK
