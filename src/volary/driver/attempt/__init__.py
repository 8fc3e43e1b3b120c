"""One attempt at a run: what is recorded of it, and what its processes are served."""
