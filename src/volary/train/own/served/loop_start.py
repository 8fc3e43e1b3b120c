"""The objects that a worker of a loop of one's own has when that loop begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import EndWatch
    from volary.train.recording.recorder import Recorder


@dataclass(frozen=True)
class LoopStart:
    """facts: what all workers must agree on, besides the network. pulse: whether this worker is asked to end."""

    script: Script
    member: Membership
    recorder: Recorder
    pulse: EndWatch
    device: torch.device
    facts: Facts
