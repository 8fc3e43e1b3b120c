"""First values of a layer's parameters, one file each; the file's name is the setting's value. Guide: docs/layers.md"""

from volary.plugins import Room

ROOM = Room(__name__, "FILLER", protocol="volary.network.fillers._base:Filler")
