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
    stages: tuple[str, ...]

    def check(self) -> None:
        """Read the network, without torch. Raises SettingError with all that is wrong."""
        from volary.network.caffe.source import read_net

        read_net(self.net, self.stages)


@dataclass(frozen=True, kw_only=True)
class Caffe(Network):
    """Computes the layers of the file: in training those of TRAIN, else those of TEST.

    Its outputs are what its losses are computed of, without losses the blobs that no layer reads, before a softmax.
    """

    needs_classes: ClassVar[bool] = False

    caffe: Path  # a network's prototxt file
    missing: Literal["refuse", "fresh"] = "refuse"  # layers that a .caffemodel lacks: an error, or drawn by fillers
    output: str | None = None  # the blob that it gives instead, by name
    stages: tuple[str, ...] = ()  # what the rules of layers (`include { stage: ... }`) are compared with

    @property
    def references(self) -> tuple[CaffeFiles, ...]:
        """The files that it names."""
        return (CaffeFiles(self.caffe, self.stages),)

    def check(self) -> None:
        if self.weights is not None and self._has_blobs and self.weights.has_rules:
            raise SettingError(
                f"weights is {self.weights.path.name} with rules for names; accepted for a file of Caffe's: its path "
                "alone, and missing=fresh"
            )
        if self.missing == "fresh" and self.weights is not None and not self._has_blobs:
            raise SettingError(
                f"missing is fresh, and weights is {self.weights.path.name}; accepted: weights.fresh, with a pattern "
                "of the layers that are drawn"
            )

    def factors(self) -> Mapping[str, tuple[float, float]]:
        return self._read().factors()

    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        from volary.network.caffe.module import build, inputs_of

        source = self._read()
        return build(source, inputs_of(source, input_shape), self._outputs(source))[0]

    def read_own_weights(self, module: nn.Module, input_shape: tuple[int, ...]) -> bool:
        if self.weights is None or not self._has_blobs:
            return False
        from volary.network.caffe.module import inputs_of
        from volary.network.caffe.translating import Translator
        from volary.network.caffe.weights.files import read_weights
        from volary.network.caffe.weights.loading import load

        source = self._read()
        translation = Translator(source, inputs_of(source, input_shape), self._outputs(source)).translate()
        load(module, translation, read_weights(self.weights.path), source.findings, fresh=self.missing == "fresh")
        return True

    @property
    def _has_blobs(self) -> bool:
        """Whether the weights are a file of Caffe's, by its name."""
        return self.weights is not None and self.weights.path.name.endswith((".caffemodel", ".caffemodel.h5"))

    def _outputs(self, source: NetSource) -> tuple[str, ...]:
        return (self.output,) if self.output is not None else source.trained_outputs()

    def _read(self) -> NetSource:
        from volary.network.caffe.source import read_net

        return read_net(self.caffe, self.stages)


NETWORK = Caffe
