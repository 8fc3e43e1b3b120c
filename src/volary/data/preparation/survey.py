"""Surveys a data set: decodes every sample once, and names those that cannot be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from volary.data.decoding.datum import DatumDecoder
from volary.data.decoding.decoder import Array, Decoder
from volary.data.decoding.images import ImageDecoder
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.transforming import Prepared
from volary.data.preparation.reading import each
from volary.data.records.packed import Packed

NAMED = 5  # samples of those of which something is dropped


@dataclass
class Survey:
    """Counts and sizes of the samples that can be decoded, and the values' mean and standard deviation per channel.

    damaged: name to reason. dropped: what of samples is not used, to their names. shapes: (height, width)
    of images, else the whole shape. Values are of 0 to 1 if they are bytes.
    """

    samples: int = 0
    record_bytes: list[int] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    dropped: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    shapes: Counter[tuple[int, ...]] = field(default_factory=Counter)
    classes: Counter[int] = field(default_factory=Counter)
    values: int = 0  # of a channel
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def dropped_in(self, split: str) -> list[str]:
        """Remarks on what is dropped of samples, with the names of some."""
        return [
            f"{split}: {len(names):,} sample{'s' * (len(names) > 1)} with {what}: "
            + ", ".join([*names[:NAMED], *["..."] * (len(names) > NAMED)])
            for what, names in self.dropped.items()
        ]

    @property
    def mean(self) -> list[float]:
        """The mean value of each channel."""
        return list(map(float, self.sums / max(1, self.values)))

    @property
    def std(self) -> list[float]:
        """The standard deviation of all values of each channel."""
        mean = self.sums / max(1, self.values)
        return list(map(float, np.sqrt(np.maximum(0, self.squares / max(1, self.values) - mean**2))))


@dataclass(frozen=True)
class _One:
    """A sample: its size in bytes, and either why it is damaged, or what of it is dropped, its shape and sums."""

    size: int
    reason: str = ""
    dropped: Sequence[str] = ()
    shape: tuple[int, ...] = ()
    values: int = 0
    sums: NDArray[np.float64] | float = 0.0
    squares: NDArray[np.float64] | float = 0.0


def survey(samples: Pipeline, progress: Callable[[int], None], *, values: bool) -> Survey:
    """Decode every sample in its own size. progress: of each. values: whether to add up the values, too."""
    found = Survey(samples=len(samples))

    def look(index: int) -> _One:
        record, size = samples.records, 0
        try:
            content = record.read(index)
            size = len(content)
            if isinstance(record, Packed):
                record.refuse_changed(index, content)
            decode = _in_own_size(samples.decode)  # another one for each: what it has dropped is of this record
            array = decode(content)
        except Exception as problem:  # decoders of foreign bytes raise whatever they like
            return _One(size, str(problem) or type(problem).__name__)
        return replace(_added_up(array, size) if values else _One(size, shape=array.shape), dropped=decode.dropped())

    for index, one in enumerate(each(look, range(len(samples)), torch.get_num_threads())):
        found.record_bytes.append(one.size)
        if one.reason:
            found.damaged[samples.records.name(index)] = one.reason
        else:
            found.shapes[one.shape[:2] if len(one.shape) == 3 and one.shape[2] in (1, 3) else one.shape] += 1
            found.classes[int(samples.targets[index])] += 1
            for what in one.dropped:
                found.dropped[what].append(samples.records.name(index))
            found.values += one.values
            found.sums, found.squares = found.sums + one.sums, found.squares + one.squares
        progress(1)
    return found


def _in_own_size(decoder: Decoder) -> Decoder:
    """The same decoder, resizing nothing."""
    if isinstance(decoder, Prepared):
        return _in_own_size(decoder.decoder)
    if isinstance(decoder, ImageDecoder):
        return ImageDecoder(decoder.channels, None)
    if isinstance(decoder, DatumDecoder):
        return DatumDecoder(ImageDecoder(decoder.image.channels, None), decoder.bgr)
    return decoder


def _added_up(array: Array, size: int) -> _One:
    of_bytes = array.dtype == np.uint8
    rows = array.reshape(-1, array.shape[-1] if of_bytes else 1)
    rows = rows.astype(np.float64) / (255 if of_bytes else 1)
    return _One(size, shape=array.shape, values=len(rows), sums=rows.sum(0), squares=(rows**2).sum(0))
