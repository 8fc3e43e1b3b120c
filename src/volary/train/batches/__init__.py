"""Rules for the number of samples of a step. One file each. Guide: docs/training.md"""

from volary.plugins import Room

ROOM = Room(__name__, "BATCH", protocol="volary.train.batches._base:Batches")
