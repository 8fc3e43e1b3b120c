"""Measures TCP's throughput over a lab's links, beside what they are limited to."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

from volary.lab import stream
from volary.lab.cluster import Lab
from volary.lab.errors import LabError
from volary.lab.jobs import Job
from volary.lab.network.topology import LabTopology

_WARM_UP = 0.25
Flow = tuple[int, int]  # from a host to a host


@dataclass(frozen=True)
class Throughput:
    """what: which flows, in words. Both in bits per second over all flows: TCP payload, and the links' limit."""

    what: str
    bits_per_s: float
    limit: int | None


def tcp_rate(lab: Lab, flows: Sequence[Flow], seconds: float = 2.0) -> float:
    """TCP payload of simultaneous flows, in bits per second over all, during so many seconds. Raises LabError."""
    command, senders = [sys.executable, "-m", "volary.lab.stream"], Counter(receiver for _, receiver in flows)
    with ExitStack() as ending:
        receiving: list[tuple[Job, IO[bytes]]] = []
        for host, count in senders.items():
            printed = ending.enter_context(tempfile.TemporaryFile())
            words = ["receive", lab.topology.address(host), str(seconds), str(count)]
            receiving.append((lab.start(host, [*command, *words], output=printed), printed))
            ending.callback(receiving[-1][0].close)
        for sender, receiver in flows:
            words = ["send", lab.topology.address(receiver), str(seconds), "1"]
            ending.callback(lab.start(sender, [*command, *words]).close)
        return _rate_of([_seen(*each, seconds) for each in receiving])


def _seen(receiver: Job, printed: IO[bytes], seconds: float) -> list[tuple[float, int]]:
    status = receiver.wait(seconds + 2 * stream.START_S)
    printed.seek(0)
    text = printed.read().decode(errors="replace").strip()
    if status != 0:
        raise LabError(f"the lab's links cannot be measured: {text or 'nothing arrived'}")
    return [(at, total) for at, total in json.loads(text)]


def _rate_of(receivers: Sequence[list[tuple[float, int]]]) -> float:
    """Over the time in which all flows went on, less its first part: then buckets are full, and TCP finds its pace."""
    begin, end = max(seen[0][0] for seen in receivers), min(seen[-1][0] for seen in receivers)
    begin += _WARM_UP * (end - begin)
    total = 0.0
    for seen in receivers:
        during = [(at, count) for at, count in seen if begin <= at <= end]
        if len(during) < 2:
            raise LabError("the lab's links cannot be measured: the flows did not go on at the same time")
        total += 8 * (during[-1][1] - during[0][1]) / (during[-1][0] - during[0][0])
    return total


def usual_flows(topology: LabTopology) -> list[tuple[str, list[Flow], int | None]]:
    """The flows that show what a lab's links carry: in words, the flows, and their limit together."""
    size, rates = topology.hosts // topology.groups, topology.rates
    found: list[tuple[str, list[Flow], int | None]] = []
    if size > 1:
        one = topology.limit(0, 1)
        found += [("h0 to h1", [(0, 1)], one), ("both ways", [(0, 1), (1, 0)], one and 2 * one)]
    if size > 2:
        others = range(1, size)
        several = [rate for rate in (rates[other] for other in others) if rate is not None]
        least = _least(rates[0], sum(several) if len(several) == len(others) else None)
        found += [
            (f"h1 to h{size - 1}, all to h0", [(other, 0) for other in others], least),
            (f"h0 to all of h1 to h{size - 1}", [(0, other) for other in others], least),
        ]
    if size < topology.hosts:
        last = topology.hosts - 1
        found.append((f"h0 to h{last}, by trunk", [(0, last)], topology.limit(0, last)))
    return found


def measure(lab: Lab, seconds: float = 2.0) -> Iterator[Throughput]:
    """Measure what the usual flows carry, one kind after the other, each for so many seconds."""
    for what, flows, limit in usual_flows(lab.topology):
        yield Throughput(what, tcp_rate(lab, flows, seconds), limit)


def _least(*rates: int | None) -> int | None:
    return min((rate for rate in rates if rate is not None), default=None)
