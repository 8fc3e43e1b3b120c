"""What does Volary's loop cost over a hand-written PyTorch loop?

    python benchmarks/step_overhead.py [--quick] [--only NAME] [--json FILE]

Ours is a real run: a driver with its hub and journal, workers on the cores that the local engine gives them, heartbeats,
`volary.train.loop.train` with everything at its default but evaluations and checkpoints, which the peer's loop has not.
The peer runs in the same processes, in turns with ours: the same network from the same initial values, the same batches
(64 samples for LeNet, 32 for ResNet-18, over all workers) gathered from tensors in memory, SGD with momentum, fp32.
Both sum up the loss of each step as a number. With 2 workers the peer is DistributedDataParallel over gloo on loopback.
Each of PEERS is tried, and the fastest is the peer. A block is some tenths of a second of steps of one side and ends
when its slowest worker ends; a pair is a block of each; a row is the median over all pairs of a start, and of starts.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _report import Options, Paired, Row, arguments, paired, report
from volary.driver.drive import Drive, Meeting
from volary.driver.ending import Unwatched
from volary.driver.start import create, rules_of
from volary.engine._base import Handle, Launch
from volary.session.spec import Session

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.run.verdict import Outcome
    from volary.train.loop import Training
    from volary.train.process import Membership
    from volary.train.pulse import Pulse
    from volary.train.recorder import Recorder

SAMPLES = 4096
LR, MOMENTUM = 0.01, 0.9
TUNED = {"gradient_as_bucket_view": True, "broadcast_buffers": False}  # ours sends no buffers either
# what the peer may turn: arguments of DistributedDataParallel, and of torch.optim.SGD
PEERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "default": ({}, {}),
    "fused": (TUNED, {"fused": True}),
    "fused, static graph": (TUNED | {"static_graph": True}, {"fused": True}),
    "fused, static graph, 5 MB": (TUNED | {"static_graph": True, "bucket_cap_mb": 5}, {"fused": True}),
    "fused, static graph, 100 MB": (TUNED | {"static_graph": True, "bucket_cap_mb": 100}, {"fused": True}),
}
ALONE = ("default", "fused")  # those that differ without DistributedDataParallel
TRIALS = 3  # blocks of each peer before one is chosen


@dataclass(frozen=True)
class Case:
    """One row's session. samples: of a step over all workers. wanted: the bound of ours / theirs."""

    network: str
    shape: tuple[int, ...]
    batch_size: int
    workers: int
    wanted: str


LENET, RESNET = ("lenet", (1, 28, 28), 64), ("resnet18", (3, 32, 32), 32)
CASES = {
    "lenet-1": Case(*LENET, 1, "at most 1.03"),
    "lenet-2": Case(*LENET, 2, "at most 1.00"),
    "resnet18-1": Case(*RESNET, 1, "at most 1.03"),
    "resnet18-2": Case(*RESNET, 2, "at most 1.00"),
}


@dataclass(frozen=True)
class Effort:
    """starts: fresh starts of all processes. pairs: of blocks, per start. block_s: about how long a block is."""

    starts: int
    pairs: int
    block_s: float


QUICK, FULL = Effort(starts=1, pairs=7, block_s=0.3), Effort(starts=5, pairs=15, block_s=0.8)


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    effort = QUICK if options.quick else FULL
    starts = [_start(case, effort) for _ in range(effort.starts)]
    ratio = statistics.median(found.ratio for found, _ in starts)
    print(f"{name}: {ratio:.3f}; each start:", *(f"{found.ratio:.3f} +- {found.spread:.3f}" for found, _ in starts))
    peers = sorted({peer for _, peer in starts})
    kind = "PyTorch loop" if case.workers == 1 else "DistributedDataParallel"
    return Row(
        name=name,
        value=statistics.median(found.ours for found, _ in starts),
        unit="s per step",
        peer=f"{kind} ({' or '.join(peers)})",
        peer_value=statistics.median(found.theirs for found, _ in starts),
        ratio=ratio,
        wanted=case.wanted,
        better="lower",
    )


def _start(case: Case, effort: Effort) -> tuple[Paired, str]:
    """One run, driven as `volary train` drives it, whose workers do `alternate` in the place of training alone."""
    with tempfile.TemporaryDirectory() as folder:
        session = _session(case, folder)
        directory = create(session)
        command = [sys.executable, "-m", "volary.worker", str(effort.pairs), str(effort.block_s)]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ.update(PYTHONPATH=path, GLOO_SOCKET_IFNAME="lo")

        def launch(meeting: Meeting) -> Handle:
            meet = f"{meeting.host}:{meeting.port}"
            job = "step_overhead:alternate"
            handle: Handle = session.engine.launch(
                Launch(directory, command, job, case.workers, meet, meeting.life)
            )
            return handle

        Drive(directory, case.workers, rules_of(session.strategy), Unwatched()).run(launch)
        found = json.loads((directory.results / "pairs.json").read_text(encoding="utf-8"))
        return Paired(**found["paired"]), found["peer"]


def _session(case: Case, folder: str) -> Session:
    return Session(
        network=case.network,
        data={
            "source": {"name": "synthetic", "shape": case.shape, "samples": SAMPLES},
            "batch_size": case.batch_size,
        },
        optimizer={"name": "sgd", "lr": LR, "momentum": MOMENTUM},
        train={"steps": 10**6, "device": "cpu"},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        # the watch must not take the peer's turns for a hang
        strategy={"workers": case.workers, "suspect_after_s": 300, "give_up_after_s": 600},
        run={"folder": folder},
    )


def alternate(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """The job of each worker: join and build as a session's worker does, then take turns with the peer's loop."""
    from volary.train.run_session import joined

    pairs, block_s = int(sys.argv[1]), float(sys.argv[2])
    place = member.place
    import torch

    device = torch.device("cpu")
    with joined(member, device) as bulletin:
        training, modules = _ours(member, recorder, pulse, bulletin)
        turns = Turns(training)
        peers = {name: Handwritten(training, next(modules), *PEERS[name]) for name in turns.peers}
        turns.warm_up([turns.ours, *(peer.run for peer in peers.values())], block_s)
        best = turns.fastest(peers)
        found = paired(lambda: turns.block(turns.ours), lambda: turns.block(peers[best].run), pairs)
    if place.rank == 0:
        text = json.dumps({"paired": asdict(found), "peer": best})
        (member.directory.results / "pairs.json").write_text(text, encoding="utf-8")
    return "finished"


if __name__ == "__main__":
    main()
