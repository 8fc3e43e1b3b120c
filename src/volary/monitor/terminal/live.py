"""The console on a terminal: one calm view, redrawn in its place. rich is imported when it is made, not before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from volary.monitor.digest import Digest
from volary.monitor.ended.closing import closing
from volary.monitor.wording import (
    PHASE_WORDS,
    STOPPING,
    clean,
    duration,
    epoch,
    hour,
    measured,
    number,
    place,
    starting_in,
    training,
    trouble,
    written,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

LABEL_WIDTH = 9
LAG_WORTH_SHOWING = 0.05
_COLOURS = {"data": "yellow", "forward": "cyan", "backward": "bright_blue", "exchange": "magenta", "optimizer": "green"}


class Live:
    """Draws on the terminal behind `stream`; `close` gives the terminal back as it was, and may be called twice."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console(file=stream, highlight=False)
        self._live = RichLive(console=self._console, auto_refresh=False)
        self._live.start()

    def show(self, digest: Digest) -> None:
        self._live.update(drawing(digest, self._console), refresh=True)

    def say(self, lines: Sequence[str]) -> None:
        from rich.text import Text

        for line in lines:
            self._console.print(Text.from_ansi(line), soft_wrap=True)

    def end(self, digest: Digest) -> None:
        """Leave the last picture where it is, and write the last words under it."""
        self.close()
        for label, text in closing(digest, drawn=True):
            # soft wrap: a path stays one piece that can be copied
            self._console.print(f"{label:<{LABEL_WIDTH}} {text}", markup=False, soft_wrap=True)

    def close(self) -> None:
        """Show the cursor again and leave the view's lines alone."""
        self._live.stop()


def drawing(digest: Digest, console: Console) -> RenderableType:
    """The whole picture of `digest`, for the width and the abilities of `console`."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(width=LABEL_WIDTH, style="dim", no_wrap=True)
    table.add_column(ratio=1)
    _add_title(table, digest)
    _add_progress(table, digest)
    _add_measured(table, digest)
    _add_times(table, digest, console)
    if digest.stopping and digest.state == "running":
        table.add_row("stopping", _text(STOPPING.removeprefix("stopping "), "bold"))
    for event in digest.warnings:
        table.add_row("warning", _text(f"{hour(event.at)} {trouble(event)}", "yellow"))
    # the terminal echoes ^C where the cursor is: behind a full line it would begin a new one and shift the picture
    return Group(table, Text())


def _add_title(table: Table, digest: Digest) -> None:
    workers = f"{digest.workers} worker{'s' * (digest.workers != 1)}"
    state = "" if digest.state == "running" else digest.state
    about = "  ".join(part for part in (workers, clean(digest.session.engine), state) if part)
    title = _text("").append(digest.directory.name, "bold").append(f"  {about}")
    table.add_row("run", _one_line(title))
    table.add_row("in", _one_line(_text(place(digest.directory.path))))
    if digest.route:
        table.add_row("exchange", _one_line(_text(clean(digest.route))))


def _add_progress(table: Table, digest: Digest) -> None:
    if digest.starting or digest.window is None:
        table.add_row("progress", _text(starting_in(digest.starting, digest.attempt_s) or "-"))
        return
    window, planned = digest.window, digest.steps_planned
    if planned:
        table.add_row("progress", _bar(digest.step, planned))
    done = f"step {digest.step}" + (f" of {planned}" if planned else "")
    of_epochs = f" of {number(digest.epochs_planned)}" if digest.epochs_planned else ""
    left = f"{duration(digest.left_s)} left" if digest.left_s is not None and digest.state == "running" else ""
    took = f"{duration(digest.elapsed_s)} so far" if digest.elapsed_s is not None and digest.state == "running" else ""
    which = epoch(window, digest.session)
    parts = (done, f"{which}{of_epochs}" if which else "", took, left)
    table.add_row("", _text("   ".join(part for part in parts if part)))
    table.add_row(
        "training",
        _text("   ".join(training(window, digest.session, digest.batch_size, digest.recorded_loss, digest.compute))),
    )


def _add_measured(table: Table, digest: Digest) -> None:
    if digest.evaluated:
        line = _text("").append(measured(digest.evaluated.values, digest.metric), "bold")
        line.append(f"   at step {digest.evaluated.step}")
        table.add_row("evaluated", line)
    if digest.written:
        table.add_row("wrote", _text(written(digest.written)))
    if digest.best:
        table.add_row("best", _text(f"{measured(digest.best.values)}   at step {digest.best.step}"))


def _add_times(table: Table, digest: Digest, console: Console) -> None:
    if digest.starting or digest.window is None:
        return
    shares = {phase: max(0.0, min(1.0, share)) for phase, share in digest.window.shares.items()}
    table.add_row("time", _stacked(shares, max(10, console.width - LABEL_WIDTH - 2), _is_ascii(console)))
    table.add_row("", _legend(shares))
    if digest.workers > 1 and digest.window.slowest_lag > LAG_WORTH_SHOWING:
        lag = f"rank {digest.window.slowest}: {digest.window.slowest_lag:.0%} more time than the mean"
        table.add_row("slowest", _text(lag, "yellow"))


def _bar(step: int, planned: int) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
    grid.add_column(ratio=1)
    grid.add_column(width=5, justify="right")
    bar = ProgressBar(total=planned, completed=min(step, planned), complete_style="cyan", finished_style="green")
    grid.add_row(bar, f"{min(1.0, step / planned):.0%}")
    return grid


def _stacked(shares: dict[str, float], width: int, letters: bool) -> Text:
    from rich.text import Text

    bar = Text(no_wrap=True)
    drawn, until = 0, 0.0
    for phase, share in shares.items():
        until = min(1.0, until + share)
        cells = round(until * width) - drawn
        # without colours the first letter tells the phases apart
        bar.append((PHASE_WORDS[phase][0] if letters else "\N{FULL BLOCK}") * cells, _COLOURS[phase])
        drawn += cells
    bar.append(("." if letters else "\N{LIGHT SHADE}") * (width - drawn), "dim")
    return bar


def _legend(shares: dict[str, float]) -> Text:
    from rich.text import Text

    legend = Text()
    for phase, share in shares.items():
        legend.append(f"{PHASE_WORDS[phase]} {share:.0%}  ".replace("%", ""), _COLOURS[phase])
    rest = max(0.0, 1 - sum(shares.values()))
    legend.append(f"rest {rest:.0%}", "dim")
    return legend


def _is_ascii(console: Console) -> bool:
    return console.options.ascii_only or console.no_color or console.color_system is None


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
