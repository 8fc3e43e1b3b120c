"""The arguments and options that several verbs share, and how a shell completes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory

RUNS_FOLDER = "runs"


class RunName(click.ParamType["RunDirectory"]):
    """A run, by its path or by its name in `runs/`. Raises RunError if there is none."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RunDirectory:
        """The run's directory."""
        from volary.run.directory import RunDirectory

        return value if isinstance(value, RunDirectory) else RunDirectory.existing(value, RUNS_FOLDER)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names of the runs in `runs/`, or paths where the word is one."""
        if "/" in incomplete:
            return [CompletionItem(incomplete, type="dir")]
        from volary.run.directory import RunDirectory

        found = [run.name for run in RunDirectory.all_in(Path(RUNS_FOLDER))]
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


class Override(click.ParamType[str]):
    """A setting changed for one run: `optimizer.lr=0.05`; the session says what is wrong with it."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text as it is."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The dotted names of the settings that every session has."""
        from volary.cli._settings import settings

        return [CompletionItem(f"{name}=") for name, _ in settings() if name.startswith(incomplete)]


run = click.argument("run", type=RunName())
session = click.argument("session", type=click.Path(path_type=Path))
overrides = click.argument("overrides", nargs=-1, type=Override(), metavar="[NAME=VALUE]...")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet = click.option("--quiet", "-q", is_flag=True, help="Only the last line, and errors.")
checkpoint = click.option(
    "--checkpoint",
    "which",
    metavar="best|last|STEP",
    help="Which checkpoint; default: best, or last where nothing was measured.",
)
