"""Published networks, one file each; the file's name is the setting's value. Guide: docs/networks.md"""

from volary.plugins import Room

ROOM = Room(__name__, "NETWORK", protocol="volary.network.zoo._base:Network")
