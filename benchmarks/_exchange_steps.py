"""The rows of exchange.py about whole training steps: each is a lab whose ranks take turns (_exchange_turns.py)."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _report import Options, Row
from volary.driver.ending import Unwatched
from volary.lab import Lab, rates
from volary.lab.training import Training, train
from volary.session.spec import Session

HERE = Path(__file__).parent
CARRIED = 0.957  # of a link's rate is TCP payload, with frames of 1500 bytes
AT_MOST_S = 1800.0
LOOPS = ("ours", "theirs", "ours_alone", "theirs_alone")


@dataclass(frozen=True)
class Case:
    """One row's training. share: samples of a step a rank; rate: of each host's link; one process a host.

    by_floor: the ratio is our step to the longer of compute and limit; else to the peer's step.
    """

    network: str
    classes: int
    share: int
    hosts: int
    rate: str | None
    wanted: str
    by_floor: bool = False

    def limit_s(self, gradient_bytes: int) -> float:
        """Seconds that a step's gradients need on the slowest link, whoever sums them; 0 without a limit."""
        bits_per_s = rates.parse(self.rate)
        return 0.0 if bits_per_s is None else 8 * self.payload(gradient_bytes) / (CARRIED * bits_per_s)

    def payload(self, gradient_bytes: int) -> float:
        """Bytes that each host has to send for a sum over all (Patarasuk & Yuan 2009)."""
        return 2 * (self.hosts - 1) / self.hosts * gradient_bytes


@dataclass(frozen=True)
class Effort:
    """rounds: of a turn each. trials: turns of each peer before one is chosen; 0: the first is.

    alone: rounds in which the loops without exchange have a turn too. turn_s: about how long a turn is; at least
    `steps` steps.
    """

    rounds: int
    trials: int
    alone: int
    turn_s: float
    steps: int


@dataclass(frozen=True)
class Turn:
    """A turn by the step. seconds: of the slowest rank, cpu_s: of all ranks together, sent_bytes: of the busiest link.

    A turn ends when nothing is under way any more, and what it waits for at its end counts.
    """

    seconds: float
    cpu_s: float
    sent_bytes: float


@dataclass(frozen=True)
class Found:
    """What the ranks measured: the turns of each loop, round by round. alone: of the same without exchange.

    peer: the quickest of those tried, which are named with the seconds of a step.
    """

    ours: list[Turn]
    theirs: list[Turn]
    ours_alone: list[Turn]
    theirs_alone: list[Turn]
    peer: str
    tried: dict[str, float]
    gradient_bytes: int

    @property
    def compute_s(self) -> float:
        """Seconds of a step without exchange, all ranks at once: of the loop that is quicker at it."""
        return min(_median(self.ours_alone).seconds, _median(self.theirs_alone).seconds)

    @classmethod
    def read(cls, path: Path) -> Found:
        """From what rank 0 wrote."""
        known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        turns = {name: [Turn(**turn) for turn in known[name]] for name in LOOPS}
        return cls(**(known | turns))


@dataclass(frozen=True)
class Turns(Training):
    """A training in a lab whose ranks take turns instead."""

    effort: Effort | None = None

    @property
    def command(self) -> list[str]:
        """What each rank runs."""
        assert self.effort is not None
        return [sys.executable, str(HERE / "_exchange_turns.py"), str(self.session), json.dumps(asdict(self.effort))]


FC: dict[str, Any] = {"network": "alexnet_like", "classes": 100, "share": 16}
RESNET: dict[str, Any] = {"network": "resnet_widths", "classes": 10, "share": 8}
CASES = {
    "fc-1g": Case(**FC, hosts=4, rate="1gbit", wanted="at most 1.08", by_floor=True),
    "resnet-1g-2": Case(**RESNET, hosts=2, rate="1gbit", wanted="at most 1.10", by_floor=True),
    "resnet-1g": Case(**RESNET, hosts=4, rate="1gbit", wanted="at most 0.85"),
    "fc-unlimited": Case(**FC, hosts=4, rate=None, wanted="at most 0.92"),
    "resnet-unlimited": Case(**RESNET, hosts=4, rate=None, wanted="at most 1.00"),
}
QUICK = Effort(rounds=3, trials=0, alone=1, turn_s=2.0, steps=10)
FULL = Effort(rounds=5, trials=1, alone=3, turn_s=4.0, steps=10)


def _row(name: str, case: Case, options: Options) -> Row:
    found = _found(case, QUICK if options.quick else FULL)
    compute_s, limit_s = found.compute_s, case.limit_s(found.gradient_bytes)
    floor_s = max(compute_s, limit_s)
    against = [floor_s] * len(found.ours) if case.by_floor else [turn.seconds for turn in found.theirs]
    ratios = [turn.seconds / other for turn, other in zip(found.ours, against, strict=True)]
    ours, theirs, ratio = _median(found.ours), _median(found.theirs), statistics.median(ratios)
    print(
        f"{name}: {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f});"
        f" compute {compute_s:.3f} s, limit {limit_s:.3f} s;"
        f" a host has to send {case.payload(found.gradient_bytes) / 1e6:.1f} MB a step"
    )
    for who, turn in (("ours", ours), (found.peer, theirs)):
        print(
            f"  {who}: {turn.seconds:.3f} s, {turn.seconds / floor_s:.3f} of max(compute, limit);"
            f" CPU {turn.cpu_s:.2f} s over all ranks; a host sent {turn.sent_bytes / 1e6:.1f} MB"
        )
    if not options.quick:
        print("  tried:", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in found.tried.items()))
    return Row(
        name=name,
        value=ours.seconds,
        unit="s per step",
        peer=found.peer,
        peer_value=theirs.seconds,
        ratio=ratio,
        wanted=case.wanted,
        better="lower",
    )


def _found(case: Case, effort: Effort) -> Found:
    """Train in a lab of this case: a run like any other, with turns as its ranks' job. Raises LabError."""
    with tempfile.TemporaryDirectory() as folder, Lab(hosts=case.hosts, rate=case.rate) as lab:
        session = Path(folder) / "session.yaml"
        session.write_text(_session(case, folder).to_yaml(), encoding="utf-8")
        ending = train(lab, Turns(session, effort=effort), Unwatched(), timeout_s=AT_MOST_S)
        return Found.read(ending.directory.results / "turns.json")


def _median(turns: list[Turn]) -> Turn:
    """The median of each figure."""
    return Turn(*(statistics.median(figures) for figures in zip(*map(astuple, turns), strict=True)))


def _session(case: Case, folder: str) -> Session:
    settings: dict[str, Any] = {
        "network": f"{HERE / '_networks.py'}:{case.network}",
        "data": {
            "source": {"name": "synthetic", "shape": (3, 32, 32), "classes": case.classes, "samples": 4096},
            "batch_size": case.share * case.hosts,
        },
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
        "train": {"steps": 10**9, "device": "cpu", "compare_replicas": "never"},
        "evaluate": {"every": "never"},
        "checkpoint": {"every": "never"},
        # the peer's turns must not look like a hang
        "strategy": {"workers": case.hosts, "suspect_after_s": 300, "give_up_after_s": 600},
        "run": {"folder": folder},
    }
    return Session(**settings)


ROWS: dict[str, Callable[[Options], Row]] = {name: partial(_row, name, case) for name, case in CASES.items()}
