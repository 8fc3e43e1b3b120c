"""Representations of gradients in transit: exact, frames, factors. One file each. Guide: docs/codecs.md"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from volary.plugins import Room

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import Representation

ROOM = Room(__name__, "REPRESENTATION", protocol="volary.exchange.representations._base:Representation")


def representation_of(codec: Codec) -> Representation:
    """The representation of gradients that travel by `codec`, which names it."""
    found: Representation = _loaded(codec.representation).of(codec)
    return found


def representation_in(plan: BucketPlan) -> Representation:
    """How a bucket's gradients travel: all of the representation that its plan knows in part."""
    from volary.exchange.representations._base import Representation

    assert isinstance(plan.representation, Representation)
    return plan.representation


@cache
def _loaded(name: str) -> Any:
    """The plug-in: it is asked for once a layer, and finding it lists a folder."""
    return ROOM.load(name)
