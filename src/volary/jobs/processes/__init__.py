"""Processes of the queue: drivers that are forked, and a runner that is woken."""
