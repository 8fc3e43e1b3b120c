"""Measure what these machines and links carry."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json, say_table
from volary.errors import BadInput

if TYPE_CHECKING:
    from volary.bench.collectives import Measured
    from volary.placement import Place

WORKERS = 2
SIZES = "1kb,4kb,16kb,64kb,256kb,1mb,4mb,16mb,64mb,256mb"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


@click.group()
def bench() -> None:
    """Measure what these machines and links carry. Guide: docs/collectives.md."""


@bench.command(short_help="Time all-reduce, broadcast, reduce, reduce-scatter and all-gather.")
@click.option(
    "--workers", type=click.IntRange(min=2), help=f"How many ranks to start on this machine; default: {WORKERS}."
)
@click.option("--sizes", default=SIZES, show_default=True, help="Of the tensors; kb is 1024 bytes.")
@click.option("--time", "time_s", default=120.0, show_default=True, metavar="SECONDS", help="How long at most, about.")
@arguments.as_json
def collectives(workers: int | None, sizes: str, time_s: float, as_json: bool) -> int:
    """Time the collectives, ours beside torch's, and keep from which size on which one is the fastest.

    It starts ranks on this machine; under torchrun, or in `volary lab --hosts 4 -- volary bench collectives`, each
    process is one rank, and rank 0 prints.
    """
    wanted = [_bytes(size) for size in sizes.split(",")]
    place = _place()
    if place is None:
        from volary.bench.local import run

        words = ["bench", "collectives", "--sizes", sizes, "--time", str(time_s), *["--json"] * as_json]
        return run([sys.executable, "-m", "volary", *words], workers or WORKERS)
    if workers is not None:
        raise BadInput(
            f"--workers is {workers}, but {place.launcher} has started {place.world_size} ranks; leave it out"
        )
    from volary.bench.collectives import measure

    found = measure(place, wanted, time_s, remark)
    if place.leads:
        _say(found, as_json)
    return 0


def _place() -> Place | None:
    """The place of this process among ranks that somebody has started; None if nobody has."""
    from volary.placement import find

    return find() if {"VOLARY_RANK", "WORLD_SIZE"} & set(os.environ) else None


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmg]?b?)", text.strip().lower())
    size = int(found[1]) * _UNITS[found[2].removesuffix("b")] if found else 0
    if not size:
        raise BadInput(f"--sizes has {text!r}; accepted: sizes as in 1kb,64kb,16mb")
    return size


def _say(found: Measured, as_json: bool) -> None:
    from volary.monitor.wording import size

    if as_json:
        points = found.points.ways if found.points else None
        say_json({"topology": found.topology, "seconds": found.times, "skipped": found.skipped, "best_from": points})
        return
    say(f"{found.topology}; milliseconds, median of the slowest rank's")
    for collective, sizes in found.times.items():
        names = list(next(iter(sizes.values())))
        say(f"\n{collective}")
        rows = [(size(at), *(f"{times[name] * 1000:.3g}" for name in names)) for at, times in sizes.items()]
        say_table(("size", *names), rows)
        if found.points:
            ways = [f"{way} from {size(start)}" for start, way in found.points.ways[collective]]
            say(f"fastest of ours: {', '.join(ways)}" if collective != "all_reduce" else f"fastest: {', '.join(ways)}")
    for reason in found.skipped:
        remark(f"left out: {reason}")
    if found.file:
        remark(f"kept in {found.file}")
