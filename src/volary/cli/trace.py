"""Write a run's recorded steps to a file that Perfetto opens."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import new_file, say, say_json, say_table
from volary.errors import BadInput

if TYPE_CHECKING:
    from volary.monitor.trace import Journey
    from volary.run.database.reader import RunReader
    from volary.run.database.spans import Span
    from volary.run.directory import RunDirectory

FILE = "trace.json"
JOURNEYS_SHOWN = 30
_LAST_STEP = 2**63 - 1


@click.command()
@arguments.run
@click.option("--out", type=click.Path(path_type=Path), help=f"Where to; default: {FILE} in the run, written anew.")
@click.option("--steps", metavar="A:B", default=":", help="Only steps A to B, both included; one may be left out.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Only this worker.")
@arguments.as_json
def trace(run: RunDirectory, out: Path | None, steps: str, rank: int | None, as_json: bool) -> None:
    """Write the recorded steps of RUN as a timeline for ui.perfetto.dev, and print how long each bucket took.

    Guide: docs/trace.md.
    """
    from volary.monitor.trace import journeys, to_json
    from volary.run.database.reader import RunReader
    from volary.run.disk import Disk, refuse_unwritable, replace_file

    if out is None:
        refuse_unwritable("the run", run.path)
    file = new_file(out, "--out") if out else run.path / FILE
    with RunReader(run) as reader:
        spans, hosts = _found(reader, steps, rank), _hosts(reader)
    replace_file(Disk(), file, to_json(spans, hosts, run.name))
    if as_json:
        counts = {"steps": sorted({span.step for span in spans}), "ranks": sorted({span.rank for span in spans})}
        found = [asdict(journey) for journey in journeys(spans)]
        say_json({"run": str(run.path), "file": str(file.absolute()), **counts, "spans": len(spans), "journeys": found})
        return
    say(_wrote(file, spans))
    _say_journeys(journeys(spans))


def _found(reader: RunReader, steps: str, rank: int | None) -> list[Span]:
    """The spans that are asked for; there is at least one."""
    recorded, name = reader.recorded_steps(), reader.directory.name
    if not recorded:
        raise BadInput(
            f"{name} has no spans: they are of the second step and later ones of each start, and none are kept with "
            "train.trace=never, or by a version without `volary trace`"
        )
    spans = list(reader.spans(*_bounds(steps), rank))
    if not spans:
        whose = "" if rank is None else f" of rank {rank}"
        raise BadInput(f"{name} has no spans{whose} in steps {steps}; recorded are the steps {_runs_of(recorded)}")
    return spans


def _bounds(steps: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{0,18}):(\d{0,18})|(\d{1,18})", steps, re.ASCII)
    if match is None:
        raise BadInput(f"--steps is {steps!r}; accepted: A:B, A:, :B or A, steps as whole numbers, both included")
    first, last = (match[3], match[3]) if match[3] else (match[1], match[2])
    return int(first or 0), int(last or _LAST_STEP)


def _runs_of(steps: list[int]) -> str:
    """`2 to 11, 100 to 101`: of many the first and the newest."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return ", ".join(words if len(words) <= 5 else [*words[:3], "...", words[-1]])


def _hosts(reader: RunReader) -> dict[int, str]:
    return {int(rank): str(host) for rank, host in json.loads(reader.info().get("hosts", "{}")).items()}


def _wrote(file: Path, spans: list[Span]) -> str:
    from volary.monitor.wording import place

    steps, ranks = len({span.step for span in spans}), len({span.rank for span in spans})
    counts = ((steps, "step"), (ranks, "rank"), (len(spans), "span"))
    words = ", ".join(f"{number} {what}{'s' * (number != 1)}" for number, what in counts)
    return f"wrote {place(file)}: {words}; open it at ui.perfetto.dev"


def _say_journeys(found: list[Journey]) -> None:
    """Print the journeys that took longest, if there are many, in their order."""
    from volary.monitor.wording import clean, size

    if not found:
        return

    def spent_s(journey: Journey) -> float:
        return (journey.waited_s or 0.0) + (journey.sent_to_received_s or 0.0)

    def ms(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1000:.2f}"

    longest = sorted(found, key=spent_s, reverse=True)[:JOURNEYS_SHOWN]
    which = "" if len(longest) == len(found) else f", the {len(longest)} longest of {len(found)}"
    say(f"\ncommunication by bucket, medians in milliseconds{which}")
    rows = [
        (
            clean(one.name),
            ms(one.ready_to_sent_s),
            ms(one.sent_to_received_s),
            ms(one.received_to_applied_s),
            ms(one.waited_s),
            size(one.size_bytes) if one.size_bytes else "-",
        )
        for one in found
        if one in longest
    ]
    say_table(("name", "ready to sent", "sent to received", "received to applied", "compute blocked", "bytes"), rows)
