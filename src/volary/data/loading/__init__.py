"""Samples in storage: read ahead, decoded and transformed by threads, put into batches."""
