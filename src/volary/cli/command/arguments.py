"""The arguments and options that several verbs share, and how a shell completes them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from volary.errors import BadInput, RunError

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory

RUNS_FOLDER = "runs"


class RunName(click.ParamType["RunDirectory"]):
    """A run, by its path or by its name in `runs/`. Raises RunError if there is none."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RunDirectory:
        from volary.run.directory import RunDirectory

        return value if isinstance(value, RunDirectory) else RunDirectory.existing(value, RUNS_FOLDER)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names of the runs in `runs/`, or paths where the word is one."""
        if "/" in incomplete:
            return [CompletionItem(incomplete, type="dir")]
        from volary.run.directory import RunDirectory

        found = [run.name for run in RunDirectory.all_in(Path(RUNS_FOLDER))]
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


class OverrideType(click.ParamType[str]):
    """A setting changed for one run: `optimizer.lr=0.05`; the session says what is wrong with it."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The dotted names of the settings that every session has; after '=', the values that can be listed."""
        from volary.cli.command.settings import settings, values

        name, equals, value = incomplete.rpartition("=")
        if equals:
            return [CompletionItem(f"{name}={known}") for known in values(name) if known.startswith(value)]
        if name := _before_equals(ctx.params.get(param.name or "") or (), incomplete):
            return [CompletionItem(known) for known in values(name) if known.startswith(incomplete)]
        return [CompletionItem(f"{name}=") for name, _ in settings() if name.startswith(incomplete)]


def _before_equals(words: Sequence[str], incomplete: str) -> str:
    """The setting whose value is being typed, in bash, which takes `a.b=c` for three words, and '=' for none yet."""
    if words and words[-1] == "=":
        return words[-2] if len(words) > 1 else ""
    return words[-1] if words and "=" not in words[-1] and not incomplete else ""


class Which(click.ParamType[str]):
    """Which checkpoint of a run: best, last or a step."""

    name = "checkpoint"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The two words, and the steps that the run has checkpoints of."""
        from volary.run.checkpoints import Checkpoints

        steps = [step for run in _runs_before(ctx) for step in Checkpoints(run.checkpoints).steps()]
        return [CompletionItem(word) for word in ("best", "last", *map(str, steps)) if word.startswith(incomplete)]


def _runs_before(ctx: click.Context) -> list[RunDirectory]:
    """The run that stands on the line already; where an option still lacks its value click has not read it."""
    from volary.run.directory import RunDirectory

    words = [ctx.params["run"]] if ctx.params.get("run") else ctx.args
    found = []
    for word in words:
        with suppress(RunError):
            found.append(word if isinstance(word, RunDirectory) else RunDirectory.existing(word, RUNS_FOLDER))
    return found


def checked(folder: Path) -> Path:
    """The folder of runs that was asked for. Raises BadInput for one that is missing, but not for the default one."""
    default = click.get_current_context().get_parameter_source("folder") is click.core.ParameterSource.DEFAULT
    if not folder.is_dir() and (folder.exists() or not default):
        why = "is a file" if folder.exists() else "there is no such folder"
        raise BadInput(f"--folder {folder}: {why}; accepted: a folder of runs, by default {RUNS_FOLDER}")
    return folder


run = click.argument("run", type=RunName())
folder = click.option(
    "--folder", type=click.Path(path_type=Path), default=RUNS_FOLDER, show_default=True, help="Where to look."
)
session = click.argument("session", type=click.Path(path_type=Path))
overrides = click.argument("overrides", nargs=-1, type=OverrideType(), metavar="[NAME=VALUE]...")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
trust = click.option("--trust", is_flag=True, help="Run code that is named by a file of another user's.")
quiet = click.option("--quiet", "-q", is_flag=True, help="Only the last line, and errors.")
log = click.option(
    "--log", multiple=True, metavar="LOGGER", help="Copy the run to a logger meanwhile (see `volary log`)."
)
average = click.option("--average", is_flag=True, help="Of the averages of the weights, which train.average keeps.")
checkpoint = click.option(
    "--checkpoint",
    "which",
    type=Which(),
    metavar="best|last|STEP",
    help="Which checkpoint; default: best, or last if nothing was measured.",
)
