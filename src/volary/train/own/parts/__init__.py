"""A model of a user's own loop of which each worker holds a part: its gradients, optimisers, states, checkpoints."""
