"""The machine that code is made for: its name for LLVM, and the few facts that kernels are shaped by."""

from functools import lru_cache
from typing import Final, NamedTuple

from wengert.codegen.binding import llvm
from wengert.environment import variable

__all__ = ["LEVELS", "Target", "host"]

# What `WENGERT_CPU` may ask for, with the features that each adds to the one before.
LEVELS: Final[dict[str, tuple[str, ...]]] = {
    "x86-64": (),
    "x86-64-v2": ("sse4.2", "ssse3", "popcnt"),
    "x86-64-v3": ("avx", "avx2", "fma", "f16c", "bmi2"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


class Target(NamedTuple):
    """What code generation needs to know of a processor.

    Attributes:
        triple, cpu, features: LLVM's names; ``features`` is sorted, so that equal machines have equal names.
        vector_bytes: the width of a vector register that kernels use. registers: how many of them there are.
        fma: whether it multiplies and adds in one instruction. half: whether it converts float16 in one instruction.
        dot: whether it has dot products of bfloat16 pairs.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    fma: bool
    half: bool
    dot: bool

    @property
    def key(self) -> str:
        """What names the machine in the cache of kernels."""
        return f"{self.triple} {self.cpu} {self.features} {self.vector_bytes}"


def _facts(triple: str, has: dict[str, bool]) -> tuple[int, int, bool, bool, bool]:
    """Return (vector_bytes, registers, fma, half, dot) of a processor with these features."""
    if triple.startswith(("aarch64", "arm64")):
        return 16, 32, True, True, has.get("bf16", False)
    if has.get("avx512f") and has.get("avx512vl"):
        return 64, 32, True, True, has.get("avx512bf16", False)
    fma, half = has.get("fma", False), has.get("f16c", False)
    return (32 if has.get("avx2") else 16), 16, fma, half, False


def _features() -> dict[str, bool]:
    """Return what LLVM finds that this processor has and has not."""
    try:
        return dict(llvm().get_host_cpu_features())
    except RuntimeError:  # LLVM does not know this operating system's way to ask
        return {}


def _level(asked: str, has: dict[str, bool]) -> dict[str, bool]:
    """Return the features of a processor that ``WENGERT_CPU`` asks for, which this one must have.

    Raises:
        ValueError: if this processor is below it.
    """
    names = list(LEVELS)
    wanted = {feature: True for name in names[: names.index(asked) + 1] for feature in LEVELS[name]}
    missing = [feature for feature in wanted if not has.get(feature)]
    if missing:
        raise ValueError(f"WENGERT_CPU={asked} needs {', '.join(missing)}, which this processor does not have")
    return wanted


@lru_cache(maxsize=1)
def host() -> Target:
    """Return the machine this process runs on.

    Two variables of the environment make less of it, to see what a smaller machine would run: ``WENGERT_CPU`` (on x86
    ``x86-64``, ``x86-64-v2``, ``x86-64-v3`` or ``x86-64-v4``) takes away instructions, ``WENGERT_VECTOR_BYTES`` (16, 32
    or 64) narrows the vectors alone.

    Raises:
        ValueError: if a variable has a value that is not listed here, or that is more than the processor can do.

    Example:
        >>> from wengert.codegen.target import host
        >>> host().vector_bytes in (16, 32, 64)
        True
    """
    triple, cpu, has = llvm().get_process_triple(), llvm().get_host_cpu_name(), _features()
    if asked := variable("WENGERT_CPU"):
        cpu, has = asked, _level(asked, has)
    features = ",".join(("+" if has[name] else "-") + name for name in sorted(has))
    width, registers, fma, half, dot = _facts(triple, has)
    width = min(width, variable("WENGERT_VECTOR_BYTES") or width)
    return Target(triple, cpu, features, width, registers, fma, half, dot)
