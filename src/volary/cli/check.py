"""Check a session file and print every setting it comes to."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_json
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from volary.session import Session
    from volary.train.afterwards import Summary


@click.command()
@arguments.session
@arguments.overrides
@arguments.trust
@arguments.as_json
def check(session: Path, overrides: tuple[str, ...], trust: bool, as_json: bool) -> None:
    """Check the session file SESSION as `volary train` would, without starting it.

    Prints every setting with its value, defaults included. All mistakes are reported at once.
    """
    refuse_foreign(session, trust=trust)

    from volary.driver.tasks.checks import check as check_start
    from volary.driver.tasks.checks import check_place
    from volary.session import Session
    from volary.session.surviving import survives

    found = Session.read(session, overrides)
    warnings = check_start(found)
    check_place(found)

    # torch is imported for a faultless file alone: a misspelt setting is told at once
    from volary.train import check_session

    figures = check_session(found)
    _keep_memory(found, figures)
    summary = asdict(figures) | {"survives": survives(found.strategy)}
    warnings += summary.pop("warnings")
    if as_json:
        say_json({"settings": found.settings(), "summary": summary, "warnings": warnings})
        return
    say(found.to_yaml().rstrip())
    for name in ("layers", "holds", "partitions", "memory", "largest_batch", "step_s", "epoch_s"):
        del summary[name]
    for layer in figures.layers:
        remark(f"# layer {layer.name}: {layer}")
    # beside the settings, so that these can be redirected into a file
    for name, value in summary.items():
        remark(f"# {name.replace('_', ' ')}: {_in_words(value)}")
    for text in (*figures.holds, *_limits(figures), *figures.partitions):
        remark(f"# {text}")
    for text in warnings:
        remark(f"# warning: {text}")


def _keep_memory(session: Session, figures: Summary) -> None:
    """The queue of this machine counts with what all processes of the session take, until a run of it was measured."""
    from contextlib import suppress

    from volary.engine.local import LocalEngine
    from volary.jobs.memory import keep_estimate
    from volary.run.machine.memory import IMPORTED_BYTES

    if figures.memory is None or not isinstance(session.engine, LocalEngine):
        return
    workers = session.strategy.workers * figures.memory.total
    with suppress(OSError):  # no cache, or one that cannot be written to
        keep_estimate(session.to_yaml(), IMPORTED_BYTES + workers + figures.memory.servers)


def _limits(figures: Summary) -> Iterator[str]:
    """Say in sentences how much memory and time a step takes."""
    from volary.monitor.wording import duration, number, size

    if figures.memory is not None:
        yield f"memory: {figures.memory}"
        if copied := figures.memory.copied:
            yield f"copies of shares: with each step a worker sends {size(copied)} to another one"
    if figures.largest_batch:
        yield f"batches: up to about {figures.largest_batch:,} samples fit into the memory that is available"
    if figures.step_s is not None:
        epoch = "" if figures.epoch_s is None else f", {duration(figures.epoch_s)} an epoch"
        yield f"computing: {number(figures.step_s)} s a step{epoch}; reading, communication and updates come on top"


def _in_words(value: Any) -> str:
    if value is None:
        return "not known"
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    return value if isinstance(value, str) else f"{value:,}"
