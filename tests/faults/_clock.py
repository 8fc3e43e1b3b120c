"""A clock that is set while processes run.

Nobody may set a machine's clock in a test. So every Python process that a test starts begins with a module that moves
what the system says of the time of day by what is in a file: runner, driver, workers, servers, and what they are forked
from.
"""

from __future__ import annotations

from pathlib import Path

DAY_S = 86_400.0
MOVED = """\
import time
from pathlib import Path

FILE, tell, tell_ns = Path({file!r}), time.time, time.time_ns


def ahead_s():
    return float(FILE.read_text() or 0)


time.time = lambda: tell() + ahead_s()
time.time_ns = lambda: tell_ns() + round(ahead_s() * 1e9)
"""


def jump(clock: Path, ahead_s: float) -> None:
    new = clock.with_name("new")
    new.write_text(str(ahead_s))
    new.replace(clock)
