"""Write a commented session file to start from."""

from __future__ import annotations

from pathlib import Path

import click

from volary.cli.command.output import say
from volary.errors import BadInput
from volary.run.disk import refuse_unwritable


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default="session.yaml")
def init(file: Path) -> None:
    """Write a session that trains at once to FILE (default: session.yaml). Nothing is overwritten."""
    from volary.session.starter import starter

    refuse_unwritable("FILE", file.parent)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(starter())
    except FileExistsError:
        raise BadInput(f"{file} exists already; give another name: `volary init FILE`") from None
    say(f"wrote {file}")
    say(f"next  volary train {file}")
