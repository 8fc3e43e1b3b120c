"""What part of a network a worker holds. One file per way. Guide: docs/strategy.md"""

from volary.plugins import Room

ROOM = Room(__name__, "PARTITION", planned=("sharded", "pipeline", "tensor", "hybrid"))
