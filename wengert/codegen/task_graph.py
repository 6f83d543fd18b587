"""Graphs of tasks as LLVM IR: threads take whatever is ready, the most urgent first.

The tasks are rows as in :mod:`wengert.codegen.task_loop`, numbered by urgency, each with a count of the tasks it waits for
and a list of those that wait for it. A run is one parallel loop with a *seat* for each thread; a thread in a seat

1. takes the ready task with the lowest number and runs it, chunk by chunk from the front;
2. if none is ready, runs a chunk from the back of a task that another seat is at;
3. if there is none either, spins for a while, and sleeps until there is.

Whoever runs the last chunk of a task tells its successors; those that wait for nothing else become ready.

**Ready** is two bits for each task, 64 tasks to a pair of words: *ready*, set when the last predecessor has ended, and
*taken*, set by the thread that takes it (an atomic or: whoever finds the bit unset has it). Bits are only ever set, so a
thread may skip for good what it once saw taken, and need not lock.

**Chunks** are claimed from a range as in :mod:`wengert.codegen.worker_loop`, of which every task has its own. It is filled
from the start and only becomes shorter: a thread that is late finds it empty. A task ends when the number of its chunks
that have not finished is zero, so nobody waits for the helpers.

**Sleep.** Whoever makes something to do (a ready task, a task of several chunks, the end, a pause) writes it down and then
reads the number of sleepers; if there are any, it changes the epoch and wakes as many as are needed. Whoever is to
sleep reads the epoch, counts itself among the sleepers, looks once more for something to do, and sleeps while the epoch is
the one it read. All of these are sequentially consistent, so one of the two sees the other. A thread that makes one task
ready wakes nobody: it looks for a task itself next, and takes this one or leaves it to the one that another thread left
for it.

**Slices.** When a slice of time has passed, whoever sees it first says *pause*, and the threads leave their seats after the
chunk they are at. A task that has been begun is still written down in its seat: the next slice goes on with it.

**Forks.** In the child of a fork inside a kernel the other threads do not exist, nor will what they were at ever end. A
thread that finds nothing to do leaves when the pool says that it was abandoned; the parallel loop says that it was lost.
"""

from string import Template
from typing import Final

from wengert.codegen import worker_loop
from wengert.codegen.parking import parking
from wengert.codegen.task_loop import PAUSED
from wengert.codegen.task_steps import BUSY, SLOTS, STATE, TASK_STEPS, TIMED

__all__ = ["GRAPH", "task_graph"]

# i64 (pool, state, address of parallel_for): 0 when all tasks have run, PAUSED, or what the loop failed with.
GRAPH: Final = "wengert_graph"

