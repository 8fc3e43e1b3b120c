"""Calls of a store that fail are made again, with growing pauses, up to a bound; what was made again is counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # before each further try: a store that restarts is back within them
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError)
_LOG = logging.getLogger("volary.storage")


class Retries:
    """How often this process had to ask a store again. pauses_s: before each further try of one call."""

    def __init__(self, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self.pauses_s, self.count = pauses_s, 0
        self._lock = threading.Lock()

    def call(self, what: str, attempt: Callable[[], T]) -> T:
        """Return what `attempt` gives. what: the path, for the log.

        Raises what `attempt` raises at once if a further try cannot help, else OSError when the tries are used up.
        """
        for pause_s in self.pauses_s:
            try:
                return attempt()
            except _LASTING:
                raise
            except Exception as problem:  # libraries of stores raise whatever they like
                self.failed(what, problem, pause_s)
                time.sleep(pause_s)
        try:
            return attempt()
        except _LASTING:
            raise
        except Exception as problem:
            tries, waited_s = len(self.pauses_s) + 1, sum(self.pauses_s)
            raise OSError(
                f"{what}: the store failed {tries} times in {waited_s:g} s ({cause_of(problem)})"
            ) from problem

    def failed(self, what: str, problem: Exception, pause_s: float) -> None:
        """Note a try that failed and is made again after a pause."""
        with self._lock:
            self.count += 1
        _LOG.warning("%s: %s; asked again in %g s", what, cause_of(problem), pause_s)


def cause_of(problem: Exception) -> str:
    """The problem in one line of at most 200 characters."""
    return " ".join(str(problem).split())[:200] or type(problem).__name__


RETRIES = Retries()
