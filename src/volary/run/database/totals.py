"""Totals of a whole run, over all its restarts and workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Totals:
    """samples, and bytes that workers sent and received. busy_s: seconds of steps, mean of the workers."""

    samples: int
    sent_bytes: int
    received_bytes: int
    busy_s: float

    @property
    def samples_per_s(self) -> float | None:
        """Samples of all workers per second of training; None before the first step."""
        return self.samples / self.busy_s if self.busy_s else None
