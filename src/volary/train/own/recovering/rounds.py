"""The rounds of a loop of one's own: which is under way, which is left out, and when that is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from volary.train.own.recovering.round_before import RoundBefore

Position = tuple[int, int]  # a round, and how many of its steps have begun


class LoopRounds:
    """A round is of the iterations of the loop from one agreement of all workers to the next; they count from 1.

    With `consistency: bsp` it is of one step, else of the steps that workers take by themselves between two means.
    closed: those that are over. left_out: the newest of which nothing came; 0: there is none. All workers go through
    as many iterations of a round that is left out, so that what their code counts is alike.
    """

    def __init__(self) -> None:
        self.closed = self.left_out = 0
        self._begun = 0
        self._steps = self._made = 0  # of the round: begun, and made
        self._ends: dict[int, int] = {}  # rounds that are left out, once so many of their steps are made
        self._before: RoundBefore | None = None
        self._taken_back = True

    @property
    def under_way(self) -> bool:
        """Whether one has begun, and is not over."""
        return self._begun > self.closed

    @property
    def leaves_out(self) -> bool:
        """Whether the round that is under way, or the next one, is left out."""
        return self.closed < max(self._ends, default=0)

    @property
    def updates(self) -> bool:
        """Whether workers update by themselves in the round that is under way."""
        return self._before is not None and self._before.updates

    @property
    def through(self) -> bool:
        """Whether all steps of the round that is left out are made, of those that workers take by themselves."""
        return self.under_way and self._made == self._steps and self._made >= self._ends.get(self._begun, 0)

    @property
    def position(self) -> Position:
        """How far this worker is: others are to come as far before they go on with it."""
        return max([(self._begun, self._steps), *self._ends.items()])

    def begin(self, before: Callable[[], RoundBefore]) -> int:
        """An iteration may begin here: with a batch, or a backward pass. Returns its round.

        before: makes the state that a round begins with.
        """
        if not self.under_way:
            self.take_back()
            self._open(before())
        elif self._steps == self._made:
            self._steps += 1
        return self._begun

    def begin_without(self) -> None:
        """A step begins, without a batch or a backward pass before it."""
        if not self.under_way:
            self._open(None)

    def stepped(self) -> None:
        """A worker has made a step by itself."""
        self._made = self._steps

    def hold(self, optimizer: Optimizer) -> None:
        """Keep what an optimiser remembers, which is about to make its first step of the round."""
        if self._before is not None and self.under_way:
            self._before.hold(optimizer)

    def close(self) -> None:
        """The round that is under way counts."""
        self.closed = self._begun

    def go_on_from(self, closed: int) -> None:
        """Count so many rounds as over, which the others have made before this worker joins them."""
        self.closed = self._begun = closed

    def leave_out_to(self, position: Position) -> None:
        """Leave out the rounds up to this one, which is over with so many steps."""
        if position[0] > self.closed:
            self._ends[position[0]] = position[1]

    def leave_out(self) -> None:
        """The round is over, and nothing comes of it."""
        self.closed = self.left_out = self._begun
        self._taken_back = False
        if self._before is not None:
            self._before.take_back_model()

    def let_go(self) -> None:
        """Nothing is going to come of the round that is under way: models, and their optimisers, go on from before."""
        if self.under_way and self._before is not None:
            self._before.take_back_model()
            self._before.take_back_replicas()

    def regrouped(self) -> None:
        """Models have what they go on with in another group, also after the round that is under way."""
        if self.under_way and self._before is not None:
            self._before.go_on_with_now()

    def take_back(self) -> None:
        """If the newest round was left out, let the loop's values be as they were before it."""
        if not self._taken_back and self._before is not None:
            self._before.take_back()
        self._taken_back = True

    def stand(self) -> None:
        """A step is made of what was agreed on before the newest round, if that was left out: its schedules stand."""
        if not self._taken_back and self._before is not None:
            self._before.stand()

    def _open(self, before: RoundBefore | None) -> None:
        self._begun, self._steps, self._made, self._before = self._begun + 1, 1, 0, before
        self._ends = {number: steps for number, steps in self._ends.items() if number >= self._begun}
