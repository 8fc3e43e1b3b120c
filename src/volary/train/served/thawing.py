"""Layers thaw over servers: an attempt ends with each thaw, and the next begins with more that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from volary.data.datasets.stream import Stream
from volary.run.checkpoints import ROSTER, Checkpoints, read
from volary.server.roster.state import RosterState
from volary.sharding.epochs import Epochs
from volary.train.member.remote_directory import bring

if TYPE_CHECKING:
    from volary.train.member.remote_directory import RemoteDirectory
    from volary.train.model import Model


def thaw(model: Model, step: int | None, remote: RemoteDirectory | None, checkpoints: Checkpoints) -> list[str]:
    """Let the network train what is thawed as of the checkpoint of `step`; the names of these parameters.

    Workers and servers do so before they cut the network. None: there is no checkpoint. Raises RunError.
    """
    if step is None or not (model.frozen.rules or model.frozen.still):
        return []
    manifest = bring(remote, checkpoints, step, lambda name: name == ROSTER)
    known = msgspec.json.decode(read(checkpoints.path(step), manifest, ROSTER), type=RosterState)
    assert not isinstance(model.samples, Stream)  # open_data refuses it
    epochs = Epochs(len(model.samples), model.session.data.batch_size)
    return model.frozen.thaw(model.module, epochs.steps_of(known.samples), epochs.steps)
