"""Bulk synchronous parallel (Valiant 1990): every step waits for every worker's contribution."""

from __future__ import annotations

from dataclasses import dataclass

from volary.consistency._base import Consistency


@dataclass(frozen=True, kw_only=True)
class Bsp(Consistency):
    """All workers finish a step together: n workers at a global batch equal one worker at that batch."""


CONSISTENCY = Bsp
