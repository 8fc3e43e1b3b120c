"""Numbers, times and events in the words that people read: one place, so that every view says the same."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from volary.errors.raised import shown
from volary.monitor.compute import ComputeRate
from volary.monitor.outline import Outline
from volary.run.database.reader import PHASES, Event, Window

STOPPING = "stopping after this step; Ctrl-C again stops now"
MEMBERSHIP = ("joined", "left", "lost", "server_lost", "spare", "recovered", "balanced")
TROUBLE = ("suspect", "slow", "checkpoint_failed", "skipped", "warning", "lost", "server_lost")
PHASE_WORDS = {phase: "optimiser" if phase == "optimizer" else phase for phase in PHASES}
PART = re.compile(r"(\w+)\[(\d+)(?:,(\d+))?\]")  # a figure of a class, `recall[3]`, or of a cell of a matrix
WRITTEN = 160  # characters of a text in a line
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def starting_in(words: str, attempt_s: float | None) -> str:
    """Say what a start waits for, and for how long: `starting: importing torch, 6 s`."""
    return f"starting: {words}" + (f", {duration(attempt_s)}" if attempt_s is not None else "") if words else ""


def number(value: float | None) -> str:
    """Four significant digits: `0.9733`, `1.2e-05`, `2210`. None is how SQLite gives NaN back."""
    if value is None:
        return "nan"
    if math.isfinite(value) and 1000 <= abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}"


def training(
    window: Window,
    session: Outline,
    batch_size: int | None = None,
    recorded: float | None = None,
    compute: ComputeRate | None = None,
) -> list[str]:
    """How training goes: loss, learning rate, speed, and the batch if it grew.

    recorded: the loss that a loop of the user's own recorded, if it did; what it does not tell is left out. compute:
    how fast it computes, if that is to be told.
    """
    known = recorded if session.own_loop else window.loss
    loss = [] if known is None else [f"loss {number(known)}"]
    speed = [f"{number(window.samples_per_s)} samples/s"] if window.samples_per_s or not session.own_loop else []
    speed += [] if compute is None else [str(compute)]
    batch = [] if batch_size is None else [f"batch {batch_size}"]
    return [*loss, f"lr {number(window.lr)}", *speed, *batch]


def epoch(window: Window, session: Outline) -> str:
    """Say which epoch it is; empty if a loop of the user's own does not report it."""
    return f"epoch {window.epoch:.1f}" if window.epoch or not session.own_loop else ""


def duration(seconds: float) -> str:
    """A length of time in the two units that matter: `8 s`, `1 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "unknown"
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit_s, unit in _UNITS:
        count, left = divmod(left, unit_s)
        if count or parts or unit_s == 1:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def size(count: float) -> str:
    """Bytes: `512 B`, `1.5 KiB`, `25.0 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def moment(at: float) -> str:
    """A point in time, on this machine's clock: `2026-11-03 12:04`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def hour(at: float) -> str:
    """The time of day: `12:04:31`."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def measured(values: Mapping[str, float], first: str = "") -> str:
    """Metrics in one line, the one called `first` before the others: `accuracy 0.9733, loss 0.0912`."""
    names = sorted(whole(values), key=lambda name: (name != first, name))
    return ", ".join(f"{clean(name)} {number(values[name])}" for name in names)


def whole(names: Iterable[str]) -> list[str]:
    """The names of figures that are of all that was measured, without those of a class or of a cell of a matrix."""
    return [name for name in names if not PART.fullmatch(name)]


def clean(text: object) -> str:
    """Make one printable line of what a run says of itself: no line breaks and no terminal codes."""
    return " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())


def written(event: Event) -> str:
    """The text that a network has written, with its prompt, as one line of up to WRITTEN characters."""
    text = clean(f"{event.data.get('prompt', '')}{event.data.get('text', '')}")
    return text if len(text) <= WRITTEN else f"{text[:WRITTEN]}..."


def trouble(event: Event) -> str:
    """The sentence for an event of one of the kinds in TROUBLE."""
    at = f"step {event.step}: " if event.step is not None else ""
    reason = clean(event.data.get("reason", event.data.get("text", "")))
    if event.kind == "suspect":
        return at + (reason if reason.startswith("rank") else f"rank {event.rank}: {reason}")
    if event.kind in MEMBERSHIP:
        return at + membership(event)
    if event.kind == "checkpoint_failed":
        return f"{at}no checkpoint: {reason}"
    if event.kind == "skipped":
        return f"{at}update skipped, it was not finite{_on_ranks(event.data.get('ranks'))}"
    return f"{at}{reason}"


def changed(event: Event) -> str:
    """The sentence for an event of the kind `changed`: a setting of a resumed run."""
    was, now = (
        number(value) if isinstance(value, float) else clean(value)
        for value in (event.data.get("was"), event.data.get("now"))
    )
    return f"step {event.step}: {clean(event.data.get('setting'))} is {now} from here on; it was {was}"


def membership(event: Event) -> str:
    """The sentence for an event of one of the kinds in MEMBERSHIP."""
    reason = clean(event.data.get("reason", ""))
    if event.kind == "server_lost":
        return f"server {clean(event.data.get('server', ''))} {reason or 'is lost'}"
    if event.kind == "joined":
        return f"rank {event.rank} joined (host {clean(event.data.get('host', '?'))})"
    if event.kind == "left":
        return f"rank {event.rank} left"
    if event.kind == "spare":
        return f"rank {event.rank} is ready to take the place of a lost worker"
    if event.kind == "recovered":
        workers, where = event.data.get("workers"), clean(event.data.get("source", "?"))
        source = {"memory": "what these have in memory", "start": "step 0"}.get(where, "the newest checkpoint")
        spares = [f"rank {clean(rank)}" for rank in event.data.get("spares", ())]
        among = f", {' and '.join(spares)} among them as a spare" if spares else ""
        if joined := [f"rank {clean(rank)}" for rank in event.data.get("joined", ())]:
            among += f", {' and '.join(joined)} among them"
        if left := [f"rank {clean(rank)}" for rank in event.data.get("left", ())]:
            among += f", without {' and '.join(left)}, which left"
        lost = ", ".join(clean(rank) for rank in event.data.get("lost", ()))
        forgot = f"; what codecs had left out of earlier gradients of rank {lost} is lost" if lost else ""
        forgot = forgot if event.data.get("residuals") else ""
        return f"training goes on with {clean(workers)} worker{'s' * (workers != 1)}{among}, from {source}{forgot}"
    if event.kind == "balanced":
        samples, was = (", ".join(map(clean, event.data.get(name, ()))) for name in ("samples", "was"))
        return f"by their speed, workers have {samples} samples of each batch; before {was}"
    part = f" ({clean(event.data['part'])})" if "part" in event.data else ""
    return f"rank {event.rank}{part} {reason}; the run goes on without it"


def _on_ranks(ranks: object) -> str:
    if not isinstance(ranks, list) or not ranks:
        return ""
    return f" on rank{'s' * (len(ranks) > 1)} {', '.join(clean(rank) for rank in ranks)}"


def place(path: Path) -> str:
    """`path` as short as it can be written from here."""
    return shown(str(path))
