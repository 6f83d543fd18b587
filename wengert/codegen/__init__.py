"""Loops to machine code: LLVM emission, vector mathematics, the contraction microkernel, the engine and its cache."""
