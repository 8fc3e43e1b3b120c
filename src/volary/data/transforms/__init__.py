"""Transforms of images before training: one file per transform. Guide: docs/data.md"""

from volary.plugins import Room

ROOM = Room(__name__, "TRANSFORM", protocol="volary.data.transforms._base:Transform")
