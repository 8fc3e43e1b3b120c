"""A worker's part of what a step learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import adding_up
from volary.errors import PeerLost

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.train.recording.recorder import Recorder


class Weighed:
    """The value that this worker gave to `worker.weigh`, its `count`, and the sum over `group`, which comes beside the
    forward.

    Making one is a collective call. nothing: called if the sum is 0. survives: a lost worker does not end the run.
    """

    def __init__(
        self, count: float, group: Group, recorder: Recorder, nothing: Callable[[], None], *, survives: bool = False
    ) -> None:
        self.count, self._nothing, self._survives = count, nothing, survives
        self._all, self._recorder = torch.tensor(count, dtype=torch.float64), recorder
        self._wait: Callable[[], None] | None = None
        with self._alone_if_lost():
            self._wait = adding_up(self._all, group) if group.size > 1 else None

    @property
    def total(self) -> float:
        """The sum of all workers' counts. The first call waits for them; raises PeerLost."""
        if self._wait is not None:
            wait, self._wait = self._wait, None
            with self._recorder.called("worker.weigh"), self._alone_if_lost():
                wait()
            if not self._all:
                self._nothing()
        return self._all.item()

    @contextmanager
    def _alone_if_lost(self) -> Iterator[None]:
        """This worker's count is that of all if one is lost: nothing comes of the step, whose exchange breaks, too."""
        try:
            yield
        except PeerLost:
            if not self._survives:
                raise
            self._all.fill_(self.count)

    @property
    def weight(self) -> float:
        """This worker's part of it; 0 where nothing counts on any worker."""
        return self.count / self.total if self.total else 0.0


class Weighing:
    """Makes what `worker.weigh` is told one `Weighed` after another; all workers call it alike.

    apart: makes the group for that, with the first call, over connections that no model uses. survives: as of
    `Weighed`.
    """

    def __init__(self, recorder: Recorder, apart: Callable[[], Group], *, survives: bool = False) -> None:
        self._recorder, self._apart, self._survives = recorder, apart, survives
        self._group: Group | None = None
        self._warned_empty = False

    def __call__(self, count: float) -> Weighed:
        """Add up what counts of a batch on all workers. Raises PeerLost."""
        if self._group is None:
            self._group = self._apart()
        return Weighed(count, self._group, self._recorder, self._tell_empty, survives=self._survives)

    def regroup(self) -> None:
        """Others weigh together from the next call on, in a group that is made with it."""
        self._group = None

    def _tell_empty(self) -> None:
        """Say once that a batch learns from nothing."""
        if not self._warned_empty and self._recorder.leads:
            self._warned_empty = True
            self._recorder.event("warning", text="worker.weigh was given 0 by all workers: their gradients are zero")


@dataclass
class Share:
    """This worker's part of the newest batch. of_samples: by samples. epoch: how far, once the step is done.

    total: samples of all workers; 0 where they are not fed by `worker.feed`. ends_epoch: it is an epoch's last step.
    seen: samples of all steps so far, this one included, of all workers. batches: that `worker.feed` has given out.
    weighed: what counts of the batch instead of samples, if the loop has said it.
    """

    of_samples: float
    samples: int = 0
    total: int = 0
    epoch: float = 0.0
    ends_epoch: bool = False
    seen: int = 0
    batches: int = 0
    weighed: Weighed | None = None

    @property
    def weight(self) -> float:
        """The factor of this worker's gradients: its part of what counts."""
        return self.of_samples if self.weighed is None else self.weighed.weight

    @property
    def counted(self) -> tuple[float, float]:
        """How much counts of the batch: this worker's, and all workers'."""
        return (self.samples, self.total) if self.weighed is None else (self.weighed.count, self.weighed.total)

    @property
    def empty(self) -> bool:
        """Whether nothing counts of what this worker goes through the loop with."""
        return self.weight == 0

    def take(self, samples: int, total: int, *, ends_epoch: bool) -> None:
        """Begin the next batch: `samples` of `total` are this worker's."""
        self.samples, self.total, self.of_samples = samples, total, samples / total
        self.seen, self.batches, self.ends_epoch, self.weighed = self.seen + total, self.batches + 1, ends_epoch, None

    @property
    def rests(self) -> bool:
        """Whether this worker has no sample of a step in which others have."""
        return self.total > 0 and not self.samples
