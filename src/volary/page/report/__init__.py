"""Runs as files that need no server: the page with its data inside, and Markdown."""
