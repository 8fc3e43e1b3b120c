"""Tells the processes of a run, once they have been started, which run they belong to and where it meets."""
