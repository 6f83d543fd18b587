"""Tables of tasks as LLVM IR: a whole plan in one native call.

A *task* is a row of four 64-bit words, {kernel, count, grain, address of args}: what ``parallel_for`` of
:mod:`wengert.codegen.worker_loop` takes. The thread that calls runs the rows one after the other, those of a single chunk
itself, the others as parallel loops.

**A run** is the caller's memory: where the table lies, which row is next, and what is left of that row. When a slice of
time has passed the call returns, so that Python can handle signals, and the same call goes on where it stopped. The clock
is read after each parallel loop, which takes a microsecond anyway, and after every eighth of the other rows.

A row without a kernel is a *check*: the run halts there if the word at the address of its args is not 0.
"""

from string import Template
from typing import Final

from wengert.codegen import worker_loop
from wengert.codegen.parking import parking

__all__ = ["HALTED", "PAUSED", "RUN", "TASKS", "task_loop"]

TASKS: Final = (
    "wengert_tasks"  # i64 (pool, run): 0 when all rows have run, PAUSED, HALTED, or what a parallel loop failed with
)
PAUSED: Final = 1
HALTED: Final = 2

# The words of a run. LEFT is the range of chunks of row NEXT that a slice has left, or 0; PARALLEL_FOR and RESUME are the
# addresses of these functions; TIMES is where each row's start and end are written, in nanoseconds, or 0.
RUN: Final = {"TABLE": 0, "NEXT": 1, "END": 2, "LEFT": 3, "PARALLEL_FOR": 4, "RESUME": 5, "TIMES": 6}

_TASKS: Final = """
; Write the time into a place of the times, if they are wanted.
define internal void @stamp(ptr %times, i64 %place) alwaysinline {
entry:
  %wanted = icmp ne ptr %times, null
  br i1 %wanted, label %write, label %done
write:
  %time = call i64 @now()
  %slot = getelementptr i64, ptr %times, i64 %place
  store i64 %time, ptr %slot
  br label %done
done:
  ret void
}

; Run the range of chunks that is left of a row.
define internal i64 @go_on(ptr %pool, ptr %row, i64 %left, ptr %resume) {
  %call = alloca [5 x i64], align 8
  %words = load <4 x i64>, ptr %row, align 8
  store <4 x i64> %words, ptr %call, align 8
  %last = getelementptr i64, ptr %call, i64 4
  store i64 %left, ptr %last, align 8
  %rest = call i64 %resume(ptr %pool, ptr %call)
  ret i64 %rest
}

define i64 @$TASKS_NAME(ptr %pool, ptr %run) {
entry:
  %table_slot = getelementptr i64, ptr %run, i64 $TABLE
  %next_slot = getelementptr i64, ptr %run, i64 $NEXT
  %end_slot = getelementptr i64, ptr %run, i64 $END
  %left_slot = getelementptr i64, ptr %run, i64 $LEFT
  %parallel_for_slot = getelementptr i64, ptr %run, i64 $PARALLEL_FOR
  %resume_slot = getelementptr i64, ptr %run, i64 $RESUME
  %times_slot = getelementptr i64, ptr %run, i64 $TIMES
  %slice_slot = getelementptr i64, ptr %pool, i64 $SLICE
  %table = load ptr, ptr %table_slot
  %first = load i64, ptr %next_slot
  %end = load i64, ptr %end_slot
  %left = load i64, ptr %left_slot
  %parallel_for = load ptr, ptr %parallel_for_slot
  %resume = load ptr, ptr %resume_slot
  %times = load ptr, ptr %times_slot
  %slice = load i64, ptr %slice_slot
  %start = call i64 @now()
  %deadline = add i64 %start, %slice
  %begun = icmp ne i64 %left, 0
  br i1 %begun, label %finish, label %look
finish:
  %first_word = shl i64 %first, 2
  %first_row = getelementptr i64, ptr %table, i64 %first_word
  %after = call i64 @go_on(ptr %pool, ptr %first_row, i64 %left, ptr %resume)
  br label %came_back
look:
  %i = phi i64 [ %first, %entry ], [ %following, %ran ], [ %following, %clock ]
  %over = icmp sge i64 %i, %end
  br i1 %over, label %done, label %begin
begin:
  %word = shl i64 %i, 2
  %row = getelementptr i64, ptr %table, i64 %word
  %count_field = getelementptr i64, ptr %row, i64 1
  %grain_field = getelementptr i64, ptr %row, i64 2
  %count = load i64, ptr %count_field
  %grain = load i64, ptr %grain_field
  %place = shl i64 %i, 1
  %args_field = getelementptr i64, ptr %row, i64 3
  %kernel = load ptr, ptr %row
  %args = load ptr, ptr %args_field
  call void @stamp(ptr %times, i64 %place)
  %is_check = icmp eq ptr %kernel, null
  br i1 %is_check, label %check, label %kernel_row
check:
  %flag = load i64, ptr %args
  %fine = icmp eq i64 %flag, 0
  br i1 %fine, label %ran, label %halt
halt:
  store i64 %i, ptr %next_slot
  store i64 0, ptr %left_slot
  ret i64 $HALTED
kernel_row:
  %short = icmp sle i64 %count, %grain
  %steps = icmp sgt i64 %count, 0
  %single = and i1 %short, %steps
  br i1 %single, label %here, label %share
here:
  call void %kernel(ptr %args, i64 0, i64 %count)
  br label %ran
share:
  %rest = call i64 %parallel_for(ptr %pool, ptr %row)
  br label %came_back
came_back:
  %k = phi i64 [ %first, %finish ], [ %i, %share ]
  %remains = phi i64 [ %after, %finish ], [ %rest, %share ]
  %whole = icmp eq i64 %remains, 0
  br i1 %whole, label %ran, label %leave
ran:
  %row_ran = phi i64 [ %i, %here ], [ %i, %check ], [ %k, %came_back ]
  %often = phi i64 [ 7, %here ], [ 7, %check ], [ 0, %came_back ]
  %following = add i64 %row_ran, 1
  %start_place = shl i64 %row_ran, 1
  %end_place = or i64 %start_place, 1
  call void @stamp(ptr %times, i64 %end_place)
  %turn = and i64 %following, %often
  %unseen = icmp ne i64 %turn, 0
  br i1 %unseen, label %look, label %clock
clock:
  %time = call i64 @now()
  %late = icmp sge i64 %time, %deadline
  br i1 %late, label %pause, label %look
pause:
  br label %leave
leave:
  %next = phi i64 [ %k, %came_back ], [ %following, %pause ]
  %what = phi i64 [ %remains, %came_back ], [ 0, %pause ]
  store i64 %next, ptr %next_slot
  store i64 %what, ptr %left_slot
  %failed = icmp slt i64 %what, 0
  %result = select i1 %failed, i64 %what, i64 $PAUSED
  ret i64 %result
done:
  store i64 %end, ptr %next_slot
  store i64 0, ptr %left_slot
  ret i64 0
}
"""


def task_loop(triple: str) -> str:
    """Return the module that runs tables of tasks as LLVM IR for a target."""
    text = Template(_TASKS).substitute(
        RUN, TASKS_NAME=TASKS, PAUSED=PAUSED, HALTED=HALTED, SLICE=worker_loop.LAYOUT["SLICE"]
    )
    return parking(triple) + text
