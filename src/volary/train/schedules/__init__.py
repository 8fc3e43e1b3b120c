"""Learning-rate schedules: a factor by step. One file each. Guide: docs/training.md"""

from volary.plugins import Room

ROOM = Room(__name__, "SCHEDULE", protocol="volary.train.schedules._base:Schedule")
