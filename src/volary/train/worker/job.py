"""A worker's job in a run of a session: join, compare, build, resume, train."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from volary.session.spec import Session
from volary.train.agreement.first_state import agree_on_network, share_buffers
from volary.train.device import refuse_recovery_on
from volary.train.member.compare import data_facts, shape_facts
from volary.train.model import build_model
from volary.train.saving.saver import drafts_of
from volary.train.state.drafts import RemoteDrafts
from volary.train.state.seeds import seed_all
from volary.train.worker.build import assemble
from volary.train.worker.connect import joined
from volary.train.worker.rank_part import with_partition
from volary.train.worker.regrouping import Regrouping, TrainingGroup
from volary.train.worker.served_session import run_served
from volary.train.worker.session import as_trained, device_for, new_model, run_facts
from volary.train.worker.stages import train_stages

if TYPE_CHECKING:
    import torch

    from volary.comm.groups.group import Group
    from volary.run.checkpoints import Manifest
    from volary.train.coordinator import Outcome
    from volary.train.lockstep.lockstep import Lockstep
    from volary.train.loop import Training
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder


def run_session(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train the run's session as one of its ranks. Raises what the user's code raises, and VolaryError."""
    session = Session.read(member.directory.session)
    if member.over_servers:
        return run_served(session, member, recorder, pulse)
    device = device_for(session, member.place)
    refuse_recovery_on(device, session.strategy)
    groups = Regrouping(session, member, recorder, pulse, lambda: _network(session, device, member))

    def train(it: TrainingGroup) -> Outcome:
        facts, backend = {"code": run_facts(it.session, it.member)}, it.session.strategy.backend
        if it.model is not None:  # else the network is made, and compared, once code is found to be alike
            facts["shapes"] = shape_facts(it.model.module) | data_facts(it.model.samples)
        number, interrupting = it.members.number, it.interrupting
        with joined(it.member, recorder, device, backend, facts, number, interrupting) as group:
            return _train(it, group, device, recorder, pulse)

    return groups.run(train)


def _train(it: TrainingGroup, group: Group, device: torch.device, recorder: Recorder, pulse: Pulse) -> Outcome:
    member, tried = it.member, None
    model, kept = it.taken()
    recorder.enter("starting")
    if model is None:
        first, tried = new_model(it.session, device, member, recorder)
        recorder.enter("exchange")
        agree_on_network(first.module, group, data_facts(first.samples))
    else:
        first = replace(model, session=it.session)
        recorder.enter("exchange")
        share_buffers(first.module, group)
    first = with_partition(first, tried, group)
    session = first.session
    recorder.enter("starting")
    drafts = drafts_of(member, group, recorder, pulse, session.checkpoint)
    first_of = [first]  # it is let go of with its stage
    del first, model

    def model_of(stage: int) -> Model:
        if not stage:
            return first_of.pop()
        return _network(session, device, member)

    def put_together(model: Model, own: Group) -> Training[Lockstep]:
        found = assemble(
            model,
            group=own,
            device=device,
            recorder=recorder,
            drafts=drafts,
            asked_to_end=lambda: pulse.asked_to_end,
            requests=lambda: pulse.requests,
            estimate=None if tried is None else tried.estimate,
        )
        found.coordinator.members = it.members
        return found

    watch = _Watch(it, recorder, pulse, saves=not isinstance(drafts, RemoteDrafts))  # which need its disk
    return train_stages(model_of, group, drafts, recorder, put_together, watch, kept, it.keep)


def _network(session: Session, device: torch.device, member: Membership) -> Model:
    seed_all(session.train.seed)
    return as_trained(build_model(session, device, member.begun_with), device)


@dataclass(frozen=True)
class _Watch:
    """See `volary.train.worker.stages.Watching`. saves: a checkpoint needs no driver."""

    it: TrainingGroup
    recorder: Recorder
    pulse: Pulse
    saves: bool

    def begun(self, model: Model, lockstep: Lockstep, resumed: Manifest | None) -> None:
        if not self.it.member.place.leads:
            return
        self.recorder.note(
            steps_planned=self.recorder.step + lockstep.rank.data.feed.batches_ahead,
            steps_per_epoch=lockstep.rank.data.steps_per_epoch,
            device=lockstep.rank.network.device,
            **model.facts(),
        )
        if self.it.members.number:
            source = "checkpoint" if resumed is not None else "memory" if self.recorder.step else "start"
            spares = {"spares": self.it.spares} if self.it.spares else {}
            residuals = {"residuals": True} if source == "memory" and self.it.session.strategy.codec.feedback else {}
            lost, workers = self.it.lost, len(self.it.members.ranks)
            self.recorder.event("recovered", workers=workers, lost=lost, source=source, **spares, **residuals)
        elif resumed is not None and resumed.step:
            self.recorder.event("resumed", from_step=resumed.step)

    def under_way(self, *, last: bool) -> None:
        self.it.begun()
        if last:  # before, all have to meet again
            self.pulse.can_finish(saves=self.saves)
