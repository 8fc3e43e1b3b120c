"""Averages of weights, kept beside what is trained. One file each. Guide: docs/weights.md"""

from volary.plugins import Room

ROOM = Room(__name__, "AVERAGE", protocol="volary.train.averages._base:Average")
