"""A worker's job in a run of a session: join, compare, build, resume, train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.comm.groups.group import cut
from volary.session.spec import Session
from volary.train.agreement.first_state import agree_on_network
from volary.train.coordinator import Outcome
from volary.train.loop import train
from volary.train.member.compare import data_facts
from volary.train.state.drafts import RemoteDrafts
from volary.train.worker.build import assemble
from volary.train.worker.connect import joined
from volary.train.worker.saver import drafts_of
from volary.train.worker.served_session import run_served
from volary.train.worker.session import device_for, new_model, run_facts

if TYPE_CHECKING:
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
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
        model, estimate = new_model(session, device, member, recorder)
        recorder.enter("exchange")
        agree_on_network(model.module, group, data_facts(model.samples))
        recorder.enter("starting")
        drafts = drafts_of(member, group, recorder, pulse, session.checkpoint)
        training = assemble(
            model,
            group=group,
            device=device,
            recorder=recorder,
            drafts=drafts,
            asked_to_end=lambda: pulse.asked_to_end,
            requests=lambda: pulse.requests,
            estimate=estimate,
        )
        recorder.starting("looking for a checkpoint")
        lockstep = training.coordinator
        resumed = lockstep.saver.resume()
        if place.leads:
            recorder.note(
                steps_planned=recorder.step + lockstep.data.feed.batches_ahead,
                steps_per_epoch=lockstep.data.steps_per_epoch,
                device=device,
                **model.facts(),
            )
            if resumed is not None and resumed.step:
                recorder.event("resumed", from_step=resumed.step)
        recorder.starting("doing the first step")
        try:
            lockstep.replica.start(lockstep.saver.late)
            pulse.can_finish(saves=not isinstance(drafts, RemoteDrafts))  # without a driver nothing is sent to its disk
            return train(training)
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise
        finally:
            training.replica.close()
            drafts.close()
