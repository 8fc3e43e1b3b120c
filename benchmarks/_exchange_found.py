"""Questions of exchange.py to its ranks, and their measurements: both sides read and write them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import astuple, dataclass, field
from typing import Any

from volary.lab.network import rates
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

TURNS, CHOICES = "turns.json", "choices.json"  # among a run's results
CARRIED = 0.957  # of a link's rate is TCP payload, with frames of 1500 bytes


@dataclass(frozen=True)
class Effort:
    """rounds: of a turn each. trials: turns of each setting of a peer before one is chosen; 0: the first is.

    alone: rounds in which the loops without exchange have a turn too. turn_s: about how long a turn is; at least
    `steps` steps, but no more than fit into `longest_s`.
    """

    rounds: int
    trials: int
    alone: int
    turn_s: float
    steps: int
    longest_s: float

    def steps_in_turn(self, step_s: float) -> int:
        """The steps in a turn of a loop whose steps take so long; one or more."""
        return max(1, min(max(self.steps, round(self.turn_s / step_s)), int(self.longest_s / step_s)))


@dataclass(frozen=True)
class Turn:
    """A turn by the step. seconds: of the slowest rank, cpu_s: of all ranks together, sent_bytes: of the busiest link.

    payload_bytes: of what ours has sent, by its own account, on the host with the most. A turn ends when nothing is
    under way any more, and what it waits for at its end counts.
    """

    seconds: float
    cpu_s: float
    sent_bytes: float
    payload_bytes: float


@dataclass(frozen=True)
class Found:
    """Measurements of the ranks: the turns of each loop, round by round. theirs: by kind. alone: without exchange.

    peers: the quickest of each kind. tried: all that were, with the seconds of a step. ways: that ours chose last, with
    how many parameters' gradients take each.
    """

    ours: list[Turn]
    theirs: dict[str, list[Turn]]
    ours_alone: list[Turn]
    theirs_alone: list[Turn]
    peers: dict[str, str]
    tried: dict[str, float]
    ways: dict[str, int] = field(default_factory=dict)

    @property
    def compute_s(self) -> float:
        """Seconds of a step without exchange, all ranks at once: of the loop that is quicker at it."""
        return min(median(turns).seconds for turns in (self.ours_alone, self.theirs_alone) if turns)

    def limit_s(self, rate: str | None) -> float:
        """Seconds that what ours sends needs on a link of that rate; 0 without a limit."""
        bits_per_s = rates.parse(rate)
        return 0.0 if bits_per_s is None else 8 * median(self.ours).payload_bytes / (CARRIED * bits_per_s)

    @classmethod
    def read(cls, directory: RunDirectory) -> Found:
        """From what rank 0 wrote, and the run's events."""
        known: dict[str, Any] = json.loads((directory.results / TURNS).read_text(encoding="utf-8"))
        with RunReader(directory) as reader:
            tables = [event.data["table"] for event in reader.events(kind="ways")]
        known["ways"] = Counter(way for _, way, *_ in tables[-1]) if tables else {}
        turns = {name: _turns(known[name]) for name in ("ours", "ours_alone", "theirs_alone")}
        return cls(**(known | turns | {"theirs": {kind: _turns(each) for kind, each in known["theirs"].items()}}))


def median(turns: list[Turn]) -> Turn:
    """The median of each figure."""
    return Turn(*(statistics.median(figures) for figures in zip(*map(astuple, turns), strict=True)))


def _turns(known: list[dict[str, float]]) -> list[Turn]:
    return [Turn(**turn) for turn in known]
