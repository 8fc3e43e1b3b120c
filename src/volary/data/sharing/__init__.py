"""A user's `DataLoader`, data set or iterable, shared out over the workers batch by batch.

Each worker runs a loader of its own, made as the user's was (collate_fn, num_workers, pin_memory, ...), over its share
of every global batch: of a data set with indices it reads that share alone, of a stream it reads all and keeps its own.
Who has no share of a small batch gets one without rows (`volary.data.batching.no_samples`), made of another's samples.
"""
