"""How one kernel runs: the loop IR, its text, verifier and evaluator, the moves that change it, and the choice of them."""

from wengert.loops import monoids  # the table of monoids is filled when they are declared

__all__ = ["monoids"]
