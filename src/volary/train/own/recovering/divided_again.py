"""The rest of an epoch that the workers of a loop of one's own divide anew, once some of them are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.data.sharing.among import Batches, SharedData
    from volary.train.own.recovering.loop_members import LoopMembers


class EpochOrder:
    """The batches that all workers have of an epoch, which they keep: who is rank 0 now may draw others.

    of_first: gives all of them rank 0's, which are those of all once somebody has joined them.
    """

    def __init__(self, of_first: Callable[[Batches], Batches]) -> None:
        self._of_first = of_first
        self._known: list[Batches] = []
        self._place = self._agreed = 0

    def __call__(self, batches: Batches) -> Batches:
        """All workers' batches, where this one has drawn these."""
        if self._place == len(self._known):
            self._known.append(batches)
        if self._place == self._agreed:
            self._known[self._place] = self._of_first(self._known[self._place])
            self._agreed += 1
        self._place += 1
        return self._known[self._place - 1]

    def begin(self) -> None:
        """Forget the epoch before: another one begins."""
        self._known, self._place, self._agreed = [], 0, 0

    def rewind(self, *, with_others: bool) -> None:
        """The same epoch is gone through from its beginning. with_others: some of the workers do not know it yet."""
        self._place = 0
        if with_others:
            self._agreed = 0


class DividedAgain:
    """Divides the data of one feed again. divided: the data among the workers that there are. order: of its epochs."""

    def __init__(self, members: LoopMembers, order: EpochOrder, divided: Callable[[], SharedData]) -> None:
        self._members, self._order, self._divided = members, order, divided
        self._number, self._welcomed = members.members.number, members.welcomed
        self._round = self._given = self._seen = 0  # of the loop, with what was given out and seen before it

    def due(self) -> bool:
        """Whether the batches that follow are to be divided anew, or given again."""
        other = self._members.members.number != self._number
        return self._left_out or (other and not self._members.leaves_out)

    @property
    def _left_out(self) -> bool:
        """Whether nothing came of the newest batches."""
        return 0 < self._round == self._members.left_out

    def note(self, round_: int, given: int, seen: int) -> None:
        """A batch is given out in this round of the loop. given, seen: batches of the epoch, and samples, before"""
        if round_ != self._round:
            self._round, self._given, self._seen = round_, given, seen

    def place(self, given: int, seen: int) -> tuple[int, int]:
        """The same of what counts, where so much was given out and seen."""
        return (self._given, self._seen) if self._left_out else (given, seen)

    def begin_epoch(self, shared: SharedData) -> SharedData:
        """The data of an epoch that begins; `shared`: as it was divided before."""
        self._order.begin()
        self._round, self._welcomed = 0, self._members.welcomed
        return shared if self._members.members.number == self._number else self.again()

    def again(self) -> SharedData:
        """The data among the workers that there are now."""
        self._number, self._round = self._members.members.number, 0
        self._order.rewind(with_others=self._members.welcomed > self._welcomed)
        self._welcomed = self._members.welcomed
        return self._divided()

    def take_back(self) -> None:
        """Let the loop be as it was before what is given again."""
        self._members.take_back()
