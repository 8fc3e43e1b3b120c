"""Tag a run, or write a note about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say_json, say_pairs

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", multiple=True, metavar="TAG", help="Take this tag away; may be repeated.")
@click.option("--note", metavar="TEXT", help="What to remember about the run; replaces the note that it has.")
@arguments.as_json
def tag(run: RunDirectory, tags: tuple[str, ...], remove: tuple[str, ...], note: str | None, as_json: bool) -> None:
    """Add tags to RUN, also while it runs, and print those that it has."""
    from volary.monitor.wording import clean
    from volary.run.tags import read_tags, write_tags

    found = read_tags(run)
    if tags or remove or note is not None:
        found = found.changed(tags, remove, note)
        write_tags(run, found)
    if as_json:
        say_json({"run": str(run.path), **asdict(found)})
        return
    say_pairs([("run", run.name), ("tags", ", ".join(found.tags) or "-"), ("note", clean(found.note) or "-")])
