"""A worker of step_overhead.py: Volary's loop and a hand-written one, a turn each."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _driven import FOUND
from _report import paired
from _tuned_ddp import FUSED, TUNED
from volary.data.order import epoch_order
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.agreement.first_state import share_buffers
from volary.train.loop import train
from volary.train.model import build_model
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.worker.build import assemble
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.run.verdict import Outcome
    from volary.train.lockstep.lockstep import Lockstep
    from volary.train.loop import Training
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder

Loop = Callable[[int], None]  # trains for so many steps

WARM_STEPS = 2  # DistributedDataParallel makes its buckets anew after the first
FEWEST_PAIRS = 3
# what the peer may be: arguments of torch.optim.SGD, and of DistributedDataParallel; without trials it is the first
PEERS: dict[int, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    1: {"PyTorch loop, fused SGD": (FUSED, {}), "PyTorch loop": ({}, {})},
    2: {
        "DDP, tuned": (FUSED, TUNED),
        "DDP, tuned, 5 MB": (FUSED, TUNED | {"bucket_cap_mb": 5}),
        "DDP, tuned, 100 MB": (FUSED, TUNED | {"bucket_cap_mb": 100}),
        "DDP, tuned, plain SGD": ({}, TUNED),
        "DDP": ({}, {}),
    },
}


def take_turns(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """The job: build as a session's worker does, choose the peer, and write down the pairs."""
    most, trials, turn_s, pairs_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    with joined(member, recorder, torch.device("cpu")) as group:
        training = training_of(Session.read(member.directory.session), member, recorder, pulse, group)
        known = PEERS[group.size]
        peers = {name: _peer(training, *known[name]) for name in (known if trials else list(known)[:1])}
        ours = loop_of(training)
        turns = Turns(training, [ours, *peers.values()], turn_s, of_processors=sys.argv[5] == "processors")
        best = _fastest(peers, turns, trials)
        pairs = max(FEWEST_PAIRS, min(most, int(pairs_s / (2 * turns.length_s))))
        found = paired(lambda: turns.take(ours), lambda: turns.take(peers[best]), pairs)
        training.replica.close()
    if member.place.rank == 0:
        text = json.dumps({"paired": asdict(found), "peer": best})
        (member.directory.results / FOUND).write_text(text, encoding="utf-8")
    return "finished"


class Turns:
    """Times turns of about `turn_s`, of equally many steps for every loop; all workers take them together.

    of_processors: a turn's figure is the processor seconds of all workers, instead of the slowest one's time.
    """

    def __init__(self, training: Training[Lockstep], loops: list[Loop], turn_s: float, *, of_processors: bool) -> None:
        self._training, self._of_processors = training, of_processors
        self._steps = WARM_STEPS
        for loop in loops:
            self.take(loop)
        step_s = self.take(loops[0])
        self._steps = max(1, round(turn_s / step_s))
        self.length_s = self._steps * step_s

    def take(self, loop: Loop) -> float:
        """Seconds per step of a turn of `loop`, the same on all workers."""
        self._over_all(0.0)
        now = time.process_time if self._of_processors else time.perf_counter
        started_s = now()
        loop(self._steps)
        seconds = self._over_all(now() - started_s)
        while self._training.recorder.rows:
            time.sleep(0.01)  # what the heartbeat has yet to send belongs to nobody else's turn
        return seconds / self._steps

    def _over_all(self, seconds: float) -> float:
        found = torch.tensor(seconds, dtype=torch.float64)
        if self._training.coordinator.rank.group.size > 1:
            distributed.all_reduce(found, distributed.ReduceOp.SUM if self._of_processors else distributed.ReduceOp.MAX)
        return found.item()


def _fastest(peers: dict[str, Loop], turns: Turns, trials: int) -> str:
    """The name of the peer whose turns are the shortest."""
    tried: dict[str, list[float]] = {name: [0.0] * (not trials) for name in peers}
    for _ in range(trials):
        for name, peer in peers.items():
            tried[name].append(turns.take(peer))
    return min(tried, key=lambda name: statistics.median(tried[name]))


def training_of(
    session: Session, member: Membership, recorder: Recorder, pulse: Pulse, group: Group
) -> Training[Lockstep]:
    """The training of `volary.train.worker.job`."""
    device = torch.device("cpu")
    seed_all(session.train.seed)
    model = build_model(session, device)
    share_buffers(model.module, group)
    training = assemble(
        model,
        group=group,
        device=device,
        recorder=recorder,
        drafts=DirectoryDrafts(Checkpoints(member.directory.checkpoints), recorder, keep_last=1, keep_best=False),
        asked_to_end=lambda: pulse.asked_to_end,
    )
    training.coordinator.rank.replica.start(training.coordinator.saver.late)
    return training


def loop_of(training: Training[Lockstep]) -> Loop:
    """Volary's loop, which continues this training."""

    def run(steps: int) -> None:
        training.coordinator.rank.data.feed.limit(training.coordinator.rank.data.feed.step + steps)
        train(training)

    return run


def _peer(training: Training[Lockstep], rule: dict[str, Any], parallel: dict[str, Any]) -> Loop:
    """The loop that a PyTorch user writes, on a copy of the network; the batches are ours."""
    group = training.coordinator.rank.group
    session, rank, world_size = training.coordinator.rank.session, group.rank, group.size
    samples = session.data.source.open("train")
    inputs, targets, batch_size = samples.inputs, samples.targets, session.data.batch_size
    module: nn.Module = deepcopy(training.flow.module)
    if world_size > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        module = DistributedDataParallel(module, process_group=distributed.new_group(backend="gloo"), **parallel)
    optimizer = torch.optim.SGD(
        module.parameters(), lr=session.optimizer.lr, momentum=session.optimizer.momentum, **rule
    )
    epoch, start, order = -1, len(inputs), torch.empty(0)

    def batch() -> Tensor:
        nonlocal epoch, start, order
        if start >= len(inputs):
            epoch, start = epoch + 1, 0
            order = epoch_order(len(inputs), session.train.seed, epoch, shuffle=True)
        chosen = order[start + rank : start + batch_size : world_size]
        start += batch_size
        return chosen

    def run(steps: int) -> None:
        total = 0.0
        for _ in range(steps):
            chosen = batch()
            loss = cross_entropy(module(inputs.index_select(0, chosen)), targets.index_select(0, chosen))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += loss.item()

    return run
