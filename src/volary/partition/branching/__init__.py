"""Branches of a network that some of its workers have: which layers, where values come and go, and how they run."""
