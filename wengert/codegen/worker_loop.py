"""Parallel loops as LLVM IR: what the workers run, and what the thread that has a loop runs.

A loop is ``count`` steps of a kernel ``void (ptr args, i64 begin, i64 end)``, cut into chunks of ``grain`` steps. One
thread leads it: it publishes the loop, runs chunks like everybody else, and returns when all of them have been run.
Only one loop is shared at a time: a thread that finds the pool taken (a second Python thread, or a kernel that starts a
loop of its own) runs its chunks alone.

**The ticket** is one 64-bit word: the range of chunks nobody has claimed yet, its first chunk in the low half, its last
plus one in the high half. A thread claims a chunk by a compare-and-swap that makes the range one shorter: the leader at
the front, the workers at the back, so that in loops that follow each other over the same arrays a core meets again
what is in its cache. Equal halves: nothing to claim.

**A claim pins the loop.** The leader waits until the number of *finished chunks* is that of all chunks, so between the
claim and the count the loop can neither end nor be replaced; the kernel, its arguments, count and grain are read after
the claim. A late worker therefore runs a chunk of the loop that is published at the moment of its claim, whatever it
had seen before: if the word is the same again in a later loop, the claim is a claim in that loop. Nobody ever waits
for a worker that has claimed nothing.

**Order.** The fields are written before the ticket (sequentially consistent store; the claim acquires), and are written
again only after every claimed chunk was counted (the count releases, the leader's look at it acquires).

**Sleep.** An idle worker spins for a while, then reads the epoch, counts itself among the sleepers, looks at the ticket
once more, and sleeps while the epoch is the one it read. The leader writes the ticket, then reads the number of
sleepers, and if it needs some of them changes the epoch and wakes them. All of these are sequentially consistent:
either the worker sees the ticket, or the leader sees the sleeper; and if the epoch changes before the worker sleeps,
it does not sleep. The leader that waits for the last chunks does the same with the count of finished ones: it announces
that it waits, looks at the count, and sleeps while it is unchanged; a worker counts, then looks whether somebody waits.

**Busy machines.** A spinning worker offers its processor to others now and then: one that was just woken may sit on the
leader's. The leader never does, or it would lose a whole time slice to a stranger.

**Slices.** The leader stops claiming when ``slice`` nanoseconds have passed, takes the unclaimed range out of the ticket,
waits for what is claimed, and returns the range; the caller goes on with :data:`RESUME`. Between slices Python handles
signals.
"""

from string import Template
from typing import Final

from wengert.codegen.parking import parking

__all__ = [
    "ABANDONED", "INVALID", "LAUNCH", "LAYOUT", "LOST", "MOST_CHUNKS", "PARALLEL_FOR", "RESUME", "RUNNING", "SLOTS", "STOP",
    "STOPPED", "WORKER", "worker_loop",
]  # fmt: skip

# The functions of the module. Those that run a loop read it from 64-bit words and return the range that is left, 0 if none.
WORKER: Final = "wengert_worker"  # void (pool): help with every loop until the pool is stopped
STOP: Final = "wengert_stop"  # void (pool, state): set the state and wake everybody
LAUNCH: Final = "wengert_launch"  # i64 (pool, {kernel, count, grain, args ...}): the arguments themselves follow
PARALLEL_FOR: Final = "wengert_parallel_for"  # i64 (pool, {kernel, count, grain, address of args})
RESUME: Final = "wengert_resume"  # i64 (pool, {kernel, count, grain, address of args, range}): a range of its chunks

# Where the pool's fields lie, in 64-bit slots, eight to a cache line. A loop moves the first line between processors, and
# no other unless somebody sleeps.
LAYOUT: Final = {
    "TICKET": 0, "KERNEL": 1, "ARGS": 2, "COUNT": 3, "GRAIN": 4, "FINISHED": 5, "WAITING": 6,
    "SLEEPERS": 8, "EPOCH": 9,
    "OWNER": 16,
    "WORKERS": 24, "STATE": 25, "SPIN": 26, "SLICE": 27,
}  # fmt: skip
SLOTS: Final = 32

