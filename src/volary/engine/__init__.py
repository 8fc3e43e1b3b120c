"""Volary starts the engine: who starts workers, watches and ends them. One file each. Guide: docs/engines.md"""

from volary.plugins import Room

ROOM = Room(__name__, "ENGINE", protocol="volary.engine._base:Engine")
