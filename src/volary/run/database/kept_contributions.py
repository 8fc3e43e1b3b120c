"""The contributions of workers that a checkpoint of servers has: their rows stay when a run resumes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KeptContributions:
    """by_worker: the number of the newest that it has, by rank. before: that of all others, from before servers."""

    by_worker: Mapping[int, int]
    before: int

    @property
    def of_first(self) -> int:
        """The newest number of the worker that looks at parameters for all: histograms are of its contributions."""
        return self.by_worker.get(0, self.before)

    @property
    def limit(self) -> str:
        """The newest number of a row's worker, in SQL."""
        cases = " ".join(f"WHEN {rank} THEN {number}" for rank, number in self.by_worker.items())
        return f"CASE rank {cases} ELSE {self.before} END" if cases else str(self.before)