RUNNING, STOPPED, ABANDONED = 0, 1, 2  # states; abandoned: the workers are gone, as after a fork
INVALID: Final = -1  # returned for a negative count, a grain below 1, or too many chunks ...
LOST: Final = -2  # ... and where a fork took the workers away in the middle of a loop
MOST_CHUNKS: Final = 2**32 - 1
YIELD: Final = 15  # an idle worker lets others have its processor every 16th step, about every microsecond

_CHUNKS: Final = """
; One step of an idle worker. Now and then it lets another thread have the processor, which may be the leader.
define internal void @linger(i64 %step) alwaysinline {
entry:
  call void @relax()
  %low = and i64 %step, $YIELD
  %turn = icmp eq i64 %low, $YIELD
  br i1 %turn, label %yield, label %done
yield:
  call void @give_way()
  br label %done
done:
  ret void
}

define internal i1 @is_empty(i64 %range) alwaysinline {
  %first = and i64 %range, $MOST_CHUNKS
  %last = lshr i64 %range, 32
  %empty = icmp eq i64 %first, %last
  ret i1 %empty
}

define internal i32 @length(i64 %range) alwaysinline {
  %first = trunc i64 %range to i32
  %high = lshr i64 %range, 32
  %last = trunc i64 %high to i32
  %length = sub i32 %last, %first
  ret i32 %length
}

; Add step to the ticket unless it is empty; return what it was before.
define internal i64 @claim(ptr %job, i64 %step) alwaysinline {
entry:
  %seen = load atomic i64, ptr %job monotonic, align 8
  br label %look
look:
  %range = phi i64 [ %seen, %entry ], [ %now, %take ]
  %empty = call i1 @is_empty(i64 %range)
  br i1 %empty, label %done, label %take
take:
  %rest = add i64 %range, %step
  %swap = cmpxchg ptr %job, i64 %range, i64 %rest acquire monotonic, align 8
  %now = extractvalue { i64, i1 } %swap, 0
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %done, label %look
done:
  ret i64 %range
}

; Run a claimed chunk.
define internal void @run(ptr %job, i64 %index) alwaysinline {
  %kernel_slot = getelementptr i64, ptr %job, i64 $KERNEL
  %args_slot = getelementptr i64, ptr %job, i64 $ARGS
  %count_slot = getelementptr i64, ptr %job, i64 $COUNT
  %grain_slot = getelementptr i64, ptr %job, i64 $GRAIN
  %kernel = load ptr, ptr %kernel_slot
  %args = load ptr, ptr %args_slot
  %count = load i64, ptr %count_slot
  %grain = load i64, ptr %grain_slot
  %begin = mul i64 %index, %grain
  %rest = sub i64 %count, %begin
  %last = icmp slt i64 %rest, %grain
  %steps = select i1 %last, i64 %rest, i64 %grain
  %end = add i64 %begin, %steps
  call void %kernel(ptr %args, i64 %begin, i64 %end)
  ret void
}
"""

