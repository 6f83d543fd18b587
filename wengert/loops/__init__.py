"""How one kernel runs: the loop IR, its text, verifier and evaluator, the moves that change it, and the choice of them."""
