"""One layer's translation: what it is made of, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.layers._base import LayerKind, Shape


@dataclass(frozen=True)
class CaffeLayer:
    """A layer of a file, with the shapes (of one sample) of the blobs that it reads.

    batch: samples that the file's Input layer declares, which Reshape layers may repeat; None: it declares none.
    """

    message: CaffeMessage
    given: tuple[Shape, ...]
    findings: Findings
    phase: Literal["TRAIN", "TEST"]
    batch: int | None = None

    @property
    def name(self) -> str:
        """The layer's name in its file."""
        return str(self.message.one("name"))

    def settings(self, name: str) -> CaffeMessage:
        """The message with the settings of a layer's type."""
        return self.message.part(name)

    def ignore(self, settings: CaffeMessage, *names: str, why: str) -> None:
        """Note fields that are given and change nothing."""
        for name in names:
            if name in settings:
                self.findings.ignore(f"{name} is ignored: {why}", settings.line_of(name), self.name)


@dataclass(frozen=True)
class Translated:
    """The translation of a layer: a kind of the graph's layers.

    statistics: its blobs are those of batch norm: sums of means and variances, and what they are divided by.
    transposed: its first blob is the transpose of the parameter.
    """

    kind: LayerKind
    statistics: bool = False
    transposed: bool = False


Translate = Callable[[CaffeLayer], Translated]
ENGINE = "it says on which of Caffe's implementations a layer runs"


def numbers(values: list[Any]) -> int | tuple[int, ...]:
    """One number, or one for each axis, as settings of windows are given."""
    return values[0] if len(values) == 1 else tuple(values)
