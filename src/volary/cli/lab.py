"""Run a command on an emulated cluster, or measure its links."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from volary.cli.command.output import remark, say_table
from volary.errors import BadInput
from volary.run.disk import refuse_unwritable

if TYPE_CHECKING:
    from volary.lab import Lab
    from volary.lab.measure import Throughput

_RATE = "100mbit, 2.5gbit or unlimited"
_NOT_IN_A_LAB = {
    "anew": "a lab resumes a run from its newest whole checkpoint; --anew is for `volary resume` alone",
    "with_page": "a lab's run is not served by itself: `volary ui` shows it from another terminal; --ui is for "
    "`volary train` alone",
    "dry_run": "a lab starts ranks itself, not through an engine; --dry-run is for `volary train` alone",
}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--hosts", default=2, show_default=True, help="How many hosts: h0, h1, ...")
@click.option("--procs", default=1, show_default=True, help="How many ranks on each host.")
@click.option("--rate", help=f"Rate of every host's link, both directions: {_RATE} (the default).")
@click.option("--rates", help="Rates host by host instead: 1gbit,1gbit,50mbit.")
@click.option("--slow", multiple=True, metavar="HOST:RATE", help="Another rate for one host: 2:50mbit. Repeatable.")
@click.option("--groups", default=1, show_default=True, help="How many switches the hosts are spread over.")
@click.option("--trunk", help="Rate of the link between each switch and the core, both directions.")
@click.option("--round-trip", metavar="TIME", help="Between any two hosts: 50ms.")
@click.option("--loss", metavar="SHARE", help="Of packets on the way from one host to another: 5%.")
@click.option(
    "--at",
    multiple=True,
    metavar="TIME:CHANGE",
    help="What happens on the way: 10s:cut:3, 20s:restore:3, 10s:rate:2:50mbit, 10s:trunk:0:1mbit. Repeatable.",
)
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="End the command then, with status 124.")
@click.option("--log-dir", type=click.Path(path_type=Path), help="Write each rank's output to rank-N.log here.")
@click.option("--pin", is_flag=True, help="Each rank stays on its share of the cores.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def lab(
    hosts: int,
    procs: int,
    rate: str | None,
    rates: str | None,
    slow: tuple[str, ...],
    groups: int,
    trunk: str | None,
    round_trip: str | None,
    loss: str | None,
    at: tuple[str, ...],
    timeout_s: float | None,
    log_dir: Path | None,
    pin: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND as ranks on an emulated cluster, or measure its links if there is none.

    `volary train SESSION` (and `volary resume RUN`) train on all hosts; any other program gets torchrun's variables.
    Guide: docs/lab.md.
    """
    from volary.lab import Lab
    from volary.lab.timeline import Timeline

    made = Lab(
        hosts,
        rate,
        rates=rates.split(",") if rates is not None else None,
        slow=dict(map(_slow, slow)),
        groups=groups,
        trunk=trunk,
        round_trip=round_trip,
        loss=loss,
    )
    Timeline(at, made.topology)
    verb = _training_verb(command)
    if log_dir is not None:
        refuse_unwritable("--log-dir", log_dir, make=True)
    if verb is not None and log_dir is not None:
        raise BadInput("--log-dir: a run keeps its workers' output itself, in its folder logs/")
    with _termination_as_interrupt(), made:
        if not command:
            return _measure(made)
        if verb is not None:
            return _train(made, *verb, procs, at, timeout_s, pin)
        # whether or not the shell would find it
        program = [sys.executable, "-m", *command] if command[0] == "volary" else command
        ended = made.run(program, procs=procs, at=at, timeout_s=timeout_s, log_dir=log_dir, pin=pin, say=remark)
    if ended.status:
        where = f"; its output: {log_dir / f'rank-{ended.rank}.log'}" if log_dir and ended.rank is not None else ""
        remark(f"{ended}{where}")
    return ended.status


def _train(
    lab: Lab, verb: str, words: Sequence[str], procs: int, at: Sequence[str], timeout_s: float | None, pin: bool
) -> int:
    """Do what `volary train` or `volary resume` with these words does, on all hosts of the lab."""
    from volary.cli.command.ending import conclude, console
    from volary.lab.training import LabTraining, train
    from volary.loggers.copying.beside import logged_beside

    command = import_module(f"volary.cli.{verb}")
    found: dict[str, Any] = getattr(command, verb).make_context(f"volary {verb}", list(words)).params
    quiet, as_json, log = found.pop("quiet"), found.pop("as_json"), found.pop("log")
    for option, why in _NOT_IN_A_LAB.items():
        if found.pop(option, False):
            raise BadInput(why)
    if "run" in found and found["overrides"]:
        raise BadInput(
            f"a lab resumes a run with its own settings; {found['overrides'][0]} is for `volary resume` alone"
        )
    with logged_beside(console(quiet, as_json), log) as watcher:
        ending = train(
            lab,
            LabTraining(**found),
            watcher,
            procs=procs,
            at=at,
            timeout_s=timeout_s,
            pin=pin or None,
            say=None if quiet or sys.stdout.isatty() else remark,  # a view that is redrawn would be torn
        )
    return conclude(ending, as_json)


def _training_verb(command: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The verb and its words if the command is Volary's own training."""
    words = list(command)
    if len(words) > 2 and Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "volary"]:
        words = ["volary", *words[3:]]
    if len(words) > 1 and Path(words[0]).name == "volary" and words[1] in ("train", "resume"):
        return words[1], words[2:]
    return None


def _measure(lab: Lab) -> int:
    from volary.lab.measure import measure
    from volary.lab.network.rates import shown

    def cells(carried: Throughput) -> tuple[str, ...]:
        share = f"{carried.bits_per_s / carried.limit:.3f}" if carried.limit else "-"
        return carried.what, f"{carried.bits_per_s / 1e6:.1f}", shown(carried.limit), share

    say_table(("flow", "TCP payload, Mbit/s", "limit", "share"), [cells(each) for each in measure(lab)])
    return 0


def _slow(text: str) -> tuple[int, str]:
    host, _, rate = text.partition(":")
    if not host.isdecimal() or not rate:
        raise BadInput(f"--slow is {text!r}; accepted: HOST:RATE, as in 2:50mbit")
    return int(host), rate


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end the lab as Ctrl-C does: once in order, twice at once."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
