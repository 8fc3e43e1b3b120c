"""Train a session with several values of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json, say_table
from volary.errors import BadInput, Stopped
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.sweep import Sweep


@click.command()
@click.argument("session", type=click.Path(path_type=Path), metavar="SESSION|SWEEP")
@arguments.overrides
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Runs of each combination.")
@click.option("--random", "drawn", type=click.IntRange(2), metavar="N", help="Draw N combinations; of ranges, too.")
@click.option("--stop-early", is_flag=True, help="Train all for some time, and only the best third on; repeat.")
@click.option(
    "--at-once", default="1", show_default=True, metavar="N|auto", help="Runs at a time; auto: as many as fit."
)
@click.option("--name", help="The name of the sweep's folder; default: one that is free.")
@arguments.trust
@arguments.as_json
def sweep(
    session: Path,
    overrides: tuple[str, ...],
    seeds: int,
    drawn: int | None,
    stop_early: bool,
    at_once: str,
    name: str | None,
    trust: bool,
    as_json: bool,
) -> int:
    """Train SESSION once for each combination of `optimizer.lr=0.01,0.1 strategy.codec=none,onebit`.

    With `--random 20` for as many that are drawn, of ranges such as `optimizer.lr=0.001..0.1`, too. `--stop-early`
    stops two thirds of them after some time, by the validation metric, and resumes the others: successive halving.
    The runs are in the queue (`volary queue`), which starts each when there is room for it.

    Ends with a table of them, the best first. Ctrl-C saves what is under way; `volary sweep SWEEP`, with the sweep's
    folder, resumes it.
    """
    from volary.driver.sweep import SweepRunner

    if at_once != "auto" and not (at_once.isdecimal() and int(at_once)):
        raise BadInput(f"--at-once is {at_once!r}; accepted: auto, or a whole number, 1 or more")
    found = _sweep(session, overrides, seeds, drawn, name, trust=trust, stops_early=stop_early)
    places = None if at_once == "auto" else int(at_once)
    remark(f"{len(found.members)} runs in {_shown(found)}, {'as many as fit' if places is None else places} at a time")
    stopped = False
    try:
        SweepRunner(found, places, remark, trust=trust).run()
    except Stopped:
        stopped = True
    return _conclude(found, stopped, as_json)


def _sweep(
    session: Path,
    overrides: tuple[str, ...],
    seeds: int,
    drawn: int | None,
    name: str | None,
    *,
    trust: bool,
    stops_early: bool,
) -> Sweep:
    from volary.driver.sweep import plan
    from volary.run.sweep import FILE, Sweep

    folder = next((one for one in (session, Path(arguments.RUNS_FOLDER) / session) if (one / FILE).exists()), None)
    if folder is None:
        refuse_foreign(session, trust=trust)
        return plan(session, overrides, seeds, name, drawn, stops_early=stops_early)
    if overrides or seeds > 1 or drawn or name or stops_early:
        raise BadInput(
            f"{folder} is a sweep that is resumed as it is; accepted: no settings, --seeds, --random, --stop-early or "
            "--name"
        )
    return Sweep.existing(folder)


def _conclude(found: Sweep, stopped: bool, as_json: bool) -> int:
    from volary.monitor.tables.sweep import combinations, table

    rows = combinations(found)
    if as_json:
        say_json({"sweep": str(found.folder), "combinations": [one.as_dict() for one in rows]})
    else:
        say_table(*table(rows))
        if rows[0].mean is not None:
            best = " ".join(f"{setting}={value}" for setting, value in rows[0].settings.items())
            where = f"{_shown(found)}/{next(iter(rows[0].states))}"
            say(f"best: {best or 'all alike but for the seed or the fold'}, in {where}")
    if stopped:
        remark(f"resume: volary sweep {_shown(found)}")
        return Stopped.exit_code
    if missing := sum(one.unfinished for one in rows):
        remark(f"{missing} of {len(found.members)} runs did not finish; why: volary show {_shown(found)}/RUN")
        return 1
    return 0


def _shown(found: Sweep) -> str:
    from volary.monitor.wording import place

    return place(found.folder)
