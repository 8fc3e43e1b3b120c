"""Samples to batches: collated, filled up to one shape."""
