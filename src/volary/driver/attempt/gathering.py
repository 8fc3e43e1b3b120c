"""Workers whose driver is lost come to the one that takes its place, and say who trained: a plain state machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from volary.driver.watching.failure_detector import FailureDetector
from volary.run.launch.members import GroupMembers, TrainingReport


class Gathering:
    """Lasts until all have come that trained, by the newest that any of them knows, or for `give_up_after_s`.

    watch: of the new driver; begun_with: the ranks that the run began with. requests: what workers were asked so far.
    """

    def __init__(self, watch: FailureDetector, begun_with: Sequence[int]) -> None:
        self._watch, self._begun_with = watch, begun_with
        self._members = GroupMembers((), -1)
        self._since: float | None = None
        self.requests: Sequence[Any] = ()

    def arrived(self, rank: int, report: TrainingReport) -> None:
        """A worker comes, and is known from now on."""
        if report.number > self._members.number:
            self._members = GroupMembers(report.ranks, report.number)
        if len(report.requests) > len(self.requests):
            self.requests = report.requests
        self._watch.take_in(rank)

    @property
    def _trained(self) -> Sequence[int]:
        return self._members.ranks or self._begun_with

    def over(self, now: float) -> bool:
        """Whether nobody else is waited for."""
        if self._since is None:
            self._since = now
        here = [rank for rank in self._trained if (one := self._watch.workers.get(rank)) is not None and one.pid]
        return len(here) == len(self._trained) or now - self._since > self._watch.rules.give_up_after_s

    def end(self) -> Sequence[int]:
        """The ranks that trained and have come; who trained and has not is lost, whoever else has not was so before."""
        workers, trained = self._watch.workers, self._trained
        self._watch.forget([rank for rank, one in workers.items() if not one.pid and rank not in trained])
        here = tuple(rank for rank in trained if rank in workers and workers[rank].pid and not workers[rank].goodbye)
        for rank in trained:
            if rank not in workers or not workers[rank].pid:
                self._watch.take_in(rank)
                limit_s = self._watch.rules.give_up_after_s
                self._watch.fell(rank, f"did not come to the new driver within {limit_s:.0f} s")
        return here
