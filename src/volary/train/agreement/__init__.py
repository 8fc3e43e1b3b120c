"""What all ranks agree on: rank 0's first state, what travels in which order, and the votes of each step."""
