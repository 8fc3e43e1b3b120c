"""A parameter server: processes of their own keep the parameters and update them (Li et al., OSDI 2014).

Workers push contributions to the slices of each server and pull what they became. Which contributions make an update,
and how old a value may be, is the consistency model's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import nn
    from torch.nn import Parameter

    from volary.codec._base import Codec
    from volary.exchange._way import Way

COLOCATED: Literal["colocated"] = "colocated"


@dataclass(frozen=True, kw_only=True)
class Server:
    """Slices of the parameters on server processes, which apply the update rule; workers push and pull."""

    servers: int | Literal["colocated"] = 1  # server processes; colocated: one beside each of the first workers
    replicas: int = 1  # servers that keep each slice; with 2 the run goes on when one server is killed
    pulls: Literal["none", "fp16", "bf16", "int8"] = "none"  # codec of what has changed since a worker's last pull
    transport: Literal["auto", "tcp", "shared"] = "auto"  # auto: shared memory inside a machine, TCP between machines
    factors: bool = False  # Linear layers push, where that is fewer bytes, the vectors whose products the gradient is

    equal: ClassVar[bool] = False  # replicas: each worker holds what it pulled last
    decides: ClassVar[bool] = False
    served: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.servers, str) and self.servers < 1:
            raise SettingError(f"servers is {self.servers}; accepted: a whole number, 1 or more, or 'colocated'")
        if self.replicas not in (1, 2):
            raise SettingError(f"replicas is {self.replicas}; accepted: 1 or 2")

    def count(self, workers: int) -> int:
        """Server processes of a run that starts with so many workers."""
        return workers if isinstance(self.servers, str) else self.servers

    def why_not(self, codec: Codec) -> str:
        """Why it does not go with `codec`; empty, as every codec works on pushes."""
        return ""

    def ways(self, codec: Codec, parameters: Mapping[str, Parameter]) -> dict[str, Way]:
        """The way of each parameter's pushes that do not travel as they are: all that the codec takes."""
        from volary.exchange._layers import encodable
        from volary.exchange._way import Encoded

        if codec.lossless:
            return {}
        return {name: Encoded(codec) for name, parameter in parameters.items() if encodable(parameter)}

    def factored(self, module: nn.Module, samples: int, servers: int) -> dict[str, Way]:
        """The parameters of the layers that push factors, if `samples` are pushed at once to so many servers."""
        from torch import nn

        from volary.exchange._outer import outer_layers
        from volary.exchange._way import Factors

        names = {id(parameter): name for name, parameter in module.named_parameters()}
        found: dict[str, Way] = {}
        for layer, weight in outer_layers(module) if self.factors else ():
            rows, columns = weight.shape[:2]
            if type(layer) is nn.Linear and samples * (rows + servers * columns) < rows * columns:
                own = [one for one in layer.parameters() if one.requires_grad]
                found |= {names[id(one)]: Factors() for one in own}
        return found


EXCHANGE = Server
