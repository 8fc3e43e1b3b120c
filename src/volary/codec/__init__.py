"""Codecs: gradients in fewer bytes. One file per codec; its name is the setting's value. Guide: docs/codecs.md"""

from volary.plugins import Room

ROOM = Room(
    __name__, "CODEC", protocol="volary.codec._base:Codec", by_pattern="volary.codec.by_layer.patterns:Patterns"
)
