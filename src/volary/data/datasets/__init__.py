"""Data sets: read by index or as a stream, a user's own, and several as one."""
