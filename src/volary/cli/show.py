"""Show a run: progress, curves, metrics, time, checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say, say_json, say_pairs, say_table
from volary.cli.command.plot import say_plot

if TYPE_CHECKING:
    from volary.monitor.account import Account
    from volary.run.directory import RunDirectory

EVALUATIONS_SHOWN = 10
EPOCHS_SHOWN = 10  # of what was read: the newest
MEMBERS_SHOWN = 10
SPARKLINE_WIDTH = 40
CURVES_SHOWN = 20
METRICS_SHOWN = 12
_STATES = {"lost": "lost: it was running, and its driver is gone", "new": "new: nothing has started yet"}


@click.command()
@arguments.run
@click.option("--verify", is_flag=True, help="Compare the checkpoints with their checksums: reads them whole.")
@click.option("--plot", metavar="METRIC", help="Draw the curve of a metric (loss, accuracy, lr, samples_per_s, ...).")
@arguments.as_json
def show(run: RunDirectory, verify: bool, plot: str | None, as_json: bool) -> None:
    """Show RUN, while it runs or after."""
    from volary.monitor.account import account

    if plot is not None:
        say_plot([run], plot, as_json=as_json)
        return
    found = account(run, verify)
    if as_json:
        say_json(found.as_dict())
        return
    say_pairs(_head(found))
    _say_curves(found)
    _say_metrics(found)
    _say_written(found)
    _say_times(found)
    _say_ways(found)
    _say_traffic(found)
    _say_counted(found)
    _say_roster(found)
    _say_members(found)
    _say_changes(found)
    _say_checkpoints(found)
    _say_decoding(found)
    _say_reads(found)
    _say_corrupt(found)
    _say_warnings(found)
    if found.digest.message:
        say(f"\n{found.digest.message}")


def _head(found: Account) -> list[tuple[str, str]]:
    from volary.monitor.ended.advice import advice_on
    from volary.monitor.wording import clean, duration, measured, moment, number, place

    digest = found.digest
    of = f" of {digest.steps_planned}" if digest.steps_planned else ""
    of_epochs = f" of {number(digest.epochs_planned)}" if digest.epochs_planned else ""
    epoch = f", epoch {digest.window.epoch:.1f}{of_epochs}" if digest.window else ""
    took = f", {duration(digest.elapsed_s)}" if digest.elapsed_s is not None else ""
    batch = f", batch {digest.batch_size}" if digest.batch_size is not None else ""
    rows = [
        ("run", digest.directory.name),
        ("state", _STATES.get(digest.state, digest.state)),
        ("session", digest.session.sentence()),
        ("progress", f"step {digest.step}{of}{epoch}{batch}{took}"),
    ]
    if digest.window and (digest.window.samples_per_s or digest.compute):
        computes = f", {digest.compute}" if digest.compute else ""
        rows.append(("speed", f"{number(digest.window.samples_per_s)} samples/s{computes}"))
    if found.started_at:
        rows.append(("started", moment(found.started_at)))
    if found.labels.tags:
        rows.append(("tags", ", ".join(found.labels.tags)))
    if found.labels.note:
        rows.append(("note", clean(found.labels.note)))
    if digest.route:
        rows.append(("exchange", clean(digest.route)))
    if digest.best:
        rows.append(("best", f"{measured(digest.best.values)} at step {digest.best.step}"))
    rows += [("folder", place(digest.directory.path)), ("logs", place(digest.directory.logs))]
    return rows + [("next", how) for how in advice_on(digest)]


def _say_curves(found: Account) -> None:
    from volary.monitor.terminal.sparkline import sparkline
    from volary.monitor.wording import clean, number

    if not found.curves:
        return
    say()
    rows = []
    for curve in found.curves[:CURVES_SHOWN]:
        values = [point.mean for point in curve.points]
        figures = values[0], values[-1], *(point.mean for point in curve.extremes())
        rows.append((clean(curve.label), sparkline(values, SPARKLINE_WIDTH), *map(number, figures)))
    say_table(("curve", "", "first", "newest", "least", "most"), rows)
    if (more := len(found.curves) - CURVES_SHOWN) > 0:
        say(f"and {more} more: --json, or --plot METRIC")


def _say_metrics(found: Account) -> None:
    from volary.monitor.parts import tables
    from volary.monitor.wording import clean, number, whole

    if not found.metrics:
        return
    first = found.digest.metric
    names = sorted(
        {name for _, values in found.metrics for name in whole(values)}, key=lambda name: (name != first, name)
    )
    names = names[:METRICS_SHOWN]
    shown = found.metrics[-EVALUATIONS_SHOWN:]
    left_out = len(found.metrics) - len(shown)
    say("\nevaluations" + (f", the newest {len(shown)} of {len(found.metrics)}" if left_out else ""))
    rows = [[str(step), *(number(values[n]) if n in values else "-" for n in names)] for step, values in shown]
    say_table(("step", *map(clean, names)), rows)
    for header, *parts in tables(found.metrics[-1][1]):
        say("")
        say_table(header, parts)


def _say_written(found: Account) -> None:
    from volary.monitor.wording import clean

    if (event := found.digest.written) is None:
        return
    say(f"\nwritten at step {event.data.get('of_step', event.step)}")
    for line in f"{event.data.get('prompt', '')}{event.data.get('text', '')}".splitlines():
        say(f"  {clean(line)}")


def _say_times(found: Account) -> None:
    from volary.monitor.wording import PHASE_WORDS, number, size

    if not found.workers:
        return
    steps = max(worker.steps for worker in found.workers)
    say(f"\ntime of a step in milliseconds, mean of the newest {steps}")
    rows = [
        (
            str(worker.rank),
            number(worker.step_s * 1000),
            *(number(worker.phases_s[phase] * 1000) for phase in PHASE_WORDS),
            size(worker.sent_bytes),
        )
        for worker in found.workers
    ]
    say_table(("rank", "step", *PHASE_WORDS.values(), "sent"), rows)


def _say_ways(found: Account) -> None:
    from volary.monitor.tables.representations import HEADER, links, rows

    if found.ways is None:
        return
    say(f"\nrepresentation of each layer since step {found.ways.step}, {links(found.ways)}")
    say_table(HEADER, rows(found.ways))


def _say_traffic(found: Account) -> None:
    from volary.monitor.tables.representations import TRAFFIC_HEADER, traffic_rows

    if found.traffic:
        say("\nbytes of all workers by codec and route")
        say_table(TRAFFIC_HEADER, traffic_rows(found.traffic))


def _say_counted(found: Account) -> None:
    from volary.monitor.tables.counted import tables

    for table in tables(found.counts):
        say(f"\n{table.title}")
        say_table(table.header, table.rows)


def _say_roster(found: Account) -> None:
    from volary.monitor.wording import moment, number

    if not found.roster:
        return
    say("\nworkers")
    rows = [
        (
            str(one.rank),
            one.host or "-",
            moment(one.since),
            one.state + (f" {moment(one.until)}" if one.until is not None else ""),
            "-" if one.step is None else str(one.step),
            "-" if one.samples_per_s is None else number(one.samples_per_s),
        )
        for one in found.roster
    ]
    say_table(("rank", "host", "since", "state", "step", "samples/s"), rows)


def _say_members(found: Account) -> None:
    from volary.monitor.wording import membership, moment

    if found.members:
        say("\ncame and went")
    for event in found.members[-MEMBERS_SHOWN:]:
        say(f"{moment(event.at)}  {membership(event)}")


def _say_changes(found: Account) -> None:
    from volary.monitor.wording import changed

    if found.changes:
        say("\nsettings changed when the run was resumed")
    for event in found.changes:
        say(changed(event))


def _say_checkpoints(found: Account) -> None:
    from volary.monitor.wording import number

    if not found.checkpoints:
        return
    say("\ncheckpoints")
    rows = [
        (str(kept.step), number(kept.metric) if kept.metric is not None else "-", kept.condition)
        for kept in found.checkpoints
    ]
    say_table(("step", found.digest.metric or "metric", "files"), rows)


def _say_decoding(found: Account) -> None:
    from volary.monitor.wording import clean

    for one in found.decoding:
        source = f" of source {one['source']}" if len(found.decoding) > 1 else ""
        say(f"\nsamples{source} are decoded by {one['count']} {one['by']} a worker: {clean(one['why'])}")
        if one["readers"]:
            why = clean(one.get("readers_why") or "no other number was compared with it so far")
            say(f"samples{source} are read ahead by {one['readers']} threads a worker: {why}")


def _say_reads(found: Account) -> None:
    if not found.reads:
        return
    say("\nsamples read, by the level of the cache that they came from")
    rows = [(str(epoch), *map(str, levels.values())) for epoch, levels in list(found.reads.items())[-EPOCHS_SHOWN:]]
    say_table(("epoch", "memory", "disk", "source", "calls repeated"), rows)


def _say_corrupt(found: Account) -> None:
    from volary.monitor.wording import clean

    for split, reasons in found.corrupt.items():
        say(f"\n{len(reasons)} sample{'s' * (len(reasons) > 1)} of the {split} part could not be read and were skipped")
        for reason in reasons:
            say(f"  {clean(reason)}")


def _say_warnings(found: Account) -> None:
    from volary.monitor.wording import moment, trouble

    if found.digest.warnings:
        say("\nnewest warnings")
    for event in found.digest.warnings:
        say(f"{moment(event.at)}  {trouble(event)}")
