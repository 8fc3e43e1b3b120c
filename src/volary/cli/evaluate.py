"""Measure a trained network on its validation data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json, say_pairs, say_table
from volary.errors import BadInput
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory
    from volary.train.predicting.worst import WorstSample


@click.command()
@arguments.run
@arguments.overrides
@arguments.trust
@arguments.checkpoint
@arguments.average
@click.option("--worst", type=int, metavar="N", help="List the N samples with the greatest losses instead.")
@arguments.as_json
def evaluate(
    run: RunDirectory,
    overrides: tuple[str, ...],
    trust: bool,
    which: str | None,
    average: bool,
    worst: int | None,
    as_json: bool,
) -> None:
    """Measure a checkpoint of RUN on the data that training did not see. The run is not changed.

    Settings after RUN replace those of its session; a run of a training loop of your own needs `data.source=...`.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.driver.tasks.task import task_of
    from volary.session.script import Script
    from volary.session.spec import Session

    if isinstance(task := task_of(run), Script):
        if worst is not None:
            raise BadInput(f"{run.path} is of a training loop of your own; accepted with --worst: a run of a session")
        task = task.to_measure(overrides)
    elif overrides:
        task = Session.read(run.session, overrides)

    from volary.monitor.parts import tables
    from volary.monitor.wording import number, place, whole
    from volary.run.checkpoint_files.choice import choose

    step = choose(run, which, remark).step
    if worst is not None:
        from volary.train.predicting.worst import worst_of_run

        _show(run, worst_of_run(run, step, worst, task, average=average), step, as_json)
        return

    from volary.train import evaluate_run

    metrics = evaluate_run(run, step, remark, task, average=average)
    if as_json:
        say_json({"run": str(run.path), "step": step, "metrics": metrics})
        return
    say_pairs([("run", place(run.path)), ("step", str(step)), *((k, number(metrics[k])) for k in whole(metrics))])
    for header, *rows in tables(metrics):
        say("")
        say_table(header, rows)


def _show(run: RunDirectory, worst: list[WorstSample], step: int, as_json: bool) -> None:
    """Print the worst samples, a line each."""
    from volary.monitor.wording import number, place

    if as_json:
        say_json({"run": str(run.path), "step": step, "worst": [asdict(one) for one in worst]})
        return
    say_pairs([("run", place(run.path)), ("step", str(step))])
    say("")
    shares = ["" if one.share is None else f"{one.share:.1%}" for one in worst]
    rows = [
        [str(one.number), number(one.loss), one.target, one.answer, share, one.name]
        for one, share in zip(worst, shares, strict=True)
    ]
    say_table(["sample", "loss", "target", "answer", "share", "file"], rows)
