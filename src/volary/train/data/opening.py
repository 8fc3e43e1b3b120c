"""Opens a session's data: the source, the parts that it is divided into, a cache before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from volary.data.caching.cached import through_cache
from volary.data.choosing.division import numbers_of, part_of
from volary.data.choosing.part import DataPart
from volary.data.datasets.differing import let_differ
from volary.data.datasets.lines import Lines
from volary.data.datasets.stream import Stream
from volary.data.datasets.user_source import UserSource
from volary.data.loading.pipeline import Pipeline
from volary.data.skipping import Skipping
from volary.data.sources._base import Fitted, Prepares
from volary.errors import DataError, SettingError
from volary.errors.raised import sentences_of
from volary.session.fitting.abilities import lacks
from volary.session.values.reference import UserObject, name_of
from volary.train.uncounted import refusing_filled

if TYPE_CHECKING:
    from volary.data.samples import HandOver, Samples, Split
    from volary.network.criterion import Criterion
    from volary.session.data_section import Data
    from volary.session.spec import Session
    from volary.train.recording.recorder import Recorder


def open_data(session: Session, split: Split, criterion: Criterion | None = None) -> Samples | Stream:
    """The samples of `split`. Raises DataError, and SettingError for a stream where servers hand out portions.

    criterion: which they are for; it has to ignore what targets of differing size are filled up with.
    """
    opened = _opened(session.data, split)
    if isinstance(opened, Stream) and "steps together" in lacks(session.strategy):
        raise SettingError(
            f"data.source: {opened.name} is a stream, which only goes forward, and servers hand the samples of a "
            "lost or slow worker to others, which have passed them; accepted: samples that are read by index, or "
            "strategy.exchange=allreduce"
        )
    if isinstance(opened, Stream) and opened.in_shards:
        _refuse_sizes(session, opened.name)
    if session.data.pad or isinstance(opened, Lines):
        let_differ(opened, refusing_filled(criterion, name_of(session.loss)) if criterion else None)
    opened = through_cache(opened, session.data.cache, repr(session.data.source))
    return part_of(opened, session.data, split) if session.data.divided else opened


def _refuse_sizes(session: Session, name: str) -> None:
    """Raise SettingError for settings by which a worker's part of a batch is not what its shards have of it."""
    why = f"and {name} is a stream in shards, which say how many samples each worker has of a batch"
    if session.data.batch.largest(session.data.batch_size) != session.data.batch_size:
        raise SettingError(f"data.batch grows, {why}; accepted: fixed")
    if session.strategy.balance == "auto":
        raise SettingError(f"strategy.balance is auto, {why}; accepted: equal")


def _opened(data: Data, split: Split) -> Samples | Stream:
    """The source's samples of `split`; where data is divided all of the training part, prepared for `split`."""
    source, read = data.source, "train" if data.divided else split
    if isinstance(source, UserObject):
        with sentences_of(f"data {source.name!r}", DataError):
            return UserSource(reference=source.reference, load=source.load, arguments=source.arguments).open(read)
    if data.divided and isinstance(source, Fitted):
        return source.open_divided(lambda samples: numbers_of(samples, data, "train"))
    if read != split and isinstance(source, Prepares):
        source = source.as_validation()
    found: Samples | Stream = source.open(read)
    return found


def readable(session: Session, samples: Samples | Stream, report: Callable[[int, str], None]) -> Samples | Stream:
    """The samples without those that cannot be read, if the session lets them be skipped. report: called for each."""
    if isinstance(samples, Stream) or not session.data.skip_corrupt:
        return samples
    return Skipping(samples, report)


def watch_queue(recorder: Recorder, samples: Samples | Stream) -> None:
    """Let it be recorded how many batches wait to be learnt from, where they are made ahead."""
    inner = samples.whole if isinstance(samples, DataPart) else samples
    if recorder.usage is not None and isinstance(inner, Pipeline):
        recorder.usage.queues["data"] = lambda: inner.ready


def tell_hand_over(recorder: Recorder, samples: Samples | Stream) -> None:
    """Let it be recorded, by one worker, that another system has handed samples over, and how long that took."""
    inner = samples.whole if isinstance(samples, DataPart) else samples
    found: HandOver | None = getattr(inner, "handed_over", None)
    if found is not None and recorder.leads:
        recorder.event("handed_over", **asdict(found))
