"""Agreement of all ranks: on rank 0's first state, on what travels in which order, and on the votes of each step."""
