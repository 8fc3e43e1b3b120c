"""The parts that all models of a worker of a user's own loop have in common."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.train.own.model.batch_norms import synchronise_norms

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.groups.group import Group
    from volary.session.spec import Strategy
    from volary.train.member.pulse import EndWatch
    from volary.train.own.model.share import Share
    from volary.train.own.recovering.fixed_members import FixedMembers
    from volary.train.own.recovering.loop_members import LoopMembers
    from volary.train.recording.recorder import Recorder


@dataclass(frozen=True)
class LoopRun:
    """The parts that all models of a worker have in common. together: see
    `volary.train.own.parts.whole_tensors.WholeTensors`. begin: called as a backward pass of a step begins.
    """

    settings: Strategy
    share: Share
    recorder: Recorder
    pulse: EndWatch
    together: Callable[[str, int], AbstractContextManager[Group]]
    members: LoopMembers | FixedMembers
    begin: Callable[[], object]

    def sync_batch_norm(self, model: nn.Module, apart: Callable[[], Group]) -> None:
        """See `Worker.sync_batch_norm`. apart: makes a group of all workers that nothing else uses. Raises BadInput."""
        synchronise_norms(model, self.settings, self.share, self.recorder, apart)
