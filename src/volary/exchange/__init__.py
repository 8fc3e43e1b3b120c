"""Keepers of the agreed parameters, and how contributions reach them. One file each. Guide: docs/strategy.md"""

from volary.plugins import Room

ROOM = Room(
    __name__,
    "EXCHANGE",
    protocol="volary.exchange._base:Exchange",
    moved={"auto": "volary.codec", "factors": "volary.codec"},
)
