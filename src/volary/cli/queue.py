"""Show the queue of this machine, and change it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json, say_table

if TYPE_CHECKING:
    from volary.jobs.machines.clusters import ClusterJob
    from volary.jobs.queue import QueueRow
    from volary.run.directory import RunDirectory

WATCH_S = 1.0
CLUSTERS_EACH = 10  # looks: a controller has many to answer


@click.group(invoke_without_command=True)
@click.option("--watch", is_flag=True, help="Show it anew every second, until it is empty.")
@arguments.as_json
@click.pass_context
def queue(context: click.Context, watch: bool, as_json: bool) -> None:
    """List the runs that were submitted on this machine: what runs, what waits, and why.

    Those that you have submitted to the queue of a cluster come last.
    """
    if context.invoked_subcommand is not None:
        return
    from volary.jobs.machines.clusters import jobs_of_clusters
    from volary.jobs.queue import LocalQueue

    looks = 0
    while True:
        rows = _rows(LocalQueue())
        if looks % CLUSTERS_EACH == 0:
            elsewhere = jobs_of_clusters()
        looks += 1
        if watch:
            click.clear()
        if as_json:
            say_json([*map(_plain, rows), *map(_plain_job, elsewhere)])
        elif rows or elsewhere:
            cells = [*map(_cells, rows), *map(_cells_of_job, elsewhere)]
            say_table(("run", "state", "priority", "cores", "gpus", "memory", "why"), cells)
        else:
            say("the queue is empty; `volary submit session.yaml` puts a run there")
        if not (watch and (rows or elsewhere)):
            return
        time.sleep(WATCH_S)


@queue.command()
@arguments.run
def cancel(run: RunDirectory) -> None:
    """Take RUN out of the queue.

    If it runs, it finishes its step, writes a checkpoint and ends.
    """
    from volary.driver.queued import cancel as cancel_job

    cancel_job(run)


@queue.command()
@arguments.run
def hold(run: RunDirectory) -> None:
    """Let RUN wait until it is released.

    If it runs, it finishes its step, writes a checkpoint and waits.
    """
    from volary.jobs.queue import LocalQueue

    LocalQueue().hold(str(run.path))


@queue.command()
@arguments.run
def release(run: RunDirectory) -> None:
    """Let RUN start again that was held."""
    from volary.jobs.queue import LocalQueue

    LocalQueue().release(str(run.path))


@queue.command()
@arguments.run
@click.option("--before", type=arguments.RunName(), metavar="OTHER", help="In front of OTHER; default: of all.")
def move(run: RunDirectory, before: RunDirectory | None) -> None:
    """Put RUN in front of others of its priority."""
    from volary.jobs.queue import LocalQueue

    LocalQueue().move(str(run.path), None if before is None else str(before.path))


@queue.command(context_settings={"ignore_unknown_options": True})
@arguments.run
@click.argument("value", type=int)
def priority(run: RunDirectory, value: int) -> None:
    """Give RUN the priority VALUE.

    Higher ones start first, and lower ones give way to them.
    """
    from volary.jobs.queue import LocalQueue

    LocalQueue().set_priority(str(run.path), value)


def _rows(found: Any) -> list[QueueRow]:
    rows: list[QueueRow] = found.rows()
    for text in found.remarks:
        remark(text)
    return rows


def _cells(row: QueueRow) -> tuple[str, ...]:
    from pathlib import Path

    from volary.monitor.wording import place, size

    entry = row.entry
    given = entry.given
    cores = ",".join(map(str, given.cores)) if given else str(entry.demand.cores)
    gpus = ",".join(map(str, given.gpus)) if given else str(entry.demand.gpus or "")
    memory = size(entry.demand.memory_bytes) + " (estimate)" * (entry.memory_from == "estimate")
    return place(Path(entry.run)), entry.state, str(entry.priority), cores, gpus or "-", memory, _why(row)


def _cells_of_job(one: ClusterJob) -> tuple[str, ...]:
    from volary.monitor.wording import place

    waits = "waiting" if one.state.waiting else "running"
    return place(one.directory.path), waits, "-", "-", "-", "-", f"{one.job}: {one.state.words}"


def _plain_job(one: ClusterJob) -> dict[str, Any]:
    return {
        "run": str(one.directory.path),
        "state": "waiting" if one.state.waiting else "running",
        "engine": one.job.engine,
        "job": one.job.number,
        "reason": one.state.words,
    }


def _why(row: QueueRow) -> str:
    from volary.monitor.wording import duration

    if row.starts_in_s is None or row.starts_in_s < 1:
        return row.reason
    return f"{row.reason}; about {duration(row.starts_in_s)}"


def _plain(row: QueueRow) -> dict[str, Any]:
    entry, given = row.entry, row.entry.given
    return {
        "run": entry.run,
        "state": entry.state,
        "priority": entry.priority,
        "host": given.host if given else "",
        "cores": list(given.cores) if given else entry.demand.cores,
        "gpus": list(given.gpus) if given else entry.demand.gpus,
        "memory_bytes": entry.demand.memory_bytes,
        "memory_from": entry.memory_from,
        "held": entry.held,
        "reason": row.reason,
        "starts_in_s": row.starts_in_s,
    }
