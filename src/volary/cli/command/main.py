"""Runs a verb: makes of arguments an exit status, and prints errors, each kind in its way."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

import volary
from volary.cli.command.verbs import Verbs
from volary.errors import VolaryError, WorkerFailed
from volary.errors.raised import raised

INTERRUPTED = 130


@click.group(cls=Verbs, subcommand_metavar="VERB [ARGS]...", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(volary.__version__, prog_name="volary", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """Train networks on any number of workers. Guide: docs/first-steps.md.

    Begin with `volary init`, then `volary train session.yaml`.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; what went wrong is said on stderr, in a sentence."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # curves where the terminal has no such characters
    # --debug is read here, so that it also shows errors that parsing itself raises
    status = _guarded(list(arguments), debug="--debug" in arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # whoever read our output has gone; nothing more must be written to it, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _guarded(arguments: list[str], debug: bool) -> int:
    try:
        status = cli.main(arguments, prog_name="volary", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        return _explain(error, debug)
    return status if isinstance(status, int) else 0


def _explain(error: Exception, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, VolaryError):
        click.echo(error.report, err=True)
        return error.exit_code
    if isinstance(error, OSError) and error.filename:
        click.echo(f"{error.filename}: {error.strerror}", err=True)
        return 1
    found = raised(error)
    if found.place:
        click.echo("\n".join([found.sentence, *(f"  | {line}" for line in found.lines)]), err=True)
        return WorkerFailed.exit_code
    first_line = (str(error).strip() or "no text").splitlines()[0]
    hint = "" if debug else " `volary --debug` with the same words shows where."
    click.echo(f"unexpected {type(error).__name__}: {first_line}.{hint}", err=True)
    return 1
