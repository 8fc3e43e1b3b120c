"""A member of a run becomes its `Worker`: it joins the others, compares code with them, and leaves in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.groups.group import cut
from volary.errors import Stopped
from volary.train.device import device_of
from volary.train.own.replicated_loop import ReplicatedLoop
from volary.train.own.served.loop import ServedLoop
from volary.train.own.startup.written_files import watched
from volary.train.own.worker import Worker
from volary.train.worker.connect import joined, server_beside
from volary.train.worker.saver import drafts_of

if TYPE_CHECKING:
    import torch

    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.own.loop_backend import LoopBackend
    from volary.train.recording.recorder import Recorder


@contextmanager
def worker_of(
    member: Membership, script: Script, recorder: Recorder, pulse: Pulse, facts: Facts, doing: str
) -> Iterator[Worker]:
    """One of the run's workers, for a while. facts: of its code, which must be those of all ranks. doing: what begins.

    Raises RanksDiffer if they are not.
    """
    device = device_of(script.device, member.place)
    start = _Start(member, script, recorder, pulse, facts, doing, device)
    several = watched(recorder, member.directory.path) if script.strategy.workers > 1 else nullcontext()
    with several, start.over_servers() if member.over_servers else start.in_group() as loop:
        worker = Worker(loop, script, recorder, device, member.place.local_rank)
        pulse.can_finish(saves=False)  # the loop may keep what it has when it is asked to end
        with closing(worker):
            yield worker
            worker.finish()


@dataclass(frozen=True)
class _Start:
    """A member, and the loop that it finds."""

    member: Membership
    script: Script
    recorder: Recorder
    pulse: Pulse
    facts: Facts
    doing: str
    device: torch.device

    @contextmanager
    def in_group(self) -> Iterator[LoopBackend]:
        """Among workers that each have all parameters."""
        script, recorder, pulse, device = self.script, self.recorder, self.pulse, self.device
        with joined(self.member, recorder, device, script.strategy.backend, self.facts) as group:
            try:
                self._begin()
                drafts = drafts_of(self.member, group, recorder, pulse, script.checkpoint)
                yield ReplicatedLoop(script, group, recorder, pulse, device, drafts)
            except Stopped:
                raise
            except BaseException:
                cut()  # the exchange's thread may wait for ranks that will never come
                raise

    @contextmanager
    def over_servers(self) -> Iterator[LoopBackend]:
        """Among workers whose parameters are on servers; one of these may be beside this worker."""
        strategy, member = self.script.strategy, self.member
        with server_beside(member, strategy):
            self._begin()
            meet = partial(joined, member, self.recorder, self.device, strategy.backend)
            yield ServedLoop(self.script, member, self.recorder, self.pulse, self.device, self.facts, meet)

    def _begin(self) -> None:
        self.recorder.enter("starting")
        if self.member.place.leads:
            self.recorder.note(device=self.device)
        self.recorder.starting(self.doing)
