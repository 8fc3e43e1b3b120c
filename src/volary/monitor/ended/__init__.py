"""Runs that have ended: what is said of them, and how they go on."""
