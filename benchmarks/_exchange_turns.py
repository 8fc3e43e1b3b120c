"""What a rank does for exchange.py: Volary's loop, DistributedDataParallel's, and both without exchange, a turn each.

A lab starts it on its hosts as `python _exchange_turns.py session.yaml EFFORT`, with EFFORT as JSON.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _exchange_steps import Effort, Found, Turn
from volary import worker
from volary.comm.gloo import cut
from volary.data.feed import Feed
from volary.lab.links import HOST_DEVICE
from volary.placement import find
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.assemble import assemble, build_model
from volary.train.loop import train
from volary.train.meeting import meet
from volary.train.process import work
from volary.train.recorder import Recorder
from volary.train.run_session import joined, share_buffers
from volary.train.seeds import seed_all

if TYPE_CHECKING:
    from volary.run.verdict import Outcome
    from volary.train.assemble import Model
    from volary.train.process import Membership
    from volary.train.pulse import Pulse

Loop = Callable[[int], None]  # trains for so many steps

CPU = torch.device("cpu")
WARM_STEPS = 2  # DistributedDataParallel makes its buckets anew after the first
FUSED = {"fused": True}
# ours sends no buffers either
TUNED = {"gradient_as_bucket_view": True, "static_graph": True, "forward_sync_buffers": False}
# arguments of torch.optim.SGD and of DistributedDataParallel; without trials it is the first
PEERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DDP, tuned": (FUSED, TUNED),
    "DDP, tuned, 5 MB": (FUSED, TUNED | {"bucket_cap_mb": 5}),
    "DDP, tuned, 100 MB": (FUSED, TUNED | {"bucket_cap_mb": 100}),
    "DDP, tuned, plain SGD": ({}, TUNED),
    "DDP": ({}, {}),
}


def main() -> int:
    """Be a rank of the session's run, as `volary.worker` is, with `take_turns` as the job."""
    worker._keep_freed_memory()
    place = find()
    with meet(place, Path(sys.argv[1]), []) as member:
        worker._write_to(member.directory.log(place.rank))
        return work(member, "_exchange_turns:take_turns")


