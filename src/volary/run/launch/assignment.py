"""What a driver says to processes that it has started, through their environment: only their user can read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from volary.errors import BadInput
from volary.run.launch.meeting import Meeting


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Which run a process takes part in.

    directory: the run's. meeting: where its server is. job: of a worker, as "module:function"
    (train/member/process.py).
    """

    directory: Path
    meeting: Meeting
    job: str = ""

    def variables(self) -> dict[str, str]:
        """For the environment of the processes."""
        return {
            "VOLARY_RUN": str(self.directory),
            "VOLARY_MEET": self.meeting.address,
            "VOLARY_LIFE": str(self.meeting.life),
            "VOLARY_SERVER_LIFE": self.meeting.server_life,
            "VOLARY_JOB": self.job,
        }

    @classmethod
    def found(cls, environment: Mapping[str, str]) -> Assignment | None:
        """The one that a driver gave to this process; None if no driver did. Raises BadInput if a part is missing."""
        if "VOLARY_RUN" not in environment:
            return None
        try:
            host, _, port = environment["VOLARY_MEET"].rpartition(":")
            life, server_life = int(environment["VOLARY_LIFE"]), environment["VOLARY_SERVER_LIFE"]
            return cls(
                directory=Path(environment["VOLARY_RUN"]),
                meeting=Meeting(host, int(port), life, server_life),
                job=environment["VOLARY_JOB"],
            )
        except KeyError as missing:
            raise BadInput(f"volary started this process, but its variable {missing.args[0]} is missing") from None
        except ValueError as error:
            raise BadInput(f"volary started this process, but not with whole numbers: {error}") from None
