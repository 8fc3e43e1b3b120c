"""Which consistency model is at 98 % soonest where one worker is slow, and what does it cost?

    python benchmarks/models.py [--quick] [--only NAME] [--json FILE]

MNIST on 4 hosts at 1 Gbit/s in the lab, one worker always 3 times slower: _server_models.py says how. Every model is
trained for two and a half epochs with three seeds (--quick: one), and compared with bsp over all-reduce, which takes
its turn with each seed. value and peer_value: median seconds until 98 % of the validation images are right; ratio: how
many times sooner. Above the table stand, of each, final accuracy, bytes and staleness. What a full run found is kept in
models.json, from which `python benchmarks/_models_plot.py` draws models.svg. A model takes one to two minutes a seed.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

import _server_models as models
from _report import Options, Row, arguments, report
from volary.errors import DataError
from volary.lab import LabError

PEER = "bsp-allreduce"
EPOCHS = 2.5
FILE = Path(__file__).with_suffix(".json")

Found = list[models.Trained]  # by seed


def main() -> None:
    """Train the models that are asked for, and the one that they are compared with."""
    options = arguments(__doc__, [name for name in models.MODELS if name != PEER])
    names = [name for name in models.MODELS if name != PEER and options.wants(name)]
    try:
        report(_rows([PEER, *names], options), options.json)
    except (LabError, DataError) as reason:
        print(f"skipped: {reason}")


def _rows(names: list[str], options: Options) -> list[Row]:
    found: dict[str, Found] = {name: [] for name in names}
    for number, seed in enumerate(models.SEEDS[:1] if options.quick else models.SEEDS):
        for name in names[:: -1 if number % 2 else 1]:
            found[name].append(models.ours(models.MODELS[name], models.SLOW, EPOCHS, seed))
            print(f"{name}, seed {seed}: {_said(found[name][-1])}")
        if not options.quick:
            _keep(found)
    return [_row(name, found[name], found[PEER]) for name in names[1:]]


def _row(name: str, ours: Found, theirs: Found) -> Row:
    return Row(
        name=name,
        value=statistics.median(map(models.reached_or_never_s, ours)),
        unit="s",
        peer=PEER,
        peer_value=statistics.median(map(models.reached_or_never_s, theirs)),
        ratio=statistics.median(models.times_sooner(one, other) for one, other in zip(ours, theirs, strict=True)),
        wanted="above 1",
        better="higher",
    )


def _said(one: models.Trained) -> str:
    reached = "never" if one.reached_s is None else f"at {one.reached_s:.1f} s"
    return (
        f"98 % {reached}, {100 * one.accuracy:.2f} % at the end ({one.evaluations[-1].seconds:.1f} s); a worker sent"
        f" {one.sent_bytes / 1e6:.1f} MB; parameters were {one.stale:.2f} updates old, {one.stalest} at most"
    )


def _keep(found: dict[str, Found]) -> None:
    known: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    known |= {name: [asdict(one) for one in each] for name, each in found.items()}
    ordered = {name: known[name] for name in models.MODELS if name in known}
    FILE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
