"""Follow all runs that are under way."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from volary.cli.command import arguments
from volary.cli.command.output import say, say_json, say_table


@click.command()
@arguments.folder
@arguments.as_json
def top(folder: Path, as_json: bool) -> None:
    """Show every run in a folder that is training now, once a second; Ctrl-C ends the looking.

    Where the output is no terminal, or with --json, once.
    """
    from volary.monitor.tables.top import HEADER, LOOK_S, Top, as_dict, drawing

    looking = Top(arguments.checked(folder))
    try:
        if as_json:
            say_json([as_dict(digest) for digest in looking.look()])
        elif not sys.stdout.isatty():
            rows = [looking.row(digest) for digest in looking.look()]
            say_table(HEADER, rows) if rows else say("no run is under way")
        else:
            from rich.live import Live

            with Live(auto_refresh=False) as live:
                while True:
                    live.update(drawing([looking.row(digest) for digest in looking.look()]), refresh=True)
                    time.sleep(LOOK_S)
    except KeyboardInterrupt:
        pass  # all there is to it
    finally:
        looking.close()
