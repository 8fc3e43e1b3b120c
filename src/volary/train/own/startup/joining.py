"""A member of a run becomes its `Worker`: it joins the others, compares code with them, and leaves in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.groups.gloo import cut
from volary.comm.groups.group import Group
from volary.errors import NotSaved, Stopped
from volary.exchange.server import COLOCATED
from volary.train.assemble import device_of
from volary.train.member.compare import compare
from volary.train.own.own_loop import Worker
from volary.train.own.served_loop import ServedLoop
from volary.train.run_session import drafts_of, joined
from volary.train.served.colocated import server_beside

if TYPE_CHECKING:
    import torch

    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts


@contextmanager
def worker_of(
    member: Membership, script: Script, recorder: Recorder, pulse: Pulse, facts: Facts, doing: str
) -> Iterator[Worker]:
    """One of the run's workers, for a while. facts: of its code, which must be those of all ranks. doing: what begins.

    Raises RanksDiffer if they are not.
    """
    place = member.place
    device = device_of(script.device, place)
    among = (
        _over_servers(member, script, recorder, pulse, facts, device)
        if script.strategy.servers
        else _in_group(member, script, recorder, facts, device)
    )
    with among as group:
        recorder.enter("starting")
        if place.rank == 0:
            recorder.note(device=device)
        recorder.starting(doing)
        # what servers write is theirs
        drafts = drafts_of(member, group, recorder, pulse, script.checkpoint) if isinstance(group, Group) else None
        worker = Worker(script, group, recorder, pulse, device, place.local_rank, drafts)
        pulse.can_finish(saves=False)  # the loop may keep what it has when it is asked to end
        with closing(worker), closing(drafts) if drafts else nullcontext():
            yield worker
            worker.finish()
            if drafts:
                _settle(drafts)


def _settle(drafts: Drafts) -> None:
    try:
        drafts.settle()
    except OSError as error:
        raise NotSaved(f"the last checkpoint could not be written: {error}") from None


@contextmanager
def _in_group(
    member: Membership, script: Script, recorder: Recorder, facts: Facts, device: torch.device
) -> Iterator[Group]:
    with joined(member, recorder, device, script.strategy.backend) as group:
        compare(group.bulletin, "code", facts)
        try:
            yield group
        except Stopped:
            raise
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise


@contextmanager
def _over_servers(
    member: Membership, script: Script, recorder: Recorder, pulse: Pulse, facts: Facts, device: torch.device
) -> Iterator[ServedLoop]:
    strategy = script.strategy
    beside = strategy.exchange.servers == COLOCATED and member.place.rank < strategy.workers
    with server_beside(member) if beside else nullcontext():
        meet = partial(joined, member, recorder, device, strategy.backend)
        yield ServedLoop(script, member, recorder, pulse, device, facts, meet)
