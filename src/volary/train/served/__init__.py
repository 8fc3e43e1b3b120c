"""Training over parameter servers: a worker's work there, and what a server process does. Guide: docs/server.md"""
