"""Run a training program of your own on several workers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from volary.cli.command import arguments

_SETTING = re.compile(r"[A-Za-z_][\w.]*=")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME=VALUE]... PROGRAM [ARGUMENTS]...")
@arguments.quiet
@arguments.log
def launch(words: tuple[str, ...], quiet: bool, log: tuple[str, ...]) -> int:
    """Run PROGRAM, which calls `volary.init()`, with settings such as `strategy.workers=4` before it.

    What follows PROGRAM is the program's own; in its place, `-m package.module` runs a module.
    """
    overrides, program, given = parted(words)

    from volary.cli.command.ending import conclude, console
    from volary.driver.start import start
    from volary.loggers.copying.beside import logged_beside
    from volary.session.script import Script

    script = Script.of_program(program, given, overrides)
    with logged_beside(console(quiet, as_json=False), log) as watcher:
        return conclude(start(script, watcher), as_json=False)


def parted(words: Sequence[str]) -> tuple[Sequence[str], str, Sequence[str]]:
    """Settings, the program as `Script.of_program` takes it, and its arguments. Raises UsageError without a program."""
    first = next((place for place, word in enumerate(words) if not _SETTING.match(word)), len(words))
    settings, rest = words[:first], words[first:]
    if rest and rest[0] == "-m":
        rest = [" ".join(rest[:2]), *rest[2:]] if len(rest) > 1 else []
    elif rest and rest[0].startswith("-"):
        raise click.UsageError(f"no option {rest[0]!r} of `volary launch`; what is the program's follows the program")
    if not rest:
        raise click.UsageError(
            "no program; accepted: settings, a program, its arguments, as in "
            "`volary launch strategy.workers=2 train.py --epochs 3`"
        )
    return settings, rest[0], rest[1:]
