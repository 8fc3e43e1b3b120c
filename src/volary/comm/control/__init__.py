"""The run's one keyed server, and whoever speaks with it."""
