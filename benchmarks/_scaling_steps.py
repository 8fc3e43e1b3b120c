"""The rows `cpu-...` of scaling.py: what a step costs a rank among so many hosts, and what that says of more of them.

A perceptron of 407,000 parameters, 4 samples a rank, in labs of 2 to 16 hosts without a limit on their links: as it
is, as factors, with onebit, and over servers, one beside each worker, which counts with it. CPU seconds of a step, of
one rank with all of its threads, are fitted by least squares to a + b * (hosts - 1) + c * (hosts - 1) / hosts: a does
not depend on the others, b is what one more peer costs in messages, and c what the bytes of a sum cost. Factors go to
every peer, so bytes are part of b there. A step of hosts with cores and links of their own takes, with nothing
overlapped, these CPU seconds + rounds * ROUND_S + bytes / a link of 1 Gbit/s: rounds and bytes follow from the way of
summing. The cores of one machine are shared by all hosts of a lab, so its seconds are no figures of a cluster's, and
only CPU seconds are fitted.

Printed are measured and fitted figures, and those for 64 and 1024 hosts with the bounds of the 95 % interval in which a
further measurement is expected. The row is the CPU seconds at 1024 hosts against those at 16. --quick: five sizes of a
lab and 40 steps, otherwise seven and 150.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

import _in_lab
from _exchange_cases import Case
from _exchange_found import CARRIED, TURNS, Turn
from _report import Options, Row
from volary.run.database.reader import RunReader

SERVED, WARM_STEPS = "served-{rank}.json", 6  # among a run's results, what each rank over servers took; not counted
NETWORK = f"{_in_lab.HERE / '_networks.py'}:perceptron"
TRAINING: dict[str, Any] = {"network": NETWORK, "source": {"name": "digits"}, "share": 4, "rate": None}
SERVERS = {"exchange": {"name": "server", "servers": "colocated"}}
STEPS, QUICK_STEPS, SPARE_STEPS = 150, 40, 10
HOSTS, QUICK_HOSTS = (2, 3, 4, 6, 8, 12, 16), (2, 3, 4, 8, 16)
BEYOND = (64, 1024)
CODECS = {"allreduce": "none", "factors": "factors", "onebit": "onebit"}
# messages that wait for each other: around a ring and back; to everybody; to the owner and back; pushed, told to the
# roster, told by it, pulled
ROUNDS: Mapping[str, Callable[[int], int]] = {
    "allreduce": lambda hosts: 2 * (hosts - 1),
    "factors": lambda hosts: 1,
    "onebit": lambda hosts: 2,
    "servers": lambda hosts: 4,
}
# bytes that a rank sends, as a multiple of what it sends among 16
SENT: Mapping[str, Callable[[int], float]] = {
    "allreduce": lambda hosts: (hosts - 1) / hosts,
    "factors": lambda hosts: hosts - 1,
    "onebit": lambda hosts: (hosts - 1) / hosts,
    "servers": lambda hosts: (hosts - 1) / hosts,
}
ROUND_S = 1e-4
LINK_BYTES_PER_S = CARRIED * 1e9 / 8
T_95 = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571}  # Student's t by degrees of freedom

Terms = Callable[[int], list[float]]  # what the CPU seconds of a rank among so many hosts are a sum of


def _summed(hosts: int) -> list[float]:
    return [1.0, hosts - 1.0, (hosts - 1) / hosts]


def _spread(hosts: int) -> list[float]:
    return [1.0, hosts - 1.0]


TERMS: Mapping[str, Terms] = {"allreduce": _summed, "factors": _spread, "onebit": _summed, "servers": _summed}


class Fit:
    """Factors of `terms` by least squares, and how sure what follows from them is beyond what was measured.

    measured: by hosts, more of them than there are terms.
    """

    def __init__(self, terms: Terms, measured: Mapping[int, float]) -> None:
        self._terms = terms
        matrix, found = np.array([terms(hosts) for hosts in measured]), np.array(list(measured.values()))
        self._factors, *_ = np.linalg.lstsq(matrix, found, rcond=None)
        self._free = len(found) - matrix.shape[1]
        self._variance = float(((found - matrix @ self._factors) ** 2).sum()) / self._free
        self._spread = np.linalg.inv(matrix.T @ matrix)

    def at(self, hosts: int) -> float:
        """The figure that is expected there."""
        return float(np.array(self._terms(hosts)) @ self._factors)

    def within(self, hosts: int) -> float:
        """Half the interval in which a further measurement there is expected with 95 %."""
        there = np.array(self._terms(hosts))
        return T_95[self._free] * math.sqrt(self._variance * (1 + float(there @ self._spread @ there)))


def _row(name: str, options: Options) -> Row:
    """One way of summing. Raises LabError."""
    if name == "servers":
        turns = _over_servers(quick=options.quick)
    else:
        turns = {hosts: found[name] for hosts, found in _measured(quick=options.quick).items()}
    fit = Fit(TERMS[name], {hosts: turn.cpu_s / hosts for hosts, turn in turns.items()})
    for hosts, turn in turns.items():
        measured_ms, fitted_ms = 1000 * turn.cpu_s / hosts, 1000 * fit.at(hosts)
        print(
            f"cpu-{name}, {hosts} hosts: {measured_ms:.2f} CPU ms a rank and step (fitted {fitted_ms:.2f});"
            f" {1000 * turn.seconds:.1f} ms a step on this machine; {turn.payload_bytes / 1e3:.0f} kB sent"
        )
    most = max(turns)
    for hosts in BEYOND:
        sent = turns[most].payload_bytes * SENT[name](hosts) / SENT[name](most)
        step_s = fit.at(hosts) + ROUNDS[name](hosts) * ROUND_S + sent / LINK_BYTES_PER_S
        half_ms = 1000 * fit.within(hosts)
        print(
            f"cpu-{name}, {hosts} hosts: {1000 * fit.at(hosts):.1f} ± {half_ms:.1f} CPU ms expected;"
            f" {ROUNDS[name](hosts)} rounds, {sent / 1e3:.0f} kB: {1000 * step_s:.1f} ± {half_ms:.1f} ms a step"
        )
    ours, fewer = fit.at(BEYOND[-1]), turns[most].cpu_s / most
    unit, peer = f"CPU s a rank and step, {BEYOND[-1]} hosts expected", f"{most} hosts, measured"
    return Row(f"cpu-{name}", ours, unit, peer, fewer, ours / fewer, "as low as can be", "lower")


@cache
def _measured(*, quick: bool) -> dict[int, dict[str, Turn]]:
    """By hosts and codec."""
    wanted = json.dumps({"codecs": CODECS, "steps": QUICK_STEPS if quick else STEPS})
    found = {}
    for hosts in QUICK_HOSTS if quick else HOSTS:
        case = Case(**TRAINING, hosts=hosts)
        with tempfile.TemporaryDirectory() as folder:
            directory = _in_lab.run(case.session(folder), case.rate, "_scaling_ranks.py", wanted)
            known = json.loads((directory.results / TURNS).read_text(encoding="utf-8"))
        found[hosts] = {name: Turn(**turn) for name, turn in known.items()}
    return found


def _over_servers(*, quick: bool) -> dict[int, Turn]:
    """By hosts. What a server sends is what its worker pushes: parameters for gradients."""
    steps = QUICK_STEPS if quick else STEPS
    train = {"steps": WARM_STEPS + steps + SPARE_STEPS, "device": "cpu", "compare_replicas": "never"}
    checkpoint = {"every": "never", "keep_best": False}
    found = {}
    for hosts in QUICK_HOSTS if quick else HOSTS:
        case = Case(**TRAINING, hosts=hosts, strategy=SERVERS)
        with tempfile.TemporaryDirectory() as folder:
            session = case.session(folder, train=train, checkpoint=checkpoint)
            directory = _in_lab.run(session, case.rate, "_scaling_served_ranks.py", json.dumps({"steps": steps}))
            files = [directory.results / SERVED.format(rank=rank) for rank in range(hosts)]
            costs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
            with RunReader(directory) as reader:
                sent = 2 * statistics.median(row.sent_bytes for row in reader.steps())
        seconds, cpu_s = max(one["seconds"] for one in costs), sum(one["cpu_s"] for one in costs)
        found[hosts] = Turn(seconds, cpu_s, sent, sent)
    return found


ROWS: dict[str, Callable[[Options], Row]] = {f"cpu-{name}": partial(_row, name) for name in [*CODECS, "servers"]}
