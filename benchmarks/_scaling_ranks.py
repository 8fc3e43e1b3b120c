"""A rank of _scaling_steps.py: steps with one codec after the other, and what a rank spends on each.

A lab starts it on its hosts as `python _scaling_ranks.py session.yaml WANTED`, with WANTED as JSON: codecs (settings by
name) and steps.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from copy import deepcopy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from _exchange_found import TURNS, Turn
from _exchange_turns import CPU, Ours, volary
from _in_lab import be_rank
from volary.run.checkpoints import Checkpoints
from volary.run.database.traffic import totals
from volary.session.spec import Session
from volary.train.agreement.first_state import share_buffers
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse

WARM_STEPS = 6


def take_turns(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: a turn with each codec."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session = Session.read(member.directory.session)
    wanted: dict[str, Any] = json.loads(sys.argv[2])
    drafts = DirectoryDrafts(Checkpoints(member.directory.checkpoints), recorder, keep_last=1, keep_best=False)
    found = {}
    with joined(member, recorder, CPU) as group:
        seed_all(session.train.seed)
        model = build_model(session, CPU)
        share_buffers(model.module, group)
        for name, codec in wanted["codecs"].items():
            one = Session.read(member.directory.session, [f"strategy.codec={json.dumps(codec)}"])
            fresh, place = replace(model, module=deepcopy(model.module)), group.within(name)
            with volary(one, place, Recorder(group.rank), fresh, drafts) as ours:
                ours.run(WARM_STEPS)
                found[name] = asdict(_turn(ours, wanted["steps"]))
    if member.place.rank == 0:
        (member.directory.results / TURNS).write_text(json.dumps(found), encoding="utf-8")
    return "finished"


def _turn(ours: Ours, steps: int) -> Turn:
    """The same on all ranks; by the step. What links count is left out: nothing else goes over them."""
    distributed.barrier()
    cpu_s, began_s, sent = time.process_time(), time.perf_counter(), totals(ours.training.replica.traffic)[0]
    ours.run(steps)
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    payload = totals(ours.training.replica.traffic)[0] - sent
    figures = torch.tensor([seconds, cpu_s, payload], dtype=torch.float64)
    everyone = [torch.empty_like(figures) for _ in range(distributed.get_world_size())]
    distributed.all_gather(everyone, figures)
    each = torch.stack(everyone) / steps
    most = each.amax(0).tolist()
    return Turn(most[0], each[:, 1].sum().item(), most[2], most[2])


if __name__ == "__main__":
    sys.exit(be_rank("_scaling_ranks:take_turns"))
