"""Loops of a user's own."""