_SEAT: Final = """
; Whether a thread has no more to do in its seat.
define internal i1 @is_over(ptr %state) alwaysinline {
  %left = call ptr @field(ptr %state, i64 $LEFT)
  %tasks = load atomic i64, ptr %left seq_cst, align 8
  %pause = call ptr @field(ptr %state, i64 $PAUSE)
  %paused = load atomic i64, ptr %pause seq_cst, align 8
  %ended = icmp eq i64 %tasks, 0
  %stopped = icmp ne i64 %paused, 0
  %over = or i1 %ended, %stopped
  ret i1 %over
}

define internal i1 @is_abandoned(ptr %state) alwaysinline {
  %pool = call ptr @address(ptr %state, i64 $POOL)
  %slot = call ptr @field(ptr %pool, i64 $POOL_STATE)
  %value = load atomic i64, ptr %slot seq_cst, align 8
  %abandoned = icmp eq i64 %value, $ABANDONED
  ret i1 %abandoned
}

; Whether there is a ready task that nobody has taken, or a chunk that nobody has claimed.
define internal i1 @is_work(ptr %state) {
entry:
  %pairs = call i64 @word(ptr %state, i64 $PAIRS)
  %seats = call i64 @word(ptr %state, i64 $SEATS)
  br label %tasks
tasks:
  %number = phi i64 [ 0, %entry ], [ %next, %read ]
  %looked = icmp eq i64 %number, %pairs
  br i1 %looked, label %chunks, label %read
read:
  %next = add i64 %number, 1
  %ready_word = call ptr @pair(ptr %state, i64 %number)
  %taken_word = getelementptr i64, ptr %ready_word, i64 1
  %taken = load atomic i64, ptr %taken_word seq_cst, align 8
  %ready = load atomic i64, ptr %ready_word seq_cst, align 8
  %not_taken = xor i64 %taken, -1
  %free = and i64 %ready, %not_taken
  %any = icmp ne i64 %free, 0
  br i1 %any, label %found, label %tasks
chunks:
  %place = phi i64 [ 0, %tasks ], [ %place_after, %on ]
  %over = icmp eq i64 %place, %seats
  br i1 %over, label %none, label %mark
mark:
  %place_after = add i64 %place, 1
  %seat = call ptr @seat(ptr %state, i64 %place)
  %begun = load atomic i64, ptr %seat seq_cst, align 8
  %vacant = icmp eq i64 %begun, 0
  br i1 %vacant, label %on, label %range
range:
  %task = sub i64 %begun, 1
  %counts = call ptr @steps(ptr %state, i64 %task)
  %range_slot = call ptr @field(ptr %counts, i64 1)
  %left = load atomic i64, ptr %range_slot seq_cst, align 8
  %empty = call i1 @is_empty(i64 %left)
  br i1 %empty, label %on, label %found
on:
  br label %chunks
found:
  ret i1 true
none:
  ret i1 false
}

; Sleep, unless there is something to do.
define internal void @sleep(ptr %state) {
entry:
  %epoch = call ptr @field(ptr %state, i64 $EPOCH)
  %sleepers = call ptr @field(ptr %state, i64 $SLEEPERS)
  %seen = load atomic i32, ptr %epoch seq_cst, align 4
  %others = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %over = call i1 @is_over(ptr %state)
  %work = call i1 @is_work(ptr %state)
  %abandoned = call i1 @is_abandoned(ptr %state)
  %some = or i1 %over, %work
  %awake = or i1 %some, %abandoned
  br i1 %awake, label %done, label %rest
rest:
  call void @park(ptr %epoch, i32 %seen)
  br label %done
done:
  %less = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret void
}

; A thread has worked from began on, if that is not 0: write it down, if times are wanted.
define internal void @worked(ptr %state, ptr %seat, i64 %began, i64 %time) alwaysinline {
entry:
  %times = call ptr @address(ptr %state, i64 $TIMES)
  %wanted = icmp ne ptr %times, null
  %some = icmp ne i64 %began, 0
  %both = and i1 %wanted, %some
  br i1 %both, label %write, label %done
write:
  %busy = call ptr @field(ptr %seat, i64 $BUSY)
  %before = load i64, ptr %busy
  %spent = sub i64 %time, %began
  %after = add i64 %before, %spent
  store i64 %after, ptr %busy
  br label %done
done:
  ret void
}

define internal void @sit(ptr %state, i64 %number, i64 %end) {
entry:
  %floor = alloca i64, align 8
  store i64 0, ptr %floor
  %start = call i64 @now()
  %spin = call i64 @word(ptr %state, i64 $SPIN)
  %seat = call ptr @seat(ptr %state, i64 %number)
  %mark = load atomic i64, ptr %seat seq_cst, align 8
  %begun = icmp ne i64 %mark, 0
  br i1 %begun, label %go_on, label %look
go_on:
  %old = sub i64 %mark, 1
  call void @lead(ptr %state, i64 %old)
  br label %look
look: ; %since is when this thread began to have nothing to do, 0 if it did something just now, which it began at %began
  %since = phi i64 [ 0, %entry ], [ 0, %go_on ], [ 0, %work ], [ 0, %helped ], [ %idle, %look_again ], [ %time, %tired ]
  %step = phi i64 [ 1, %entry ], [ 1, %go_on ], [ 1, %work ], [ 1, %helped ], [ %step_after, %look_again ], [ 1, %tired ]
  %began = phi i64 [ 0, %entry ], [ %start, %go_on ], [ %time, %work ], [ %time, %helped ], [ 0, %look_again ], [ 0, %tired ]
  %time = call i64 @now()
  call void @worked(ptr %state, ptr %seat, i64 %began, i64 %time)
  %over = call i1 @is_over(ptr %state)
  br i1 %over, label %leave, label %clock
clock:
  %late = call i1 @is_late(ptr %state, i64 %time)
  br i1 %late, label %stop, label %choose
stop:
  call void @pause(ptr %state)
  br label %leave
choose:
  %task = call i64 @take(ptr %state, ptr %floor)
  %ready = icmp sge i64 %task, 0
  br i1 %ready, label %work, label %assist
work:
  call void @begin(ptr %state, i64 %number, i64 %task)
  br label %look
assist:
  %useful = call i1 @help(ptr %state)
  br i1 %useful, label %helped, label %nothing
helped:
  br label %look
nothing:
  %lost = call i1 @is_abandoned(ptr %state)
  br i1 %lost, label %leave, label %wait
wait:
  %fresh = icmp eq i64 %since, 0
  %idle = select i1 %fresh, i64 %time, i64 %since
  %spent = sub i64 %time, %idle
  %enough = icmp sgt i64 %spent, %spin
  br i1 %enough, label %tired, label %spin_on
spin_on:
  call void @relax()
  %low = and i64 %step, $YIELD
  %turn = icmp eq i64 %low, 0
  %step_after = add i64 %step, 1
  br i1 %turn, label %yield, label %look_again
yield:
  call void @give_way()
  br label %look_again
look_again:
  br label %look
tired:
  call void @sleep(ptr %state)
  br label %look
leave:
  ret void
}

define i64 @$GRAPH_NAME(ptr %pool, ptr %state, ptr %parallel_for) {
  %call = alloca [4 x i64], align 8
  %slice = call i64 @word(ptr %pool, i64 $POOL_SLICE)
  %spin = call i64 @word(ptr %pool, i64 $POOL_SPIN)
  %start = call i64 @now()
  %deadline = add i64 %start, %slice
  %pool_slot = call ptr @field(ptr %state, i64 $POOL)
  %deadline_slot = call ptr @field(ptr %state, i64 $DEADLINE)
  %spin_slot = call ptr @field(ptr %state, i64 $SPIN)
  %pause = call ptr @field(ptr %state, i64 $PAUSE)
  store ptr %pool, ptr %pool_slot
  store i64 %deadline, ptr %deadline_slot
  store i64 %spin, ptr %spin_slot
  store i64 0, ptr %pause
  %seats = call i64 @word(ptr %state, i64 $SEATS)
  %count = call ptr @field(ptr %call, i64 1)
  %grain = call ptr @field(ptr %call, i64 2)
  %args = call ptr @field(ptr %call, i64 3)
  store ptr @sit, ptr %call
  store i64 %seats, ptr %count
  store i64 1, ptr %grain
  store ptr %state, ptr %args
  %rest = call i64 %parallel_for(ptr %pool, ptr %call)
  %failed = icmp slt i64 %rest, 0
  %left = call i64 @word(ptr %state, i64 $LEFT)
  %ended = icmp eq i64 %left, 0
  %paused = select i1 %ended, i64 0, i64 $PAUSED
  %result = select i1 %failed, i64 %rest, i64 %paused
  ret i64 %result
}
"""


def task_graph(triple: str) -> str:
    """Return the module that runs graphs of tasks as LLVM IR for a target."""
    pool = {f"POOL_{name}": worker_loop.LAYOUT[name] for name in ("STATE", "SPIN", "SLICE")}
    numbers = {name: getattr(worker_loop, name) for name in ("ABANDONED", "MOST_CHUNKS", "YIELD")}
    names = {
        "GRAPH_NAME": GRAPH,
        "PAUSED": PAUSED,
        "SLOTS": SLOTS,
        "TIMED": TIMED,
        "BUSY": BUSY,
        "EVERYBODY": 2**31 - 1,
    }
    text = Template(TASK_STEPS + _SEAT).substitute(STATE, **pool, **numbers, **names)
    return parking(triple) + text
