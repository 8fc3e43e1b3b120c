"""Classifiers of torchvision, by their names there: `network: "torchvision:resnet18"`. Needs `volary[torchvision]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.network.blocks.package import PackagedNetwork
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class TorchvisionNetwork(Network):
    """A network of `torchvision.models.get_model` for the classes of the data; no weights are downloaded."""

    model: str  # its name, such as resnet18
    arguments: Any = field(default_factory=dict)  # more that torchvision's function takes, such as {dropout: 0.1}

    def check(self) -> None:
        if not isinstance(self.arguments, dict):
            raise SettingError("arguments is no mapping; accepted: as {dropout: 0.1}")

    @property
    def references(self) -> tuple[PackagedNetwork, ...]:
        """The packages that have to be installed."""
        return (PackagedNetwork("torchvision", self.model),)

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Images of 3 channels to (batch, classes)."""
        (packaged,) = self.references
        packaged.check()
        from torchvision import models

        packaged.refuse_unknown(models.list_models(module=models))
        module: nn.Module = models.get_model(self.model, weights=None, num_classes=classes, **self.arguments)
        return module


NETWORK = TorchvisionNetwork
