"""Training on without a worker that is lost: what the others keep in memory, and how they meet again."""
