"""The rows `hybrid-100m`, `hybrid-1g`, `hybrid-1g-factors`, `hybrid-schemes` of partitions.py: how long is a step?

`partition: hybrid` on AlexNet-like (34 million parameters, nearly all in two layers that are cut), 16 samples each on
four hosts of a lab (root), in turns with DistributedDataParallel (_exchange_steps.py). `hybrid-1g-factors`: beside
`codec: factors` on whole copies; `hybrid-schemes`: the three hand-overs at 100 Mbit/s, 1 Gbit/s and without a limit,
printed, and the row is of 1 Gbit/s, the quickest beside the slowest. Each of these has a lab of its own, and no peer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import _exchange_cases as cases
from _exchange_found import median
from _exchange_steps import DDP, Question, answer, found_in
from _report import Options, Row

RATES = ("100mbit", "1gbit", None)
SCHEMES = (1, 2, 3)


def _case(rate: str | None, peers: tuple[str, ...] = (), **strategy: Any) -> cases.Case:
    return cases.Case(**cases.FC, rate=rate, strategy=strategy, peers=peers)


BESIDE_DDP = {rate: _case(rate, DDP, partition="hybrid") for rate in ("100mbit", "1gbit")}
ALONE = {
    (rate, scheme): _case(rate, partition={"name": "hybrid", "scheme": scheme}) for rate in RATES for scheme in SCHEMES
}
FACTORS = _case("1gbit", codec="factors")


def _beside_ddp(name: str, rate: str, wanted: str, options: Options) -> Row:
    case = BESIDE_DDP[rate]
    return answer(name, Question(case, DDP, wanted, times=True), found_in(case, quick=options.quick))


def _seconds(case: cases.Case, options: Options) -> float:
    return median(found_in(case, quick=options.quick).ours).seconds


def _beside_factors(options: Options) -> Row:
    ours, theirs = (_seconds(case, options) for case in (ALONE["1gbit", 1], FACTORS))
    ratio = ours / theirs
    return Row("hybrid-1g-factors", ours, "s per step", "codec: factors", theirs, ratio, "at most 1.00", "lower")


def _schemes(options: Options) -> Row:
    for rate in RATES:
        found = {scheme: _seconds(ALONE[rate, scheme], options) for scheme in SCHEMES}
        print(f"  hybrid-schemes: {rate or 'no limit'}: {', '.join(f'{s}: {found[s]:.3f} s' for s in SCHEMES)}")
    found = {scheme: _seconds(ALONE["1gbit", scheme], options) for scheme in SCHEMES}
    quickest, slowest = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    best, worst = found[quickest], found[slowest]
    peer = f"scheme {slowest}; quickest is {quickest}"
    return Row("hybrid-schemes", best, "s per step", peer, worst, best / worst, "for information", "lower")


ROWS: dict[str, Callable[[Options], Row]] = {
    "hybrid-100m": partial(_beside_ddp, "hybrid-100m", "100mbit", "at least 20"),
    "hybrid-1g": partial(_beside_ddp, "hybrid-1g", "1gbit", "at least 3"),
    "hybrid-1g-factors": _beside_factors,
    "hybrid-schemes": _schemes,
}
