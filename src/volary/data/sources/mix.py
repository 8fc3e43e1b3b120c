"""Several sources as one, each with its share of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from volary.data.samples import BOTH
from volary.data.sources._base import Prepares
from volary.errors import SettingError
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from volary.data.datasets.mixed import MixedSamples
    from volary.data.samples import Split


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Mixes samples of sources, which must have one shape. Validation data is all of theirs, one after the other."""

    sources: tuple[Annotated[Any, Choice("volary.data.sources")], ...]  # one or more, each with its settings
    weights: tuple[float, ...] = ()  # shares of an epoch, one a source; none: by their numbers of samples
    classes: tuple[
        str, ...
    ] = ()  # names of all classes, in the order of their numbers; none: all sources have the same

    def __post_init__(self) -> None:
        if not self.sources:
            raise SettingError("sources is empty; accepted: one or more sources")
        if self.weights and len(self.weights) != len(self.sources):
            raise SettingError(f"weights has {len(self.weights)} numbers; accepted: {len(self.sources)}, one a source")
        if self.weights and min(self.weights) <= 0:
            raise SettingError(f"weights has {min(self.weights):g}; accepted: above 0")
        if len(set(self.classes)) < len(self.classes):
            raise SettingError(f"classes is {', '.join(self.classes)}; accepted: each class once")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        for source in self.sources:
            source.check(parts)

    def count(self, split: Split) -> None:
        """None: the count is unknown before all sources are opened."""

    def open(self, split: Split) -> MixedSamples:
        from volary.data.data_names import alike
        from volary.data.datasets.mixed import together, weighted

        parts = alike([source.open(split) for source in self.sources], self.classes, "mix")
        if split == "test" or not self.weights:
            return together(parts, "mix")
        return weighted(parts, self.weights, "mix")

    def as_validation(self) -> Mix:
        sources = [one.as_validation() if isinstance(one, Prepares) else one for one in self.sources]
        return replace(self, sources=tuple(sources))


SOURCE = Mix
