"""The cores that this process may use, and how several processes share them."""

from __future__ import annotations

import os


def cores_here() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share_of(cores: list[int], number: int, processes: int) -> list[int]:
    """The cores of process `number`: an even cut, or one core each in turn if there are more processes than cores."""
    if processes >= len(cores):
        return [cores[number % len(cores)]]
    return cores[number * len(cores) // processes : (number + 1) * len(cores) // processes]
