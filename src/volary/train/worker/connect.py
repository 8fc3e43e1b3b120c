"""How a worker meets the others of its run, and where they write checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.comm.control.store import KeyedStore
from volary.comm.groups.blocking import gather_plain
from volary.comm.groups.group import LAST_RESORT_S, join, leave
from volary.errors import PeerLost, VolaryError
from volary.run.checkpoint_files.store import CheckpointsInStore
from volary.run.checkpoints import Checkpoints
from volary.train.member.bulletin import BoardBulletin
from volary.train.state.drafts import Drafts, LocalDrafts, RemoteDrafts
from volary.train.state.store_drafts import StoreDrafts

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.session.spec import Checkpoint, OwnCheckpoint
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder


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
