"""Optimisers of our own, and of torch's as a session needs them: what files of optimizers/ build."""
