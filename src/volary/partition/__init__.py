"""Partitions of a network among workers. One file each. Guide: docs/partition.md"""

from volary.plugins import Room

ROOM = Room(
    __name__,
    "PARTITION",
    protocol="volary.partition._base:Partition",
)