_WORKER: Final = """
; Run chunks from the back until none is unclaimed; return how many.
define internal i32 @help(ptr %pool) {
entry:
  br label %claim
claim:
  %ran = phi i32 [ 0, %entry ], [ %more, %run ]
  %range = call i64 @claim(ptr %pool, i64 -4294967296)
  %empty = call i1 @is_empty(i64 %range)
  br i1 %empty, label %done, label %run
run:
  %last = lshr i64 %range, 32
  %index = sub i64 %last, 1
  call void @run(ptr %pool, i64 %index)
  %more = add i32 %ran, 1
  br label %claim
done:
  ret i32 %ran
}

define void @$WORKER_NAME(ptr %pool) {
entry:
  %finished = getelementptr i64, ptr %pool, i64 $FINISHED
  %waiting = getelementptr i64, ptr %pool, i64 $WAITING
  %sleepers = getelementptr i64, ptr %pool, i64 $SLEEPERS
  %epoch = getelementptr i64, ptr %pool, i64 $EPOCH
  %state = getelementptr i64, ptr %pool, i64 $STATE
  %spin_slot = getelementptr i64, ptr %pool, i64 $SPIN
  %spin = load i64, ptr %spin_slot
  br label %idle
idle:
  %start = call i64 @now()
  br label %look
look:
  %step = phi i64 [ 0, %idle ], [ %next, %spin_on ]
  %range = load atomic i64, ptr %pool monotonic, align 8
  %nothing = call i1 @is_empty(i64 %range)
  br i1 %nothing, label %pause, label %work
work:
  %ran = call i32 @help(ptr %pool)
  %late = icmp eq i32 %ran, 0
  br i1 %late, label %idle, label %count
count:
  %before = atomicrmw add ptr %finished, i32 %ran seq_cst
  %waits = load atomic i32, ptr %waiting seq_cst, align 4
  %alone = icmp eq i32 %waits, 0
  br i1 %alone, label %idle, label %tell
tell:
  call void @unpark(ptr %finished, i32 1)
  br label %idle
pause:
  %now_state = load atomic i64, ptr %state monotonic, align 8
  %running = icmp eq i64 %now_state, $RUNNING
  br i1 %running, label %spin_on, label %exit
spin_on:
  call void @linger(i64 %step)
  %next = add i64 %step, 1
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %enough = icmp sgt i64 %spent, %spin
  br i1 %enough, label %announce, label %look
announce:
  %seen = load atomic i32, ptr %epoch seq_cst, align 4
  %others = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %range_now = load atomic i64, ptr %pool seq_cst, align 8
  %state_now = load atomic i64, ptr %state seq_cst, align 8
  %still_nothing = call i1 @is_empty(i64 %range_now)
  %still_running = icmp eq i64 %state_now, $RUNNING
  %tired = and i1 %still_nothing, %still_running
  br i1 %tired, label %sleep, label %awake
sleep:
  call void @park(ptr %epoch, i32 %seen)
  br label %awake
awake:
  %less = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %idle
exit:
  ret void
}

define void @$STOP_NAME(ptr %pool, i64 %new) {
  %epoch = getelementptr i64, ptr %pool, i64 $EPOCH
  %state = getelementptr i64, ptr %pool, i64 $STATE
  store atomic i64 %new, ptr %state seq_cst, align 8
  %old = atomicrmw add ptr %epoch, i32 1 seq_cst
  call void @unpark(ptr %epoch, i32 2147483647)
  ret void
}
"""

_LEADER: Final = """
; Run chunks from the front until none is unclaimed or the deadline has passed: how many, and the range that is left.
define internal { i32, i64 } @lead(ptr %job, i64 %deadline) {
entry:
  br label %claim
claim:
  %ran = phi i32 [ 0, %entry ], [ %more, %clock ]
  %range = call i64 @claim(ptr %job, i64 1)
  %empty = call i1 @is_empty(i64 %range)
  br i1 %empty, label %done, label %run
run:
  %index = and i64 %range, $MOST_CHUNKS
  call void @run(ptr %job, i64 %index)
  %more = add i32 %ran, 1
  %rest = load atomic i64, ptr %job monotonic, align 8
  %last = call i1 @is_empty(i64 %rest)
  br i1 %last, label %done, label %clock
clock:
  %time = call i64 @now()
  %late = icmp sge i64 %time, %deadline
  br i1 %late, label %leave, label %claim
leave:
  %taken = atomicrmw xchg ptr %job, i64 0 acquire
  br label %done
done:
  %all = phi i32 [ %ran, %claim ], [ %more, %run ], [ %more, %leave ]
  %left = phi i64 [ 0, %claim ], [ 0, %run ], [ %taken, %leave ]
  %half = insertvalue { i32, i64 } undef, i32 %all, 0
  %both = insertvalue { i32, i64 } %half, i64 %left, 1
  ret { i32, i64 } %both
}

; Wake as many sleepers as there are chunks beyond the leader's and the workers that are awake.
define internal void @call_workers(ptr %pool, i64 %chunks, i64 %workers) {
entry:
  %sleepers = getelementptr i64, ptr %pool, i64 $SLEEPERS
  %epoch = getelementptr i64, ptr %pool, i64 $EPOCH
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %need, label %done
need:
  %asleep_wide = zext i32 %asleep to i64
  %awake = sub i64 %workers, %asleep_wide
  %others = sub i64 %chunks, 1
  %fewer = icmp slt i64 %others, %workers
  %useful = select i1 %fewer, i64 %others, i64 %workers
  %needed = sub i64 %useful, %awake
  %any = icmp sgt i64 %needed, 0
  br i1 %any, label %wake, label %done
wake:
  %old = atomicrmw add ptr %epoch, i32 1 seq_cst
  %threads = trunc i64 %needed to i32
  call void @unpark(ptr %epoch, i32 %threads)
  br label %done
done:
  ret void
}

; Return when so many chunks are finished, or the pool was abandoned; say whether they are.
define internal i1 @await(ptr %pool, i32 %chunks) {
entry:
  %finished = getelementptr i64, ptr %pool, i64 $FINISHED
  %first = load atomic i32, ptr %finished acquire, align 4
  %ready = icmp eq i32 %first, %chunks
  br i1 %ready, label %done, label %begin
begin:
  %waiting = getelementptr i64, ptr %pool, i64 $WAITING
  %state = getelementptr i64, ptr %pool, i64 $STATE
  %spin_slot = getelementptr i64, ptr %pool, i64 $SPIN
  %spin = load i64, ptr %spin_slot
  %start = call i64 @now()
  br label %look
look:
  %seen = load atomic i32, ptr %finished acquire, align 4
  %over = icmp eq i32 %seen, %chunks
  br i1 %over, label %done, label %pause
pause:
  call void @relax()
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %enough = icmp sgt i64 %spent, %spin
  br i1 %enough, label %announce, label %look
announce:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  %count = load atomic i32, ptr %finished seq_cst, align 4
  %complete = icmp eq i32 %count, %chunks
  %now_state = load atomic i64, ptr %state seq_cst, align 8
  %abandoned = icmp eq i64 %now_state, $ABANDONED
  %leave = or i1 %complete, %abandoned
  br i1 %leave, label %leaving, label %sleep
sleep:
  call void @park(ptr %finished, i32 %count)
  br label %announce
leaving:
  store atomic i32 0, ptr %waiting seq_cst, align 4
  br label %done
done:
  %result = phi i1 [ true, %entry ], [ true, %look ], [ %complete, %leaving ]
  ret i1 %result
}
"""

