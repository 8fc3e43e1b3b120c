"""Failure detection: lost, waiting and slow workers, and the diagnosis of a failed run."""
