"""The results of a sweep: its combinations from the best to the worst, over their seeds and folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from volary.errors import RunError
from volary.monitor.tables.comparison import compared
from volary.monitor.wording import clean, duration, number
from volary.run.sweep import Sweep
from volary.session.grid import FOLD, SEED

REPEATS = (SEED, FOLD)  # runs that differ in these alone measure one thing
NOT_BEGUN = "not begun"
_EARLY = "stopped early"


@dataclass(frozen=True)
class Combination:
    """Runs that differ in seed and fold alone. best: of each that measured something; states: of all, by name."""

    settings: dict[str, str]
    states: dict[str, str]
    metric: str
    best: tuple[float, ...]
    elapsed_s: tuple[float, ...]

    @property
    def unfinished(self) -> int:
        """How many of its runs have not come to the end that they were to have."""
        return sum(state != "finished" and not state.startswith(_EARLY) for state in self.states.values())

    @property
    def mean(self) -> float | None:
        """The mean of the best values; None if nothing was measured."""
        return mean(self.best) if self.best else None

    def as_dict(self) -> dict[str, Any]:
        """Return everything in plain values, for `--json`."""
        return asdict(self) | {"mean": self.mean, "deviation": stdev(self.best) if len(self.best) > 1 else None}


def combined(members: Mapping[str, Mapping[str, str]]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """By the settings of a combination the names of its runs."""
    grouped: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for member, values in members.items():
        settings = tuple((name, value) for name, value in values.items() if name not in REPEATS)
        grouped.setdefault(settings, []).append(member)
    return grouped


def combinations(sweep: Sweep) -> list[Combination]:
    """Combinations from the best to the worst, by the mean of best values; those that measured nothing come last."""
    found, signs = [], []
    for settings, members in combined(sweep.members).items():
        one, sign = _combination(sweep, dict(settings), members)
        found.append(one)
        signs.append(sign)
    measured = [place for place, one in enumerate(found) if one.mean is not None]
    order = sorted(measured, key=lambda place: -signs[place] * (found[place].mean or 0.0))
    return [found[place] for place in order] + [one for one in found if one.mean is None]


def table(found: Sequence[Combination]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows: what is varied, its runs' state, best value (and deviation over seeds and folds), and time."""
    settings = list(dict.fromkeys(name for one in found for name in one.settings))
    metric = next((one.metric for one in found if one.metric), "metric")
    seeds = max(len(one.states) for one in found)
    header = (
        *settings,
        "runs" if seeds > 1 else "state",
        f"best {clean(metric)}",
        *(["+-"] if seeds > 1 else []),
        "time",
    )
    return header, [
        (
            *(one.settings.get(name, "-") for name in settings),
            _states(one),
            number(one.mean) if one.mean is not None else "-",
            *([number(stdev(one.best)) if len(one.best) > 1 else "-"] if seeds > 1 else []),
            duration(mean(one.elapsed_s)) if one.elapsed_s else "-",
        )
        for one in found
    ]


def _states(one: Combination) -> str:
    states = list(one.states.values())
    if len(states) == 1:
        return states[0]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _combination(sweep: Sweep, settings: dict[str, str], members: Sequence[str]) -> tuple[Combination, int]:
    """And 1 if more is better, -1 if less."""
    states, best, elapsed_s, metric, sign = {}, [], [], "", 1
    early = sweep.stopped_early()
    for member in members:
        run = sweep.run(member)
        if run is None:
            states[member] = "refused" if sweep.log(member).exists() else NOT_BEGUN
            continue
        try:
            found = compared(run)
        except RunError:
            states[member] = "unreadable"
            continue
        is_early = member in early and found.state == "stopped"
        states[member] = f"{_EARLY} at {early[member]}" if is_early else found.state
        sign = 1 if found.higher_is_better else -1
        elapsed_s += [found.elapsed_s] if found.elapsed_s is not None else []
        for name, value in found.best.values.items() if found.best else ():
            metric = name
            best.append(value)
    return Combination(settings, states, metric, tuple(best), tuple(elapsed_s)), sign
