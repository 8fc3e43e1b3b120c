"""A server process of a run: its slices, its update rule, and what it writes of a checkpoint."""
