"""The state that an update keeps of one part of a parameter: of its optimiser, and of the average of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from volary.sharding.blocks import TensorBlock
    from volary.sharding.ranges import Range

AVERAGE = "average"  # among `each` of a part: the averages of its values
AVERAGED = "averaged"  # among `whole`: how often values have entered them, and after which update the newest did


@dataclass(frozen=True)
class PartState:
    """The state of `part`.

    each: entries with something of each value, (size,). whole: all others, which are the same for any part. block: what
    `part` is a run of values of, in their order in memory; None: the whole tensor.
    """

    part: Range
    each: Mapping[str, Tensor]
    whole: Mapping[str, Any]
    block: TensorBlock | None = None
