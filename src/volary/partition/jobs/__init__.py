"""Batches that short tasks of Spark learn from, without state: what a worker sends them, and what they do."""
