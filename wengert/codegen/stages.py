"""The memory of stages: it lies on the stack of a thread, so a bound of it is known before a kernel is made."""

import math
from collections.abc import Mapping
from typing import Final

from wengert.errors import KernelError
from wengert.loops.ir import Kernel, Stage, walk
from wengert.loops.scalar import Scalar, size_of
from wengert.loops.text import line_of

__all__ = ["STACK", "check_stages", "interval"]

STACK: Final = 1 << 19  # bytes that the stages of one kernel may take together


def check_stages(kernel: Kernel, limits: Mapping[str, int]) -> None:
    """Check that the stages of a kernel fit on the stack whatever its sizes are.

    Args:
        limits: the largest values of sizes that whoever calls the kernel lets through.

    Raises:
        KernelError: if they may be larger than ``STACK`` together.

    Example:
        >>> from wengert.loops.text import parse
        >>> kernel = parse("kernel f(x: f32[n: 1])\\n  stage row: f32[n]\\n")
        >>> check_stages(kernel, {"n": 1000})
        >>> check_stages(kernel, {"n": 10**7})
        Traceback (most recent call last):
        wengert.errors.KernelError: the stages of kernel f may take 40000000 bytes of the stack, which has room for 524288; ...
    """
    total = 0.0
    for stage in (s for s in walk(kernel.body) if isinstance(s, Stage)):
        total += max(0, interval(stage.size, limits)[1]) * size_of(stage.dtype)
        if total > STACK:
            taken = f"{total:.0f} bytes" if total < math.inf else "any number of bytes"
            raise KernelError(
                f"the stages of kernel {kernel.name} may take {taken} of the stack, which has room for {STACK}; call it "
                f"with smaller sizes, or bound the size of the stage\n{line_of(kernel, stage)}"
            )


def interval(x: Scalar, limits: Mapping[str, int]) -> tuple[float, float]:
    """Return the least and the largest value that an expression of sizes and numbers can have."""
    if x.op == "const":
        return x.data, x.data
    if x.op == "size":
        return 0, limits.get(x.data, math.inf)
    (a, b), (c, d) = (interval(arg, limits) for arg in x.args)
    if x.op == "add":
        return a + c, b + d
    if x.op == "sub":
        return a - d, b - c
    if x.op == "minimum":
        return min(a, c), min(b, d)
    if x.op == "maximum":
        return max(a, c), max(b, d)
    if x.op == "mul":
        ends = [p * q if p and q else 0 for p in (a, b) for q in (c, d)]  # 0 times what has no bound is 0
        return min(ends), max(ends)
    if x.op == "quotient" and c == d > 0:
        return a // c if a > -math.inf else a, b // c if b < math.inf else b
    return -math.inf, math.inf
