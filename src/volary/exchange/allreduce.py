"""All-reduce: every worker keeps all parameters, and contributions are summed among all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from volary.exchange._routed import Routed

if TYPE_CHECKING:
    from torch.nn import Parameter

    from volary.codec._base import Codec
    from volary.exchange._way import Way


@dataclass(frozen=True, kw_only=True)
class AllReduce(Routed):
    """Sums in shared memory where all workers are on one machine, else over the route that suits the network."""

    equal: ClassVar[bool] = True
    decides: ClassVar[bool] = False

    def why_not(self, codec: Codec) -> str:
        """Why it does not go with `codec`; empty if it does."""
        if self.route == "shared" and not codec.lossless:
            return "in shared memory nothing travels that could be encoded; nearest: route=auto"
        return ""

    def ways(self, codec: Codec, parameters: Mapping[str, Parameter]) -> dict[str, Way]:
        """The way of each parameter that does not travel as it is: all that the codec takes."""
        from volary.exchange._layers import encodable
        from volary.exchange._way import Encoded

        if codec.lossless:
            return {}
        return {name: Encoded(codec) for name, parameter in parameters.items() if encodable(parameter)}


EXCHANGE = AllReduce
