"""Averages that stand where weights do for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def swapped(swap: Callable[[], None]) -> Iterator[None]:
    """Call `swap`, which exchanges weights and averages, and once more in the end, whatever is raised between."""
    swap()
    try:
        yield
    finally:
        swap()
