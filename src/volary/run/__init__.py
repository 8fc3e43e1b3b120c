"""The run directory: session, events, metrics, checkpoints, logs and verdicts of one run. Guide: docs/runs.md"""
