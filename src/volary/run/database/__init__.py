"""The run's SQLite file: what is written to it, and what is read."""
