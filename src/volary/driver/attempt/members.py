"""Who trains together in a run whose workers keep step: a plain state machine of losses, joins and leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from volary.driver.tasks.task import task_of
from volary.errors import VolaryError
from volary.run.control.requests import ChangeMembers
from volary.run.directory import RunDirectory
from volary.run.launch.members import GroupMembers, first_number
from volary.session.values.worker_range import WorkerRange


class TrainingMembers:
    """now: the members. A loss changes them at once. Joins and leaves do where all pause, between two contributions.

    For these `ChangeMembers` are asked of the members, the newest of which all of them carry out after the same step;
    the first one that says that it has paused is answered with who follows. leaving: ranks that were asked to leave.
    between: as of `Rules`. spares_join: between two contributions, too, and not at once for a lost worker.
    """

    def __init__(self, ranks: Sequence[int], between: WorkerRange | None = None, *, spares_join: bool = False) -> None:
        self._between, self._spares_join = between, spares_join
        self._missing = 0  # that were lost, and in whose places spares are to join
        self._filling: list[int] = []  # spares that are ready to
        self.now = GroupMembers(tuple(ranks))
        self.leaving: list[int] = []
        self._ready: list[int] = []  # that have joined the run, and train from the next change on
        self._asked: ChangeMembers | None = None

    def take_over(self, ranks: Sequence[int], attempt: int) -> None:
        """Take these for the members from now on, as this attempt's driver takes the place of a lost one."""
        self.now, self._asked = GroupMembers(tuple(ranks), first_number(attempt)), None

    def why_not_leave(self, rank: int) -> str:
        """A sentence why a rank cannot be asked to leave; empty if it can."""
        if rank not in self.now.ranks:
            return f"rank {rank} does not train in this run; these do: {', '.join(map(str, sorted(self.now.ranks)))}"
        if rank in self.leaving:
            return f"rank {rank} was asked before, and leaves"
        return too_few(rank, len(self.now.ranks) - len(self.leaving) - 1, self._between)

    def leave(self, rank: int) -> None:
        """Let a rank, which can (`why_not_leave`), leave with the next change."""
        self.leaving.append(rank)

    def ready(self, ranks: Collection[int], spares: Sequence[int] = ()) -> None:
        """Note all that have joined the run, and are ready to train; and spares that are."""
        self._filling = [rank for rank in spares if rank not in self.now.ranks][: self._missing]
        self._ready = [*self._filling, *(rank for rank in ranks if rank not in self.now.ranks)]

    def request(self) -> ChangeMembers | None:
        """The request to pass on to the members; None: nothing is to be asked, or it was.

        Once for each change, and again if others are to leave or join with it: only who has handed over what it has can
        leave, and those that follow connect meanwhile.
        """
        if not (self._ready or self.leaving):
            return None
        following = self.now.changed(self.leaving, self._ready).ranks
        asked = self._asked
        if asked is not None and set(self.leaving) <= set(asked.leaving) and set(following) <= set(asked.following):
            return None
        self._asked = ChangeMembers(self.now.number, tuple(self.leaving), following)
        return self._asked

    def lose(self, gone: Collection[int], spares: Sequence[int]) -> bool:
        """Note who is gone; whether that changes the members. spares: those that are ready to take a lost one's place.

        If all that are left were asked to leave, they stay: somebody has to train.
        """
        if self._spares_join:
            self._missing += len(set(self.now.ranks).intersection(gone))
            spares = ()
        self.leaving = [rank for rank in self.leaving if rank not in gone]
        self._ready, self._filling = (
            [rank for rank in ranks if rank not in gone] for ranks in (self._ready, self._filling)
        )
        if not set(self.now.ranks).intersection(gone):
            return False
        self.now, self._asked = self.now.without(gone, spares), None
        if set(self.now.ranks) <= set(self.leaving):
            self.leaving.clear()
        return True

    def paused(self, done: ChangeMembers) -> bool:
        """The members have paused, and done what this request asks, as one of them says; whether others follow now."""
        if self._asked is None or done.number != self._asked.number:
            return False
        self.leaving = [rank for rank in self.leaving if rank not in done.leaving]
        self.now, self._asked = self.now.changed(done.leaving, self._ready), None
        self._missing -= len(self._filling)
        self._ready, self._filling = [], []
        return True


def too_few(rank: int, left: int, between: WorkerRange | None) -> str:
    """A sentence why a rank cannot leave, after which so many would be left; empty if it can."""
    if not left:
        return f"rank {rank} is the last one; accepted: volary stop, which ends the run"
    if between is not None and left < between.fewest:
        return f"{left + 1} worker{'s train' if left else ' trains'}, and strategy.workers is {between}"
    return ""


def too_many(now: int, workers: int, between: WorkerRange | None) -> str:
    """A sentence why so many workers cannot join those that there are now; empty if they can."""
    if between is not None and now + workers > between.most:
        return f"{now} worker{'s train' if now > 1 else ' trains'}, and strategy.workers is {between}"
    return ""


def why_not_more(directory: RunDirectory, now: int, workers: int) -> str:
    """A sentence why the run's session cannot be trained with so many workers more; empty if it can."""
    try:
        task_of(directory, [f"strategy.workers={now + workers}"])
    except VolaryError as error:
        return f"{now} workers train, and with {now + workers} {error}"
    return ""
