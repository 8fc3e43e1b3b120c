"""A worker as a member of a run: its process, its heartbeat, how it finds the others."""
