"""A session's samples of one worker over servers: who reads the portions that the roster hands out, and when."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from volary.data.choosing.weights import weights_of
from volary.data.datasets.stream import Stream
from volary.data.sample_names import called
from volary.data.sample_reader import SampleReader
from volary.train.data.corrupt import teller
from volary.train.data.opening import readable, tell_hand_over, watch_queue
from volary.train.recording.reads import Reads
from volary.train.served.portions import SessionPortions
from volary.train.served.server.rule import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.data.samples import Samples
    from volary.session.spec import Session
    from volary.train.model import Model, TrainedNetwork
    from volary.train.recording.recorder import Recorder


class ServedData:
    """A session's data on one worker. validation: None if nothing is evaluated. clock: of learning rates.

    called: what to call the sample with a number, in a sentence.
    """

    def __init__(self, model: Model, recorder: Recorder) -> None:
        session = self._session = model.session
        self._recorder = recorder
        self.samples = _indexed(session, model.samples, teller(recorder, "train"))
        evaluates = session.evaluate.every.unit != "never"
        self.validation = _indexed(session, model.validation, teller(recorder, "test")) if evaluates else None
        self._weights = weights_of(model.samples, session.data.sampling)
        watch_queue(recorder, model.samples)
        tell_hand_over(recorder, model.samples)
        self.called = partial(called, self.samples)
        self.clock = Clock.of(session, self.samples)

    def reader(self, network: TrainedNetwork) -> SessionPortions:
        """Return the reader of portions that `network` learns from."""
        data, settings = self._session.data, self._session.train
        reader = SampleReader(
            self.samples, data.batch_size, seed=settings.seed, shuffle=data.shuffle, weights=self._weights
        )
        reads = Reads(self.samples, self._recorder)
        return SessionPortions(reader, data.batch_size, settings.accumulate, network, reads)


def _indexed(session: Session, samples: Samples | Stream, report: Callable[[int, str], None]) -> Samples:
    samples = readable(session, samples, report)
    assert not isinstance(samples, Stream)  # open_data refuses it
    return samples
