"""Overlap with compute: the communication thread, the update thread, and the order in which they work."""
