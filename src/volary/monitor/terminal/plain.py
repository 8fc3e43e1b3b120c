"""The console where there is no terminal: a line for each thing that happens, and few in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from volary.monitor.digest import Digest
from volary.monitor.ended.closing import closing, one_line
from volary.monitor.tables.representations import compared, in_lines
from volary.monitor.wording import (
    MEMBERSHIP,
    STOPPING,
    TROUBLE,
    changed,
    clean,
    duration,
    epoch,
    hour,
    measured,
    membership,
    place,
    starting_in,
    training,
    trouble,
    written,
)
from volary.run.database.reader import Event
from volary.run.machine import clock

PROGRESS_EVERY_S = 10.0
READ_LATE_S = 5.0  # an event may be read after what happened later was shown; earlier than that, a clock was set back
START_AFTER_S = 2.0  # a start that takes longer is reported


class Plain:
    """Writes lines to `stream`. clock: seconds that only go forward."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._titled = False
        self._shown_at = self._start_shown_at = float("-inf")
        self._line_at = 0.0
        self._shown_step = 0

    def show(self, digest: Digest) -> None:
        if not self._titled:
            # what a resumed run did before is not told again
            self._titled, self._shown_step = True, digest.step
            self._line(clock.now_s(), title(digest))
            self._start_shown_at = self._clock() + START_AFTER_S
        for event in digest.news:
            sentence = happened(event, digest)
            if sentence:
                self._line(event.at, sentence)
        if digest.starting and self._clock() >= self._start_shown_at:
            self._start_shown_at = self._clock() + PROGRESS_EVERY_S
            self._line(clock.now_s(), starting_in(digest.starting, digest.attempt_s))
        # steps without news: one line, not too often
        if digest.window and digest.step > self._shown_step and self._clock() - self._shown_at >= PROGRESS_EVERY_S:
            self._shown_at, self._shown_step = self._clock(), digest.step
            self._line(clock.now_s(), progress(digest))

    def say(self, lines: Sequence[str]) -> None:
        print(*lines, sep="\n", file=self._stream, flush=True)

    def end(self, digest: Digest) -> None:
        for label, text in closing(digest):
            print(f"{label:<9} {text}", file=self._stream)
        self._stream.flush()

    def close(self) -> None:
        pass

    def _line(self, at: float, text: str) -> None:
        self._line_at = self._line_at if 0 < self._line_at - at < READ_LATE_S else at
        print(f"{hour(self._line_at)} {text}", file=self._stream, flush=True)


class Quiet:
    """Writes one line to `stream`, at the end; that Ctrl-C was heard; and what the user's program prints."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, digest: Digest) -> None:
        """Say nothing, unless somebody waits for an answer."""
        if any(event.kind == "stopping" for event in digest.news):
            print(STOPPING, file=self._stream, flush=True)

    def say(self, lines: Sequence[str]) -> None:
        """Write them as they are: they are not Volary's."""
        print(*lines, sep="\n", file=self._stream, flush=True)

    def end(self, digest: Digest) -> None:
        """Write the one line; of a failure the error itself tells more."""
        if digest.state != "failed":
            print(one_line(digest), file=self._stream, flush=True)

    def close(self) -> None:
        pass


def title(digest: Digest) -> str:
    """The first line: the run's name, its workers, engine and folder."""
    workers = f"{digest.workers} worker{'s' * (digest.workers != 1)}"
    engine = f", engine {clean(digest.session.engine)}" if digest.session.engine else ""
    return f"run {digest.directory.name}: {workers}{engine}, {place(digest.directory.path)}"


def progress(digest: Digest) -> str:
    """One line: step, epoch, loss, speed, and the time that is left."""
    window = digest.window
    if window is None:
        return "no step yet"
    of = f"/{digest.steps_planned}" if digest.steps_planned else ""
    left = f", {duration(digest.left_s)} left" if digest.left_s is not None else ""
    how = ", ".join(training(window, digest.session, digest.batch_size, digest.recorded_loss))
    where = ", ".join(part for part in (f"step {digest.step}{of}", epoch(window, digest.session)) if part)
    return f"{where}: {how}{left}"


def happened(event: Event, digest: Digest) -> str:
    """The line for an event; empty for those that need none."""
    if event.kind in TROUBLE:
        return f"warning: {trouble(event)}"
    if event.kind in MEMBERSHIP:
        return membership(event)
    if event.kind == "not_slow":
        return f"step {event.step}: {clean(str(event.data.get('reason', '')))}"
    if event.kind == "evaluated":
        values = {name: value for name, value in event.data.items() if isinstance(value, int | float)}
        best = ", the best so far" if digest.best and digest.best.step == event.step else ""
        return f"step {event.step}: {measured(values, digest.metric)}{best}"
    if event.kind == "text":
        return f"step {event.data.get('of_step', event.step)}: wrote {written(event)}"
    if event.kind == "checkpoint":
        return f"step {event.step if event.step is not None else event.data.get('step')}: checkpoint"
    if event.kind == "exchange":
        return (
            f"exchange: {clean(str(event.data.get('route', '')))}; updated {clean(str(event.data.get('update', '')))}"
        )
    if event.kind == "partition":
        return clean(str(event.data.get("text", "")))
    if event.kind == "ways":
        return in_lines(event)
    if event.kind == "compared":
        return compared(event)
    if event.kind == "batch_size":
        return f"step {event.step}: batches of {event.data.get('size')} samples{_instead_of(event)}"
    if event.kind == "stopping":
        return STOPPING
    if event.kind == "asked":
        return f"step {event.step}: asked to {clean(event.data.get('what'))}"
    if event.kind == "changed":
        return changed(event)
    if event.kind == "thawed":
        return f"step {event.step}: {len(event.data.get('parameters', ()))} parameters more are trained"
    if event.kind == "handed_over":
        return _handed_over(event)
    if event.kind == "taken_over":
        who = f"process {clean(event.data.get('pid'))} on {clean(event.data.get('host'))}"
        return f"{who} drives the run in place of its driver, which was lost"
    if event.kind == "resumed":
        return f"resumed from step {event.data.get('from_step')}"
    return ""


def _instead_of(event: Event) -> str:
    size, was = event.data.get("size"), event.data.get("was")
    return ", as before" if size == was else f" instead of {was}"


def _handed_over(event: Event) -> str:
    by, rows, seconds, waited_s = (event.data.get(name, 0) for name in ("by", "rows", "seconds", "waited_s"))
    rate = f", {rows / seconds:,.0f} rows/s" if seconds else ""
    what = f"{clean(str(by))} handed over {rows:,} rows in {seconds:.1f} s{rate}"
    return f"{what}; training waited {waited_s:.1f} s for them"
