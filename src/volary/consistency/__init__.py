"""Consistency models: when a worker pushes, and when it must pull. One file per model. Guide: docs/strategy.md"""

from volary.plugins import Room

ROOM = Room(
    __name__,
    "CONSISTENCY",
    protocol="volary.consistency._base:Consistency",
)
