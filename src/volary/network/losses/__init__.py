"""Losses, one file each. Guide: docs/networks.md"""

from volary.plugins import Room

ROOM = Room(__name__, "LOSS", protocol="volary.network.losses._base:Loss")
