"""A member of a run becomes its `Worker`: it joins the others, compares code with them, and leaves in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.groups.gloo import cut
from volary.errors import NotSaved, Stopped
from volary.exchange.server import COLOCATED
from volary.train.assemble import device_of
from volary.train.member.compare import compare
from volary.train.own.replicated_loop import ReplicatedLoop
from volary.train.own.served.loop import ServedLoop
from volary.train.own.worker import Worker
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

    def started() -> None:
        recorder.enter("starting")
        if place.rank == 0:
            recorder.note(device=device)
        recorder.starting(doing)

    joining = _over_servers if script.strategy.servers else _in_group
    with joining(member, script, recorder, pulse, facts, device, started) as loop:
        worker = Worker(loop, script, recorder, device, place.local_rank)
        pulse.can_finish(saves=False)  # the loop may keep what it has when it is asked to end
        with closing(worker):
            yield worker
            worker.finish()


@contextmanager
def _in_group(
    member: Membership,
    script: Script,
    recorder: Recorder,
    pulse: Pulse,
    facts: Facts,
    device: torch.device,
    started: Callable[[], None],
) -> Iterator[ReplicatedLoop]:
    with joined(member, recorder, device, script.strategy.backend) as group:
        compare(group.bulletin, "code", facts)
        try:
            started()
            with closing(drafts_of(member, group, recorder, pulse, script.checkpoint)) as drafts:
                yield ReplicatedLoop(script, group, recorder, pulse, device, drafts)
                _settle(drafts)
        except Stopped:
            raise
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise


def _settle(drafts: Drafts) -> None:
    try:
        drafts.settle()
    except OSError as error:
        raise NotSaved(f"the last checkpoint could not be written: {error}") from None


@contextmanager
def _over_servers(
    member: Membership,
    script: Script,
    recorder: Recorder,
    pulse: Pulse,
    facts: Facts,
    device: torch.device,
    started: Callable[[], None],
) -> Iterator[ServedLoop]:
    strategy = script.strategy
    beside = strategy.exchange.servers == COLOCATED and member.place.rank < strategy.workers
    with server_beside(member) if beside else nullcontext():
        started()
        meet = partial(joined, member, recorder, device, strategy.backend)
        yield ServedLoop(script, member, recorder, pulse, device, facts, meet)
