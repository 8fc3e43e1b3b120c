"""Each worker's report of its own end. An engine's exit code is not the verdict; no verdict means lost."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from volary.run.disk import Disk, replace_file

Outcome = Literal["finished", "stopped", "left", "failed", "refused", "peer_lost"]

ENDED_WELL: tuple[Outcome, ...] = ("finished", "stopped", "left")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A worker's own account of how it ended.

    outcome: finished; stopped (asked to, with a checkpoint); left (by choice, the run continues); failed (its code
    raised); refused (bad input, found before the first step); peer_lost (the exchange broke because another rank went).
    step: steps completed. phase: what it was in. reason: one sentence. place: the innermost frame of the user's own
    code, if that raised; it is in the reason too. frames: theirs, and how many others. exit_code: that the command
    should give for it. status: a program's own, if it ended by `sys.exit`.
    """

    rank: int
    outcome: Outcome
    step: int
    attempt: int = 0
    phase: str = ""
    reason: str = ""
    place: str = ""
    frames: tuple[str, ...] = ()
    exit_code: int = 0
    status: int | None = None
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)

    @property
    def ended(self) -> str:
        """A sentence that it ended, and why if it said so."""
        return f"ended: {self.reason}" if self.reason else "ended without reporting a reason"

    def write(self, folder: Path, disk: Disk | None = None) -> None:
        """Write this verdict to `folder`, replacing that of an earlier attempt."""
        replace_file(disk or Disk(), folder / f"rank-{self.rank}.json", msgspec.json.encode(asdict(self)))


def read_verdict(folder: Path, rank: int, attempt: int) -> Verdict | None:
    """The verdict of `rank` in this attempt of its run; None if it left none, or an unreadable one."""
    try:
        content = (folder / f"rank-{rank}.json").read_bytes()
        found = msgspec.json.decode(
            content.replace(b'"life":', b'"attempt":', 1), type=Verdict
        )  # older runs have a life
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
    return found if found.attempt == attempt else None
