"""A member of a run becomes its `Worker`: it joins the others, compares code with them, and leaves in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from volary.comm.groups.gloo import cut
from volary.errors import Stopped
from volary.run.checkpoints import Checkpoints
from volary.train.assemble import choose_device
from volary.train.member.compare import compare
from volary.train.own.own_loop import Worker
from volary.train.run_session import joined

if TYPE_CHECKING:
    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder


@contextmanager
def worker_of(
    member: Membership, script: Script, recorder: Recorder, pulse: Pulse, facts: Facts, doing: str
) -> Iterator[Worker]:
    """One of the run's workers, for a while. facts: of its code, which must be those of all ranks. doing: what begins.

    Raises RanksDiffer if they are not.
    """
    place = member.place
    device = choose_device(script.device, place.local_rank, place.world_size)
    with joined(member, recorder, device, script.strategy.backend) as group:
        compare(group.bulletin, "code", facts)
        recorder.enter("starting")
        if place.rank == 0:
            recorder.note(device=device)
        recorder.starting(doing)
        checkpoints = Checkpoints(member.directory.checkpoints)
        worker = Worker(script, group, recorder, pulse, device, place.local_rank, checkpoints)
        pulse.can_finish(saves=False)  # the loop may keep what it has when it is asked to end
        try:
            yield worker
        except Stopped:
            raise
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise
        finally:
            worker.close()
