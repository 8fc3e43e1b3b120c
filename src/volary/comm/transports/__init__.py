"""Transports of messages with tensors between two processes. One file per transport. Guide: docs/server.md"""

from volary.plugins import Room

ROOM = Room(__name__, "TRANSPORT", protocol="volary.comm.transports._base:Transport")
