"""Show the runs of a folder in a browser, live."""

from __future__ import annotations

from pathlib import Path

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=arguments.RUNS_FOLDER, metavar="[DIR]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; default: any that is free.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Data below DIR may be looked at, too, beside that below this folder; may be repeated.",
)
@click.option("--open", "opened", is_flag=True, help="Open the link in this machine's browser.")
@click.option("--with-stdin", is_flag=True, hidden=True, help="End when stdin is closed and no tab looks on.")
def ui(folder: Path, host: str, port: int, data: tuple[Path, ...], opened: bool, with_stdin: bool) -> None:
    """Serve all runs below DIR (default: runs), or the run DIR, until Ctrl-C. Prints the link to open.

    Guide: docs/page.md.
    """
    from volary.page.server.beside import fragment
    from volary.page.server.guard import is_loopback
    from volary.page.server.serve import PageServer
    from volary.run.directory import RunDirectory, is_run

    server = PageServer(folder, host, port, data)
    link = server.link + (fragment(RunDirectory(folder.resolve())) if is_run(folder) else "")
    say(link)
    if not is_loopback(host):
        remark(f"{host} is reached from other machines, unencrypted: whoever has the link sees all runs in {folder}/")
    if opened:
        import webbrowser

        webbrowser.open(link)
    if with_stdin:
        from volary.page.server.beside import when_stdin_closes

        when_stdin_closes(server.leave)
    server.run()
