"""A worker's job in a run of a session: join, compare, build, resume, train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.session.spec import Session
from volary.train.agreement.first_state import agree_on_network
from volary.train.member.compare import data_facts
from volary.train.model import build_model
from volary.train.state.drafts import RemoteDrafts
from volary.train.state.seeds import seed_all
from volary.train.worker.build import assemble
from volary.train.worker.connect import joined
from volary.train.worker.rank_part import with_partition
from volary.train.worker.saver import drafts_of
from volary.train.worker.served_session import run_served
from volary.train.worker.session import as_trained, device_for, new_model, run_facts
from volary.train.worker.stages import train_stages

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.placement import Place
    from volary.run.checkpoints import Manifest
    from volary.train.coordinator import Outcome
    from volary.train.lockstep import Lockstep
    from volary.train.loop import Training
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder


def run_session(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train the run's session as one of its ranks. Raises what the user's code raises, and VolaryError."""
    place = member.place
    session = Session.read(member.directory.session)
    if member.over_servers:
        return run_served(session, member, recorder, pulse)
    device = device_for(session, place)
    with joined(member, recorder, device, session.strategy.backend, run_facts(session, member)) as group:
        recorder.enter("starting")
        built, tried = new_model(session, device, member, recorder)
        recorder.enter("exchange")
        agree_on_network(built.module, group, data_facts(built.samples))
        first = with_partition(built, tried, group)
        chosen = first.session
        recorder.enter("starting")
        drafts = drafts_of(member, group, recorder, pulse, chosen.checkpoint)
        first_of = [first]  # it is let go of with its stage

        def model_of(stage: int) -> Model:
            if not stage:
                return first_of.pop()
            seed_all(chosen.train.seed)
            return as_trained(build_model(chosen, device, member.begun_with), device)

        def put_together(model: Model, own: Group) -> Training[Lockstep]:
            return assemble(
                model,
                group=own,
                device=device,
                recorder=recorder,
                drafts=drafts,
                asked_to_end=lambda: pulse.asked_to_end,
                requests=lambda: pulse.requests,
                estimate=None if tried is None else tried.estimate,
            )

        watch = _Watch(place, recorder, pulse, saves=not isinstance(drafts, RemoteDrafts))  # which need its disk
        return train_stages(model_of, group, drafts, recorder, put_together, watch)


@dataclass(frozen=True)
class _Watch:
    """See `volary.train.worker.stages.Watching`. saves: a checkpoint needs no driver."""

    place: Place
    recorder: Recorder
    pulse: Pulse
    saves: bool

    def begun(self, model: Model, lockstep: Lockstep, resumed: Manifest | None) -> None:
        if not self.place.leads:
            return
        self.recorder.note(
            steps_planned=self.recorder.step + lockstep.data.feed.batches_ahead,
            steps_per_epoch=lockstep.data.steps_per_epoch,
            device=lockstep.network.device,
            **model.facts(),
        )
        if resumed is not None and resumed.step:
            self.recorder.event("resumed", from_step=resumed.step)

    def under_way(self, *, last: bool) -> None:
        if last:  # before, all have to meet again
            self.pulse.can_finish(saves=self.saves)
