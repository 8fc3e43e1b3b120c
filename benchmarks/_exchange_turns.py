"""A rank of exchange.py: Volary's loop, DistributedDataParallel's, and both without exchange, a turn each.

A lab starts it on its hosts as `python _exchange_turns.py session.yaml WANTED`, with WANTED as JSON: effort, warm_up
and period (of ours, in steps) and peers (their kinds).
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch import distributed
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it untyped

from _exchange_found import TURNS, Effort, Found, Turn
from _exchange_peers import PEERS, Peer, Peers, of_one_rank
from _in_lab import be_rank
from _torch_pipeline import StagePeer
from volary.comm.groups.group import Group, cut
from volary.lab.network.links import HOST_DEVICE
from volary.run.checkpoints import Checkpoints
from volary.run.database.traffic import totals
from volary.session.spec import Session
from volary.train.agreement.first_state import DeferredTensors, share_buffers
from volary.train.lockstep.lockstep import Lockstep
from volary.train.loop import Training, train
from volary.train.member.bulletin import BoardBulletin
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.trial import try_first
from volary.train.worker.build import assemble
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.exchange.choice.rows import StepEstimate
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model

Loop = Callable[[int], None]  # trains for so many steps

CPU = torch.device("cpu")
ALONE_WARM_UP = 3


def take_turns(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: build as a session's worker does, choose the peers, and write down the turns."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session = Session.read(member.directory.session)
    drafts = DirectoryDrafts(Checkpoints(member.directory.checkpoints), recorder, keep_last=1, keep_best=False)
    wanted = json.loads(sys.argv[2])
    effort = Effort(**wanted["effort"])
    with joined(member, recorder, CPU) as group:
        seed_all(session.train.seed)
        model = build_model(session, CPU)
        share_buffers(model.module, group)
        fresh, apart = deepcopy(model.module), replace(model, module=deepcopy(model.module))
        own = of_one_rank(session, group.size)
        nobody = Group(BoardBulletin(HashStore(), 0, 1, 0))
        tried = try_first(model, CPU, member.place, recorder)
        estimate = tried.estimate if tried else None
        with (
            volary(session, group, recorder, model, drafts, estimate) as ours,
            volary(own, nobody, Recorder(group.rank), apart, drafts) as alone,
        ):
            found = _measured(effort, ours, wanted, alone, Peers(own, model, fresh))
    if member.place.rank == 0:
        (member.directory.results / TURNS).write_text(json.dumps(asdict(found)), encoding="utf-8")
    return "finished"


@dataclass(frozen=True)
class Ours:
    """The loop that `volary train` runs."""

    training: Training[Lockstep]

    def run(self, steps: int) -> None:
        """Train for so many steps; ends when all updates have been made."""
        self.training.coordinator.rank.data.feed.limit(self.training.coordinator.rank.data.feed.step + steps)
        train(self.training)
        self.training.replica.settle()


@contextmanager
def volary(
    session: Session,
    group: Group,
    recorder: Recorder,
    model: Model,
    drafts: DirectoryDrafts,
    estimate: StepEstimate | None = None,
) -> Iterator[Ours]:
    """The loop that `volary train` runs, meanwhile; all ranks have drawn the same values. A collective call."""
    training = assemble(
        replace(model, session=session),
        group=group,
        device=CPU,
        recorder=recorder,
        drafts=drafts,
        asked_to_end=lambda: False,
        estimate=estimate,
    )
    try:
        training.coordinator.rank.replica.start(DeferredTensors(new=False))
        yield Ours(training)
    except BaseException:
        cut()  # the exchange's thread may wait for ranks that will never come
        raise
    finally:
        training.replica.close()


class Turns:
    """Times turns, which all ranks take together."""

    def __init__(self, ours: Ours) -> None:
        self._strategy, self._recorder = ours.training.replica, ours.training.recorder

    def take(self, loop: Loop, steps: int) -> Turn:
        """A turn of `loop`; the same on all ranks."""
        distributed.barrier()
        sent, payload = _sent_bytes(), totals(self._strategy.traffic)[0]
        cpu_s, started = time.process_time(), time.perf_counter()
        loop(steps)
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
        distributed.barrier()  # what was sent has arrived everywhere
        figures = [seconds, cpu_s, _sent_bytes() - sent, totals(self._strategy.traffic)[0] - payload]
        found = torch.tensor(figures, dtype=torch.float64)
        everyone = [torch.empty_like(found) for _ in range(distributed.get_world_size())]
        distributed.all_gather(everyone, found)
        while self._recorder.rows:
            time.sleep(0.01)  # what the heartbeat has yet to send belongs to nobody else's turn
        each = torch.stack(everyone) / steps
        most = each.amax(0).tolist()
        return Turn(most[0], each[:, 1].sum().item(), most[2], most[3])

    def warm_up(self, loop: Loop, steps: int) -> float:
        """Let a loop find its pace in so many steps, two or more. Returns the seconds that the last one took."""
        self.take(loop, steps - 1)
        return self.take(loop, 1).seconds


@dataclass(frozen=True)
class Ready:
    """A peer that has found its pace. step_s: of its last step, or of its turns where it had some."""

    name: str
    peer: Peer | StagePeer
    step_s: float


def _measured(effort: Effort, ours: Ours, wanted: Mapping[str, Any], alone: Ours, peers: Peers) -> Found:
    turns, kinds, period = Turns(ours), wanted["peers"], wanted.get("period", 1)
    pace = effort.steps_in_turn(turns.warm_up(ours.run, wanted["warm_up"]))
    steps = {"ours": period * max(1, round(pace / period))}
    loops: dict[str, Loop] = {"ours": ours.run}
    chosen: dict[str, Ready] = {}
    tried: dict[str, float] = {}
    for kind in kinds:
        chosen[kind], figures = _chosen(kind, effort, turns, peers)
        loops[kind], steps[kind] = chosen[kind].peer.run, effort.steps_in_turn(chosen[kind].step_s)
        tried |= figures
    without = {"ours_alone": alone.run}
    if kinds:
        without["theirs_alone"] = chosen[kinds[0]].peer.run_alone
    pace_s = turns.warm_up(alone.run, ALONE_WARM_UP)
    steps |= dict.fromkeys(without, effort.steps_in_turn(pace_s))
    taken: dict[str, list[Turn]] = {name: [] for name in steps}
    for number in range(effort.rounds):
        these = list((loops | (without if number < effort.alone else {})).items())
        # a machine that slows down over time favours neither
        for name, loop in these if number % 2 else reversed(these):
            taken[name].append(turns.take(loop, steps[name]))
    return Found(
        ours=taken["ours"],
        theirs={kind: taken[kind] for kind in kinds},
        ours_alone=taken["ours_alone"],
        theirs_alone=taken.get("theirs_alone", []),
        peers={kind: chosen[kind].name for kind in kinds},
        tried=tried,
    )


def _chosen(kind: str, effort: Effort, turns: Turns, peers: Peers) -> tuple[Ready, dict[str, float]]:
    """The quickest peer of a kind, and the seconds of a step of all that were tried."""
    found = _tried(kind, effort, turns, peers)
    return min(found, key=lambda one: one.step_s), {one.name: one.step_s for one in found}


def _tried(kind: str, effort: Effort, turns: Turns, peers: Peers) -> list[Ready]:
    """The peers of a kind, warm, after trials; only the first where there are none, or all wait for the link alike."""

    def ready(name: str) -> Ready:
        setting = PEERS[kind][name]
        peer = peers.make(setting)
        return Ready(name, peer, turns.warm_up(peer.run, setting.warm_up))

    first, *others = PEERS[kind]
    found = [ready(first)]
    if not effort.trials or found[0].step_s * effort.steps > effort.longest_s:
        return found
    found += [ready(name) for name in others]
    seconds: dict[str, list[float]] = {one.name: [] for one in found}
    for _ in range(effort.trials):
        for one in found:
            seconds[one.name].append(turns.take(one.peer.run, effort.steps_in_turn(one.step_s)).seconds)
    return [replace(one, step_s=statistics.median(seconds[one.name])) for one in found]


def _sent_bytes() -> int:
    """Bytes that have left this host by its link since the lab began."""
    sent: int = psutil.net_io_counters(pernic=True, nowrap=False)[HOST_DEVICE].bytes_sent
    return sent


if __name__ == "__main__":
    sys.exit(be_rank("_exchange_turns:take_turns"))
