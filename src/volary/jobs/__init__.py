"""The queue of this machine: which run starts when, kept in a table, carried out by a runner. Guide: docs/queue.md"""
