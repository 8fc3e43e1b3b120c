"""`trunk` of consistency.py: which model is as good as wanted soonest behind a slow trunk, with one slow worker?

MNIST on two pairs of hosts, whose trunks carry 30 Mbit/s and whose links 1 Gbit/s, one worker always 3 times slower
(_server_models.py says how): two epochs of every model over every exchange that it has, with each of three seeds, and
seconds until 97 % of the validation images are right (--quick: one seed, two thirds of an epoch, 90 %; about 20 s a
side where cores are free). A line a training has its seconds, its accuracy in the end and the bytes that a worker sent;
all are kept in trunk.json, from which `python benchmarks/_models_plot.py trunk` draws trunk.svg.

Right for the case are the models by which nobody sends in each step, and nobody waits for the slow worker. value: the
seconds of the last of these; peer_value: of the best of all; ratio: that by the value.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import _local_models
import _server_models as models
from _report import Options, Row

SERVER = "server"
SIDES: dict[str, Mapping[str, Any]] = {
    **_local_models.MODELS,
    "bsp-server": {"exchange": SERVER},
    "local-server": {"consistency": {"name": "local", "period": 8}, "exchange": SERVER},
    "diloco-server": {"consistency": _local_models.DILOCO, "exchange": SERVER},
    "ssp": {"consistency": "ssp", "exchange": SERVER},
    "backup": {"consistency": "backup", "exchange": SERVER},
    "async": {"consistency": "async", "exchange": SERVER},
}
RIGHT = ("quorum", "elastic-server")
LAB: Mapping[str, Any] = {"groups": 2, "trunk": "30mbit"}
FILE = Path(__file__).with_name("trunk.json")


@dataclass(frozen=True)
class Effort:
    """wanted: the share of right answers. every: steps between two evaluations."""

    wanted: float
    epochs: float
    every: int
    seeds: Sequence[int]


QUICK = Effort(0.90, 2 / 3, models.PER_EPOCH // 6, models.SEEDS[:1])
FULL = Effort(0.97, 2.0, models.PER_EPOCH // 4, models.SEEDS)


def row(options: Options) -> Row:
    """Train all sides. Raises LabError, DataError."""
    effort = QUICK if options.quick else FULL
    found: dict[str, list[models.Trained]] = {name: [] for name in SIDES}
    for number, seed in enumerate(effort.seeds):
        for name in list(SIDES)[:: -1 if number % 2 else 1]:
            one = models.ours(SIDES[name], models.SLOW, effort.epochs, seed, LAB, effort.every)
            found[name].append(one)
            seconds = one.seconds_to(effort.wanted)
            print(
                f"  {name:15}{'never' if seconds is None else f'{seconds:.1f} s':>9}; {100 * one.accuracy:.2f} % after"
                f" {one.evaluations[-1].seconds:.1f} s; {one.sent_bytes / 1e6:.1f} MB sent",
                flush=True,
            )
    kept = {name: [asdict(one) for one in each] for name, each in found.items()}
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    times = {name: _median_s(each, effort.wanted) for name, each in found.items()}
    best, last = min(times, key=times.__getitem__), max(RIGHT, key=times.__getitem__)
    return Row(
        name="trunk",
        value=times[last],
        unit=f"s to {100 * effort.wanted:g} % ({last})",
        peer=best,
        peer_value=times[best],
        ratio=times[best] / times[last] if times[best] < inf else 0.0,
        wanted="at least 0.5",
        better="higher",
    )


def _median_s(trained: Sequence[models.Trained], wanted: float) -> float:
    return statistics.median(inf if (s := one.seconds_to(wanted)) is None else s for one in trained)
