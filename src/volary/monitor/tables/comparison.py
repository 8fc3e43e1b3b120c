"""Runs side by side: the settings that differ, their results, and their cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from volary.monitor.digest import Measurement, best_of, elapsed_s, known_number, steps_done
from volary.monitor.outline import own_loop, settings_in
from volary.monitor.wording import clean, duration, number, size, whole
from volary.run.database.reader import RunReader
from volary.run.database.totals import Totals
from volary.run.directory import RunDirectory

_NOT_COMPARED = ("run.",)  # the name and the folder always differ
NO_VALUE = "-"


@dataclass(frozen=True)
class Compared:
    """One run beside others. final: the newest value of every metric. training_loss: of the newest step."""

    name: str
    path: str
    state: str
    step: int
    workers: int
    settings: Mapping[str, str]
    training_loss: float | None
    final: Mapping[str, float]
    best: Measurement | None
    higher_is_better: bool
    elapsed_s: float | None
    totals: Totals

    def as_dict(self) -> dict[str, Any]:
        """Return everything in plain values, for `--json`."""
        return asdict(self) | {"samples_per_s": self.totals.samples_per_s}


def compared(directory: RunDirectory) -> Compared:
    """Read one run. Raises RunError if its database or its session cannot be read."""
    try:
        settings = settings_in(directory.session)
    except (OSError, ValueError) as error:
        raise directory.unreadable(directory.session, error) from None
    with RunReader(directory) as reader:
        info, state, window = reader.info(), reader.state(), reader.window()
        return Compared(
            name=directory.name,
            path=str(directory.path),
            state=state,
            step=steps_done(info, state, reader.last_step()),
            workers=int(known_number(info, "workers") or 1),
            settings=settings,
            training_loss=window.loss if window and not own_loop(settings) else None,
            final={name: pairs[-1][1] for name, pairs in reader.metrics().items()},
            best=best_of(info),
            higher_is_better=info.get("higher_is_better") != "False",
            elapsed_s=elapsed_s(reader, info, state, time.time()),
            totals=reader.totals(),
        )


def differing(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str | None]]:
    """The values of each setting that differs in `settings`, by name; None for settings without it."""
    names = dict.fromkeys(name for one in settings for name in one if not name.startswith(_NOT_COMPARED))
    found = {name: [one.get(name) for one in settings] for name in names}
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


def table(runs: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Rows of a label and what each run has there: settings that differ, then results, then what they took."""
    rows = [
        (name, *(clean(value) if value is not None else NO_VALUE for value in values))
        for name, values in differing([run.settings for run in runs]).items()
    ]
    rows += [("state", *(run.state for run in runs)), ("steps", *(str(run.step) for run in runs))]
    rows += [("training loss", *(_number(run.training_loss) for run in runs))]
    for metric in sorted({metric for run in runs for metric in whole(run.final)}):
        label = metric if any(own_loop(run.settings) for run in runs) else f"validation {metric}"
        rows.append((clean(label), *(_number(run.final.get(metric)) for run in runs)))
    rows += [
        ("best", *(_best(run.best) for run in runs)),
        ("time", *(_duration(run.elapsed_s) for run in runs)),
        ("samples/s", *(_number(run.totals.samples_per_s) for run in runs)),
        ("sent by all workers", *(size(run.totals.sent_bytes) for run in runs)),
        ("of that a step", *(size(run.totals.sent_bytes / max(1, run.step)) for run in runs)),
    ]
    return [row for row in rows if any(cell != NO_VALUE for cell in row[1:])]


def _number(value: float | None) -> str:
    return NO_VALUE if value is None else number(value)


def _duration(seconds: float | None) -> str:
    return NO_VALUE if seconds is None else duration(seconds)


def _best(best: Measurement | None) -> str:
    if best is None:
        return NO_VALUE
    return ", ".join(f"{clean(name)} {number(value)} at {best.step}" for name, value in best.values.items())