_LOOP: Final = """
define internal void @fill(ptr %job, ptr %kernel, ptr %args, i64 %count, i64 %grain) alwaysinline {
  %kernel_slot = getelementptr i64, ptr %job, i64 $KERNEL
  %args_slot = getelementptr i64, ptr %job, i64 $ARGS
  %count_slot = getelementptr i64, ptr %job, i64 $COUNT
  %grain_slot = getelementptr i64, ptr %job, i64 $GRAIN
  store ptr %kernel, ptr %kernel_slot
  store ptr %args, ptr %args_slot
  store i64 %count, ptr %count_slot
  store i64 %grain, ptr %grain_slot
  ret void
}

; Run a range of chunks; return the range that is left.
define internal i64 @share(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain, i64 %range) {
entry:
  %private = alloca [8 x i64], align 64
  %owner = getelementptr i64, ptr %pool, i64 $OWNER
  %finished = getelementptr i64, ptr %pool, i64 $FINISHED
  %workers_slot = getelementptr i64, ptr %pool, i64 $WORKERS
  %slice_slot = getelementptr i64, ptr %pool, i64 $SLICE
  %workers = load i64, ptr %workers_slot
  %slice = load i64, ptr %slice_slot
  %start = call i64 @now()
  %deadline = add i64 %start, %slice
  %length = call i32 @length(i64 %range)
  %single = icmp eq i32 %length, 1
  %nobody = icmp eq i64 %workers, 0
  %lonely = or i1 %single, %nobody
  br i1 %lonely, label %alone, label %take
take:
  %taken = atomicrmw xchg ptr %owner, i64 1 acquire
  %busy = icmp ne i64 %taken, 0
  br i1 %busy, label %alone, label %publish
alone:
  call void @fill(ptr %private, ptr %kernel, ptr %args, i64 %count, i64 %grain)
  store i64 %range, ptr %private
  %own = call { i32, i64 } @lead(ptr %private, i64 %deadline)
  %rest = extractvalue { i32, i64 } %own, 1
  ret i64 %rest
publish:
  call void @fill(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain)
  store atomic i32 0, ptr %finished monotonic, align 4
  store atomic i64 %range, ptr %pool seq_cst, align 8
  %chunks = zext i32 %length to i64
  call void @call_workers(ptr %pool, i64 %chunks, i64 %workers)
  %led = call { i32, i64 } @lead(ptr %pool, i64 %deadline)
  %ran = extractvalue { i32, i64 } %led, 0
  %left = extractvalue { i32, i64 } %led, 1
  %unclaimed = call i32 @length(i64 %left)
  %claimed = sub i32 %length, %unclaimed
  %theirs = sub i32 %claimed, %ran
  %whole = call i1 @await(ptr %pool, i32 %theirs)
  store atomic i64 0, ptr %owner release, align 8
  %result = select i1 %whole, i64 %left, i64 $LOST
  ret i64 %result
}

; Run all chunks; return the range that is left.
define internal i64 @start(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain) {
entry:
  %short = icmp sle i64 %count, %grain
  %steps = icmp sgt i64 %count, 0
  %single = and i1 %short, %steps
  br i1 %single, label %whole, label %check
whole:
  call void %kernel(ptr %args, i64 0, i64 %count)
  ret i64 0
check:
  %negative = icmp slt i64 %count, 0
  %flat = icmp slt i64 %grain, 1
  %wrong = or i1 %negative, %flat
  br i1 %wrong, label %invalid, label %divide
divide:
  %before = sub i64 %count, 1
  %full = sdiv i64 %before, %grain
  %chunks = add i64 %full, 1
  %many = icmp sgt i64 %chunks, $MOST_CHUNKS
  br i1 %many, label %invalid, label %enter
enter:
  br i1 %steps, label %loop, label %done
loop:
  %range = shl i64 %chunks, 32
  %left = call i64 @share(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain, i64 %range)
  ret i64 %left
done:
  ret i64 0
invalid:
  ret i64 $INVALID
}

define i64 @$LAUNCH_NAME(ptr %pool, ptr %call) {
  %count_field = getelementptr i64, ptr %call, i64 1
  %grain_field = getelementptr i64, ptr %call, i64 2
  %args = getelementptr i64, ptr %call, i64 3
  %kernel = load ptr, ptr %call, align 8
  %count = load i64, ptr %count_field, align 8
  %grain = load i64, ptr %grain_field, align 8
  %left = call i64 @start(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain)
  ret i64 %left
}

define i64 @$PARALLEL_FOR_NAME(ptr %pool, ptr %call) {
  %count_field = getelementptr i64, ptr %call, i64 1
  %grain_field = getelementptr i64, ptr %call, i64 2
  %args_field = getelementptr i64, ptr %call, i64 3
  %kernel = load ptr, ptr %call, align 8
  %count = load i64, ptr %count_field, align 8
  %grain = load i64, ptr %grain_field, align 8
  %args = load ptr, ptr %args_field, align 8
  %left = call i64 @start(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain)
  ret i64 %left
}

define i64 @$RESUME_NAME(ptr %pool, ptr %call) {
  %count_field = getelementptr i64, ptr %call, i64 1
  %grain_field = getelementptr i64, ptr %call, i64 2
  %args_field = getelementptr i64, ptr %call, i64 3
  %range_field = getelementptr i64, ptr %call, i64 4
  %kernel = load ptr, ptr %call, align 8
  %count = load i64, ptr %count_field, align 8
  %grain = load i64, ptr %grain_field, align 8
  %args = load ptr, ptr %args_field, align 8
  %range = load i64, ptr %range_field, align 8
  %left = call i64 @share(ptr %pool, ptr %kernel, ptr %args, i64 %count, i64 %grain, i64 %range)
  ret i64 %left
}
"""


def worker_loop(triple: str) -> str:
    """Return the module of parallel loops as LLVM IR for a target."""
    entries = {"LAUNCH_NAME": LAUNCH, "PARALLEL_FOR_NAME": PARALLEL_FOR, "RESUME_NAME": RESUME}
    names = {"WORKER_NAME": WORKER, "STOP_NAME": STOP, **entries}
    numbers = {name: globals()[name] for name in ("RUNNING", "ABANDONED", "INVALID", "LOST", "MOST_CHUNKS", "YIELD")}
    text = Template(_CHUNKS + _WORKER + _LEADER + _LOOP).substitute(LAYOUT, **names, **numbers)
    return parking(triple) + text
