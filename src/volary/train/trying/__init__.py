"""What trying a session on a few samples says of its steps: the memory that a worker needs, and the time."""
