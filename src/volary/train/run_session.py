"""A worker's job in a run of a session: join, compare, build, resume, train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.comm.gloo import cut
from volary.comm.group import join, leave
from volary.comm.last_resort import LAST_RESORT_S
from volary.comm.store import KeyedStore
from volary.errors import PeerLost, VolaryError
from volary.exchange._collectives import take_all_from_first
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.assemble import assemble, build_model, choose_device
from volary.train.bulletin import Bulletin
from volary.train.compare import code_facts, compare, setting_facts, shape_facts, user_objects
from volary.train.first_state import messages
from volary.train.loop import Outcome, train
from volary.train.precision import check_precision
from volary.train.seeds import seed_all
from volary.train.served.run import run_served
from volary.train.trial import try_first

if TYPE_CHECKING:
    from torch import nn

    from volary.train.process import Membership
    from volary.train.pulse import Pulse
    from volary.train.recorder import Recorder


def run_session(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train the run's session as one of its ranks. Raises what the user's code raises, and VolaryError."""
    place = member.place
    session = Session.read(member.directory.session)
    if session.strategy.exchange.served:
        return run_served(session, member, recorder, pulse)
    device = choose_device(session.train.device, place.local_rank, place.world_size)
    check_precision(session.train.precision, device)
    with joined(member, recorder, device, session.strategy.backend) as bulletin:
        compare(
            bulletin, "code", code_facts(user_objects(session)) | setting_facts((member.session or session).settings())
        )
        recorder.enter("starting")
        recorder.starting("building the network")
        seed_all(session.train.seed)
        model = build_model(session, device)
        try_first(session, model, device, place, recorder)
        recorder.enter("exchange")
        compare(bulletin, "shapes", shape_facts(model.module))
        share_buffers(model.module, place.world_size)
        recorder.enter("starting")
        seed_all(session.train.seed + 1 + place.rank)
        training = assemble(
            session,
            rank=place.rank,
            world_size=place.world_size,
            device=device,
            recorder=recorder,
            bulletin=bulletin,
            checkpoints=Checkpoints(member.directory.checkpoints),
            model=model,
            asked_to_end=lambda: pulse.asked_to_end,
        )
        recorder.starting("looking for a checkpoint")
        resumed = training.saver.resume()
        if place.rank == 0:
            recorder.note(
                steps_planned=recorder.step + training.feed.batches_ahead,
                steps_per_epoch=training.steps_per_epoch,
                device=device,
                **model.facts(),
            )
            if resumed is not None:
                recorder.event("resumed", from_step=resumed.step)
        recorder.starting("doing the first step")
        try:
            training.strategy.start(training.saver.late)
            pulse.can_finish(saves=True)
            return train(training)
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise
        finally:
            training.strategy.close()


@contextmanager
def joined(member: Membership, recorder: Recorder, device: torch.device, backend: str = "auto") -> Iterator[Bulletin]:
    """Be in the run's group for a while: torch's default group, and a bulletin beside it.

    The recorder's phase is `exchange` from here on, as what comes first waits for the other ranks.
    """
    place = member.place
    store = KeyedStore.at(member.host, member.port, member.directory.key(), member.server_life, LAST_RESORT_S)
    try:
        recorder.starting("meeting the other workers")
        recorder.enter("exchange")
        join(store, place.rank, place.world_size, device, LAST_RESORT_S, place.address, backend)
        yield Bulletin(store, place.rank, place.world_size, place.life, waiting=recorder.waiting)
    except VolaryError:
        raise
    except RuntimeError as error:
        # torch names no peer; a rank whose own code failed says so itself
        if torch.distributed.is_initialized() and "gloo" in str(error).lower():
            raise PeerLost(f"the exchange broke: {str(error).splitlines()[0]}") from error
        raise
    finally:
        leave()
        store.close()


def share_buffers(module: nn.Module, world_size: int) -> None:
    """Give every rank the buffers of rank 0, which are small; parameters follow later. A collective call."""
    if world_size > 1:
        for group in messages(list(module.buffers())):
            take_all_from_first(group)
