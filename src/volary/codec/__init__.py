"""Tensors to few bytes and back. One file per codec; its name is the setting's value. Guide: docs/strategy.md"""

from volary.plugins import Room

ROOM = Room(__name__, "CODEC", planned=("fp16", "bf16", "int8", "onebit", "topk", "threshold", "powersgd"))
