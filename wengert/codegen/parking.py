"""How a thread passes time, as LLVM IR: look at the clock, spin, and sleep until a word in memory changes.

Every operating system names these differently; :func:`parking` defines the same five functions for each of them:

    i64  @now()                     nanoseconds on a clock that never goes back
    void @relax()                   one step of a spinning loop: be kind to the other thread of the core
    void @give_way()                let another thread that is ready have this processor
    void @park(ptr word, i32 seen)  sleep while the 32-bit word still is ``seen``; may also return for no reason
    void @unpark(ptr word, i32 n)   wake up to n (at least 1) of the threads that sleep on the word
"""

from string import Template
from typing import Final

__all__ = ["parking"]

# The number of the futex system call; 128 is FUTEX_WAIT and 129 is FUTEX_WAKE, both of one process.
_FUTEX: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "powerpc64le": 221, "s390x": 238}

_RELAX: Final = {
    "x86": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "arm": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "other": ("", ""),
}

_GIVE_WAY: Final = """
declare i32 @sched_yield()

define internal void @give_way() {
  %ignored = call i32 @sched_yield()
  ret void
}
"""

_POSIX_CLOCK: Final = """
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %time = alloca [2 x i64]
  %ignored = call i32 @clock_gettime(i32 $MONOTONIC, ptr %time)
  %seconds = load i64, ptr %time
  %field = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %field
  %whole = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %whole, %rest
  ret i64 %nanoseconds
}
"""

_LINUX: Final = """
declare i64 @syscall(i64, ...)

define internal void @park(ptr %word, i32 %seen) {
  %value = zext i32 %seen to i64
  %ignored = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 128, i64 %value, ptr null, ptr null, i64 0)
  ret void
}

define internal void @unpark(ptr %word, i32 %threads) {
  %count = zext i32 %threads to i64
  %ignored = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 129, i64 %count, ptr null, ptr null, i64 0)
  ret void
}
"""

# Operation 1 compares 32 bits and waits; flag 0x1000000 leaves errno alone, flag 0x100 wakes all.
_APPLE: Final = """
declare i64 @clock_gettime_nsec_np(i32)
declare i32 @__ulock_wait(i32, ptr, i64, i32)
declare i32 @__ulock_wake(i32, ptr, i64)

define internal i64 @now() {
  %nanoseconds = call i64 @clock_gettime_nsec_np(i32 8) ; CLOCK_UPTIME_RAW
  ret i64 %nanoseconds
}

define internal void @park(ptr %word, i32 %seen) {
  %value = zext i32 %seen to i64
  %ignored = call i32 @__ulock_wait(i32 16777217, ptr %word, i64 %value, i32 0)
  ret void
}

define internal void @unpark(ptr %word, i32 %threads) {
  %one = icmp eq i32 %threads, 1
  %operation = select i1 %one, i32 16777217, i32 16777473
  %ignored = call i32 @__ulock_wake(i32 %operation, ptr %word, i64 0)
  ret void
}
"""

_WINDOWS: Final = """
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)
declare i32 @SwitchToThread()
declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressSingle(ptr)
declare void @WakeByAddressAll(ptr)

define internal i64 @now() {
  %counter = alloca i64
  %frequency = alloca i64
  %ignored = call i32 @QueryPerformanceCounter(ptr %counter)
  %ignored2 = call i32 @QueryPerformanceFrequency(ptr %frequency)
  %ticks = load i64, ptr %counter
  %rate = load i64, ptr %frequency
  %seconds = udiv i64 %ticks, %rate
  %rest = urem i64 %ticks, %rate
  %whole = mul i64 %seconds, 1000000000
  %scaled = mul i64 %rest, 1000000000
  %part = udiv i64 %scaled, %rate
  %nanoseconds = add i64 %whole, %part
  ret i64 %nanoseconds
}

define internal void @give_way() {
  %ignored = call i32 @SwitchToThread()
  ret void
}

define internal void @park(ptr %word, i32 %seen) {
  %value = alloca i32
  store i32 %seen, ptr %value
  %ignored = call i32 @WaitOnAddress(ptr %word, ptr %value, i64 4, i32 -1)
  ret void
}

define internal void @unpark(ptr %word, i32 %threads) {
entry:
  %single = icmp eq i32 %threads, 1
  br i1 %single, label %one, label %all
one:
  call void @WakeByAddressSingle(ptr %word)
  ret void
all:
  call void @WakeByAddressAll(ptr %word)
  ret void
}
"""

# Any other POSIX system: sleep a millisecond and look again.
_OTHER: Final = """
declare i32 @poll(ptr, i64, i32)

define internal void @park(ptr %word, i32 %seen) {
  %ignored = call i32 @poll(ptr null, i64 0, i32 1)
  ret void
}

define internal void @unpark(ptr %word, i32 %threads) {
  ret void
}
"""


def parking(triple: str) -> str:
    """Return the definitions of ``now``, ``relax``, ``give_way``, ``park`` and ``unpark`` for a target.

    Example:
        >>> from wengert.codegen.parking import parking
        >>> "WaitOnAddress" in parking("x86_64-pc-windows-msvc")
        True
    """
    machine, _, system = triple.partition("-")
    declaration, step = _RELAX["x86" if machine == "x86_64" else "arm" if machine in ("aarch64", "arm64") else "other"]
    relax = f"{declaration}\n\ndefine internal void @relax() {{\n  {step}\n  ret void\n}}\n"
    if "windows" in system:
        return relax + _WINDOWS
    if "apple" in system:
        return relax + _GIVE_WAY + _APPLE
    clock = Template(_POSIX_CLOCK)
    if "linux" in system and machine in _FUTEX:
        return relax + _GIVE_WAY + clock.substitute(MONOTONIC=1) + Template(_LINUX).substitute(FUTEX=_FUTEX[machine])
    return relax + _GIVE_WAY + clock.substitute(MONOTONIC=1 if "linux" in system else 4) + _OTHER
