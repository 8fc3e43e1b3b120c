"""Strategies, as a worker's loop sees them: how replicas stay one model."""
