"""How many readers serve best: found by hill climbing, from how long batches take while the consumer waits for them.

A disk with a queue and a store far away want many requests at a time; a disk with one head, and threads that wait for
the interpreter's lock, want few. Half as many as now are tried, then twice as many, each turn between two with as many
as now, so that what slows the machine down meanwhile slows down both. When neither is better, the number is settled. It
has no part in which sample comes when: readers bring what others decode.
"""

from __future__ import annotations

import statistics

FIRST, MOST = 8, 32
GAIN = 1.1  # by which a turn with another number must be better than those beside it, to be won
WINS = 2  # until another number is taken; or as many turns lost, until it is given up
TURN_S = 0.1  # at least
WAITED = 0.1  # of a turn: a consumer that waits for less than that is slower than storage


class ReaderCount:
    """`number` is how many readers to work with now. why: what they come to, once it is settled; empty before."""

    def __init__(self, window: int) -> None:
        """window: samples of which storage reads the first ones slower than the others; a turn has a multiple."""
        self.number, self.why = FIRST, ""
        self._window = window
        self._found: dict[int, list[float]] = {}  # seconds a sample, in the turns of each number
        self._best, self._other = FIRST, FIRST // 2
        self._turns: list[float] = []  # of the comparison at hand: with the best number, the other, the best, ...
        self._won = self._lost = 0
        self._started = False
        self._begin_turn()

    def took(self, seconds: float, waited_s: float, samples: int, readers: int) -> None:
        """The consumer has taken a batch so long after the one before, and had to wait so much of that.

        readers: how many there were when the batch began.
        """
        if self.why or readers != self.number:
            return
        self._seconds += seconds
        self._waited_s += waited_s
        self._samples += samples
        if self._samples >= self._until:
            self._until += self._window
            if self._seconds >= TURN_S:
                self._end_turn()

    def _begin_turn(self) -> None:
        self._samples, self._until, self._seconds, self._waited_s = 0, self._window, 0.0, 0.0

    def _end_turn(self) -> None:
        took, counts = self._seconds / self._samples, self._waited_s >= WAITED * self._seconds
        self._begin_turn()
        if not self._started:
            self._started = True  # the first turn was also the start of those who decode
        elif counts:
            self._turns.append(took)
            self._found.setdefault(self.number, []).append(took)
            self.number = self._other if len(self._turns) % 2 else self._best
            if len(self._turns) % 2 and len(self._turns) > 1:
                self._compare(*self._turns[-3:])

    def _compare(self, before: float, other: float, after: float) -> None:
        """A turn with the other number, and those with the best one before and after it."""
        better = GAIN * other < min(before, after)
        self._won, self._lost = self._won + better, self._lost + (not better)
        downwards = self._other < self._best
        if self._won == WINS:
            self._best = self._other
            self._try_next(self._best // 2 if downwards else 2 * self._best)
        elif self._lost == WINS:
            self._try_next(2 * FIRST if downwards and self._best == FIRST else 0)

    def _try_next(self, number: int) -> None:
        self._other, self._won, self._lost, self._turns = number, 0, 0, []
        self.number = self._best
        if not 1 <= number <= MOST:
            takes = {tried: f"{1e6 * statistics.median(turns):.3g} us" for tried, turns in sorted(self._found.items())}
            others = " and ".join(f"{time} with {tried}" for tried, time in takes.items() if tried != self._best)
            self.why = f"a sample takes {takes[self._best]}, {others}"
