"""Shows a run to people: every part here only reads a run directory. Guide: docs/runs.md"""
