"""A rank of _time_to_accuracy.py: a session's training as a PyTorch user would write it."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _in_lab import be_rank
from _tuned_ddp import FUSED, TUNED
from volary.data.feed import Feed
from volary.session.spec import Session
from volary.sharding.samples import SampleShare
from volary.train.evaluation import over_all, totals
from volary.train.lockstep.lockstep_data import ValidationBatches
from volary.train.model import build_model
from volary.train.state.seeds import seed_all
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder

CPU = torch.device("cpu")


def train(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: begin with the session's values, take its batches, and write down the accuracy by step."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session = Session.read(member.directory.session)
    with joined(member, recorder, CPU) as group:
        accuracies = _accuracies(session, group, recorder)
    if member.place.rank == 0:
        (member.directory.results / "accuracies.json").write_text(json.dumps(accuracies), encoding="utf-8")
    return "finished"


def _accuracies(session: Session, group: Group, recorder: Recorder) -> list[tuple[int, float]]:
    """The steps done and the share of right answers, at each evaluation and at the end."""
    data, steps = session.data, session.train.steps
    assert steps is not None
    seed_all(session.train.seed)
    model = build_model(session, CPU)
    evaluating, validation = model.flow("evaluate"), ValidationBatches(model, SampleShare(group.rank, group.size))
    module = DistributedDataParallel(model.module, **TUNED)
    rule = session.optimizer
    optimizer = torch.optim.SGD(module.parameters(), lr=rule.lr, momentum=rule.momentum, **FUSED)
    feed = Feed(model.samples, data.batch_size, share=SampleShare(group.rank, group.size), seed=session.train.seed)
    feed.limit(steps)
    found = []
    for number, batch in enumerate((one.to(CPU) for one in feed), start=1):  # an image's bytes become values
        recorder.enter("forward")
        cross_entropy(module(batch.inputs), batch.targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number == steps or session.evaluate.every.ends(number, steps):
            measured, *_ = over_all(*totals(evaluating, validation(), CPU, recorder.enter), group)
            found.append((number, model.criterion.figures(measured)["accuracy"]))
    return found


if __name__ == "__main__":
    sys.exit(be_rank("_ddp_training:train"))
