"""Losses and what is measured beside them, one file each. Guide: docs/networks.md"""

from volary.plugins import Room

ROOM = Room(__name__, "LOSS")
