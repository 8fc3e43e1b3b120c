"""A server process beside a worker: its child, which ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.train.process import Membership

END_WITHIN_S = 10.0  # after the run: servers write and say goodbye themselves


@contextmanager
def server_beside(member: Membership) -> Iterator[None]:
    """Start server number `rank`, and see it end. From the main thread: the child dies with the thread it came from."""
    place = member.place
    settings = {
        "VOLARY_SERVER": place.rank,
        "VOLARY_ADDRESS": place.address,
        "VOLARY_RUN": member.directory.path,
        "VOLARY_MEET": f"{member.host}:{member.port}",
        "VOLARY_LIFE": place.life,
        "VOLARY_SERVER_LIFE": member.server_life,
        "VOLARY_DRIVER": os.getpid(),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "volary.serving"],
        env=os.environ | {name: str(value) for name, value in settings.items()},
        stdin=subprocess.DEVNULL,
    )
    try:
        yield
        child.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        child.kill()
        child.wait()
