"""The machine that code is made for: its name for LLVM, and the few facts that kernels are shaped by."""

import os
from functools import lru_cache
from typing import NamedTuple

import llvmlite.binding as llvm

__all__ = ["Target", "host"]


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
    if triple.startswith(("aarch64", "arm64")):
        return 16, 32, True, True, has.get("bf16", False)
    if has.get("avx512f") and has.get("avx512vl"):
        return 64, 32, True, True, has.get("avx512bf16", False)
    if has.get("avx2"):
        return 32, 16, has.get("fma", False), has.get("f16c", False), False
    return 16, 16, has.get("fma", False), False, False


@lru_cache(maxsize=1)
def host() -> Target:
    """Return the machine this process runs on.

    ``WENGERT_VECTOR_BYTES`` narrows its vectors (16, 32 or 64), to see what a smaller machine would run.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    try:
        has = dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM does not know this operating system's way to ask
        has = {}
    features = ",".join(("+" if has[name] else "-") + name for name in sorted(has))
    width, registers, fma, half, dot = _facts(triple, has)
    asked = os.environ.get("WENGERT_VECTOR_BYTES", "")
    if asked:
        if asked not in ("16", "32", "64"):
            raise ValueError(f"WENGERT_VECTOR_BYTES must be 16, 32 or 64, got {asked!r}")
        width = min(width, int(asked))
    return Target(triple, llvm.get_host_cpu_name(), features, width, registers, fma, half, dot)
