"""Write runs to one file that opens anywhere: HTML, Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import new_file, say
from volary.errors import BadInput
from volary.run.disk import Disk, refuse_unwritable, replace_file

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory

FILES = ("report.html", "report.md")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=arguments.RunName(), metavar="RUN...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="FILE.html, and Markdown beside it; or FILE.md alone. Default: both, in the run.",
)
def report(runs: tuple[RunDirectory, ...], out: Path | None) -> None:
    """Write RUN, or several RUNs side by side, as a page that needs no server, and as Markdown.

    Guide: docs/page.md.
    """
    from volary.monitor.wording import place, size
    from volary.page.report.html import report_page
    from volary.page.report.markdown import report_markdown

    for file in _files(runs, out):
        data = report_page(runs) if file.suffix == ".html" else report_markdown(runs).encode()
        replace_file(Disk(), file, data)
        say(f"wrote {place(file)}, {size(len(data))}")


def _files(runs: tuple[RunDirectory, ...], out: Path | None) -> list[Path]:
    if out is None and len(runs) == 1:
        refuse_unwritable("the run", runs[0].path)
        return [runs[0].path / name for name in FILES]  # the run's own, written anew
    if out is None:
        raise BadInput("of several runs the report is no single run's: say where to with --out FILE.html or FILE.md")
    if out.suffix not in (".html", ".md"):
        raise BadInput(f"--out {out}: accepted: a name that ends with .html or .md")
    files = [out, out.with_suffix(".md")] if out.suffix == ".html" else [out]
    return [new_file(file, "--out") for file in files]
