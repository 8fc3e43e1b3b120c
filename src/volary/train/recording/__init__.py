"""The cost of a step, counted where it arises."""
