"""Tells who decodes samples and what of them is not read; counts reads by level of the cache and retries of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from volary.data.caching.cached import pipelines, reads
from volary.storage.retrying import RETRIES

if TYPE_CHECKING:
    from volary.data.datasets.stream import Stream
    from volary.data.loading.choice import Decoding
    from volary.data.loading.pipeline import Pipeline
    from volary.data.samples import Samples, Split
    from volary.train.recording.recorder import Recorder

NAMES = ("memory", "disk", "source", "retries")


def dropped(samples: Samples | Stream, split: Split) -> list[str]:
    """Sentences about what samples of `split` have that nothing is made of, of those that were decoded so far."""
    return _dropped(pipelines(samples), split)


def tell_dropped(samples: Samples | Stream, split: Split, recorder: Recorder) -> None:
    """Warn of that once, as one worker for all."""
    _warn_of(pipelines(samples), split, recorder)


def _dropped(decoding: Sequence[Pipeline], split: Split) -> list[str]:
    found = dict.fromkeys(what for pipeline in decoding for what in pipeline.decode.dropped())
    return [f"the {split} part has samples with {what}; `volary data check` names them" for what in found]


def _warn_of(decoding: Sequence[Pipeline], split: Split, recorder: Recorder) -> None:
    if recorder.leads:
        for text in _dropped(decoding, split):
            recorder.warn_once(text)


class Reads:
    """Reports reads of this worker's training data. Says nothing if there is no cache and no store failed."""

    def __init__(self, samples: Samples | Stream, recorder: Recorder) -> None:
        self._samples, self._recorder = samples, recorder
        self._reported: Counter[str] = Counter()
        self._pipelines = pipelines(samples)
        self._decoding: list[tuple[Decoding, str] | None] = [None] * len(self._pipelines)

    def tell_decoding(self) -> None:
        """Tell who decodes the samples of each source, and how many read ahead: once each is decided.

        And once, by one worker, if samples had something that nothing is made of.
        """
        _warn_of(self._pipelines, "train", self._recorder)
        for source, pipeline in enumerate(self._pipelines):
            found, why = pipeline.decoding, pipeline.readers_why
            if found is not None and (found, why) != self._decoding[source]:
                self._decoding[source] = found, why
                self._recorder.event(
                    "decoding", source=source, **asdict(found), readers=pipeline.readers, readers_why=why
                )

    def end_epoch(self, epoch: int) -> None:
        """Tell what was read since the end of the epoch before; some of it is of the epoch that comes."""
        now = reads(self._samples) + Counter(retries=RETRIES.count)
        new, self._reported = now - self._reported, now
        if new and epoch >= 0:
            self._recorder.event(
                "reads", epoch=epoch, **{name: new[name] for name in ("memory", "disk", "source", "retries")}
            )
