"""Find a learning rate: some steps with a rate that grows."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.errors import BadInput, NotFinite
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from volary.session import Session

FEWEST_STEPS = 10


@click.command("tune-lr")
@arguments.session
@arguments.overrides
@click.option("--from", "low", type=float, default=1e-6, show_default=True, help="The rate of the first step.")
@click.option("--to", "high", type=float, default=10.0, show_default=True, help="The rate of the last step.")
@click.option("--steps", type=click.IntRange(FEWEST_STEPS), default=100, show_default=True, help="How many steps.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the curve to FILE as well.")
@arguments.trust
@arguments.as_json
def tune_lr(
    session: Path,
    overrides: tuple[str, ...],
    low: float,
    high: float,
    steps: int,
    svg: Path | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Train SESSION for some steps with a learning rate that grows from the first to the last, and plot the loss.

    The rate to begin with is where the loss falls fastest, or a tenth of where it is least if that is smaller. What is
    trained is a run of its own, `tune-lr-N`.
    """
    refuse_foreign(session, trust=trust)
    if not 0 < low < high < float("inf"):
        raise BadInput(f"--from is {low:g} and --to is {high:g}; accepted: above 0, and the second above the first")

    from volary.cli.command.output import remark, say, say_json
    from volary.cli.command.plot import say_curves
    from volary.driver.ending import NoWatcher
    from volary.driver.start import start
    from volary.monitor.rate_test import rate_test, rates_between
    from volary.monitor.wording import number, place
    from volary.run.database.reader import RunReader
    from volary.run.directory import RunDirectory

    rates = rates_between(low, high, steps)
    tested = _tested(session, overrides, rates)
    directory = RunDirectory(Path(tested.run.folder, str(tested.run.name)))
    with suppress(NotFinite):  # the rate has become too large: that is what it is for
        start(tested, NoWatcher())
    with RunReader(directory) as reader:
        found = rate_test(reader, rates)
    if not found.losses:
        raise BadInput(f"the loss is no number at the first step already; see {place(directory.path)}")
    if svg is not None:
        svg.write_text(found.svg(), encoding="utf-8")
    if as_json:
        say_json({"run": str(directory.path)} | found.as_dict())
        return
    say_curves([found.curve()])
    say(f"step 1 is a rate of {number(found.rates[0])}, step {len(found.rates)} one of {number(found.rates[-1])}")
    if found.suggested is None or found.steepest is None or found.least is None:
        remark("the loss never falls; accepted: other rates (--from, --to), or more steps (--steps)")
        return
    say(f"the loss falls fastest at {number(found.steepest)}, and is least at {number(found.least)}")
    say(f"a rate to begin with: optimizer.lr={number(found.suggested)}")


def _tested(file: Path, overrides: Sequence[str], rates: Sequence[float]) -> Session:
    """The session with a step of each of these rates, under a name that is free."""
    from volary.session import Session

    factors = ", ".join(f"{rate / rates[-1]!r}" for rate in rates)
    changed = [
        f"optimizer.lr={rates[-1]!r}",
        f"schedule={{name: piecewise, steps: {list(range(len(rates)))}, factors: [{factors}]}}",
        f"train.steps={len(rates)}",
        "train.stop_at=never",
        "evaluate.every=never",
        "checkpoint.every=never",
    ]
    given = Session.read(file, overrides)
    name = next(name for n in count(1) if not Path(given.run.folder, name := f"tune-lr-{n}").exists())
    return Session.read(file, [*overrides, *changed, f"run.name={name}"])
