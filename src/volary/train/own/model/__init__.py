"""A model of a user's own loop: its gradients, its losses, its steps, and what of it changes."""
