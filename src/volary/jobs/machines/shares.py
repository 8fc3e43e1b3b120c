"""Fair shares of one machine between its users, each of whom has a queue and a runner of his own: decided, without I/O.

Users who have runs or want some have equal shares of the cores. Whoever has fewer cores goes first, and then who waits
longer: a runner leaves what the first run of each such user wants (max-min fairness, one run after the other). A user
with more than his share gives way to one who would not have more than his own; each run has its time before.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from volary.jobs.entry import Capacity, Claim, Demand, QueueEntry

SLICE_S = 600.0  # of a run, before it gives way to another user's


class RunningHere(msgspec.Struct, frozen=True):
    """A run that is underway: its driver, since when, and what it has of this machine."""

    pid: int
    started_s: float
    cores: tuple[int, ...]
    memory_bytes: int


class Notice(msgspec.Struct, frozen=True):
    """The account that a user's runner, process `pid`, gives of him. wants: of his first run that waits for room here.

    since_s: since when he waits for his turn, in seconds since `boot`, a start of the machine: since a run of his
    started last.
    """

    user: int
    pid: int
    boot: str
    running: tuple[RunningHere, ...] = ()
    wants: Demand | None = None
    since_s: float = 0.0

    @property
    def cores(self) -> int:
        """How many he has."""
        return sum(len(one.cores) for one in self.running)


def notice_of(entries: Sequence[QueueEntry], capacity: Capacity, before: Notice) -> Notice:
    """A runner's account of its queue. before: who gives it, and since when he waits if no run has started since.

    For a run that waits for GPUs no cores are kept.
    """
    here = [one for one in entries if one.state != "waiting" and one.given and not one.given.host]
    running = tuple(
        RunningHere(one.pid, one.started_s, one.given.cores, one.demand.memory_bytes) for one in here if one.given
    )
    open_ = {one.run for one in entries}
    able = [one for one in entries if one.state == "waiting" and not one.held and not open_.intersection(one.after)]
    able = [one for one in able if one.demand.gpus <= capacity.usable.gpus and not capacity.refusal(one.demand)]
    first = min(able, key=lambda one: one.order, default=None)
    wants = None if first is None else Demand(first.demand.cores, first.demand.memory_bytes)
    since_s = max([before.since_s, *(one.started_s for one in running)])
    return msgspec.structs.replace(before, running=running, wants=wants, since_s=since_s)


def beside(capacity: Capacity, mine: Notice, others: Sequence[Notice]) -> Capacity:
    """The room that is left of the machine beside other users, and the room kept for them."""
    running = [one for notice in others for one in notice.running]
    theirs = {core for one in running for core in one.cores} - {core for one in mine.running for core in one.cores}
    return msgspec.structs.replace(
        capacity,
        used_cores=tuple(core for core in capacity.cores if core in theirs or core in capacity.used_cores),
        used_bytes=sum(one.memory_bytes for one in running),
        claims=claims_of(mine, others, len(capacity.cores)),
    )


def claims_of(mine: Notice, others: Sequence[Notice], cores: int) -> tuple[Claim, ...]:
    """The room that `mine` keeps of a machine with so many cores for others, in their order."""
    active = [one for one in others if one.running or one.wants]
    share = cores / (1 + len(active))
    found = []
    for one in sorted(active, key=_order):
        if one.wants is not None and (mine.wants is None or _order(one) < _order(mine)):
            entitled = one.cores + one.wants.cores <= max(1, share)
            found.append(Claim(one.user, one.wants, gives_way=entitled and mine.cores > share))
    return tuple(found)


def _order(notice: Notice) -> tuple[int, float, int]:
    return notice.cores, notice.since_s, notice.user
