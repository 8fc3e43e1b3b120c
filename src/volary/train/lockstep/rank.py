"""The parts that one of the ranks that keep step trains with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.session.spec import Session
    from volary.train.lockstep.lockstep_data import LockstepData
    from volary.train.model import TrainedNetwork
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting


@dataclass(frozen=True, kw_only=True)
class LockstepRank:
    """counts: this worker records its samples and losses; of those that learn from the same samples one does.

    alone: this worker runs the network without others. group: the ranks that have the same parameters, and samples of
    their own. in_groups: some of these take local steps together.
    """

    session: Session
    counts: bool
    alone: bool
    group: Group
    data: LockstepData
    network: TrainedNetwork
    replica: Voting
    recorder: Recorder
    in_groups: bool = False
