"""Copies of a run in the formats of other tools: one file per logger. Guide: docs/loggers.md"""

from volary.plugins import Room

ROOM = Room(__name__, "LOGGER", protocol="volary.loggers._base:Logger")
