"""Representations of gradients in transit: exact, frames, factors. One file each. Guide: docs/codecs.md"""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.plugins import Room

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.exchange.representations._base import Representation

ROOM = Room(__name__, "REPRESENTATION", protocol="volary.exchange.representations._base:Representation")


def representation_of(codec: Codec) -> Representation:
    """That of gradients which travel by `codec`, one that names its representation."""
    found: Representation = ROOM.load(codec.representation).of(codec)
    return found
