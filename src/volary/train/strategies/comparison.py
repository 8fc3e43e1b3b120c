"""The best tables of representations in turn: what a step really takes with each, and which of them stays."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from volary.exchange.choice.tables import CLEARLY, CLOSE
from volary.train.strategies.profile import WARM_STEPS

SETTLING_STEPS = WARM_STEPS + 1  # after a change: until the order in which its chunks travel is found
COUNTED_STEPS = 5
EACH = SETTLING_STEPS + COUNTED_STEPS
PAIR, QUAD = 2 * EACH, 3 * EACH + COUNTED_STEPS
PLAINLY = 0.9  # of a step: who needs less, in each of its counted steps, need not show it again
ALIKE = 1.1  # two factors by which steps took longer than expected: if no further apart, the estimates can be trusted


@dataclass
class Comparison:
    """Of some tables the first is in use, and is then compared with the others one by one; the quicker one stays.

    Both have a turn, first the one in use. Unless that is plain, the rival has another and then the one that was in
    use: what makes a machine slower by and by, or for a while, makes both slower. A rival has its turn if it is
    expected to be nearly as quick as any, or quicker than what is in use was seen to be; the third one only if one of
    the first two took longer than expected, beside the other.

    representations: by parameter, of each table. rows: of each, for people. expected_s: of a step with each, ascending
    but for the first. best, rival: their places; without a rival it is over. step_s: of the steps with these two.
    It is plain values and goes into checkpoints, so that a resumed run compares on.
    """

    representations: Sequence[dict[str, str]]
    rows: Sequence[Sequence[Sequence[Any]]]
    expected_s: Sequence[float]
    best: int = 0
    rival: int = 1
    step_s: list[float] = field(default_factory=list)

    def add(self, step_s: float) -> None:
        """Add the seconds of a step."""
        self.step_s.append(step_s)

    @property
    def now(self) -> int:
        """The place of the table that is in use from now on."""
        return self.rival if not self.over and EACH <= len(self.step_s) < PAIR + COUNTED_STEPS else self.best

    @property
    def over(self) -> bool:
        """Whether there is no rival left, so that `best` stays."""
        return self.rival >= len(self.representations)

    @property
    def asks(self) -> bool:
        """Whether enough steps were timed to compare the two."""
        return len(self.step_s) in (EACH, PAIR, QUAD)

    @property
    def compared(self) -> bool:
        """Whether both have been timed at least once."""
        return len(self.step_s) >= PAIR

    def verdict(self) -> tuple[int, int]:
        """The best and the rival from now on: other ones if these two have been compared."""
        own, others = self.counted()
        if not self.compared:
            return self.best, self._if_worth(self.rival, statistics.median(own))
        quicker, slower = sorted((own, others), key=statistics.median)
        plain = max(quicker) < min(slower) and statistics.median(quicker) < PLAINLY * statistics.median(slower)
        if len(self.step_s) == PAIR and not plain:
            return self.best, self.rival
        stays = self.rival if statistics.median(others) < CLEARLY * statistics.median(own) else self.best
        if self._as_expected(statistics.median(own), statistics.median(others)):
            return stays, len(self.representations)
        return stays, self._if_worth(self.rival + 1, statistics.median(others if stays == self.rival else own))

    def take(self, best: int, rival: int) -> None:
        """Take up what all ranks agreed on: the best and its rival."""
        if (best, rival) != (self.best, self.rival):
            last = self.rival if len(self.step_s) == PAIR else self.best
            # the turn that it has just had is its first one beside the next rival
            self.step_s = self.step_s[-EACH:] if best == last else []
            self.best, self.rival = best, rival

    def counted(self) -> tuple[list[float], list[float]]:
        """Seconds of the steps that count, of the best and of the rival."""
        own, others = self.step_s[SETTLING_STEPS:EACH], self.step_s[EACH + SETTLING_STEPS : PAIR + COUNTED_STEPS]
        return own + self.step_s[QUAD - COUNTED_STEPS : QUAD], others

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return asdict(self)

    def _as_expected(self, best_s: float, rival_s: float) -> bool:
        """Whether these steps were expected to take so long, beside each other."""
        best, rival = best_s / self.expected_s[self.best], rival_s / self.expected_s[self.rival]
        return max(best, rival) <= ALIKE * min(best, rival)

    def _if_worth(self, rival: int, seen_s: float) -> int:
        """The rival, if it could be quicker than what takes `seen_s`; else nobody is."""
        worth = rival < len(self.representations) and self.expected_s[rival] <= max(
            CLOSE * min(self.expected_s), seen_s
        )
        return rival if worth else len(self.representations)
