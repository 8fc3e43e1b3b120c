"""A rank of _exchange_best.py: trainings with one codec after the other, each from its first step.

A lab starts it on its hosts as `python _exchange_choices.py session.yaml WANTED`, with WANTED as JSON: codecs (settings
by name), rounds, steps and longest_s (of each training's turn).
"""

from __future__ import annotations

import json
import signal
import sys
import time
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from _exchange_found import CHOICES
from _exchange_turns import CPU, Ours, volary
from _in_lab import be_rank
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.agreement.first_state import share_buffers
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.trial import try_first
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse

WARM_STEPS = 2  # of each training before the first round, which compile what is compiled


def take_choices(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: of each codec and round the seconds of a step, on the mean of a training's first ones."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session = Session.read(member.directory.session)
    wanted: dict[str, Any] = json.loads(sys.argv[2])
    sessions = {
        name: Session.read(member.directory.session, [f"strategy.codec={json.dumps(codec)}"])
        for name, codec in wanted["codecs"].items()
    }
    drafts = DirectoryDrafts(Checkpoints(member.directory.checkpoints), recorder, keep_last=1, keep_best=False)
    found: dict[str, list[float]] = {name: [] for name in sessions}
    with joined(member, recorder, CPU) as group:
        seed_all(session.train.seed)
        model = build_model(session, CPU)
        share_buffers(model.module, group)
        chooses = next(one for one in sessions.values() if one.strategy.codec.chooses)
        tried = try_first(replace(model, session=chooses), CPU, member.place, recorder)
        estimate = tried.estimate if tried else None
        for number in range(wanted["rounds"] + 1):
            # a machine that slows down over time favours none
            for name, one in list(sessions.items())[:: 1 if number % 2 else -1]:
                fresh, place = replace(model, module=deepcopy(model.module)), group.within(f"{number} {name}")
                with volary(one, place, Recorder(group.rank), fresh, drafts, estimate) as ours:
                    step_s = _steps(ours, wanted["steps"] if number else WARM_STEPS, wanted["longest_s"])
                found[name] += [step_s] if number else []
    if member.place.rank == 0:
        (member.directory.results / CHOICES).write_text(json.dumps(found), encoding="utf-8")
    return "finished"


def _steps(ours: Ours, steps: int, longest_s: float) -> float:
    """Seconds of a step, the slowest rank's, on the mean of the first `steps`, or of as many as fit."""
    distributed.barrier()
    began_s = time.perf_counter()
    ours.run(1)
    left = min(steps, int(longest_s / _slowest(time.perf_counter() - began_s))) - 1
    if left > 0:
        ours.run(left)
    return _slowest(time.perf_counter() - began_s) / (1 + max(0, left))


def _slowest(seconds: float) -> float:
    found = torch.tensor(seconds, dtype=torch.float64)
    distributed.all_reduce(found, op=distributed.ReduceOp.MAX)
    return found.item()


if __name__ == "__main__":
    sys.exit(be_rank("_exchange_choices:take_choices"))
