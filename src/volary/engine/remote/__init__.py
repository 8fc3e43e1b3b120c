"""Processes on other machines, over ssh: the connection, what is said over it, which files are brought."""
