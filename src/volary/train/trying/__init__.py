"""The findings of a trial on a few samples about a session's steps: the memory that a worker needs, and the time."""
