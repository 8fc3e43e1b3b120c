"""Totals of a whole run, over all its restarts and workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Totals:
    """samples, and bytes that workers sent and received. busy_s: seconds in which steps were done, mean of the workers.

    wall_s: seconds from the start of each life to its last sign, evaluations and saving included.
    """

    samples: int
    sent_bytes: int
    received_bytes: int
    busy_s: float
    wall_s: float

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all workers per second of training; None before the first step."""
        return self.samples / self.busy_s if self.busy_s else None


OF_LIVES = "SELECT COALESCE(SUM(lasted), 0.0) FROM (SELECT MAX(at) - MIN(at) AS lasted FROM events GROUP BY life)"
