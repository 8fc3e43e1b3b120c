"""The start of a worker of a run of a user's own loop, as a function or as a program."""
