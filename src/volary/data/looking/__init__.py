"""Data that nobody has a session for yet: its kind, classes, columns, some samples, and a session to begin with."""
