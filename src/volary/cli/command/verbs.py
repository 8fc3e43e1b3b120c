"""The verbs are the files of the room `cli`: listed, read for their line of help, imported when they run."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

FOLDER = Path(__file__).parent.parent


def names() -> list[str]:
    """The names of all verbs, in alphabetical order."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("[a-z]*.py"))


def summary(name: str) -> str:
    """Say what the verb does, in a line: the first line of its file."""
    with (FOLDER / f"{_file(name)}.py").open(encoding="utf-8") as file:
        return file.readline().strip().strip('"')


def _file(name: str) -> str:
    return name.replace("-", "_")


class Verbs(click.Group):
    """A click group without a list: `cli/train.py` is `volary train`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported; None if there is no such file. Every verb takes --debug, also after its name."""
        if cmd_name not in names():
            return None
        command: click.Command = getattr(import_module(f"volary.cli.{_file(cmd_name)}"), _file(cmd_name))
        if not any(parameter.name == "debug" for parameter in command.params):
            command.params.append(
                click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error.")
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the arguments begin with; an unknown one is refused with the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in names() and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], names(), n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no verb {args[0]!r};{hint} Known: {', '.join(names())}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs in the help, without importing one."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, summary(name)) for name in names()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The verbs that begin so, without importing one."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=summary(name)) for name in names() if name.startswith(incomplete)]