def take_turns(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: build as a session's worker does, choose the peer, and write down the turns."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session = Session.read(member.directory.session)
    checkpoints = Checkpoints(member.directory.checkpoints)
    with joined(member, recorder, CPU) as bulletin:
        seed_all(session.train.seed)
        model = build_model(session, CPU)
        share_buffers(model.module, bulletin.world_size)
        fresh, apart = deepcopy(model.module), replace(model, module=deepcopy(model.module))
        share = session.data.batch_size // bulletin.world_size
        own = replace(session, data=replace(session.data, batch_size=share))
        with (
            _volary(session, bulletin, recorder, model, checkpoints) as ours,
            _volary(own, Alone(), Recorder(bulletin.rank), apart, checkpoints) as alone,
        ):
            effort = Effort(**json.loads(sys.argv[2]))
            found = _measured(effort, Turns(recorder), ours, alone, Peers(own, model, fresh))
    if member.place.rank == 0:
        (member.directory.results / "turns.json").write_text(json.dumps(asdict(found)), encoding="utf-8")
    return "finished"


class Alone:
    """The bulletin of a rank that has no others."""

    rank, world_size = 0, 1

    def post(self, topic: str, value: Any) -> None:
        """Nobody reads it."""

    def share(self, topic: str, value: Any) -> list[Any]:
        """The value itself."""
        return [value]


@contextmanager
def _volary(
    session: Session, bulletin: Any, recorder: Recorder, model: Model, checkpoints: Checkpoints
) -> Iterator[Loop]:
    """The loop that `volary train` runs; a call of it ends when all updates have been made."""
    training = assemble(
        session,
        rank=bulletin.rank,
        world_size=bulletin.world_size,
        device=CPU,
        recorder=recorder,
        bulletin=bulletin,
        checkpoints=checkpoints,
        model=model,
        asked_to_end=lambda: False,
    )

    def run(steps: int) -> None:
        training.feed.limit(training.feed.step + steps)
        train(training)
        training.strategy.settle()

    try:
        training.strategy.start(training.saver.late)
        yield run
    except BaseException:
        cut()  # the exchange's thread may wait for ranks that will never come
        raise
    finally:
        training.strategy.close()


class Peers:
    """Makes what a PyTorch user would write, each on a copy of the network. session: with one rank's batch size."""

    def __init__(self, session: Session, model: Model, module: nn.Module) -> None:
        self._session, self._samples, self._module = session, model.samples, module
        self._group = distributed.new_group(backend="gloo")

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients together."""
        return sum(parameter.numel() * parameter.element_size() for parameter in self._module.parameters())

    def make(self, name: str) -> Peer:
        """The peer of that name. A collective call."""
        rule, parallel = PEERS[name]
        module = DistributedDataParallel(deepcopy(self._module), process_group=self._group, **parallel)
        optimizer = self._session.optimizer
        return Peer(
            module,
            torch.optim.SGD(module.parameters(), lr=optimizer.lr, momentum=optimizer.momentum, **rule),
            Feed(self._samples, self._session.data.batch_size, seed=distributed.get_rank()),
        )


class Peer:
    """One of them: its loop, and the same without exchange."""

    def __init__(self, module: DistributedDataParallel, optimizer: torch.optim.Optimizer, feed: Feed) -> None:
        self._module, self._optimizer, self._feed = module, optimizer, feed

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        for _ in range(steps):
            batch = next(self._feed)
            loss = cross_entropy(self._module(batch.inputs), batch.targets)
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            loss.item()

    def run_alone(self, steps: int) -> None:
        """Train on this rank's batches only."""
        with self._module.no_sync():
            self.run(steps)


class Turns:
    """Times turns, which all ranks take together."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def take(self, loop: Loop, steps: int) -> Turn:
        """A turn of `loop`; the same on all ranks."""
        distributed.barrier()
        sent, cpu_s, started = _sent_bytes(), time.process_time(), time.perf_counter()
        loop(steps)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
        distributed.barrier()  # what was sent has arrived everywhere
        found = torch.tensor([seconds, cpu_s, _sent_bytes() - sent], dtype=torch.float64)
        everyone = [torch.empty_like(found) for _ in range(distributed.get_world_size())]
        distributed.all_gather(everyone, found)
        while self._recorder.rows:
            time.sleep(0.01)  # what the heartbeat has yet to send belongs to nobody else's turn
        each = torch.stack(everyone) / steps
        return Turn(each[:, 0].max().item(), each[:, 1].sum().item(), each[:, 2].max().item())

    def warm_up(self, loop: Loop) -> float:
        """Let a loop find its pace. Returns the seconds that a step takes then."""
        self.take(loop, WARM_STEPS)
        return self.take(loop, 1).seconds


def _measured(effort: Effort, turns: Turns, ours: Loop, ours_alone: Loop, peers: Peers) -> Found:
    step_s = turns.warm_up(ours)
    steps = max(effort.steps, round(effort.turn_s / step_s))
    name, peer, tried = _fastest(effort.trials, turns, steps, peers)
    compared, alone = {"ours": ours, "theirs": peer.run}, {"ours_alone": ours_alone, "theirs_alone": peer.run_alone}
    turns.warm_up(ours_alone)
    found: dict[str, list[Turn]] = {kind: [] for kind in (*compared, *alone)}
    for number in range(effort.rounds):
        loops = list((compared | (alone if number < effort.alone else {})).items())
        # a machine that slows down over time favours neither
        for kind, loop in loops if number % 2 else reversed(loops):
            found[kind].append(turns.take(loop, steps))
    return Found(**found, peer=name, tried=tried, gradient_bytes=peers.gradient_bytes)


def _fastest(trials: int, turns: Turns, steps: int, peers: Peers) -> tuple[str, Peer, dict[str, float]]:
    """The peer whose turns are the shortest, after its name; and the seconds of a step of all that were tried."""
    made = {name: peers.make(name) for name in (PEERS if trials else list(PEERS)[:1])}
    for peer in made.values():
        turns.warm_up(peer.run)
    tried: dict[str, list[float]] = {name: [0.0] * (not trials) for name in made}
    for _ in range(trials):
        for name, peer in made.items():
            tried[name].append(turns.take(peer.run, steps).seconds)
    figures = {name: statistics.median(each) for name, each in tried.items()}
    best = min(figures, key=lambda name: figures[name])
    return best, made[best], figures


def _sent_bytes() -> int:
    """What has left this host by its link since the lab began."""
    sent: int = psutil.net_io_counters(pernic=True, nowrap=False)[HOST_DEVICE].bytes_sent
    return sent


if __name__ == "__main__":
    sys.exit(main())
