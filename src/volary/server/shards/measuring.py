"""Servers measure an update before they apply it: the action of a slice, and the total over slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from volary.server.protocol.norms import combined
from volary.server.protocol.updates import Closing
from volary.server.protocol.vectors import joined
from volary.server.shards.actions import FindNorm, FindProducts, Measurement, NormsFound, ProductsFound


def measurement(number: int, closing: Closing) -> Measurement:
    """The action that finds what an update which waits asks of slice `number`."""
    sum_of = number, closing.number, closing.contributions, closing.scale
    if closing.asked is not None:
        return FindProducts(*sum_of, closing.samples, closing.asked)
    assert closing.norm is not None, "nothing is asked of an update that does not wait"
    return FindNorm(*sum_of, closing.norm)


def all_found(closing: Closing, by_shard: Mapping[int, Sequence[Any]]) -> NormsFound | ProductsFound:
    """Measurements of an update, slice by slice, as a report by shard."""
    if closing.norm is None:
        return ProductsFound(closing.number, {shard: joined(pieces) for shard, pieces in by_shard.items()})
    return NormsFound(closing.number, {shard: combined(norms, closing.norm) for shard, norms in by_shard.items()})
