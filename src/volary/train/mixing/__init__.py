"""Ways to mix each sample of a batch with another. One file each. Guide: docs/training.md"""

from volary.plugins import Room

ROOM = Room(__name__, "MIXING", protocol="volary.train.mixing._base:Mixing")
