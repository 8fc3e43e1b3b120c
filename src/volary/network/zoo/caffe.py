"""A network of Caffe's: a prototxt file of any age, and trained weights to start from. See docs/caffe.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn

    from volary.network.caffe.source import NetSource


@dataclass(frozen=True)
class CaffeFiles:
    """The files of a network of Caffe's."""

    net: Path
    weights: Path | None
    stages: tuple[str, ...]

    def check(self) -> None:
        """Read the network, without torch, and look for its weights. Raises SettingError with all that is wrong."""
        from volary.network.caffe.source import read_net

        if self.weights is not None and not self.weights.is_file():
            raise SettingError(f"weights: {self.weights}: no such file; accepted: a .caffemodel or .caffemodel.h5")
        read_net(self.net, self.stages)


@dataclass(frozen=True, kw_only=True)
class Caffe(Network):
    """What the file's layers say, in training those of TRAIN, else those of TEST.

    Its outputs are what its losses are computed of, without losses the blobs that no layer reads, before a softmax.
    """

    needs_classes: ClassVar[bool] = False

    caffe: Path  # a network's prototxt file
    weights: Path | None = None  # a .caffemodel or .caffemodel.h5 whose values it starts with; null: fillers draw them
    missing: Literal["refuse", "fresh"] = "refuse"  # layers that the weights lack: an error, or drawn by fillers
    output: str | None = None  # the blob that it gives instead, by name
    stages: tuple[str, ...] = ()  # what the rules of layers (`include { stage: ... }`) are compared with

    @property
    def references(self) -> tuple[CaffeFiles, ...]:
        """The files that it names."""
        return (CaffeFiles(self.caffe, self.weights, self.stages),)

    def factors(self) -> Mapping[str, tuple[float, float]]:
        return self._read().factors()

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from volary.network.caffe.module import build, inputs_of
        from volary.network.caffe.weights.files import read_weights
        from volary.network.caffe.weights.loading import load

        source = self._read()
        outputs = (self.output,) if self.output is not None else source.trained_outputs()
        module, translation = build(source, inputs_of(source, input_shape), outputs)
        if self.weights is not None:
            load(module, translation, read_weights(self.weights), source.findings, fresh=self.missing == "fresh")
        return module

    def _read(self) -> NetSource:
        from volary.network.caffe.source import read_net

        return read_net(self.caffe, self.stages)


NETWORK = Caffe
