"""A member of a run becomes its `Worker`: it joins the others, compares code with them, and leaves in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.groups.group import Group, cut
from volary.errors import Stopped
from volary.train.device import device_of, refuse_recovery_on
from volary.train.loop import enough_samples
from volary.train.own.recovering.loop_members import LoopMembers
from volary.train.own.replicated_loop import ReplicatedLoop
from volary.train.own.served.loop import ServedLoop
from volary.train.own.served.loop_start import LoopStart
from volary.train.own.startup.written_files import watched
from volary.train.own.worker import Worker
from volary.train.saving.saver import drafts_of
from volary.train.worker.connect import joined, server_beside

if TYPE_CHECKING:
    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.own.loop_backend import LoopBackend
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts

ENOUGH_FOR_EACH = (
    "accepted: 2 samples or more for each worker (a larger batch, or fewer workers), or worker.sync_batch_norm(model)"
)


@contextmanager
def worker_of(
    member: Membership, script: Script, recorder: Recorder, pulse: Pulse, facts: Facts, doing: str
) -> Iterator[Worker]:
    """One of the run's workers, for a while. facts: of its code, which must be those of all ranks. doing: what begins.

    Raises RanksDiffer if they are not.
    """
    device = device_of(script.device, member.place)
    refuse_recovery_on(device, script.strategy)
    start = LoopStart(script, member, recorder, pulse, device, facts)
    several = watched(recorder, member.directory.path) if script.strategy.workers > 1 else nullcontext()
    with several, _over_servers(start, doing) if member.over_servers else _in_group(start, pulse, doing) as loop:
        worker = Worker(loop, script, recorder, device, member.place.local_rank)
        pulse.can_finish(saves=False)  # the loop may keep what it has when it is asked to end
        with closing(worker):
            with enough_samples(member.place.rank, ENOUGH_FOR_EACH):
                yield worker
            worker.finish()


@contextmanager
def _in_group(start: LoopStart, pulse: Pulse, doing: str) -> Iterator[LoopBackend]:
    """Among workers that each have all parameters."""
    script, recorder, device = start.script, start.recorder, start.device
    backend, members = script.strategy.backend, None
    if script.strategy.recover == "memory":
        members = LoopMembers(start.member, script.strategy.workers, recorder, pulse, device, backend)
    alone = joined(start.member, recorder, device, backend, {"code": start.facts})
    with alone if members is None else members.meet(start.facts) as group:
        try:
            _begin(start, doing)
            drafts = partial(_drafts, start, pulse)
            loop = ReplicatedLoop(script, group, recorder, pulse, device, drafts, members)
            if members is not None:
                members.loop = loop
            yield loop
        except Stopped:
            raise
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise


@contextmanager
def _over_servers(start: LoopStart, doing: str) -> Iterator[LoopBackend]:
    """Among workers whose parameters are on servers; one of these may be beside this worker."""
    strategy = start.script.strategy
    with server_beside(start.member, strategy):
        _begin(start, doing)
        yield ServedLoop(start, partial(joined, start.member, start.recorder, start.device, strategy.backend))


def _drafts(start: LoopStart, pulse: Pulse, group: Group) -> Drafts:
    return drafts_of(start.member, group, start.recorder, pulse, start.script.checkpoint)


def _begin(start: LoopStart, doing: str) -> None:
    start.recorder.enter("starting")
    if start.member.place.leads:
        start.recorder.note(device=start.device)
    start.recorder.starting(doing)
