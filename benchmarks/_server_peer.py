"""A rank of _server_models.py: the peer's training, and how long a step takes without anybody's pauses.

A lab starts it as `python _server_peer.py session.yaml WANTED`. WANTED: the accuracy that ends the training, or "pace".
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _in_lab import be_rank
from _server_models import FOUND, PACE
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
    from volary.data.batching.batch import Batch
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder

CPU = torch.device("cpu")
WARM_UP, TIMED = 5, 25  # steps


def train(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: begin with the session's values, take its batches, and write down what was found."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session, wanted = Session.read(member.directory.session), sys.argv[2]
    with joined(member, recorder, CPU) as group:
        peer = Peer(session, group, recorder)
        found = peer.pace() if wanted == PACE else list(peer.evaluations(float(wanted)))
    if member.place.rank == 0:
        (member.directory.results / FOUND).write_text(json.dumps(found), encoding="utf-8")
    return "finished"


class Peer:
    """DistributedDataParallel, as one rank of it."""

    def __init__(self, session: Session, group: Group, recorder: Recorder) -> None:
        seed_all(session.train.seed)
        model, rule = build_model(session, CPU), session.optimizer
        assert session.train.steps is not None
        self._steps, self._every = session.train.steps, session.evaluate.every
        share = SampleShare(group.rank, group.size)
        self._evaluating, self._validation = model.flow("evaluate"), ValidationBatches(model, share)
        self._module = DistributedDataParallel(model.module, **TUNED)
        self._optimizer = torch.optim.SGD(self._module.parameters(), lr=rule.lr, **FUSED)
        self._feed = Feed(model.samples, session.data.batch_size, share=share, seed=session.train.seed)
        self._schedule, self._lr = session.schedule, rule.lr
        self._recorder, self._group = recorder, group

    def evaluations(self, wanted: float) -> Iterator[tuple[float, int, float]]:
        """Train until so many are right; of each evaluation the seconds since the start, the step, and the accuracy."""
        distributed.barrier()
        started = time.perf_counter()
        self._feed.limit(self._steps)
        for number, batch in enumerate(self._feed, start=1):
            self._optimizer.param_groups[0]["lr"] = self._lr * self._schedule.factor(number - 1, self._steps)
            self._learn(batch)
            if number == self._steps or self._every.ends(number, self._steps):
                found, *_ = over_all(
                    *totals(self._evaluating, self._validation(), CPU, self._recorder.enter), self._group
                )
                figures = self._evaluating.criterion.figures(found)
                yield time.perf_counter() - started, number, figures["accuracy"]
                if figures["accuracy"] >= wanted:
                    return

    def pace(self) -> dict[str, float]:
        """Seconds of a step without exchange, and with it, all ranks at once."""
        for _ in range(WARM_UP):
            self._learn(next(self._feed))
        with self._module.no_sync():
            compute_s = self._timed()
        return {"compute_s": compute_s, "step_s": self._timed()}

    def _timed(self) -> float:
        distributed.barrier()
        seconds = []
        for _ in range(TIMED):
            begun = time.perf_counter()
            self._learn(next(self._feed))
            seconds.append(time.perf_counter() - begun)
        found = torch.tensor(statistics.median(seconds))
        distributed.all_reduce(found)
        return float(found) / self._group.size

    def _learn(self, batch: Batch) -> None:
        self._recorder.enter("forward")
        cross_entropy(self._module(batch.inputs), batch.targets).backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    sys.exit(be_rank("_server_peer:train"))
