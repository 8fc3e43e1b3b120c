"""Partitions of a network among workers. One file each. Guide: docs/strategy.md"""

from volary.plugins import Room

ROOM = Room(__name__, "PARTITION", planned=("sharded", "pipeline", "tensor", "hybrid"))
