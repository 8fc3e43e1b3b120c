"""The cores that this process may use, and how several processes share them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EACH = "VOLARY_CORES_EACH"  # told by whoever starts several workers on the same cores


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


@contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Give these cores to processes that start meanwhile, where the system assigns cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = cores_here()
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores_each(cores: list[int], processes: int) -> dict[str, str]:
    """The variable that tells each of so many processes how many of the `cores` it has."""
    return {EACH: f"{len(cores) / processes:g}"}


def own_cores() -> float:
    """How many cores this process has: less than one where more processes than cores share them."""
    return float(os.environ.get(EACH) or len(cores_here()))
