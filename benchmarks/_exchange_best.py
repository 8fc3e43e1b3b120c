"""The rows `auto-best-...` of exchange.py: is what `codec: auto` chooses as quick as the best single choice would be?

A row for each of eight networks, at three rates, with loss and without: in one lab for each rate every codec has
trainings of its own, from their first step, in turn. Of auto's steps the first 8 to 29 are those in which it compares
its two best tables. The row's ratio is that of the worst case; all are printed. --quick takes limited links alone.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import _in_lab
from _exchange_cases import CHOSEN, NETWORKS, RATES, SINGLE, Case
from _exchange_found import CHOICES
from _report import Options, Row

QUICK: dict[str, Any] = {"rounds": 1, "steps": 100, "longest_s": 60.0}
FULL: dict[str, Any] = {"rounds": 3, "steps": 100, "longest_s": 60.0}


@dataclass(frozen=True)
class Compared:
    """The result of a case: seconds of a step with auto, and with the best single choice."""

    what: str
    auto_s: float
    best: str
    best_s: float

    @property
    def ratio(self) -> float:
        """Auto's / the best one's."""
        return self.auto_s / self.best_s


def compared(what: str, step_s: dict[str, list[float]]) -> list[Compared]:
    """For each kind of choice, from the seconds that each codec's trainings took a step."""
    medians = {name: statistics.median(each) for name, each in step_s.items()}
    found = []
    for kind, names in SINGLE.items():
        best = min(names, key=medians.__getitem__)
        found.append(Compared(f"{what}, {kind}", medians[f"auto {kind}"], best, medians[best]))
    return found


def answer(name: str, found: list[Compared]) -> Row:
    """The row: the worst case of those that are compared."""
    worst = max(found, key=lambda one: one.ratio)
    return Row(
        name=name,
        value=worst.auto_s,
        unit=f"s per step ({worst.what})",
        peer=worst.best,
        peer_value=worst.best_s,
        ratio=worst.ratio,
        wanted="at most 1.03",
        better="lower",
    )


def _row(name: str, settings: dict[str, Any], options: Options) -> Row:
    """The row of a network. Raises LabError."""
    found: list[Compared] = []
    for rate in [rate for rate in RATES if rate or not options.quick]:
        step_s = _measured(Case(**settings, rate=rate), QUICK if options.quick else FULL)
        print(f"{name}, {rate or 'unlimited'}:", _in_words(step_s))
        found += compared(rate or "unlimited", step_s)
    for one in found:
        print(f"  {one.what}: {one.ratio:.3f} (auto {one.auto_s:.3f} s, {one.best} {one.best_s:.3f} s)")
    return answer(name, found)


def _measured(case: Case, effort: dict[str, Any]) -> dict[str, list[float]]:
    singles = {name: name for names in SINGLE.values() for name in names}
    codecs = singles | {f"auto {kind}": codec for kind, codec in CHOSEN.items()}
    with tempfile.TemporaryDirectory() as folder:
        wanted = json.dumps(effort | {"codecs": codecs})
        directory = _in_lab.run(case.session(folder), case.rate, "_exchange_choices.py", wanted)
        found: dict[str, list[float]] = json.loads((directory.results / CHOICES).read_text(encoding="utf-8"))
    return found


def _in_words(step_s: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {statistics.median(each):.3f} s" for name, each in step_s.items())


ROWS: dict[str, Callable[[Options], Row]] = {
    f"auto-best-{network}": partial(_row, f"auto-best-{network}", settings) for network, settings in NETWORKS.items()
}
