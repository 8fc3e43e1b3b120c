"""Networks of timm, by their names there: `network: "timm:resnet26"`. Needs `volary[timm]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.network.blocks.package import PackagedNetwork
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class TimmNetwork(Network):
    """A network of `timm.create_model` for the channels and classes of the data; no weights are downloaded."""

    model: str  # its name, such as resnet26
    arguments: Any = field(default_factory=dict)  # more that timm's function takes, such as {drop_rate: 0.1}

    def check(self) -> None:
        if not isinstance(self.arguments, dict):
            raise SettingError("arguments is no mapping; accepted: as {drop_rate: 0.1}")

    @property
    def references(self) -> tuple[PackagedNetwork, ...]:
        """The packages that have to be installed."""
        return (PackagedNetwork("timm", self.model),)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images (channels, height, width) to (batch, classes)."""
        (packaged,) = self.references
        packaged.check()
        import timm

        packaged.refuse_unknown(timm.list_models())
        of_data = {"num_classes": classes, "in_chans": input_shape[0]}
        module: nn.Module = timm.create_model(self.model, pretrained=False, **{**of_data, **self.arguments})
        return module


NETWORK = TimmNetwork
