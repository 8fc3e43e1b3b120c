"""Workers of loops of one's own, made in the process of a test."""

from __future__ import annotations

from typing import Any

import torch

from volary.comm.groups.group import Group
from volary.session.script import Script
from volary.train.own.replicated_loop import ReplicatedLoop
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import Drafts


def worker_in(script: Script, group: Group, recorder: Recorder, pulse: Any, drafts: Drafts | None = None) -> Worker:
    """One that has all parameters, as all workers of `group` have."""
    device = torch.device("cpu")
    loop = ReplicatedLoop(script, group, recorder, pulse, device, None if drafts is None else lambda _: drafts)
    return Worker(loop, script, recorder, device, group.rank)
