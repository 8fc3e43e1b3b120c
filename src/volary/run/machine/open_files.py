"""The limit on files and connections that this process may have open at once."""

from __future__ import annotations

import contextlib
import resource

BESIDES = 256  # files and connections that do not depend on how many take part in a run


def allow_connections(count: int) -> None:
    """Raise this process's own limit where so many connections would pass it, as far as the system lets it."""
    wanted = count + BESIDES
    own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if own == resource.RLIM_INFINITY or own >= wanted:
        return
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
