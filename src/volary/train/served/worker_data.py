"""A session's samples of one worker over servers: who reads the portions that the roster hands out, and when."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from volary.data.datasets.stream import Stream
from volary.data.sample_names import called
from volary.train.corrupt import teller
from volary.train.model import readable, watch_queue
from volary.train.served.portions import SessionPortions
from volary.train.served.server.rule import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from volary.data.samples import Samples
    from volary.session.spec import Session
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder


class WorkerData:
    """A session's data on one worker. validation: None if nothing is evaluated. clock: of learning rates.

    called: what to call the sample with a number, in a sentence.
    """

    def __init__(self, model: Model, device: torch.device, recorder: Recorder) -> None:
        session = self._session = model.session
        self._device, self._recorder = device, recorder
        self.samples = _indexed(session, model.samples, teller(recorder, "train"))
        evaluates = session.evaluate.every.unit != "never"
        self.validation = _indexed(session, model.validation, teller(recorder, "test")) if evaluates else None
        watch_queue(recorder, model.samples)
        self.called = partial(called, self.samples)
        self.clock = Clock.of(session, self.samples)

    def reader(self, counted: Callable[[torch.Tensor], float]) -> SessionPortions:
        """Return the reader of portions. counted: how much of targets (n, ...) counts, in samples."""
        data, settings = self._session.data, self._session.train
        return SessionPortions(
            self.samples,
            data.batch_size,
            self._device,
            self._recorder,
            seed=settings.seed,
            shuffle=data.shuffle,
            parts=settings.accumulate,
            counted=counted,
        )


def _indexed(session: Session, samples: Samples | Stream, report: Callable[[int, str], None]) -> Samples:
    samples = readable(session, samples, report)
    assert not isinstance(samples, Stream)  # open_data refuses it
    return samples
