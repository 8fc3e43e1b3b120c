"""The two best tables of representations in turn: what a step really takes with each, and which of them stays."""

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
FIRST_LOOK = EACH + SETTLING_STEPS + 2  # at a rival, who may be so slow that more of its steps would be lost time
PLAINLY = 0.9  # of a step: who needs less, in each of its counted steps but one, need not show it again


@dataclass
class Comparison:
    """The first of two tables is in use, and is then compared with the second, its rival; the quicker one stays.

    Both have a turn; a rival whose first two steps that count are plainly slower has no more of it. If the rival is
    slower, as was expected, or one of them plainly quicker, that is all. Else the rival has another turn and then the
    one that was in use: what makes a machine slower by and by, or for a while, makes both slower. The rival has a turn
    if it is expected to be nearly as quick, or quicker than what is in use was seen to be.

    representations: by parameter, of each table. rows: of each, for people. expected_s: of a step with each. best: the
    place of the one that is in use, or stays. step_s: of the steps so far. It is plain values and goes into
    checkpoints, so that a resumed run compares on.
    """

    representations: Sequence[dict[str, str]]
    rows: Sequence[Sequence[Sequence[Any]]]
    expected_s: Sequence[float]
    best: int = 0
    over: bool = False
    step_s: list[float] = field(default_factory=list)

    def add(self, step_s: float) -> None:
        """Add the seconds of a step."""
        self.step_s.append(step_s)

    @property
    def now(self) -> int:
        """The place of the table that is in use from now on."""
        return 1 if not self.over and EACH <= len(self.step_s) < PAIR + COUNTED_STEPS else self.best

    @property
    def asks(self) -> bool:
        """Whether enough steps were timed for a verdict."""
        return len(self.step_s) in (EACH, FIRST_LOOK, PAIR, QUAD)

    def verdict(self) -> int | None:
        """The place of the table that stays; None if it takes more steps to know."""
        own, others = self.counted()
        if len(self.step_s) == FIRST_LOOK:
            return 0 if min(others) * PLAINLY > max(statistics.median(own), sorted(own)[-2]) else None
        if len(self.step_s) < PAIR:
            worth = self.expected_s[1] <= max(CLOSE * min(self.expected_s), statistics.median(own))
            return None if worth else 0
        own_s, rival_s = statistics.median(own), statistics.median(others)
        as_expected = own_s <= rival_s and self.expected_s[0] <= self.expected_s[1]
        if len(self.step_s) < QUAD and not (as_expected or _plain(own, others) or _plain(others, own)):
            return None
        return int(rival_s < CLEARLY * own_s)

    def take(self, stays: int | None) -> None:
        """Take up the verdict that all ranks agreed on."""
        if stays is not None:
            self.best, self.over = stays, True

    def counted(self) -> tuple[list[float], list[float]]:
        """Seconds of the steps that count, of the table that was in use and of its rival."""
        own, others = self.step_s[SETTLING_STEPS:EACH], self.step_s[EACH + SETTLING_STEPS : PAIR + COUNTED_STEPS]
        return own + self.step_s[QUAD - COUNTED_STEPS : QUAD], others

    def state(self) -> dict[str, Any]:
        """The plain values of it that a checkpoint keeps."""
        return asdict(self)


def _plain(quicker: Sequence[float], slower: Sequence[float]) -> bool:
    """Whether these steps are plainly quicker than those; a disturbed one on each side says nothing."""
    apart = sorted(quicker)[-2] < sorted(slower)[1]
    return apart and statistics.median(quicker) < PLAINLY * statistics.median(slower)
