"""A worker's job in a run of a session: join, compare, build, resume, train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.comm.control.store import KeyedStore
from volary.comm.groups.blocking import gather_plain, take_all_from_first
from volary.comm.groups.group import LAST_RESORT_S, cut, join, leave
from volary.errors import PeerLost, VolaryError
from volary.run.checkpoint_files.store import CheckpointsInStore
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.agreement.first_state import messages
from volary.train.assemble import assemble, build_model
from volary.train.coordinator import Outcome
from volary.train.device import device_of
from volary.train.loop import train
from volary.train.member.bulletin import BoardBulletin
from volary.train.member.compare import code_facts, compare, data_facts, setting_facts, shape_facts, user_objects
from volary.train.served.run import run_served
from volary.train.state.drafts import Drafts, LocalDrafts, RemoteDrafts
from volary.train.state.seeds import seed_all
from volary.train.state.store_drafts import StoreDrafts
from volary.train.trial import try_first
from volary.train.update.precision import check_precision

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.groups.group import Group
    from volary.session.spec import Checkpoint, OwnCheckpoint
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder


def run_session(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train the run's session as one of its ranks. Raises what the user's code raises, and VolaryError."""
    place = member.place
    session = Session.read(member.directory.session)
    if session.strategy.servers:
        return run_served(session, member, recorder, pulse)
    device = device_of(session.train.device, place)
    check_precision(session.train.precision, device)
    with joined(member, recorder, device, session.strategy.backend) as group:
        settings = setting_facts((member.session or session).settings())
        compare(group.bulletin, "code", code_facts(user_objects(session)) | settings)
        recorder.enter("starting")
        recorder.starting("building the network")
        seed_all(session.train.seed)
        model = build_model(session, device, member.begun_with)
        estimate = try_first(session, model, device, place, recorder)
        recorder.enter("exchange")
        compare(group.bulletin, "shapes", shape_facts(model.module) | data_facts(model.samples))
        share_buffers(model.module, group)
        recorder.enter("starting")
        seed_all(session.train.seed + 1 + place.rank)
        drafts = drafts_of(member, group, recorder, pulse, session.checkpoint)
        training = assemble(
            session,
            group=group,
            device=device,
            recorder=recorder,
            drafts=drafts,
            model=model,
            asked_to_end=lambda: pulse.asked_to_end,
            requests=lambda: pulse.requests,
            estimate=estimate,
        )
        recorder.starting("looking for a checkpoint")
        lockstep = training.coordinator
        resumed = lockstep.saver.resume()
        if place.rank == 0:
            recorder.note(
                steps_planned=recorder.step + lockstep.feed.batches_ahead,
                steps_per_epoch=lockstep.steps_per_epoch,
                device=device,
                **model.facts(),
            )
            if resumed is not None:
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


def drafts_of(
    member: Membership, group: Group, recorder: Recorder, pulse: Pulse, settings: Checkpoint | OwnCheckpoint
) -> Drafts:
    """Where the ranks of `group` write checkpoints: to a store, each its part; else by the driver if any of them does
    not see the run's directory. A collective call.
    """
    checkpoints = Checkpoints(member.directory.checkpoints)
    apart = any(gather_plain(member.remote is not None, group))
    if apart and not checkpoints.in_store:
        return RemoteDrafts(member)
    local = LocalDrafts(checkpoints, recorder, settings.keep_last, keep_best=settings.keep_best)
    if isinstance(checkpoints.files, CheckpointsInStore):
        board = group.bulletin.beside("checkpoints")
        return StoreDrafts(local, checkpoints.files, recorder, board, lambda: bool(pulse.lost))
    return local


@contextmanager
def joined(member: Membership, recorder: Recorder, device: torch.device, backend: str = "auto") -> Iterator[Group]:
    """Be in the run's group, of all its workers, for a while.

    The recorder's phase is `exchange` from here on, as what comes first waits for the other ranks.

    Raises PeerLost.
    """
    place = member.place
    store = KeyedStore.at(member.host, member.port, member.directory.key(), member.server_life, LAST_RESORT_S)
    try:
        recorder.starting("meeting the other workers")
        recorder.enter("exchange")
        bulletin = BoardBulletin(store, place.rank, place.world_size, place.life, waiting=recorder.waiting)
        group = join(store, bulletin, device, LAST_RESORT_S, place.address, backend)
        try:
            yield group
        except VolaryError:
            raise
        except RuntimeError as error:
            # torch names no peer; a rank whose own code failed says so itself
            if "gloo" in str(error).lower():
                raise PeerLost(f"the exchange broke: {str(error).splitlines()[0]}") from error
            raise
    finally:
        leave()
        store.close()


def share_buffers(module: nn.Module, group: Group) -> None:
    """Give every rank of `group` the buffers of rank 0, which are small; parameters follow later. A collective call."""
    if group.size > 1:
        for together in messages(list(module.buffers())):
            take_all_from_first(together, group)
